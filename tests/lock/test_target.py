"""Which wheels a target takes."""

from __future__ import annotations

import platform
import sys

import packaging.tags
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import BadInput
from builder.lock.target import accepts, best_wheel, target_tags


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="compared with this machine's glibc")
def test_tags_are_those_of_a_real_interpreter() -> None:
    """What packaging computes for this interpreter on this machine, except wheels for its exact kernel or musl."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    machine = "aarch64" if platform.machine() == "aarch64" else "x86_64"
    ours = target_tags(version, machine, platform.libc_ver()[1])
    assert sorted(map(str, ours)) == sorted({str(tag) for tag in packaging.tags.sys_tags()})
    real = [str(tag) for tag in packaging.tags.sys_tags() if tag in set(ours)]
    assert [tag for tag in map(str, ours) if "manylinux" in tag] == [tag for tag in real if "manylinux" in tag]


@pytest.mark.parametrize(
    ("file", "glibc", "fits"),
    [
        ("a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "2.36", True),
        ("a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "2.27", False),
        ("a-1-cp39-abi3-manylinux2014_x86_64.whl", "2.17", True),
        ("a-1-cp312-abi3-manylinux2014_x86_64.whl", "2.36", False),
        ("a-1-cp312-cp312-manylinux2014_x86_64.whl", "2.36", False),
        ("a-1-py2.py3-none-any.whl", "2.17", True),
        ("a-1-cp311-cp311-musllinux_1_2_x86_64.whl", "2.36", False),
        ("a-1-cp311-cp311-manylinux_2_28_aarch64.whl", "2.36", False),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "2.17", True),
        ("not a wheel", "2.36", False),
        ("a-1.tar.gz", "2.36", False),
    ],
)
def test_accepts(file: str, glibc: str, fits: bool) -> None:
    assert accepts(file, python="3.11", arch="x86_64", glibc=glibc) is fits


def test_the_best_tag_wins_then_the_higher_build() -> None:
    files = [
        "a-1-py3-none-any.whl",
        "a-1-cp311-cp311-manylinux_2_17_x86_64.whl",
        "a-1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1-2-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1-10-cp311-cp311-manylinux_2_28_x86_64.whl",
    ]
    assert best_wheel(files, python="3.11", arch="x86_64", glibc="2.36") == files[-1]
    assert best_wheel(files[:3], python="3.11", arch="x86_64", glibc="2.36") == files[2]
    assert best_wheel([], python="3.11", arch="x86_64", glibc="2.36") is None


@given(st.lists(st.integers(5, 60), min_size=1, max_size=5), st.integers(5, 60))
def test_never_a_wheel_that_is_newer_than_the_base(levels: list[int], glibc: int) -> None:
    files = [f"a-1-cp311-cp311-manylinux_2_{level}_x86_64.whl" for level in levels]
    found = best_wheel(files, python="3.11", arch="x86_64", glibc=f"2.{glibc}")
    fitting = [level for level in levels if level <= glibc]
    assert found == (f"a-1-cp311-cp311-manylinux_2_{max(fitting)}_x86_64.whl" if fitting else None)


@pytest.mark.parametrize(("python", "glibc"), [("3", "2.36"), ("3.x", "2.36"), ("3.11", "new"), ("3.11", "2")])
def test_versions_that_are_none_are_refused(python: str, glibc: str) -> None:
    with pytest.raises(BadInput):
        target_tags(python, "x86_64", glibc)
