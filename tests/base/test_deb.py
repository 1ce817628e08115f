"""Debian packages as files: every compression, and what is refused."""

from __future__ import annotations

import io

import pytest

from builder.base.deb import DebFile, UnsafePackage
from tests.base.debs import Deb, ar_member


@pytest.mark.parametrize("compression", ["xz", "gz", "zst", ""])
def test_members_are_read_whatever_the_compression(compression: str) -> None:
    deb = Deb("demo", files={"usr/bin/demo": b"#!/bin/sh\n"}, links={"usr/bin/d": "demo"}, hard={"e": "./usr/bin/demo"})
    found = DebFile.read(io.BytesIO(deb.build(compression=compression)), name="demo.deb")
    kinds = {member.path: (member.kind, member.mode, member.link, member.data) for member in found.members}
    assert kinds["usr/bin/demo"] == ("file", 0o755, "", b"#!/bin/sh\n")
    assert kinds["usr/bin/d"][:3] == ("symlink", 0o644, "demo")
    assert kinds["e"] == ("hardlink", 0o644, "usr/bin/demo", b"")
    assert found.control["control"].startswith(b"Package: demo\n")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PK\x03\x04", "not an ar archive"),
        (b"!<arch>\n" + ar_member("debian-binary", b"2.0\n"), "lacks control.tar or data.tar"),
        (Deb("demo").build()[:-20], "ends too early"),
        (b"!<arch>\n" + b"x" * 60, "ar header is malformed"),
        (Deb("demo", files={"../../etc/passwd": b""}).build(), "not a plain relative path"),
        (Deb("demo", hard={"a": "../../etc/passwd"}).build(), "not a plain relative path"),
        (Deb("demo").build(compression="xz").replace(b"data.tar.xz ", b"data.tar.lz4"), "compressed in an unknown way"),
    ],
)
def test_damaged_or_dangerous_packages_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(UnsafePackage) as caught:
        DebFile.read(io.BytesIO(data), name="demo.deb")
    assert why in str(caught.value)
    assert caught.value.exit_code == 2
