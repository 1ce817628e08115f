"""What a version bump changes, and what a changed lock adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.lock.files import write_lock
from tests import schemas
from tests.audit.inside import Inside
from tests.audit.make import as_c_array, fatbin, library, wheel
from tests.audit.test_lock_audit import lock_of


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    made = library(tmp_path / "old", "x.so", needs=["libgone.so.1"])
    return wheel(tmp_path, "kit", {"kit/x.so": made.read_bytes()}, requires=["numpy"])


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    code = "#include <math.h>\n" + as_c_array(fatbin("sm_90")) + "double f(double x) { return exp(x); }"
    made = library(tmp_path / "new", "x.so", code=code, needs=["libcudart.so.12"], options=["-lm"])
    return wheel(
        tmp_path, "kit", {"kit/x.so": made.read_bytes()}, version="2.0", requires=["numpy", "nvidia-nccl-cu12"]
    )


def test_a_version_that_brings_cuda_is_worse(builder: Inside, clean: Path, dirty: Path) -> None:
    result = builder("audit", "--diff", clean, dirty, "--backend", "cpu", "--json")
    assert result.returncode == 1
    document = schemas.document(result, "audit-diff")
    assert document["verdict"] == "worse"
    (change,) = document["changes"]
    assert (change["old"]["level"], change["new"]["level"]) == ("ok", "block")
    differs = {turn["aspect"]: (turn["added"], turn["removed"]) for turn in change["differs"]}
    assert differs["tokens"] == (["cuda: device", "cuda: hard", "cuda: meta"], [])
    assert differs["archs"] == (["sm_90"], [])
    assert differs["requirements"] == (["nvidia-nccl-cu12"], [])
    added, removed = differs["libraries"]
    assert {"libcudart.so.12", "libm.so.6"} <= set(added)
    assert removed == ["libgone.so.1"]
    assert [word.split("_")[0] for word in differs["symbol-floors"][0]] == ["GLIBC"]


def test_the_way_back_is_no_worse_and_says_so(builder: Inside, clean: Path, dirty: Path) -> None:
    result = builder("audit", "--diff", dirty, clean, "--backend", "cpu")
    assert result.returncode == 0
    assert "kit 2.0 -> kit 1.0  (block -> ok)" in result.stdout
    assert "    - cuda: hard\n" in result.stdout
    assert result.stdout.endswith("ok: 1 package differs, none worse for cpu\n")


def test_the_same_wheel_twice_differs_in_nothing(builder: Inside, dirty: Path) -> None:
    result = builder("audit", "--diff", dirty, dirty, "--backend", "cpu", "--json")
    assert result.returncode == 0
    assert schemas.document(result, "audit-diff")["verdict"] == "same"


def test_a_lock_against_an_older_one_reports_what_is_new(
    builder: Inside, tmp_path: Path, clean: Path, dirty: Path
) -> None:
    made = library(tmp_path, "y.so", needs=["libcuda.so.1"])
    known = wheel(tmp_path, "known", {"known/y.so": made.read_bytes()})
    newer = wheel(tmp_path, "known", {"known/z.so": made.read_bytes()}, version="1.1")
    locks = []
    for name, files in (("old", {"kit": clean, "known": known}), ("new", {"kit": dirty, "known": newer})):
        (tmp_path / name).mkdir(exist_ok=True)
        locks.append(write_lock(lock_of(files, {}, tuple(files), "cpu"), tmp_path / name))
    old, new = locks
    alone = schemas.document(builder("audit", new, "--backend", "cpu", "--json"), "audit")
    assert {target["name"]: target["level"] for target in alone["targets"]} == {"kit": "block", "known": "block"}
    result = builder("audit", new, "--against", old, "--backend", "cpu", "--json")
    assert result.returncode == 1
    (target,) = schemas.document(result, "audit")["targets"]
    assert (target["name"], target["level"]) == ("kit", "block")
    same = builder("audit", new, "--against", new, "--backend", "cpu", "--json")
    assert same.returncode == 0
    assert schemas.document(same, "audit")["targets"] == []
    diff = builder("audit", "--diff", old, new, "--backend", "cpu", "--json")
    assert [change["worse"] for change in schemas.document(diff, "audit-diff")["changes"]] == [True, False]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--diff", "a-1-py3-none-any.whl"],
        ["--diff", "oci:a", "oci:b"],
        ["--diff", "a", "b", "--format", "sarif"],
        ["a-1-py3-none-any.whl", "--against", "old.toml"],
    ],
)
def test_wrong_questions(builder: Inside, arguments: list[str]) -> None:
    schemas.error(builder("audit", *arguments, "--backend", "cpu", "--json"), 2)
