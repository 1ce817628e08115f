"""LLVM bitcode: the target triple of a module, which says whose machine code will be made of it.

Layout: LLVM, "LLVM Bitcode File Format" (magic numbers, wrapper, blocks, abbreviation ids) and LLVMBitCodes.h (numbers
of blocks and records). Blocks are skipped by their length; nothing but the module's own first records is read.
"""

from __future__ import annotations

import struct

__all__ = ["BITCODE_MAGICS", "bitcode_backend", "bitcode_triple"]

BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
"""A module, and the wrapper around one."""
_END_BLOCK, _ENTER_SUBBLOCK, _DEFINE_ABBREV, _UNABBREV_RECORD = 0, 1, 2, 3
_MODULE_BLOCK = 8
_TRIPLE = 2
_MOST_RECORDS = 4096
_LONGEST = 256
_OF_TRIPLE = (("nvptx", "cuda"), ("amdgcn", "rocm"))


def bitcode_backend(triple: str) -> str:
    """Whose devices run it; empty for a host's processor and for what many vendors take (SPIR-V)."""
    return next((backend for begin, backend in _OF_TRIPLE if triple.startswith(begin)), "")


def bitcode_triple(data: bytes) -> str | None:
    """The triple of the first module in `data`, which may be cut off; None where there is none to be read."""
    if data.startswith(BITCODE_MAGICS[1]) and len(data) >= 16:
        offset, size = struct.unpack_from("<II", data, 8)
        data = data[offset : offset + size]
    if not data.startswith(BITCODE_MAGICS[0]):
        return None
    bits = _Bits(data, 4)
    try:
        while bits.number(2) == _ENTER_SUBBLOCK:
            kind, width, end = bits.block()
            if kind == _MODULE_BLOCK:
                return _triple_of(bits, width)
            bits.at = end
    except _EndOfData:
        pass
    return None


def _triple_of(bits: _Bits, width: int) -> str | None:
    for _ in range(_MOST_RECORDS):
        what = bits.number(width)
        if what == _ENTER_SUBBLOCK:
            bits.at = bits.block()[2]
        elif what == _DEFINE_ABBREV:
            bits.skip_abbreviation()
        elif what == _UNABBREV_RECORD:
            code, count = bits.vbr(6), bits.vbr(6)
            values = [bits.vbr(6) for _ in range(min(count, _MOST_RECORDS))]
            if code == _TRIPLE:
                return "".join(chr(value) for value in values[:_LONGEST] if value < 128)
            if count > _MOST_RECORDS:
                return None
        else:  # the end, or a record in a form that was defined before: triples come unabbreviated and early
            return None
    return None


class _EndOfData(Exception):
    """The data ends inside a block."""


class _Bits:
    """A stream of bits, the lowest of each byte first."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self.at = start * 8

    def number(self, width: int) -> int:
        """An unsigned number of at most 64 bits."""
        first, last = self.at // 8, (self.at + width + 7) // 8
        if last > len(self._data):
            raise _EndOfData
        value = int.from_bytes(self._data[first:last], "little") >> (self.at % 8)
        self.at += width
        return value & ((1 << width) - 1)

    def vbr(self, width: int) -> int:
        """A number in pieces, the highest bit of each saying that another follows."""
        value = shift = 0
        more = 1 << (width - 1)
        while shift < 128:
            piece = self.number(width)
            value |= (piece & (more - 1)) << shift
            if not piece & more:
                return value
            shift += width - 1
        raise _EndOfData

    def block(self) -> tuple[int, int, int]:
        """Behind ENTER_SUBBLOCK: the block's number, the width of abbreviation ids in it, and its end in bits."""
        kind, width = self.vbr(8), self.vbr(4)
        self.at = (self.at + 31) // 32 * 32
        size = self.number(32)
        if not 2 <= width <= 32:
            raise _EndOfData
        return kind, width, self.at + size * 32

    def skip_abbreviation(self) -> None:
        """Behind DEFINE_ABBREV."""
        for _ in range(self.vbr(5)):
            if self.number(1):
                self.vbr(8)
            elif self.number(3) in (1, 2):  # fixed and variable width say how wide
                self.vbr(5)
