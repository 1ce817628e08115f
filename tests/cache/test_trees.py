"""Manifests: one text for one tree, and nothing that leaves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder.cache import EngineCache, engine_kind
from builder.cache.incoming import Incoming
from builder.cache.trees import TREE_SCHEMA, TreeItem, manifest_bytes, parse_manifest
from builder.cache.values import Entry
from builder.errors import BadInput
from builder.names import Digest
from tests.cache.samples import key_of

DIGEST = Digest.of(b"part")
FILE = {"kind": "file", "size": 4, "digest": str(DIGEST), "executable": False, "paths": ""}


def manifest(*entries: dict[str, Any], schema: str = TREE_SCHEMA) -> bytes:
    return json.dumps({"entries": list(entries), "schema": schema}).encode()


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        (({**FILE, "path": "../x"},), "it leaves the tree"),
        (({**FILE, "path": "/etc/x"},), "it leaves the tree"),
        (({**FILE, "path": "a/../../x"},), "it leaves the tree"),
        (({**FILE, "path": "a/./x"},), "it leaves the tree"),
        (({**FILE, "path": "."},), "it leaves the tree"),
        (({"path": "l", "kind": "link", "target": "../../etc"},), "it leaves the tree"),
        (({"path": "l", "kind": "link", "target": "/etc"},), "it leaves the tree"),
        (({"path": "x/l", "kind": "link", "target": "y/../.."},), "it leaves the tree"),
        (({"path": "l", "kind": "link", "target": "a"}, {**FILE, "path": "l/x"}), "lies below 'l', which is a link"),
        (({**FILE, "path": "a"}, {**FILE, "path": "a/b"}), "lies below 'a', which is a file"),
        (({**FILE, "path": "a"}, {**FILE, "path": "a"}), "names a path twice"),
        (({**FILE, "path": "a", "digest": "md5:0"},), "not a digest"),
        (({"path": "a", "kind": "device"},), "damaged"),
        (({"kind": "file"},), "damaged"),
        (("text",), "damaged"),
    ],
)
def test_what_leaves_the_tree_or_cannot_be_read_is_refused(entries: tuple[Any, ...], what: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_manifest(manifest(*entries), "the manifest")
    assert what in f"{caught.value.what} {caught.value.why}"


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b"\xff"])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="no manifest"):
        parse_manifest(data, "the manifest")


def test_another_version_is_named() -> None:
    with pytest.raises(BadInput, match="another version"):
        parse_manifest(manifest(schema="builder/engine-tree/2"), "the manifest")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)


@given(st.dictionaries(NAMES, st.tuples(st.integers(0, 1 << 40), st.booleans()), max_size=6))
def test_a_manifest_reads_back_whatever_the_order(files: dict[str, tuple[int, bool]]) -> None:
    items = [
        TreeItem(path=name, kind="file", size=size, digest=DIGEST, executable=executable)
        for name, (size, executable) in files.items()
    ]
    data = manifest_bytes(items)
    assert data == manifest_bytes(reversed(items))
    assert set(parse_manifest(data, "it")) == set(items)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join), st.binary(max_size=50)))
def test_any_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    root = tmp_path_factory.mktemp("tree")
    made = root / "made"
    made.mkdir()
    kept: dict[str, bytes] = {}
    for name, data in sorted(files.items()):
        if not any(name.startswith(f"{other}/") for other in kept):
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            kept[name] = data
    if not kept:
        return
    cache = EngineCache(root / "cache")
    restored = cache.restore(cache.put(key_of(engine_kind("inductor")), made), root / "out")
    found = {path.relative_to(restored).as_posix(): path.read_bytes() for path in restored.rglob("*") if path.is_file()}
    assert found == kept


def test_a_hostile_entry_is_not_restored(cache: EngineCache, tmp_path: Path) -> None:
    """A document and a manifest that agree with each other, made by somebody who wants to write elsewhere."""
    data = manifest({**FILE, "path": "../../escaped"})
    key = key_of(engine_kind("inductor"))
    with Incoming(cache.store) as incoming:
        incoming.add_bytes(b"part")
        entry = Entry(
            key=key,
            digest=key.digest,
            form="tree",
            name="cache",
            content=incoming.add_bytes(data),
            manifest_size=len(data),
            size=4,
            files=1,
            created="2026-12-01T00:00:00Z",
            tool="0",
        )
        incoming.publish(entry)
    with pytest.raises(BadInput, match="a tree holds the path"):
        cache.restore(entry, tmp_path / "out" / "deep")
    assert not (tmp_path / "escaped").exists()
    assert not (tmp_path / "out" / "deep").exists()
