"""clang offload bundles, plain and compressed: which GPU targets they hold.

Plain: `__CLANG_OFFLOAD_BUNDLE__`, number of entries u64, per entry {offset u64, size u64, id length u64, id}.
Compressed: `CCOB`, version u16, method u16 (0 zlib, 1 zstd), then by version: 1 {uncompressed u32, hash u64},
2 {total u32, uncompressed u32, hash u64}, 3 {total u64, uncompressed u64, hash u64}; the content is a plain bundle.
An id is `<kind>-<triple>-<target>`, e.g. `hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-`.
Source: clang documentation, ClangOffloadBundler.rst, "Bundled Code Object Layout" and "Compressed Bundle".
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

import zstandard

from builder.audit.elf import ReadAt

__all__ = ["BUNDLE_MAGIC", "COMPRESSED_MAGICS", "Bundle", "read_bundle", "read_compressed_bundle"]

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGICS = tuple(b"CCOB" + struct.pack("<H", version) for version in (1, 2, 3))

_LAYOUTS = {1: struct.Struct("<4sHHIQ"), 2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}
_MAX_ENTRIES = 4096
_MAX_ID = 512
_HEAD = 1 << 18
"""Enough of the uncompressed content for the list of any real bundle (4096 entries of 64 bytes)."""
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
        """Device targets with their features, sorted, e.g. ("gfx90a:xnack-", "gfx942")."""
        matches = (_TARGET.search(entry) for entry in self.ids)
        return tuple(sorted({match[1] for match in matches if match}))


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
