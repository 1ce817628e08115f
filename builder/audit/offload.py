"""clang offload bundles, plain and compressed, and LLVM offload binaries: which GPU targets they hold.

Plain: `__CLANG_OFFLOAD_BUNDLE__`, number of entries u64, per entry {offset u64, size u64, id length u64, id}.
Compressed: `CCOB`, version u16, method u16 (0 zlib, 1 zstd), then by version: 1 {uncompressed u32, hash u64},
2 {total u32, uncompressed u32, hash u64}, 3 {total u64, uncompressed u64, hash u64}; the content is a plain bundle.
An id is `<kind>-<triple>-<target>`, e.g. `hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-`.
Offload binary: `10 FF 10 AD`, version u32, size u64, offset and size (version 1) or number (version 2) of entries; an
entry is {image kind u16, offload kind u16, flags u32, strings offset u64, number u64, image offset u64, size u64}, a
string {key offset u64, value offset u64}; the keys `triple` and `arch` say what the image is for.
Source: clang documentation, ClangOffloadBundler.rst, "Bundled Code Object Layout" and "Compressed Bundle"; LLVM,
llvm/Object/OffloadBinary.h.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

import zstandard

from builder.audit.elf import ReadAt

__all__ = [
    "BUNDLE_MAGIC",
    "COMPRESSED_MAGICS",
    "OFFLOAD_MAGICS",
    "Bundle",
    "read_bundle",
    "read_compressed_bundle",
    "read_offload_binary",
]

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGICS = tuple(b"CCOB" + struct.pack("<H", version) for version in (1, 2, 3))

OFFLOAD_MAGICS = tuple(b"\x10\xff\x10\xad" + struct.pack("<I", version) for version in (1, 2))

_LAYOUTS = {1: struct.Struct("<4sHHIQ"), 2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}
_MAX_ENTRIES = 4096
_MAX_ID = 512
_HEAD = 1 << 18
"""Enough of the uncompressed content for the list of any real bundle (4096 entries of 64 bytes)."""
_OFFLOAD = struct.Struct("<4sIQQQ")
_OFFLOAD_ENTRY = struct.Struct("<HHIQQQQ")
_MAX_STRINGS = 64
_KINDS = ("amdgcn", "nvptx64", "nvptx", "spirv64", "spir64", "spirv", "mtgpu")
"""Device processors of triples, for entries that name no target."""
_TARGET = re.compile(r"-((?:gfx[0-9a-f]+|gfx[0-9]+(?:-[0-9]+)?-generic|sm_[0-9]+[af]?)(?::[a-z]+[+-])*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """One bundle."""

    end: int
    """Offset just behind it, or behind its head when its length is not written."""
    ids: tuple[str, ...]
    """Entry ids, host entries included, in order."""
    compressed: bool

    @property
    def targets(self) -> tuple[str, ...]:
        """Device targets with their features, sorted, e.g. ("gfx90a:xnack-", "gfx942"); a triple's processor (nvptx64,
        spir64) for an entry that is for any of its devices."""
        found: set[str] = set()
        for entry in self.ids:
            match = _TARGET.search(entry)
            if match:
                found.add(match[1])
            elif not entry.startswith("host"):
                parts = entry.split("-")
                found.update(kind for kind in _KINDS if kind in parts)
        return tuple(sorted(found))


def read_bundle(read: ReadAt, offset: int, limit: int) -> Bundle | None:
    """The plain bundle at `offset`, or None: the magic alone is also a string constant of every LLVM library."""
    head = read(offset, 32)
    if len(head) < 32 or not head.startswith(BUNDLE_MAGIC):
        return None
    count = struct.unpack_from("<Q", head, 24)[0]
    if not 0 < count <= _MAX_ENTRIES:
        return None
    at, end, ids = offset + 32, offset + 32, []
    for _ in range(count):
        fields = read(at, 24)
        if len(fields) < 24:
            return None
        start, size, length = struct.unpack("<QQQ", fields)
        if not 0 < length <= _MAX_ID or offset + start + size > limit:
            return None
        name = read(at + 24, length)
        if len(name) < length or not name.isascii():
            return None
        ids.append(name.decode("ascii"))
        at += 24 + length
        end = max(end, at, offset + start + size)
    return Bundle(end=end, ids=tuple(ids), compressed=False)


def read_compressed_bundle(read: ReadAt, offset: int, limit: int) -> Bundle | None:
    """The compressed bundle at `offset`, or None when the header or the content makes no sense."""
    head = read(offset, 32)
    if len(head) < 32 or head[:4] != b"CCOB":
        return None
    layout = _LAYOUTS.get(struct.unpack_from("<H", head, 4)[0])
    if layout is None:
        return None
    fields = layout.unpack_from(head)
    method = fields[2]
    total = fields[3] if len(fields) == 6 else 0
    if method not in (0, 1) or offset + total > limit or (total and total < layout.size):
        return None
    available = (total or limit - offset) - layout.size
    content = _inflate_head(read(offset + layout.size, min(available, _HEAD)), zstd=method == 1)
    inner = read_bundle(lambda at, size: content[at : at + size], 0, 1 << 62)
    if inner is None:
        return None
    return Bundle(end=offset + (total or layout.size), ids=inner.ids, compressed=True)


def _inflate_head(data: bytes, *, zstd: bool) -> bytes:
    """The first bytes of a compressed stream that may be cut off; what came out before any damage."""
    out = bytearray()
    try:
        if not zstd:
            return zlib.decompressobj().decompress(data, _HEAD)
        inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(write_size=1 << 16)
        for start in range(0, len(data), 1 << 12):
            out += inflater.decompress(data[start : start + (1 << 12)])
            if len(out) >= _HEAD or inflater.eof:
                break
    except (zlib.error, zstandard.ZstdError):
        pass
    return bytes(out)


def read_offload_binary(read: ReadAt, offset: int, limit: int) -> Bundle | None:
    """The offload binary at `offset`, its images as ids like a bundle's; None when its header makes no sense."""
    head = read(offset, _OFFLOAD.size)
    if len(head) < _OFFLOAD.size or not head.startswith(OFFLOAD_MAGICS):
        return None
    _, version, size, first, length = _OFFLOAD.unpack(head)
    if offset + size > limit or not _OFFLOAD.size <= first < size or (version == 1 and length < _OFFLOAD_ENTRY.size):
        return None
    count = 1 if version == 1 else length
    data = read(offset, min(size, _HEAD))
    ids: list[str] = []
    for number in range(min(count, _MAX_ENTRIES)):
        at = first + number * _OFFLOAD_ENTRY.size
        if at + _OFFLOAD_ENTRY.size > len(data):
            break
        _, _, _, strings, total, _, _ = _OFFLOAD_ENTRY.unpack_from(data, at)
        words: dict[bytes, bytes] = {}
        for place in range(strings, min(strings + 16 * min(total, _MAX_STRINGS), len(data) - 15), 16):
            key, value = struct.unpack_from("<QQ", data, place)
            words[_word(data, key)] = _word(data, value)
        triple = words.get(b"triple", b"")
        if triple and triple.isascii():
            ids.append(f"offload-{triple.decode('ascii')}-{words.get(b'arch', b'').decode('ascii', 'replace')}")
    return Bundle(end=offset + size, ids=tuple(ids), compressed=False) if ids else None


def _word(data: bytes, at: int) -> bytes:
    """The NUL-terminated word at `at`, cut off where no name is that long."""
    return data[at : at + _MAX_ID].split(b"\0", 1)[0]
