"""What is read from an engine's own bytes: its format, the properties it states, and what it does not state.

Readers get a `Blob` and give a `Header`. They never run, unpickle or unpack anything: an engine is code, and reading
its head comes before trusting it. What the format has no word for is in `Header.unknown` with the reason; nothing is
guessed.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.errors import BadInput, Where, where_path

__all__ = ["Blob", "BrokenEngine", "Header", "json_object"]

_WINDOW = 1 << 16


class BrokenEngine(BadInput):
    """Starts like an engine of the format and is cut off, or states something that cannot be."""

    kind = "broken-engine"

    def __init__(self, name: str, why: str, *, offset: int, fix: str = "") -> None:
        self.offset = offset
        super().__init__(
            f"{name} is damaged",
            why=f"{why}, at byte {offset}",
            fix=fix or "build it again, or copy it again from where it was built",
            where=Where(file=name),
        )


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that can be read in ranges: a file, or something in memory."""

    name: str
    """What messages call it."""
    size: int
    """In bytes."""
    read: Callable[[int, int], bytes]
    """Bytes at (offset, size); fewer when the end comes first."""

    @classmethod
    def of_bytes(cls, data: bytes, name: str = "engine") -> Blob:
        """Bytes in memory."""
        return cls(name, len(data), lambda offset, size: data[offset : offset + size])

    @classmethod
    def of_file(cls, path: Path) -> Blob:
        """A regular file; ranges are read when asked for, small ones with what follows them. `BadInput` for another."""
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path} is not a file", why="it is a device, a pipe or a socket", where=where_path(path))
        window = (0, b"")

        def read(offset: int, size: int) -> bytes:
            nonlocal window
            start, held = window
            if start <= offset and offset + size <= start + len(held):
                return held[offset - start : offset - start + size]
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(max(size, _WINDOW))
            if size <= _WINDOW:
                window = (offset, data)
            return data[:size]

        return cls(path.name, status.st_size, read)

    def part(self, offset: int, size: int, name: str) -> Blob:
        """A piece as a blob of its own; offsets inside start at 0."""
        return Blob(name, size, lambda at, wanted: self.read(offset + at, max(0, min(wanted, size - at))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What an engine says about itself."""

    format: str
    """`tensorrt-plan`, `neff`, `mxr` …"""
    properties: Mapping[str, str]
    """Property name to value, as far as the bytes say it: `compute-capability` "9.0", `tensorrt` "10.9.0.34"."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Property to the reason why the bytes do not say it."""
    notes: tuple[str, ...] = ()
    """What somebody should know before loading it: it is a pickle, it holds absolute paths, it is for one CPU."""


def json_object(blob: Blob, name: str, *, limit: int) -> dict[str, Any]:
    """The JSON object in the first `limit` bytes; `BrokenEngine` about `name` when there is none."""
    try:
        value = json.loads(blob.read(0, limit))
    except (ValueError, RecursionError):
        raise BrokenEngine(name, "it is not JSON", offset=0) from None
    if not isinstance(value, dict):
        raise BrokenEngine(name, "it is not a JSON object", offset=0)
    return value
