"""Libraries that files need and nobody brings."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import filter as matching
from pathlib import Path

import pytest

from builder.audit.audit import audit_lock
from builder.audit.tables import load_providers, load_tables
from builder.audit.values import Finding
from builder.base.values import DebPackage
from builder.events import SilentReporter
from builder.names import Digest
from tests.audit.make import judged, library, wheel
from tests.audit.test_lock_audit import lock_of

PY = "int PyInit_x(void) { return 0; }"


def undeclared(path: Path) -> list[Finding]:
    return [finding for finding in judged(path, "cuda").findings if finding.rule == "undeclared-library"]


def test_a_provider_that_needs_tensorrt_which_no_requirement_brings(tmp_path: Path) -> None:
    made = library(tmp_path, "libproviders_tensorrt.so", needs=["libnvinfer.so.10", "libcublas.so.12"])
    files = {"rt/libproviders_tensorrt.so": made.read_bytes()}
    extra = "nvidia-cublas-cu12; extra == 'cuda'"
    (finding,) = undeclared(wheel(tmp_path, "rt", files, requires=[extra]))
    assert finding.evidence == "needs libnvinfer.so.10, and no requirement brings it, under no extra"
    assert "add tensorrt*" in finding.fix
    assert undeclared(wheel(tmp_path, "rt", files, version="2.0", requires=[extra, "tensorrt-cu12"])) == []
    assert undeclared(wheel(tmp_path, "rt", files, version="3.0", requires=["torch"])) == []


def test_a_library_that_the_wheel_holds_is_declared(tmp_path: Path) -> None:
    user = library(tmp_path, "x.so", needs=["libcudart.so.12"]).read_bytes()
    own = library(tmp_path, "libcudart.so.12", soname="libcudart.so.12").read_bytes()
    assert undeclared(wheel(tmp_path, "kit", {"kit/x.so": user, "kit.libs/libcudart.so.12": own})) == []


def between(files: dict[str, Path], backend: str, *, debian: bool) -> list[Finding]:
    lock = lock_of(files, {}, tuple(files), backend)
    package = DebPackage(
        name="libc6",
        version="2.36",
        architecture="amd64",
        sha256=Digest("0" * 64),
        size=1,
        url="http://archive.example/libc6.deb",
    )
    if debian:
        lock = replace(lock, base=replace(lock.base, packages=(package,)))
    paths = {path.name: path for path in files.values()}
    report = audit_lock(lock, paths, backend=backend, reporter=SilentReporter())
    return [finding for finding in report.graph_findings if finding.rule == "library-in-no-wheel"]


@pytest.mark.parametrize("debian", [True, False])
def test_a_vendor_library_that_no_wheel_holds(tmp_path: Path, debian: bool) -> None:
    user = library(tmp_path, "x.so", code=PY, needs=["libcublas.so.12", "libcuda.so.1"]).read_bytes()
    files = {"kit": wheel(tmp_path, "kit", {"kit/x.so": user})}
    (finding,) = between(files, "cuda", debian=debian)
    assert finding.evidence.startswith("kit needs libcublas.so.12: no locked wheel holds it")
    assert finding.severity == ("warning" if debian else "info")
    own = library(tmp_path, "libcublas.so.12", soname="libcublas.so.12").read_bytes()
    files["blas"] = wheel(tmp_path, "blas", {"nvidia/cublas/lib/libcublas.so.12": own})
    assert between(files, "cuda", debian=debian) == []


def test_a_plain_library_is_a_note_and_the_systems_own_is_nothing(tmp_path: Path) -> None:
    user = library(tmp_path, "x.so", code=PY, needs=["libGL.so.1"], options=["-lm"]).read_bytes()
    (finding,) = between({"kit": wheel(tmp_path, "kit", {"kit/x.so": user})}, "cpu", debian=True)
    assert finding.severity == "info"
    assert finding.evidence.startswith("kit needs libGL.so.1:")


def test_patterns_match_known_libraries() -> None:
    for row in load_providers().providers:
        for pattern in row.libraries:
            assert matching(load_tables().libraries, pattern), pattern


OPENS = """
void *dlopen(const char *, int);
int PyInit_x(void) { return 0; }
void *first(void) { return dlopen("libcudnn_ops_infer.so.8", 1); }
"""


def cudnn(tmp_path: Path, code: str, backend: str = "cuda", *, bundled: bool = False) -> list[Finding]:
    """What a lock says between its wheels that brings cuDNN 9, and a package with this code."""
    reader = library(tmp_path, "reader.so", code=code).read_bytes()
    own = library(tmp_path, "libcudnn.so.9", soname="libcudnn.so.9").read_bytes()
    members = {"ctranslate2/reader.so": reader}
    if bundled:
        stub = library(tmp_path, "libcudnn-1a2b3c4d.so.8.9.7", soname="libcudnn-1a2b3c4d.so.8.9.7").read_bytes()
        members["ctranslate2.libs/libcudnn-1a2b3c4d.so.8.9.7"] = stub
    files = {
        "ctranslate2": wheel(tmp_path, "ctranslate2", members),
        "nvidia-cudnn-cu12": wheel(tmp_path, "nvidia-cudnn-cu12", {"nvidia/cudnn/lib/libcudnn.so.9": own}),
    }
    lock = lock_of(files, {}, ("ctranslate2", "nvidia-cudnn-cu12"), backend)
    paths = {path.name: path for path in files.values()}
    report = audit_lock(lock, paths, backend=backend, reporter=SilentReporter())
    return [finding for finding in report.graph_findings if finding.rule == "other-major-of-library"]


@pytest.mark.parametrize("bundled", [False, True])
def test_a_library_opened_in_another_major_than_the_lock_has(tmp_path: Path, bundled: bool) -> None:
    """FR-26: torch brings cuDNN 9, a package opens parts of cuDNN 8 by name, and no metadata shows it.

    The real package brings the front of cuDNN 8 along, and none of its parts.
    """
    (finding,) = cudnn(tmp_path, OPENS, bundled=bundled)
    assert finding.severity == "error"
    assert finding.evidence == (
        "ctranslate2 asks for libcudnn_ops_infer.so.8; the lock has major version 9 in nvidia-cudnn-cu12"
    )
    assert finding.path == "ctranslate2/reader.so"


@pytest.mark.parametrize("also", ["libcudnn_ops.so.9", "libcudnn.so"])
def test_who_names_what_is_there_too_is_left_alone(tmp_path: Path, also: str) -> None:
    assert cudnn(tmp_path, OPENS + f'void *second(void) {{ return dlopen("{also}", 1); }}') == []
    assert cudnn(tmp_path, OPENS.replace(".so.8", ".so.9")) == []
