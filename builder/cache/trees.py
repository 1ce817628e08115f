"""Folders as values: the manifest of a tree, its one text, and the digest that names it.

A manifest is canonical JSON, `{"entries": [...], "schema": "builder/engine-tree/1"}`, entries sorted by path:

    {"path": "a/b.cubin", "kind": "file", "size": 12, "digest": "sha256:…", "executable": false, "paths": ""}
    {"path": "a", "kind": "folder"}          only folders with nothing in them
    {"path": "l", "kind": "link", "target": "a/b.cubin"}

Times, owners and modes other than "may be run" are not part of it, so that two runs which made the same files have one
manifest. `paths` names how absolute paths in the file were made relative (builder.cache.relocate); empty: not touched.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from builder.cache.values import canonical_json
from builder.errors import BadInput
from builder.names import Digest

__all__ = ["TREE_SCHEMA", "TreeItem", "manifest_bytes", "parse_manifest"]

TREE_SCHEMA = "builder/engine-tree/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeItem:
    """A file, an empty folder or a symbolic link of a tree."""

    path: str
    """Relative to the tree, with `/`, never leaving it."""
    kind: Literal["file", "folder", "link"]
    size: int = 0
    """Of the part that is stored, in bytes."""
    digest: Digest | None = None
    executable: bool = False
    paths: str = ""
    target: str = ""
    """Of a link: relative, inside the tree."""


def manifest_bytes(items: Iterable[TreeItem]) -> bytes:
    """The one text of a manifest."""
    entries = [_document(item) for item in sorted(items, key=lambda item: item.path)]
    return canonical_json({"entries": entries, "schema": TREE_SCHEMA})


def _document(item: TreeItem) -> dict[str, Any]:
    match item.kind:
        case "folder":
            return {"path": item.path, "kind": "folder"}
        case "link":
            return {"path": item.path, "kind": "link", "target": item.target}
        case "file":
            return {
                "path": item.path,
                "kind": "file",
                "size": item.size,
                "digest": str(item.digest),
                "executable": item.executable,
                "paths": item.paths,
            }


def parse_manifest(data: bytes, where: str) -> tuple[TreeItem, ...]:
    """The items of a manifest; `BadInput` for another schema, a path that leaves the tree, or one named twice."""
    try:
        document = json.loads(data)
        schema = document["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{where} is no manifest of a tree", why=str(error)) from error
    if schema != TREE_SCHEMA:
        raise BadInput(
            f"{where} is of another version of this tool", why=f"its schema is {schema!r}, not {TREE_SCHEMA!r}"
        )
    try:
        items = tuple(_item(one) for one in document["entries"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where} is damaged", why=f"an entry lacks or misspells {error}") from error
    places = {item.path: item.kind for item in items}
    if len(places) != len(items):
        raise BadInput(f"{where} is damaged", why="it names a path twice")
    for item in items:
        for parent in _parents(item.path):
            if parent in places:
                raise BadInput(
                    f"{where} is damaged", why=f"{item.path!r} lies below {parent!r}, which is a {places[parent]}"
                )
    return items


def _item(data: dict[str, Any]) -> TreeItem:
    path = str(data["path"])
    if path != posixpath.normpath(path) or path.startswith(("/", "../")) or path in (".", "..") or "\0" in path:
        raise BadInput(f"a tree holds the path {path!r}", why="it leaves the tree", fix="do not use this engine")
    match data["kind"]:
        case "folder":
            return TreeItem(path=path, kind="folder")
        case "link":
            target = str(data["target"])
            if not stays_inside(path, target):
                raise BadInput(f"a tree holds a link {path!r} to {target!r}", why="it leaves the tree")
            return TreeItem(path=path, kind="link", target=target)
        case "file":
            return TreeItem(
                path=path,
                kind="file",
                size=int(data["size"]),
                digest=Digest.parse(str(data["digest"])),
                executable=data["executable"] is True,
                paths=str(data["paths"]),
            )
        case other:
            raise ValueError(f"kind {other!r}")


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` to `target` stays in the tree, whatever other links are in it.

    `..` may only come first: behind a name it would lead up from wherever that name leads.
    """
    if not target or target.startswith("/"):
        return False
    up, named = 0, False
    for part in target.split("/"):
        if part == "..":
            if named:
                return False
            up += 1
        elif part not in ("", "."):
            named = True
    return up <= path.count("/")


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:number]) for number in range(1, len(parts))]
