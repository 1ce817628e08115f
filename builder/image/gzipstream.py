"""Gzip members around deflate streams that already exist, and a small deflate encoder for everything else.

Gzip allows members one after another (RFC 1952, 2.2), so a layer can be put together from ready-made streams. Tar
headers are mostly zeros: `pack` writes runs of zeros as back-references and the rest as stored blocks, which needs no
compression library, so the bytes do not depend on which one this Python was built with.
Sources: RFC 1951, 3.2.3 to 3.2.6 (block formats, fixed Huffman codes); RFC 1952, 2.3 (member format).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from functools import cache

__all__ = ["HEADER", "compressed", "member", "pack", "stored_blocks", "trailer"]

HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Deflate, no name, no time, no extra flags, system unknown."""

_RUN = re.compile(rb"\0{24,}")
_STORED_LIMIT = 0xFFFF


def trailer(crc32: int, size: int) -> bytes:
    """What ends a member: CRC-32 and length of the uncompressed bytes, modulo 2**32."""
    return struct.pack("<LL", crc32, size & 0xFFFFFFFF)


def member(data: bytes) -> bytes:
    """`data` as one gzip member, packed."""
    return HEADER + pack(data) + trailer(zlib.crc32(data), len(data))


def compressed(data: bytes) -> bytes:
    """`data` as one raw deflate stream, compressed by zlib."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()


def pack(data: bytes) -> bytes:
    """A complete raw deflate stream of `data`: runs of zeros as back-references, all else stored."""
    out: list[bytes] = []
    position = 0
    bits_written = False
    """Whether the next stored block's header bits came with the run of zeros before it."""
    total = len(data)
    runs = [match.span() for match in _RUN.finditer(data)]
    for start, end in runs:
        if start > position:
            out.append(_stored(data[position:start], final=False, header=not bits_written))
        last = end == total
        ends = (start, end) == runs[-1] and total - end <= _STORED_LIMIT
        out.append(_zeros(end - start, final=last, stored=None if last else int(ends)))
        bits_written = True
        position = end
    if position < total or not data:
        out.append(_stored(data[position:], final=True, header=not bits_written))
    return b"".join(out)


def stored_blocks(data: memoryview | bytes, *, final: bool = True) -> Iterator[bytes]:
    """`data` as stored blocks, in pieces; a complete raw deflate stream when `final`."""
    view = memoryview(data)
    for start in range(0, max(len(view), 1), _STORED_LIMIT):
        piece = view[start : start + _STORED_LIMIT]
        last = final and start + _STORED_LIMIT >= len(view)
        yield struct.pack("<BHH", int(last), len(piece), len(piece) ^ 0xFFFF)
        yield bytes(piece)


def _stored(data: bytes, *, final: bool, header: bool) -> bytes:
    """Stored blocks; without the first one's header byte when the bits before it hold that already."""
    out = []
    for start in range(0, max(len(data), 1), _STORED_LIMIT):
        piece = data[start : start + _STORED_LIMIT]
        last = final and start + _STORED_LIMIT >= len(data)
        if header or start:
            out.append(bytes([int(last)]))
        out.append(struct.pack("<HH", len(piece), len(piece) ^ 0xFFFF) + piece)
    return b"".join(out)


@cache
def _zeros(count: int, *, final: bool, stored: int | None) -> bytes:
    """A fixed-Huffman block of `count` zero bytes, then (unless it is final) the header bits of a stored block.

    `stored` is that block's BFINAL bit.
    """
    bits = _Bits()
    bits.put(int(final), 1)
    bits.put(1, 2)
    bits.code(0x30, 8)
    left = count - 1
    while left >= 3:
        length = min(left, 258)
        symbol, extra_bits, base = _length_code(length)
        if symbol < 280:
            bits.code(symbol - 256, 7)
        else:
            bits.code(0xC0 + symbol - 280, 8)
        bits.put(length - base, extra_bits)
        bits.code(0, 5)
        left -= length
    for _ in range(left):
        bits.code(0x30, 8)
    bits.code(0, 7)
    if stored is not None:
        bits.put(stored, 1)
        bits.put(0, 2)
    return bits.bytes()


@cache
def _length_code(length: int) -> tuple[int, int, int]:
    """(symbol, number of extra bits, smallest length of the symbol): RFC 1951, 3.2.5."""
    if length == 258:
        return 285, 0, 258
    symbol, base = 257, 3
    for index in range(28):
        extra = max(0, index // 4 - 1)
        if length < base + (1 << extra):
            return symbol + index, extra, base
        base += 1 << extra
    raise ValueError(f"no match is {length} long")


class _Bits:
    """Bits in deflate order: numbers from their lowest bit, Huffman codes from their highest."""

    def __init__(self) -> None:
        self._value = 0
        self._count = 0

    def put(self, value: int, count: int) -> None:
        self._value |= value << self._count
        self._count += count

    def code(self, code: int, count: int) -> None:
        for position in range(count - 1, -1, -1):
            self.put(code >> position & 1, 1)

    def bytes(self) -> bytes:
        return self._value.to_bytes((self._count + 7) // 8, "little")
