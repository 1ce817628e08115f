"""A byte stream read forwards once, chunk by chunk as it comes, with a few ranges kept for later.

Chunks are not joined unless a read asks for bytes of two: copying every byte once more costs a tenth of inflating it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["BEHIND", "Missing", "Tape"]

BEHIND = 1024
"""Bytes before the window that can still be read."""


class Missing(LookupError):
    """A range that went by without being kept: stream again and keep it."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(offset, size)
        self.offset = offset
        self.size = size


class Tape:
    """`chunks` as a window that moves forwards. `read` pulls what it needs; `keep` remembers chunks that go by.

    The window holds [base, end), and `BEHIND` bytes before it can be read too; memory is that and the kept chunks,
    whatever the length of the stream.
    """

    def __init__(self, chunks: Iterable[bytes], size: int) -> None:
        self.size = size
        """Length of the whole stream, in bytes."""
        self.base = 0
        self.end = 0
        """Offset just behind the window."""
        self.window = b""
        self._behind = b""
        self._chunks: Iterator[bytes] = iter(chunks)
        self._wanted: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._kept: list[bytes] = []
        self._joined = (0, b"")

    def keep(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Remember these (offset, size) ranges, as far as they are in the window or still to come."""
        known = bool(self._wanted)
        for offset, size in ranges:
            stop = min(offset + size, self.size)
            if offset < stop and not any(start <= offset and stop <= until for start, until in self._wanted):
                self._wanted.append((offset, stop))
        if not known:
            self._remember(self.base, self.window)

    def turn(self, offset: int) -> bool:
        """Make the chunk that holds `offset`, which lies behind the window, the window; False at the stream's end."""
        while True:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            start = self.end
            self._remember(start, chunk)
            whole = len(self.window) >= BEHIND
            self._behind = self.window[-BEHIND:] if whole else (self._behind + self.window)[-BEHIND:]
            self.base, self.window = start, chunk
            self.end = start + len(chunk)
            if offset < self.end:
                return True

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from a little before `base` on, fewer at the end of the stream."""
        if offset + size > self.end:
            self._reach(offset + size)
        at = offset - self.base
        if at >= 0:
            return self.window[at : at + size]
        at += len(self._behind)
        if at < 0:
            raise ValueError("the tape only runs forwards")
        behind = self._behind[at : at + size]
        return behind + self.window[: size - len(behind)]

    def before(self, offset: int, size: int) -> bytes:
        """The bytes before `offset`, a place of the window or just behind it: fewer where they went by too long ago."""
        start = max(offset - size, self.base - len(self._behind), 0)
        return self.read(start, offset - start)

    def kept(self, offset: int, size: int) -> bytes:
        """A range remembered earlier, fewer bytes at the end of the stream; `Missing` when it was not kept."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        start, joined = self._joined
        if start <= offset and stop <= start + len(joined):
            return joined[offset - start : stop - start]
        parts: list[bytes] = []
        at = offset
        number = max(0, bisect_right(self._starts, at) - 1)
        while at < stop and number < len(self._starts):
            place = at - self._starts[number]
            part = self._kept[number][place : place + stop - at] if place >= 0 else b""
            if not part:
                break
            parts.append(part)
            at += len(part)
            number += 1
        if at < stop:
            raise Missing(offset, size)
        if len(parts) == 1:
            return parts[0]
        self._joined = offset, b"".join(parts)
        return self._joined[1]

    def _reach(self, offset: int) -> None:
        """Add chunks to the window until it ends at `offset` or the stream does."""
        parts = [self.window]
        while self.end < offset and (chunk := next(self._chunks, None)) is not None:
            self._remember(self.end, chunk)
            parts.append(chunk)
            self.end += len(chunk)
        if len(parts) > 1:
            self.window = b"".join(parts)

    def _remember(self, start: int, chunk: bytes) -> None:
        """Keep the chunk whole when a range touches it: a part would be a copy."""
        stop = start + len(chunk)
        if start < stop and any(low < stop and start < high for low, high in self._wanted):
            self._starts.append(start)
            self._kept.append(chunk)
