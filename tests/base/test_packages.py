"""Debian versions and relations."""

from __future__ import annotations

import itertools
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.base.packages import Index, closure, compare_versions, fields
from builder.errors import BadInput

IN_ORDER = [
    "1.0~~",
    "1.0~rc1",
    "1.0",
    "1.0-0+deb12u1",
    "1.0-1",
    "1.0-1+b1",
    "1.0-1.1",
    "1.0+dfsg-1",
    "1.0.1",
    "1.9",
    "1.10",
    "1:0.1",
]
TEXT = """Package: a
Version: 1.0-1
Depends: b (>= 1) | c, virtual, d:any
Description: first line
 second line

Package: b
Version: 1.0

Package: b
Version: 1.0+deb12u1

Package: p2
Version: 1
Provides: virtual (= 1), other

Package: p1
Version: 1
Provides: virtual

Package: d
Version: 1
Pre-Depends: skipped
"""


def test_versions_in_the_order_of_the_manual() -> None:
    for left, right in itertools.pairwise(IN_ORDER):
        assert compare_versions(left, right) < 0, (left, right)
        assert compare_versions(right, left) > 0, (left, right)
    assert compare_versions("1.0", "0:1.0") == 0
    assert compare_versions("1.01", "1.1") == 0


VERSION = st.from_regex(r"([0-9]:)?[0-9][0-9a-z.+~]{0,5}(-[0-9a-z.+~]{1,3})?", fullmatch=True).filter(str.isascii)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not installed")
@settings(max_examples=60, deadline=None)
@given(VERSION, VERSION)
def test_versions_compare_as_dpkg_compares_them(a: str, b: str) -> None:
    found = compare_versions(a, b)
    relation = "eq" if found == 0 else "lt" if found < 0 else "gt"
    assert subprocess.run(["dpkg", "--compare-versions", a, relation, b], check=False).returncode == 0


def test_fields_keep_continuation_lines() -> None:
    assert fields("A: 1\nB:\n x\n y: z\nC: d:e")["B"] == "\nx\ny: z"
    assert fields("A: 1\nC: d:e")["C"] == "d:e"


def index() -> Index:
    found = Index()
    found.add(TEXT, "http://mirror/debian")
    return found


def test_the_newest_version_of_several_indexes_is_taken() -> None:
    both = index()
    both.add("Package: b\nVersion: 1.0+deb12u2\n", "http://mirror/debian-security")
    stanza = both.get("b")
    assert stanza is not None
    assert (stanza.version, stanza.origin) == ("1.0+deb12u2", "http://mirror/debian-security")
    assert both.get("absent") is None


def test_closure_follows_first_alternative_and_providers() -> None:
    chosen = closure(index(), ["a"], leave_out={"skipped"}, where="debian:test")
    assert [item.name for item in chosen] == ["a", "b", "d", "p1"]


def test_an_alternative_that_is_chosen_already_is_enough() -> None:
    more = index()
    more.add("Package: c\nVersion: 1\n", "http://mirror/debian")
    assert "b" not in [item.name for item in closure(more, ["c", "a"], leave_out={"skipped"}, where="x")]


def test_a_missing_dependency_is_named() -> None:
    with pytest.raises(BadInput, match="debian:test is inconsistent") as caught:
        closure(index(), ["d"], leave_out=(), where="debian:test")
    assert caught.value.why == "d needs skipped, which it lacks"
    with pytest.raises(BadInput, match="has no package 'zzz'"):
        closure(index(), ["zzz"], leave_out=(), where="debian:test")
