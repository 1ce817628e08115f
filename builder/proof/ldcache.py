"""Reads /etc/ld.so.cache, the only thing the loader knows of /etc/ld.so.conf at run time.

Format: glibc, sysdeps/generic/dl-cache.h (`struct cache_file_new`, `struct cache_extension`). Both byte orders of the
header are possible in principle; the two architectures here are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from builder.errors import BadInput

__all__ = ["CacheEntry", "LoaderCache"]

_OLD_MAGIC = b"ld.so-1.7.0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIBBBBI3I")
_ENTRY = struct.Struct("<iIIIQ")
_OLD_HEADER = struct.Struct("<11sxI")
_OLD_ENTRY = struct.Struct("<iII")
_EXTENSION_MAGIC = 0xEAA42174
_TAG_HWCAPS = 1
_HWCAPS_FLAG = 1 << 62
_FLAG_ELF_LIBC6 = 0x0003
_REQUIRED_FLAGS = {62: 0x0300, 183: 0x0A00}
"""FLAG_X8664_LIB64 and FLAG_AARCH64_LIB64 by `e_machine`."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One line of `ldconfig -p`."""

    name: str
    path: str
    hwcaps: str | None
    """Sub-folder of glibc-hwcaps the file lies in (`x86-64-v3`), None for a plain folder."""


@dataclass(frozen=True, slots=True)
class LoaderCache:
    """The cache's entries for one machine, by name, in the order the loader prefers them."""

    entries: dict[str, tuple[CacheEntry, ...]]

    @classmethod
    def parse(cls, data: bytes, *, machine: int) -> LoaderCache:
        """Parse the new format, alone or behind the old one; `BadInput` when it is neither."""
        start = 0
        if data.startswith(_OLD_MAGIC) and len(data) >= _OLD_HEADER.size:
            _, count = _OLD_HEADER.unpack_from(data)
            start = -(-(_OLD_HEADER.size + count * _OLD_ENTRY.size) // 8) * 8
        try:
            magic, count, _, _, _, _, _, extensions, _, _, _ = _HEADER.unpack_from(data, start)
            if magic != _NEW_MAGIC:
                raise BadInput("not a loader cache", why=f"it starts with {data[:20]!r}")
            levels = _hwcaps_names(data, start, extensions)
            wanted = _FLAG_ELF_LIBC6 | _REQUIRED_FLAGS.get(machine, 0)
            found: dict[str, list[CacheEntry]] = {}
            for number in range(count):
                flags, key, value, _, hwcap = _ENTRY.unpack_from(data, start + _HEADER.size + number * _ENTRY.size)
                if flags != wanted:
                    continue
                level = None
                if hwcap & _HWCAPS_FLAG:
                    level = levels[hwcap & 0xFFFFFFFF]
                elif hwcap:
                    continue
                name = _string(data, start + key)
                found.setdefault(name, []).append(CacheEntry(name, _string(data, start + value), level))
        except (struct.error, IndexError, ValueError) as error:
            raise BadInput(
                "the loader cache is damaged", why=str(error), fix="run ldconfig while the image is built"
            ) from error
        return cls({name: tuple(entries) for name, entries in found.items()})

    def find(self, name: str, *, hwcaps: tuple[str, ...]) -> CacheEntry | None:
        """What the loader takes for `name` on a machine whose usable levels are `hwcaps`, best first."""
        entries = self.entries.get(name, ())
        for level in (*hwcaps, None):
            for entry in entries:
                if entry.hwcaps == level:
                    return entry
        return None


def _string(data: bytes, offset: int) -> str:
    end = data.index(b"\0", offset)
    return data[offset:end].decode(errors="surrogateescape")


def _hwcaps_names(data: bytes, start: int, offset: int) -> list[str]:
    if not offset:
        return []
    magic, count = struct.unpack_from("<II", data, start + offset)
    if magic != _EXTENSION_MAGIC:
        return []
    for number in range(count):
        tag, _, section, size = struct.unpack_from("<IIII", data, start + offset + 8 + number * 16)
        if tag == _TAG_HWCAPS:
            names = struct.unpack_from(f"<{size // 4}I", data, start + section)
            return [_string(data, start + name) for name in names]
    return []
