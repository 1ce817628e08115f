"""Walking a protocol buffer without its schema: fields one after another, lengths held against the bytes there are.

Source: protobuf.dev, "Encoding". Groups (wire types 3 and 4) are refused: no format read here uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from builder.cache.formats.cursor import Cursor
from builder.cache.formats.values import Blob

__all__ = ["Field", "fields", "text_of"]

_MAX_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class Field:
    """One field."""

    number: int
    value: int | None
    """Of a number; None for bytes."""
    offset: int
    """Where the bytes start."""
    size: int
    """Length of the bytes; 0 for a number."""


def fields(blob: Blob, start: int, size: int, *, limit: int) -> Iterator[Field]:
    """The fields of the message at `start`, at most `limit`; `BrokenEngine` where a field cannot be."""
    cursor = Cursor(blob, start, start + size)
    for _ in range(limit):
        if not cursor.left:
            return
        at = cursor.at
        key = _varint(cursor)
        number, wire = key >> 3, key & 7
        if number == 0 or number >= 1 << 29:
            raise cursor.fault(f"field number {number} does not exist", at=at)
        if wire == 0:
            yield Field(number, _varint(cursor), cursor.at, 0)
        elif wire == 2:
            length = _varint(cursor)
            offset = cursor.at
            cursor.skip(length, f"field {number}")
            yield Field(number, None, offset, length)
        elif wire in (1, 5):
            yield Field(number, cursor.little(8 if wire == 1 else 4, f"field {number}"), cursor.at, 0)
        else:
            raise cursor.fault(f"wire type {wire} is not used", at=at)


def text_of(blob: Blob, field: Field) -> str:
    """The text of a bytes field; empty when it is a number, not printable text, or too long to be a name."""
    if field.value is not None or field.size > _MAX_TEXT:
        return ""
    try:
        found = blob.read(field.offset, field.size).decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return found if found.isprintable() else ""


def _varint(cursor: Cursor) -> int:
    start, value = cursor.at, 0
    for shift in range(0, 70, 7):
        byte = cursor.take(1, "a number")[0]
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & (1 << 64) - 1
    raise cursor.fault("a number of more than ten bytes", at=start)
