"""Small good inputs of every kind, made by code, from which a fuzzer starts."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import marshal
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import zstandard

from tests.audit.make import RUNTIME_MARK, bundle, fatbin, offload_binary, wheel

__all__ = ["archives", "device_code", "elf_files", "members", "metadata", "python_sources", "small_elf", "wheels"]


def small_elf(
    *, needed: bytes = b"libcudart.so.12", tail: bytes = b"", wide: bool = True, little: bool = True
) -> bytes:
    """A loadable library of a few hundred bytes: one PT_LOAD, one PT_DYNAMIC, a hash table, symbols, versions."""
    order = "<" if little else ">"
    word = "Q" if wide else "I"
    size = struct.calcsize(word)
    header_size, entry = (64, 56) if wide else (52, 32)
    names = b"\0" + needed + b"\0libkit.so\0cudaMalloc\0dlopen\0cudaStreamX\0GLIBC_2.17\0libc.so.6\0$ORIGIN/../x\0"
    place = {word: names.index(word) for word in names.split(b"\0") if word}
    strings = header_size + 2 * entry
    symbols = strings + len(names) + -len(names) % 8
    symbol_size = 24 if wide else 16
    table = b""
    for name in (b"", b"cudaMalloc", b"dlopen", b"cudaStreamX", b"libkit.so"):
        defined = int(name == b"libkit.so")
        at = place.get(name, 0)
        if wide:
            table += struct.pack(f"{order}IBBHQQ", at, 0x12, 0, defined, 0, 0)
        else:
            table += struct.pack(f"{order}IIIBBH", at, 0, 0, 0x12, 0, defined)
    hashes = symbols + len(table)
    chains = struct.pack(f"{order}II", 1, len(table) // symbol_size) + bytes(4 * 6)
    needs = hashes + len(chains)
    versions = struct.pack(f"{order}HHIII", 1, 1, place[b"libc.so.6"], 16, 0)
    versions += struct.pack(f"{order}IHHII", 0, 0, 2, place[b"GLIBC_2.17"], 0)
    versym = needs + len(versions)
    indexes = struct.pack(f"{order}5H", 0, 2, 2, 1, 1) + bytes(6)
    dynamic = versym + len(indexes)
    tags = [
        (1, place[needed]), (14, place[b"libkit.so"]), (29, place[b"$ORIGIN/../x"]), (4, hashes), (5, strings),
        (6, symbols), (10, len(names)), (11, symbol_size), (0x6FFFFFFE, needs), (0x6FFFFFFF, 1), (0x6FFFFFF0, versym),
        (0x7FFFFFFD, place[needed]), (0, 0),
    ]  # fmt: skip
    entries = b"".join(struct.pack(order + word * 2, *tag) for tag in tags)
    end = dynamic + len(entries) + len(tail)
    head = b"\x7fELF" + bytes([2 if wide else 1, 1 if little else 2, 1]) + bytes(9)
    head += struct.pack(f"{order}HHI{word * 3}I6H", 3, 62, 1, 0, header_size, 0, 0, header_size, entry, 2, 0, 0, 0)
    load = (1, 5, 0, 0, 0, end, end, 4096)
    dyn = (2, 6, dynamic, dynamic, dynamic, len(entries), len(entries), size)
    for kind, flags, offset, vaddr, paddr, filesz, memsz, align in (load, dyn):
        if wide:
            head += struct.pack(f"{order}IIQQQQQQ", kind, flags, offset, vaddr, paddr, filesz, memsz, align)
        else:
            head += struct.pack(f"{order}IIIIIIII", kind, offset, vaddr, paddr, filesz, memsz, flags, align)
    return head + names + bytes(-len(names) % 8) + table + chains + versions + indexes + entries + tail


def elf_files() -> Iterator[bytes]:
    """Both classes and byte orders, and one that carries everything."""
    for wide in (True, False):
        for little in (True, False):
            yield small_elf(wide=wide, little=little)
    text = b"libcuda.so.%d\0libnvidia-ml\0.so\0libm.so.6:libnccl.so.2\0/rustc/x libcuda.so.1:\0GetPjrtApi\0\0CDLL\0"
    yield small_elf(tail=text + RUNTIME_MARK + fatbin("sm_90a", payload=40) + bundle("x-amdgcn-amd-amdhsa--gfx942"))
    yield small_elf(tail=small_elf() + offload_binary("nvptx64-nvidia-cuda", "sm_70"))


def device_code() -> Iterator[bytes]:
    """Fat binaries, bundles plain and compressed, offload binaries."""
    yield fatbin("sm_80", "compute_90", payload=70)
    yield fatbin("sm_100f", compressed=True)
    plain = bundle("host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-")
    yield plain
    for packed, method in ((zlib.compress(plain), 0), (zstandard.compress(plain), 1)):
        yield b"CCOB" + struct.pack("<HHIQ", 1, method, len(plain), 0) + packed
        yield b"CCOB" + struct.pack("<HHIIQ", 2, method, len(packed) + 24, len(plain), 0) + packed
        yield b"CCOB" + struct.pack("<HHQQQ", 3, method, len(packed) + 32, len(plain), 0) + packed
    yield offload_binary("amdgcn-amd-amdhsa", "gfx1100")


def archives() -> Iterator[bytes]:
    """Every kind of archive and packed file."""
    content = small_elf()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/x", content)
        archive.writestr("b", b"text", zipfile.ZIP_STORED)
    yield out.getvalue()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("lib/x")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    for data in (out.getvalue(), content):
        yield data
        for pack in (gzip.compress, bz2.compress, lzma.compress, zstandard.compress, zlib.compress):
            yield pack(data)
        yield lzma.compress(data, format=lzma.FORMAT_ALONE)


def python_sources() -> Iterator[bytes]:
    """Ways to open libraries, and payloads."""
    yield b'import ctypes\nfor n in ("cuda", f"lib{x}"):\n    ctypes.CDLL("lib%s.so.%d" % (n, 1))\n'
    yield b'from ctypes import CDLL as c\nN = "".join(["lib", "cuda", ".so"])\nc(N)\ngetattr(c, "CDLL")(N)\n'
    yield b'import ctypes.util\nctypes.util.find_library("cudart")\nffi.set_source("_x", "", libraries=["cudart"])\n'
    yield b"import base64, zlib\nexec(zlib.decompress(base64.b64decode(%r)))\n" % base64.b64encode(
        zlib.compress(b"import ctypes\nctypes.CDLL('libcuda.so.1')\n")
    )
    yield b"import base64\nX = base64.b85decode(%r)\n" % base64.b85encode(small_elf())


def members() -> Iterator[bytes]:
    """Any of these as a member of a wheel, behind the byte that chooses its name."""
    for number, maker in enumerate((elf_files, python_sources, device_code, archives)):
        for data in maker():
            yield bytes([number]) + data
    yield (
        b"\x02\xa7\r\r\n"
        + bytes(12)
        + marshal.dumps(compile("import ctypes\nctypes.CDLL('libcuda.so.1')", "x", "exec"))
    )
    yield b"\x03import ctypes; ctypes.CDLL('libcuda.so.1')\n"
    yield b"\x05#!/bin/sh\nexit\n" + small_elf()
    yield b"\x04//\n.version 8.3\n.target sm_90\n"
    yield b"\x04" + struct.pack("<5I", 0x07230203, 0x00010000, 0, 8, 0) + struct.pack("<II", 2 << 16 | 17, 6)
    yield b"\x06" + base64.b64encode(small_elf())


def metadata() -> Iterator[bytes]:
    """METADATA, and a RECORD."""
    head = b"Metadata-Version: 2.1\nName: kit\nVersion: 1.0\n"
    lines = (
        b"nvidia-cublas-cu12 (>=12) ; extra == 'gpu' and sys_platform == \"linux\"", b"kit[gpu]", b"torch==2.3.0+cu121",
        b"torch @ https://x.org/torch-2.3.0%2Bcpu-cp311-cp311-linux_x86_64.whl", b"jax[cuda12]; 'a' == extra",
        b"numpy>=1.*; python_version in '3'",
    )  # fmt: skip
    yield head + b"".join(b"Requires-Dist: " + line + b"\n" for line in lines) + b"\nText.\n"
    yield b"kit/a.py,sha256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0,3\nkit/b.py,,\n"


def wheels() -> Iterator[bytes]:
    """Whole wheels, deflated and stored."""
    files = {
        "kit/x.so": small_elf(),
        "kit/__init__.py": next(python_sources()),
        "kit/k.bin": fatbin("sm_80", payload=70),
        "kit-1.0.data/data/lib/a.tar": next(archives()),
    }
    with tempfile.TemporaryDirectory() as folder:
        yield wheel(Path(folder), "kit", files, requires=["nvidia-nccl-cu12"]).read_bytes()
        yield wheel(Path(folder), "kit", {"kit/x.so": small_elf()}).read_bytes()
