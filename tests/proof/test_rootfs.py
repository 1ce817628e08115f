"""Layers add up to the tree that an engine would unpack."""

from __future__ import annotations

import io
import tarfile

import pytest

from builder.proof.rootfs import Folder, RootFs
from tests.proof.trees import index_of

Member = tuple[str, str]
"""Name and what it is: `d`, `f`, `-> target`, `= linked`."""


def layer(*members: Member) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, what in members:
            info = tarfile.TarInfo(name)
            if what == "d":
                info.type = tarfile.DIRTYPE
            elif what.startswith("-> "):
                info.type, info.linkname = tarfile.SYMTYPE, what[3:]
            elif what.startswith("= "):
                info.type, info.linkname = tarfile.LNKTYPE, what[2:]
            tar.addfile(info, io.BytesIO())
    return raw.getvalue()


def tree(*layers: bytes) -> RootFs:
    return RootFs.of([index_of(item) for item in layers])


def names(root: RootFs) -> list[str]:
    return [path for path, _ in root.files()]


def test_a_whiteout_removes_what_lies_below_it() -> None:
    root = tree(layer(("a/x", "f"), ("a/y", "f"), ("b/z", "f")), layer(("a/.wh.x", "f"), (".wh.b", "f")))
    assert names(root) == ["/a/y"]


def test_a_whiteout_spares_its_own_layer() -> None:
    root = tree(layer(("a/x", "f")), layer(("a/x", "f"), ("a/.wh.x", "f")))
    assert names(root) == ["/a/x"]
    file = root.plain("/a/x")
    assert file is not None
    assert file.layer == 1


def test_an_opaque_folder_hides_everything_below() -> None:
    root = tree(layer(("a/x", "f"), ("a/s/y", "f")), layer(("a/new", "f"), ("a/.wh..wh..opq", "f")))
    assert names(root) == ["/a/new"]


def test_a_file_replaces_a_folder_and_a_folder_a_symlink() -> None:
    root = tree(layer(("a/x", "f"), ("l", "-> a")), layer(("a", "f"), ("l", "d"), ("l/y", "f")))
    assert names(root) == ["/a", "/l/y"]


def test_entries_land_behind_a_symlink_of_a_lower_layer() -> None:
    root = tree(layer(("usr/lib", "d"), ("lib", "-> usr/lib")), layer(("lib/x.so", "f")))
    assert names(root) == ["/usr/lib/x.so"]
    assert root.real("/lib/x.so") == "/usr/lib/x.so"


def test_a_symlink_never_leaves_the_root() -> None:
    root = tree(layer(("a/up", "-> ../../../../b"), ("b/x", "f"), ("abs", "-> /b/x")))
    assert root.real("/a/up/x") == "/b/x"
    assert root.real("/abs") == "/b/x"
    assert root.real("/../../b/./x") == "/b/x"


def test_a_symlink_that_leads_nowhere_or_in_a_circle() -> None:
    root = tree(layer(("a", "-> b"), ("b", "-> a"), ("c", "-> gone")))
    assert root.real("/a") is None
    assert root.plain("/c") is None
    assert isinstance(root.node("/"), Folder)


def test_a_symlink_is_followed_from_where_it_stands() -> None:
    root = tree(
        layer(
            ("venv/bin/python", "-> ../../usr/bin/python3"),
            ("usr/bin/python3", "-> python3.11"),
            ("usr/bin/python3.11", "f"),
        )
    )
    assert root.real("/venv/bin/python") == "/usr/bin/python3.11"
    # through a linked folder, `..` is the parent of where the link led
    deep = tree(layer(("v", "-> opt/deep/v"), ("opt/deep/v/lib", "d"), ("opt/deep/lib/x", "f"), ("lib/x", "f")))
    assert deep.real("/v/../lib/x") == "/opt/deep/lib/x"


def test_hard_links_are_one_file() -> None:
    root = tree(layer(("a", "f")), layer(("b", "= a")), layer((".wh.a", "f")))
    assert names(root) == ["/b"]
    file = root.plain("/b")
    assert file is not None
    assert (file.layer, file.path) == (0, "/a")


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/x", "./etc//x", "a/../etc/x"])
def test_names_stay_below_the_root(name: str) -> None:
    assert names(tree(layer((name, "f")))) == ["/etc/x"]
