"""The loader's cache (/etc/ld.so.cache), made as ldconfig makes it, so that library look-ups by name work.

Without it the loader still searches its default folders, but `ctypes.util.find_library` and `ldconfig -p` see nothing.
Format: glibc, sysdeps/generic/dl-cache.h (`struct cache_file_new`), little-endian, without extensions; entries are
sorted as elf/cache.c sorts them, downwards by `_dl_cache_libcmp`. ELF: gABI, chapters 4 and 5.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Mapping

from builder.names import Arch

__all__ = ["TRIPLETS", "ld_cache", "parse_ld_cache", "soname"]

TRIPLETS: Mapping[Arch, str] = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
"""Debian's library folder below /lib for each architecture."""

_FLAGS: Mapping[Arch, int] = {"x86_64": 0x0303, "aarch64": 0x0A03}
"""FLAG_ELF_LIBC6 with the architecture's FLAG_…_LIB64 (sysdeps/generic/ldconfig.h)."""

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sLLB3xL12x")
_ENTRY = struct.Struct("<lLLLQ")
_LITTLE_ENDIAN = 2


def ld_cache(libraries: Mapping[str, str], arch: Arch) -> bytes:
    """The cache file of these libraries: soname to absolute path."""
    names = sorted(libraries, key=functools.cmp_to_key(_compare), reverse=True)
    start = _HEADER.size + _ENTRY.size * len(names)
    strings = bytearray()
    entries = bytearray()
    for name in names:
        offsets = []
        for text in (name, libraries[name]):
            offsets.append(start + len(strings))
            strings += text.encode() + b"\0"
        entries += _ENTRY.pack(_FLAGS[arch], *offsets, 0, 0)
    return _HEADER.pack(_MAGIC, len(names), len(strings), _LITTLE_ENDIAN, 0) + bytes(entries) + bytes(strings)


def parse_ld_cache(data: bytes) -> dict[str, str]:
    """Soname to path, in the order of the file; ValueError when it is no cache of this format."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise ValueError("not a loader cache")
    count = _HEADER.unpack_from(data)[1]
    found = {}
    for index in range(count):
        _, key, value, _, _ = _ENTRY.unpack_from(data, _HEADER.size + index * _ENTRY.size)
        found[data[key : data.index(b"\0", key)].decode()] = data[value : data.index(b"\0", value)].decode()
    return found


def _compare(a: str, b: str) -> int:
    """Digits count as numbers and sort above everything else."""
    parts_a, parts_b = re.findall(r"\d+|\D", a), re.findall(r"\d+|\D", b)
    for left, right in zip(parts_a, parts_b, strict=False):
        if left[0].isdigit() and right[0].isdigit():
            difference = int(left) - int(right)
        elif left[0].isdigit() or right[0].isdigit():
            return 1 if left[0].isdigit() else -1
        else:
            difference = ord(left) - ord(right)
        if difference:
            return difference
    return len(parts_a) - len(parts_b)


_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SONAME = 0, 5, 14


def soname(data: bytes) -> str | None:
    """The DT_SONAME of a 64-bit little-endian shared object; None when it has none or is something else."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return None
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    loads, dynamic = [], None
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<LLQQQQ", data, table + index * size)
        if kind == _PT_LOAD:
            loads.append((address, offset, length))
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, length)
    if dynamic is None:
        return None
    tags: dict[int, int] = {}
    for tag, value in struct.iter_unpack("<QQ", data[dynamic[0] : dynamic[0] + dynamic[1] // 16 * 16]):
        if tag == _DT_NULL:
            break
        tags.setdefault(tag, value)
    if _DT_SONAME not in tags or _DT_STRTAB not in tags:
        return None
    strings = tags[_DT_STRTAB]
    for address, offset, length in loads:
        if address <= strings < address + length:
            start = strings - address + offset + tags[_DT_SONAME]
            end = data.find(b"\0", start)
            return data[start:end].decode("utf-8", "replace") if end > start else None
    return None
