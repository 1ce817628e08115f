"""Small real wheels and real ELF files for the audit's tests."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import stat
import struct
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.audit.audit import Rules, Terms, load_rules
from builder.audit.audit import audit_wheel as audit
from builder.audit.environment import marker_environment
from builder.audit.values import TargetAudit

TAG = "cp311-cp311-manylinux_2_17_x86_64"
RUNTIME_MARK = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One archive member; two of one name make a duplicate."""

    name: str
    data: bytes
    mode: int = 0o644
    symlink: bool = False
    stored: bool = False


def wheel(
    folder: Path,
    name: str,
    files: Mapping[str, bytes] | Iterable[Entry],
    *,
    version: str = "1.0",
    tag: str = TAG,
    requires: Iterable[str] = (),
    record: str | None = None,
) -> Path:
    """A wheel of these members, with METADATA, WHEEL, and a RECORD that is right unless `record` is given."""
    stem = name.replace("-", "_")
    path = folder / f"{stem}-{version}-{tag}.whl"
    entries = (
        [Entry(name=key, data=value) for key, value in files.items()] if isinstance(files, Mapping) else list(files)
    )
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    entries.append(Entry(name=f"{stem}-{version}.dist-info/METADATA", data="\n".join(lines).encode()))
    entries.append(Entry(name=f"{stem}-{version}.dist-info/WHEEL", data=f"Wheel-Version: 1.0\nTag: {tag}\n".encode()))
    named = f"{stem}-{version}.dist-info/RECORD"
    if named not in {entry.name for entry in entries}:
        right = "".join(f"{entry.name},{_hashed(entry.data)},{len(entry.data)}\n" for entry in entries)
        entries.append(Entry(name=named, data=(f"{right}{named},,\n" if record is None else record).encode()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            info = zipfile.ZipInfo(entry.name, (2020, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = ((stat.S_IFLNK if entry.symlink else stat.S_IFREG) | entry.mode) << 16
            info.compress_type = zipfile.ZIP_STORED if entry.stored else zipfile.ZIP_DEFLATED
            archive.writestr(info, entry.data)
    return path


def _hashed(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def judged(path: Path, backend: str = "cpu", *, rules: Rules | None = None) -> TargetAudit:
    """The audit of one wheel for CPython 3.11 on x86_64."""
    return audit(
        path,
        path.name,
        Terms(backend=backend, environment=marker_environment("3.11", "x86_64")),
        store=None,
        rules=rules or load_rules(),
    )


def gcc() -> str:
    """The C compiler, or a skip with the reason."""
    found = shutil.which("gcc")
    if found is None:
        if os.environ.get("CI"):
            raise AssertionError("CI must have gcc")
        pytest.skip("no gcc on this machine")
    return found


def patchelf(*arguments: str | Path) -> None:
    """Run patchelf, or skip with the reason."""
    found = shutil.which("patchelf")
    if found is None:
        if os.environ.get("CI"):
            raise AssertionError("CI must have patchelf")
        pytest.skip("no patchelf on this machine")
    subprocess.run([found, *map(str, arguments)], check=True)


def library(
    folder: Path,
    name: str,
    *,
    code: str = "int here(void) { return 1; }",
    soname: str | None = None,
    needs: Iterable[str] = (),
    options: Iterable[str] = (),
) -> Path:
    """A shared library made by gcc; `needs` are SONAMEs of empty stand-ins it is linked with."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{name}.c"
    source.write_text(code)
    stands = [stand_in(folder / "stands", needed) for needed in needs]
    path = folder / name
    subprocess.run(
        [
            gcc(),
            "-shared",
            "-fPIC",
            "-o",
            str(path),
            *([f"-Wl,-soname,{soname}"] if soname else []),
            str(source),
            "-Wl,--no-as-needed",
            *map(str, stands),
            *options,
        ],
        check=True,
    )
    return path


def stand_in(folder: Path, soname: str) -> Path:
    """An empty library that is linked for its SONAME alone."""
    path = folder / soname
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "empty.c"
        source.write_text("")
        subprocess.run([gcc(), "-shared", "-o", str(path), f"-Wl,-soname,{soname}", str(source)], check=True)
    return path


def without_sections(data: bytes) -> bytes:
    """A 64-bit ELF file whose section header table is cut off (e_shoff = e_shnum = e_shstrndx = 0)."""
    shoff = struct.unpack_from("<Q", data, 40)[0]
    head = bytearray(data[:shoff] if 0 < shoff <= len(data) else data)
    struct.pack_into("<Q", head, 40, 0)
    struct.pack_into("<HHH", head, 58, 0, 0, 0)
    return bytes(head)


def fatbin(*targets: str, payload: int = 256, compressed: bool = False) -> bytes:
    """A fat binary with one entry a target (`sm_90a`, `compute_120`), in the layout nvcc 13.0 writes."""
    body = b""
    for target in targets:
        prefix, _, number = target.partition("_")
        digits = number.rstrip("af")
        flags = 0x11 | (0x100000 if number.endswith("a") else 0x200000 if number.endswith("f") else 0)
        flags |= 0x8000 if compressed else 0
        kind = {"sm": 2, "compute": 1}[prefix]
        body += struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, payload, 0, 0, 1, 8, int(digits), 0, 0, flags, 0, 0)
        # A payload full of what a search would fall for.
        body += (b"\x7fELF\x02\x01\x01" + RUNTIME_MARK + b"libcuda.so.1\0" * 4).ljust(payload, b"\xa5")[:payload]
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def bundle(*ids: str, payload: int = 64) -> bytes:
    """A plain clang offload bundle."""
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(ids))
    table = sum(24 + len(entry) for entry in ids)
    offset = len(head) + table
    entries = b""
    for entry in ids:
        entries += struct.pack("<QQQ", offset, payload, len(entry)) + entry.encode()
        offset += payload
    return head + entries + b"\x5a" * (payload * len(ids))


def offload_binary(triple: str, arch: str) -> bytes:
    """One image in the container of clang's newer driver (LLVM, OffloadBinary.h, version 1)."""
    strings = b"\0triple\0" + triple.encode() + b"\0arch\0" + arch.encode() + b"\0"
    base = 32 + 48 + 32
    at = {word: base + strings.index(b"\0" + word + b"\0") + 1 for word in (b"triple", b"arch")}
    values = {key: place + len(key) + 1 for key, place in at.items()}
    pairs = struct.pack("<QQQQ", at[b"triple"], values[b"triple"], at[b"arch"], values[b"arch"])
    image = b"\x7fELF".ljust(256, b"\xa5")
    start = base + len(strings)
    entry = struct.pack("<HHIQQQQ", 1, 4, 0, 32 + 40, 2, start, len(image))
    body = entry + pairs
    body = body.ljust(48 + 32, b"\0") + strings + image
    return b"\x10\xff\x10\xad" + struct.pack("<IQQQ", 1, 32 + len(body), 32, len(entry)) + body


def as_c_array(data: bytes, *, section: str = ".nv_fatbin", name: str = "blob") -> str:
    """C source that puts bytes into a section of a library, aligned as compilers do."""
    values = ",".join(map(str, data))
    return (
        f'__attribute__((section("{section}"), used, aligned(16))) static const unsigned char {name}[] = {{{values}}};'
    )
