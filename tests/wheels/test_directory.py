"""Plain archives are read in one go, and the same is said of them as by the way that looks at everything."""

from __future__ import annotations

import io
import mmap
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder.wheels.archive import UnsafeWheel, WheelArchive
from builder.wheels.directory import plain_members
from builder.wheels.values import Member

NAME = "thing-1.0-py3-none-any.whl"
NAMES = st.sampled_from(
    [
        "thing/a.py",
        "thing/b.so",
        "thing/",
        "thing/é.py",
        "a",
        "a",
        "../a",
        "/a",
        "a//b",
        "a/./b",
        "a\\b",
        ".",
        "..",
        "a/..",
    ]
)


def plain(path: Path) -> list[Member] | None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return plain_members(data)


def zipped(*names: str, mode: int = stat.S_IFREG | 0o644, data: bytes = b"x" * 500) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number, name in enumerate(names):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            archive.writestr(info, data)
    return buffer.getvalue()


def seen(path: Path) -> tuple[tuple[Member, ...], tuple[str, ...], set[str]] | str:
    try:
        with WheelArchive.open(path, filename=NAME, inspect=True) as archive:
            return archive.members, archive.duplicates, {fault.what for fault in archive.faults}
    except UnsafeWheel as error:
        return error.what


def with_comment(data: bytes) -> bytes:
    """The same archive with a comment of one byte, which makes it an unusual one."""
    return data[:-2] + b"\1\0."


def test_a_wheel_as_tools_make_them_is_plain(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(zipped("thing/a.py", "thing/b.so", "thing/", "thing/é.py", "thing-1.0.dist-info/METADATA"))
    found = plain(path)
    assert found is not None
    assert [member.name for member in found] == [
        "thing/a.py",
        "thing/b.so",
        "thing/é.py",
        "thing-1.0.dist-info/METADATA",
    ]
    assert seen(path) == (tuple(found), (), set())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_comment(zipped("a")), id="a comment"),
        pytest.param(b"#!/bin/sh\n" + zipped("a"), id="something before it"),
        pytest.param(zipped("../a"), id="a path that leaves"),
        pytest.param(zipped("a", mode=stat.S_IFLNK | 0o777), id="a symbolic link"),
        pytest.param(zipped(), id="nothing in it"),
        pytest.param(zipped("a", data=bytes(3_000_000))[:-1], id="broken off"),
    ],
)
def test_what_is_unusual_is_left_to_the_other_way(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / NAME
    path.write_bytes(data)
    assert plain(path) is None


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(NAMES, min_size=1, max_size=5),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
)
def test_both_ways_say_the_same(tmp_path: Path, names: list[str], changes: list[tuple[int, int]]) -> None:
    data = bytearray(zipped(*names, data=b"12345" * 20))
    for at, value in changes:
        data[at % (len(data) - 22)] = value
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(data)
    other.write_bytes(with_comment(bytes(data)))
    assert seen(one) == seen(other)
