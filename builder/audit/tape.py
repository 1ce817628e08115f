"""A byte stream read forwards once, with a sliding window and a few ranges kept for later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["Missing", "Tape"]


class Missing(LookupError):
    """A range that went by without being kept: stream again and keep it."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(offset, size)
        self.offset = offset
        self.size = size


class Tape:
    """`chunks` as a window that moves forwards. `read` pulls what it needs; `keep` remembers ranges that go by.

    The window holds [base, end); memory is the window plus the kept ranges, whatever the length of the stream.
    """

    def __init__(self, chunks: Iterable[bytes], size: int) -> None:
        self.size = size
        """Length of the whole stream, in bytes."""
        self.base = 0
        self.window = b""
        self._chunks: Iterator[bytes] = iter(chunks)
        self._done = False
        self._wanted: list[tuple[int, int]] = []
        self._kept: list[tuple[int, bytes]] = []

    @property
    def end(self) -> int:
        """Offset just behind the window."""
        return self.base + len(self.window)

    @property
    def exhausted(self) -> bool:
        """Whether the stream has no more to give."""
        return self._done

    def keep(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Remember these (offset, size) ranges, as far as they are in the window or still to come."""
        for offset, size in ranges:
            stop = min(offset + size, self.size)
            if offset < stop and not any(start <= offset and stop <= until for start, until in self._wanted):
                self._wanted.append((offset, stop))
                self._remember(offset, stop, self.base, self.window)

    def pull(self) -> bool:
        """Add the next chunk to the window; False at the end of the stream."""
        chunk = next(self._chunks, None)
        if chunk is None:
            self._done = True
            return False
        at = self.end
        self.window += chunk
        for start, stop in self._wanted:
            self._remember(start, stop, at, chunk)
        return True

    def drop(self, offset: int) -> None:
        """Forget the window before `offset`, pulling (and forgetting) what lies between."""
        while offset > self.end:
            self.base, self.window = self.end, b""
            if not self.pull():
                return
        if offset > self.base:
            self.window = self.window[offset - self.base :]
            self.base = offset

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at or after `base`, fewer at the end of the stream."""
        while offset + size > self.end and self.pull():
            pass
        if offset < self.base:
            raise ValueError("the tape only runs forwards")
        return self.window[offset - self.base : offset - self.base + size]

    def kept(self, offset: int, size: int) -> bytes:
        """A range remembered earlier, fewer bytes at the end of the stream; `Missing` when it was not kept."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        parts: list[bytes] = []
        at = offset
        for start, data in self._kept:
            if start <= at < start + len(data):
                part = data[at - start : stop - start]
                parts.append(part)
                at += len(part)
                if at >= stop:
                    return b"".join(parts)
        raise Missing(offset, size)

    def _remember(self, start: int, stop: int, at: int, data: bytes) -> None:
        low, high = max(start, at), min(stop, at + len(data))
        if low < high:
            self._kept.append((low, data[low - at : high - at]))
            self._kept.sort(key=lambda item: item[0])
