"""Absolute paths inside artefacts: made relative when an engine is stored, written anew where it is restored.

A format that holds paths has a method here; which files of which kind have it stands in `METHODS_OF`. A file without a
method is never changed: when the folder it was made in is found in its bytes, the entry says so.
"""

from __future__ import annotations

import fnmatch
import json
import posixpath
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from builder.errors import BadInput

__all__ = ["METHODS_OF", "ROOT", "method_for", "to_absolute", "to_relative"]

ROOT = "${engine-root}"
"""Stands for the folder of the tree in what is stored."""

METHODS_OF: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # Triton python/triton/runtime/cache.py, put_group: {"child_paths": {name: absolute path}}
        "triton-nvidia": {"__grp__*.json": "json"},
        "triton-amd": {"__grp__*.json": "json"},
        "triton-ascend": {"__grp__*.json": "json"},
        # keep Triton caches in folders of their own
        "inductor": {"__grp__*.json": "json"},
        # vllm/compilation/backends.py, CompilerManager: a Python literal with the path of each compiled graph
        "vllm": {"__grp__*.json": "json", "vllm_compile_cache.py": "text"},
    }
)
"""Kind to pattern of file names to method."""


def method_for(kind: str, path: str) -> str:
    """The method for a file of a tree, by its name; empty when its bytes are kept as they are."""
    name = posixpath.basename(path)
    return next((one for pattern, one in METHODS_OF.get(kind, {}).items() if fnmatch.fnmatchcase(name, pattern)), "")


def to_relative(data: bytes, *, method: str, path: str, built_at: str, siblings: Collection[str]) -> bytes | None:
    """A file with its absolute paths written with `ROOT`; None when it is to be kept as it is.

    json: every text that is a path below `built_at`, or the path of a file that lies beside this one. text: every
    occurrence of `built_at`. A path to somewhere else stays.
    """
    if ROOT.encode() in data:
        return None
    if method == "text":
        return data.replace(built_at.rstrip("/").encode() + b"/", ROOT.encode() + b"/")
    folder = posixpath.dirname(path)

    def relative(text: str) -> str:
        if text == built_at or text.startswith(built_at.rstrip("/") + "/"):
            rest = text[len(built_at.rstrip("/")) :].lstrip("/")
            return f"{ROOT}/{rest}" if rest else ROOT
        name = posixpath.basename(text)
        if text.startswith("/") and name in siblings:
            return posixpath.join(ROOT, folder, name)
        return text

    try:
        value = json.loads(data)
    except ValueError:
        return None
    return _written(_changed(value, relative))


def to_absolute(data: bytes, *, method: str, used_at: str) -> bytes:
    """What `to_relative` made, with the folder in which the engine is used; `BadInput` for a method of a newer tool."""
    if method == "text":
        return data.replace(ROOT.encode() + b"/", used_at.rstrip("/").encode() + b"/")
    if method != "json":
        raise BadInput(f"a file was stored by the method {method!r}", why="this version of the tool does not know it")

    def absolute(text: str) -> str:
        return used_at + text[len(ROOT) :] if text == ROOT or text.startswith(ROOT + "/") else text

    return _written(_changed(json.loads(data), absolute))


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case list():
            return [_changed(one, change) for one in value]
        case dict():
            return {key: _changed(one, change) for key, one in value.items()}
        case _:
            return value


def _written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
