"""What is hidden one level deep: archives among the members, base64 text, SPIR-V, names made at run time."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import struct
import tarfile
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.audit.make import as_c_array, fatbin, judged, library, wheel


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: dict[str, bytes], mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{mode}") as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def cuda(tmp_path: Path) -> bytes:
    """A library that needs the CUDA runtime and carries device code."""
    return library(tmp_path, "x.so", code=as_c_array(fatbin("sm_90")), needs=["libcudart.so.12"]).read_bytes()


@pytest.mark.parametrize("kind", ["zip", "gz", "xz", "bz2", "zst", ""])
def test_a_library_inside_an_archive_under_any_name(tmp_path: Path, cuda: bytes, kind: str) -> None:
    inner = {"readme": b"hello", "deep/core": cuda}
    if kind == "zst":
        data = zstandard.compress(tarred(inner, ""))
    else:
        data = zipped(inner) if kind == "zip" else tarred(inner, kind)
    audit = judged(wheel(tmp_path, "kit", {"kit/assets.dat": data, "kit/__init__.py": b""}))
    assert audit.tokens == {"cuda": ("hard-plugin", "device")}
    assert audit.archs.cuda_sm == ("sm_90",)
    assert {finding.path for finding in audit.findings if finding.severity != "info"} == {"kit/assets.dat!/deep/core"}


def test_a_library_inside_a_conda_package(tmp_path: Path, cuda: bytes) -> None:
    part = zstandard.compress(tarred({"lib/core.so": cuda}, ""))
    package = zipped({"metadata.json": b'{"conda_pkg_format_version": 2}', "pkg-kit-1.0-0.tar.zst": part})
    audit = judged(wheel(tmp_path, "kit", {"kit/kit.conda": package}))
    assert audit.tokens == {"cuda": ("hard-plugin", "device")}
    assert audit.findings[0].path == "kit/kit.conda!/pkg-kit-1.0-0.tar.zst/lib/core.so"


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_a_library_compressed_alone(tmp_path: Path, cuda: bytes, compress: Callable[[bytes], bytes]) -> None:
    audit = judged(wheel(tmp_path, "kit", {"kit/core.bin": compress(cuda), "kit/t.csv": compress(b"a,b\n" * 999)}))
    assert audit.tokens == {"cuda": ("hard-plugin", "device")}
    assert {finding.path for finding in audit.findings} == {"kit/core.bin!/content"}


def test_a_compressed_archive_that_breaks_off(tmp_path: Path, cuda: bytes) -> None:
    for number, data in enumerate((zstandard.compress(tarred({"x": cuda}, "")), tarred({"x": cuda}, "gz"))):
        (finding,) = judged(wheel(tmp_path, f"cut{number}", {"cut/a.bin": data[: len(data) // 2]})).findings
        assert (finding.rule, finding.severity) == ("unread-archive", "info")


def test_two_levels_are_not_opened_and_damage_is_told(tmp_path: Path, cuda: bytes) -> None:
    twice = zipped({"inner.zip": zipped({"x": cuda})})
    assert judged(wheel(tmp_path, "twice", {"twice/a.bin": twice})).level == "ok"
    broken = wheel(tmp_path, "broken", {"broken/a.bin": zipped({"x": cuda})[:-30]})
    (finding,) = judged(broken).findings
    assert (finding.rule, finding.severity) == ("unread-archive", "info")


def test_a_library_as_text(tmp_path: Path, cuda: bytes) -> None:
    lines = "\n".join(textwrap.wrap(base64.b64encode(cuda).decode(), 76))
    source = f'DATA = """\n{lines}\n"""\n'.encode()
    path = wheel(tmp_path, "kit", {"kit/data.py": source})
    assert judged(path).tokens == {"cuda": ("hard-plugin", "device")}
    plain = wheel(tmp_path, "plain", {"plain/data.b64": base64.b64encode(cuda)})
    assert judged(plain).tokens == {"cuda": ("hard-plugin", "device")}
    short = wheel(tmp_path, "short", {"short/doc.py": b'MAGIC = "f0VMRgIBAQ"\n'})
    assert judged(short).findings == ()


def spirv(capability: int) -> bytes:
    return struct.pack("<5I", 0x07230203, 0x00010000, 0, 8, 0) + struct.pack("<II", 2 << 16 | 17, capability)


@pytest.mark.parametrize(("capability", "backend"), [(6, "opencl"), (1, "vulkan")])
def test_spirv_is_told_by_content_and_by_whom_it_is_for(tmp_path: Path, capability: int, backend: str) -> None:
    audit = judged(wheel(tmp_path, "kit", {"kit/kernel.bin": spirv(capability)}))
    # Any vendor's device runs it: worth a note, and no token.
    assert (audit.tokens, audit.level) == ({}, "ok")
    (finding,) = audit.findings
    assert (finding.rule, finding.backend, finding.severity) == ("spirv-modules", backend, "info")


def test_a_name_made_at_run_time_is_unknown(tmp_path: Path) -> None:
    code = "void *dlopen(const char *, int); void *f(const char *n) { return dlopen(n, 1); }"
    made = library(tmp_path, "x.so", code=code)
    audit = judged(wheel(tmp_path, "kit", {"kit/x.so": made.read_bytes()}))
    (finding,) = (finding for finding in audit.findings if finding.rule == "computed-dlopen")
    assert finding.evidence.startswith("unknown: ")
    fixed = code.replace("dlopen(n, 1)", 'dlopen("libplain.so.1", 1)')
    named = library(tmp_path, "y.so", code=fixed)
    audit = judged(wheel(tmp_path, "named", {"named/y.so": named.read_bytes()}))
    assert "computed-dlopen" not in {finding.rule for finding in audit.findings}
