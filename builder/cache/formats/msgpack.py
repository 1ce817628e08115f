"""Walking MessagePack without building its values: containers are entered, long strings are only measured.

Source: msgpack/msgpack, spec.md. Nesting and the number of items are limited, so that no input costs more than its
size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from builder.cache.formats.cursor import Cursor

__all__ = ["Item", "read_item", "walk"]

Kind = Literal["nil", "bool", "int", "float", "str", "bin", "ext", "array", "map"]

_MAX_TEXT = 4096
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Item:
    """One value, or the head of a container."""

    kind: Kind
    value: int | str | None
    """Of an int, bool or short printable str; the number of elements of an array, or pairs of a map; None otherwise."""
    offset: int
    """Where the content starts."""
    size: int
    """Bytes of the content; 0 for containers."""


_SIZED: dict[int, tuple[Kind, int]] = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xC7: ("ext", 1),
    0xC8: ("ext", 2),
    0xC9: ("ext", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
}
_COUNTED: dict[int, tuple[Kind, int]] = {0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)}
_NUMBERS: dict[int, int] = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def read_item(cursor: Cursor) -> Item:
    """The value or container head at the cursor, which moves behind it."""
    start = cursor.at
    tag = cursor.take(1, "a MessagePack value")[0]
    if tag <= 0x7F or tag >= 0xE0:
        return Item("int", tag if tag <= 0x7F else tag - 256, cursor.at, 0)
    if tag <= 0x8F:
        return _container(cursor, "map", tag & 0x0F)
    if tag <= 0x9F:
        return _container(cursor, "array", tag & 0x0F)
    if tag <= 0xBF:
        return _content(cursor, "str", tag & 0x1F)
    if tag == 0xC0:
        return Item("nil", None, cursor.at, 0)
    if tag in (0xC2, 0xC3):
        return Item("bool", tag - 0xC2, cursor.at, 0)
    if tag in (0xCA, 0xCB):
        return _content(cursor, "float", 4 if tag == 0xCA else 8)
    if tag in _NUMBERS:
        data = cursor.take(_NUMBERS[tag], "a number")
        return Item("int", int.from_bytes(data, "big", signed=tag >= 0xD0), cursor.at, 0)
    if tag in _SIZED:
        kind, width = _SIZED[tag]
        size = cursor.big(width, "a length")
        return _content(cursor, kind, size + (1 if kind == "ext" else 0))
    if tag in _COUNTED:
        kind, width = _COUNTED[tag]
        return _container(cursor, kind, cursor.big(width, "a number of elements"))
    if 0xD4 <= tag <= 0xD8:
        return _content(cursor, "ext", 1 + (1 << tag - 0xD4))
    raise cursor.fault(f"MessagePack has no type {tag:#x}", at=start)


def _container(cursor: Cursor, kind: Kind, count: int) -> Item:
    """A container's head; each element takes a byte at least, so more elements than bytes is a lie."""
    if count * (2 if kind == "map" else 1) > cursor.left:
        raise cursor.fault(f"a {kind} of {count} elements does not fit into the {cursor.left} bytes left")
    return Item(kind, count, cursor.at, 0)


def _content(cursor: Cursor, kind: Kind, size: int) -> Item:
    offset = cursor.at
    if kind == "str" and size <= _MAX_TEXT:
        text = cursor.take(size, "a string").decode("utf-8", "replace")
        return Item(kind, text if text.isprintable() else None, offset, size)
    cursor.skip(size, f"a {kind}")
    return Item(kind, None, offset, size)


def walk(cursor: Cursor, *, limit: int) -> Iterator[tuple[tuple[str, ...], Item]]:
    """Every value below the one at the cursor, with the keys that lead to it (`[]` for an array), at most `limit`."""
    stack: list[tuple[tuple[str, ...], bool, int]] = [((), False, 1)]
    for _ in range(limit):
        while stack and stack[-1][2] == 0:
            stack.pop()
        if not stack:
            return
        path, named, left = stack.pop()
        stack.append((path, named, left - 1))
        here = path
        if named:
            key = read_item(cursor)
            if key.kind in ("array", "map"):
                raise cursor.fault("a key of a map is a container", at=key.offset)
            here = (*path, str(key.value))
        item = read_item(cursor)
        if item.kind in ("array", "map"):
            if len(stack) >= _MAX_DEPTH:
                raise cursor.fault(f"nested deeper than {_MAX_DEPTH}", at=item.offset)
            inner = here if item.kind == "map" else (*here, "[]")
            stack.append((inner, item.kind == "map", int(item.value or 0)))
        yield here, item
