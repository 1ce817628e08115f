"""The directory of a plain zip archive, read in one go.

`plain_members` knows the archives that wheels nearly always are, and tells them from all others: members one behind the
other in the order of the directory, each called the same in both places, nothing between them, no zip64, no extra
fields, no encryption, names that are plain relative paths. Whatever is different in anything is left to the slow way,
which says what is wrong with it, if something is.
Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
"""

from __future__ import annotations

import mmap
import stat
import struct

from builder.wheels.values import Member

__all__ = ["LOCAL", "MAX_RATIO", "plain_members"]

LOCAL = struct.Struct("<4s5H3L2H")
"""A local header, up to the name."""
MAX_RATIO = 1100
"""Deflate cannot expand more than 1032:1 (zlib.net, "Maximum Compression Factor"); a member above this is a lie."""

_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4sBBHHHLLLLHHHHHLL")
_LOCATOR = 20
_NEWEST = 63
"""The newest version of the format that `zipfile` reads."""
_PLAIN_FLAGS = 0x80E
"""How hard the data was compressed, lengths behind the data, a name in UTF-8."""
_UTF8 = 0x800
_METHODS = (0, 8)
_PLAIN_MODES = (0, stat.S_IFREG)
_BAD = ("\\", "//", "/./", "/../", "\0/", "\0./", "\0../", "/\0", "/.\0", "/..\0", "\0.\0", "\0..\0", "\0\0")
"""In names with a NUL before and behind each: what a plain relative path does not have."""


def plain_members(data: mmap.mmap) -> list[Member] | None:
    """The members of a plain archive, which no check of the slow way would find fault with; None for any other."""
    start = _directory(data)
    if start is None:
        return None
    directory = data[start : len(data) - _END.size]
    found: list[Member] = []
    names = [""]
    at = end = 0
    while at < len(directory):
        if at + _ENTRY.size > len(directory):
            return None
        (mark, _, system, needs, flags, method, _, crc32, packed, size, length, extra, comment, _, _, mode, place) = (
            _ENTRY.unpack_from(directory, at)
        )
        at += _ENTRY.size
        raw = directory[at : at + length]
        at += length + comment
        unix = mode >> 16 if system == 3 else 0
        if (
            mark != b"PK\x01\x02"
            or extra
            or needs > _NEWEST
            or flags & ~_PLAIN_FLAGS
            or method not in _METHODS
            or not end <= place < end + LOCAL.size
            or place + LOCAL.size > start
            or size > MAX_RATIO * max(packed, 1) + 64
        ):
            return None
        header = LOCAL.unpack_from(data, place)
        first = place + LOCAL.size
        if header[0] != b"PK\x03\x04" or header[9] != length or data[first : first + length] != raw:
            return None
        first += length + header[10]
        end = first + packed
        try:
            name = raw.decode("ascii" if raw.isascii() else "utf-8" if flags & _UTF8 else "cp437")
        except UnicodeDecodeError:
            return None
        if name.endswith("/"):
            names.append(name[:-1])
            continue
        if stat.S_IFMT(unix) not in _PLAIN_MODES:
            return None
        names.append(name)
        found.append(
            Member(
                name=name,
                size=size,
                compressed_size=packed,
                crc32=crc32,
                method=method,
                mode=unix & 0o7777,
                offset=first,
            )
        )
    if at != len(directory) or not end <= start < end + LOCAL.size:
        return None
    names.append("")
    text = "\0".join(names)
    if text.count("\0") != len(names) - 1 or any(bad in text for bad in _BAD):
        return None
    return found


def _directory(data: mmap.mmap) -> int | None:
    """Where the directory begins, when the archive ends with it and a plain end record, and begins with a member."""
    tail = data[-_END.size - _LOCATOR :]
    if len(tail) < _END.size + _LOCATOR or tail.startswith(b"PK\x06\x07"):
        return None
    mark, disk, first_disk, here, total, size, start, comment = _END.unpack_from(tail, _LOCATOR)
    plain = mark == b"PK\x05\x06" and not disk and not first_disk and here == total and not comment
    return start if plain and start + size + _END.size == len(data) else None
