"""A whole lock: chains, requirements in the light of the lock, two owners of one path, two libraries of one name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.audit.audit import audit_lock
from builder.audit.graph import chains_of
from builder.audit.values import AuditReport
from builder.base.values import LockedBase
from builder.events import SilentReporter
from builder.lock.values import Lock, LockedPackage
from builder.names import Digest
from tests.audit.make import library, wheel

BASE = LockedBase(
    reference="debian:bookworm",
    digest=Digest("0" * 64),
    python="3.11",
    python_path="/usr/bin/python3.11",
    glibc="2.36",
)


def lock_of(
    files: Mapping[str, Path], requires: Mapping[str, tuple[str, ...]], roots: tuple[str, ...], backend: str
) -> Lock:
    return Lock(
        backend=backend,
        project="p",
        python="3.11",
        arch="x86_64",
        glibc="2.36",
        toolkit=None,
        frameworks={},
        requirements=roots,
        packages=tuple(
            LockedPackage(
                name=name,
                version=path.name.split("-")[1],
                file=path.name,
                sha256=Digest.of_file(path),
                url=path.as_uri(),
                index="https://index.example/simple",
                size=path.stat().st_size,
                requires=requires.get(name, ()),
            )
            for name, path in sorted(files.items())
        ),
        base=BASE,
        exclude_newer="2026-01-01T00:00:00Z",
        inputs=Digest("0" * 64),
        engine="uv 0",
    )


def audited(
    files: Mapping[str, Path], requires: Mapping[str, tuple[str, ...]], roots: tuple[str, ...], backend: str
) -> AuditReport:
    lock = lock_of(files, requires, roots, backend)
    paths = {path.name: path for path in files.values()}
    return audit_lock(lock, paths, backend=backend, reporter=SilentReporter(), jobs=2)


def test_two_packages_own_the_same_paths(tmp_path: Path) -> None:
    """FR-04: triton-ascend and the triton that xgrammar drags in write the same files."""
    shared = ("triton/__init__.py", "triton/backends/compiler.py")
    files = {
        "vllm": wheel(tmp_path, "vllm", {"vllm/__init__.py": b""}),
        "xgrammar": wheel(tmp_path, "xgrammar", {"xgrammar/__init__.py": b""}),
        "triton": wheel(tmp_path, "triton", dict.fromkeys(shared, b"main"), version="3.3.0"),
        "triton-ascend": wheel(tmp_path, "triton-ascend", dict.fromkeys(shared, b"ascend"), version="3.2.1"),
    }
    requires = {"vllm": ("xgrammar",), "xgrammar": ("triton",)}
    report = audited(files, requires, ("vllm", "triton-ascend==3.2.1"), "npu")
    (finding,) = report.graph_findings
    assert finding.rule == "two-owners-of-one-path"
    assert finding.severity == "error"
    assert all(path in finding.evidence for path in shared)
    assert finding.chain == ("vllm", "xgrammar", "triton")
    assert "let triton-ascend stand in for triton" in finding.fix
    assert "overrides = [\"triton ; sys_platform == 'never'\"]" in finding.fix
    assert report.level == "block"


def test_equal_files_of_a_shared_namespace_are_no_clash(tmp_path: Path) -> None:
    files = {
        "one": wheel(tmp_path, "one", {"space/__init__.py": b"", "space/one.py": b"1"}),
        "two": wheel(tmp_path, "two", {"space/__init__.py": b"", "space/two.py": b"2"}),
    }
    assert audited(files, {}, ("one", "two"), "cpu").graph_findings == ()


def test_files_of_the_data_scheme_are_compared_where_they_land(tmp_path: Path) -> None:
    files = {
        "one": wheel(tmp_path, "one", {"same.py": b"1"}),
        "two": wheel(tmp_path, "two", {"two-1.0.data/purelib/same.py": b"2", "two-1.0.data/scripts/same.py": b"x"}),
    }
    (finding,) = audited(files, {}, ("one", "two"), "cpu").graph_findings
    assert finding.path == "same.py"


def test_two_libraries_of_one_soname(tmp_path: Path) -> None:
    first = library(tmp_path / "a", "l.so", soname="libshared.so.1")
    second = library(tmp_path / "b", "l.so", soname="libshared.so.1", code="int other(void) { return 2; }")
    files = {
        "one": wheel(tmp_path, "one", {"one/l.so": first.read_bytes()}),
        "two": wheel(tmp_path, "two", {"two/l.so": second.read_bytes()}),
    }
    (finding,) = audited(files, {}, ("one", "two"), "cpu").graph_findings
    assert (finding.rule, finding.severity) == ("two-versions-of-one-soname", "warning")
    assert "libshared.so.1" in finding.evidence


def test_who_pulled_it_in(tmp_path: Path) -> None:
    dirty = library(tmp_path, "x.so", needs=["libcudart.so.12"])
    files = {
        "app": wheel(tmp_path, "app", {"app.py": b""}),
        "mid": wheel(tmp_path, "mid", {"mid.py": b""}),
        "long": wheel(tmp_path, "long", {"long.py": b""}),
        "kernels": wheel(tmp_path, "kernels", {"kernels/x.so": dirty.read_bytes()}),
    }
    requires = {"app": ("long", "mid"), "long": ("mid",), "mid": ("kernels",)}
    report = audited(files, requires, ("app",), "cpu")
    audit = next(target for target in report.targets if target.name == "kernels")
    assert audit.level == "block"
    assert audit.findings[0].chain == ("app", "mid", "kernels")


def test_requirements_that_the_lock_resolved_away_are_not_held_against_a_wheel(tmp_path: Path) -> None:
    asks = ["nvidia-nccl-cu12", "torch", 'cupy-cuda12x; extra == "gpu"']
    alone = {"boost": wheel(tmp_path, "boost", {"boost.py": b""}, requires=asks)}
    report = audited(alone, {}, ("boost",), "cpu")
    assert report.level == "ok"
    assert report.targets[0].tokens == {}


def test_a_requirement_that_the_lock_holds_blocks(tmp_path: Path) -> None:
    nccl = library(tmp_path, "libnccl.so.2", soname="libnccl.so.2")
    files = {
        "boost": wheel(tmp_path, "boost", {"boost.py": b""}, requires=['nvidia-nccl-cu12; extra == "gpu"']),
        "nvidia-nccl-cu12": wheel(tmp_path, "nvidia-nccl-cu12", {"nvidia/libnccl.so.2": nccl.read_bytes()}),
    }
    report = audited(files, {"boost": ("nvidia-nccl-cu12",)}, ("boost[gpu]",), "cpu")
    boost = report.targets[0]
    assert boost.tokens == {"cuda": ("meta",)}
    assert boost.level == "block"
    assert "nvidia-nccl-cu12" in boost.findings[0].evidence


def test_shortest_chains(tmp_path: Path) -> None:
    edges = {"a": ("b", "c"), "b": ("d",), "c": ("d", "e"), "d": ("a",), "e": (), "orphan": ()}
    files = {name: wheel(tmp_path, name, {}) for name in edges}
    assert chains_of(lock_of(files, edges, ("a>=1", "E"), "cpu")) == {
        "a": ("a",),
        "b": ("a", "b"),
        "c": ("a", "c"),
        "d": ("a", "b", "d"),
        "e": ("e",),
    }
