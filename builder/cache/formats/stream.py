"""A blob as a file object, for libraries that want one; no length that an input states is ever allocated unseen."""

from __future__ import annotations

import io

from builder.cache.formats.values import Blob

__all__ = ["BlobStream"]

_BUFFER = 1 << 16
_MAX_LINE = 1 << 16


class BlobStream(io.RawIOBase):
    """Reads a blob from `start` up to `limit` bytes further; asking for more gives what there is."""

    def __init__(self, blob: Blob, start: int = 0, limit: int | None = None) -> None:
        super().__init__()
        self._blob = blob
        self._at = start
        self._end = blob.size if limit is None else min(blob.size, start + limit)
        self._buffer = b""
        self._base = start

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Offset in the blob."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move; a place before the start is a ValueError, as for files."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes; all that are left when it is negative."""
        left = max(self._end - self._at, 0)
        size = left if size is None or size < 0 else min(size, left)
        if self._at < self._base or self._at + size > self._base + len(self._buffer):
            self._base = self._at
            self._buffer = self._blob.read(self._at, min(max(size, _BUFFER), left))
        start = self._at - self._base
        data = self._buffer[start : start + size]
        self._at += len(data)
        return data

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]  # Buffer has no len
        """Fill a buffer as far as there are bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line of at most 64 KiB."""
        limit = _MAX_LINE if size is None or size < 0 else min(size, _MAX_LINE)
        start = self._at
        line, newline, _ = self.read(limit).partition(b"\n")
        self._at = start + len(line) + len(newline)
        return line + newline
