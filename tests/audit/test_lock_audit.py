"""A whole lock: chains, requirements in the light of the lock, two owners of one path, two libraries of one name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from builder.audit.audit import audit_lock
from builder.audit.graph import all_chains, chains_of
from builder.audit.values import AuditReport, Chains
from builder.base.values import LockedBase
from builder.events import SilentReporter
from builder.lock.files import write_lock
from builder.lock.values import Lock, LockedPackage
from builder.names import Digest
from tests import schemas
from tests.audit.inside import Inside
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


def test_all_chains_are_told_shortest_first_and_round_no_circle() -> None:
    edges = {"a": ("b", "c", "d"), "b": ("d", "a"), "c": ("b", "d"), "d": ("a", "e"), "e": ("b",), "orphan": ("d",)}
    found = all_chains(edges, ("a", "e", "absent"), "d")
    assert found.ways == (
        ("a", "d"),
        ("a", "b", "d"),
        ("a", "c", "d"),
        ("e", "b", "d"),
        ("a", "c", "b", "d"),
        ("e", "b", "a", "d"),
        ("e", "b", "a", "c", "d"),
    )
    assert not found.more
    assert all_chains(edges, ("a",), "orphan") == Chains(ways=(), more=False)
    assert all_chains(edges, ("d",), "d").ways == (("d",),)


def test_chains_of_a_thick_graph_end() -> None:
    layers = [[f"{level}-{place}" for place in range(20)] for level in range(20)]
    edges = {name: tuple(below) for above, below in pairwise(layers) for name in above}
    edges |= dict.fromkeys(layers[-1], ("last",))
    found = all_chains(edges, layers[0], "last", most=30)
    assert (len(found.ways), found.more) == (30, True)
    full = {str(number): tuple(map(str, range(60))) for number in range(60)}
    found = all_chains(full, ("0",), "59", most=10**9, steps=500)
    assert found.more
    assert found.ways[0] == ("0", "59")


def test_every_way_to_a_package_with_findings(builder: Inside, tmp_path: Path) -> None:
    dirty = library(tmp_path, "x.so", needs=["libcudart.so.12"])
    files = {
        "app": wheel(tmp_path, "app", {"app.py": b""}),
        "mid": wheel(tmp_path, "mid", {"mid.py": b""}),
        "kernels": wheel(tmp_path, "kernels", {"kernels/x.so": dirty.read_bytes()}),
    }
    lock = lock_of(files, {"app": ("kernels", "mid"), "mid": ("kernels",)}, ("app",), "cpu")
    path = write_lock(lock, tmp_path)
    document = schemas.document(builder("audit", path, "--all-chains", "--json"), "audit")
    ways = [["app", "kernels"], ["app", "mid", "kernels"]]
    assert document["chains"] == {"kernels": {"ways": ways, "more": False}}
    text = builder("audit", path, "--all-chains").stdout
    assert "\nkernels is pulled in by\n  app > kernels\n  app > mid > kernels\n" in text
    assert "chains" not in schemas.document(builder("audit", path, "--json"), "audit")
    alone = builder("audit", files["app"], "--backend", "cpu", "--all-chains", "--json")
    assert "needs a lock or an image" in schemas.error(alone, 2)["what"]


def test_another_backends_lock_is_a_wrong_question(builder: Inside, tmp_path: Path) -> None:
    files = {"app": wheel(tmp_path, "app", {"app.py": b""})}
    path = write_lock(lock_of(files, {}, ("app",), "cpu"), tmp_path)
    found = schemas.error(builder("audit", path, "--backend", "cuda", "--json"), 2)
    assert "is a lock for cpu, and cuda is asked for" in found["what"]
    assert builder("audit", "--diff", path, path).returncode == 0


EXCEPTIONS = """
[[exception]]
package = "kernels"
rule = "foreign-hard"
reason = "never loaded"
expires = 2999-01-01

[[exception]]
package = "other"
rule = "foreign-*"
reason = "was to be replaced"
expires = 2020-01-01

[[exception]]
package = "two"
rule = "two-owners-of-one-path"
reason = "the same file"
expires = 2999-01-01

[[exception]]
package = "gone"
rule = "foreign-*"
reason = "no more"
expires = 2999-01-01
"""


def test_what_became_of_each_exception(builder: Inside, tmp_path: Path) -> None:
    dirty = library(tmp_path, "x.so", needs=["libcudart.so.12"]).read_bytes()
    files = {
        "kernels": wheel(tmp_path, "kernels", {"kernels/x.so": dirty}),
        "other": wheel(tmp_path, "other", {"other/x.so": dirty + b"1"}),
        "one": wheel(tmp_path, "one", {"same.py": b"1"}),
        "two": wheel(tmp_path, "two", {"same.py": b"2"}),
    }
    path = write_lock(lock_of(files, {"one": ("two",)}, ("kernels", "other", "one"), "cpu"), tmp_path)
    exceptions = tmp_path / "exceptions.toml"
    exceptions.write_text(EXCEPTIONS)
    page = tmp_path / "page.md"

    def audit(*options: str) -> subprocess.CompletedProcess[str]:
        env = {"GITHUB_STEP_SUMMARY": str(page)}
        return builder("audit", path, "--exceptions", exceptions, *options, env=env)

    document = schemas.document(audit("--json"), "audit")
    assert [(use["package"], use["state"], use["findings"]) for use in document["exceptions"]] == [
        ("kernels", "used", 1),
        ("other", "expired", 1),
        ("two", "used", 1),
        ("gone", "unused", 0),
    ]
    assert [target["name"] for target in document["targets"] if target["level"] == "block"] == ["other"]
    text = audit().stdout
    assert "excepted until 2999-01-01: kernels foreign-hard (1 finding): never loaded\n" in text
    assert "exception expired on 2020-01-01: other foreign-* (1 finding counts again): was to be replaced\n" in text
    assert "exception for nothing: gone foreign-*: remove it" in text
    results = json.loads(audit("--format", "sarif").stdout)["runs"][0]["results"]
    accepted = [result["ruleId"] for result in results if "suppressions" in result]
    assert accepted == ["foreign-hard", "two-owners-of-one-path"]
    audit("--format", "github")
    assert "- exception expired on 2020-01-01" in page.read_text()
