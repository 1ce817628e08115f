"""Reading fields one after another from a blob, each within bounds, each fault with its place."""

from __future__ import annotations

from builder.cache.formats.values import Blob, BrokenEngine

__all__ = ["Cursor"]


class Cursor:
    """A place in a blob that moves on with each field. Fields never reach past `end`."""

    def __init__(self, blob: Blob, offset: int = 0, end: int | None = None) -> None:
        self.blob = blob
        self.at = offset
        self.end = blob.size if end is None else min(end, blob.size)

    @property
    def left(self) -> int:
        """Bytes up to the end."""
        return self.end - self.at

    def fault(self, why: str, *, at: int | None = None) -> BrokenEngine:
        """The error for something wrong here, or at another place."""
        return BrokenEngine(self.blob.name, why, offset=self.at if at is None else at)

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes; `BrokenEngine` when there are fewer."""
        data = self.blob.read(self.at, size) if 0 <= size <= self.left else b""
        if len(data) != size:
            raise self.fault(f"it ends inside {what}, which takes {size} bytes of the {max(self.left, 0)} left")
        self.at += size
        return data

    def skip(self, size: int, what: str) -> None:
        """Move on without reading."""
        if not 0 <= size <= self.left:
            raise self.fault(f"it ends inside {what}, which takes {size} bytes of the {max(self.left, 0)} left")
        self.at += size

    def little(self, size: int, what: str) -> int:
        """An unsigned integer of `size` bytes, the lowest first."""
        return int.from_bytes(self.take(size, what), "little")

    def big(self, size: int, what: str) -> int:
        """An unsigned integer of `size` bytes, the highest first."""
        return int.from_bytes(self.take(size, what), "big")

    def text(self, size: int, what: str) -> str:
        """A field of `size` bytes with text up to the first zero byte; `BrokenEngine` when it is not printable."""
        start = self.at
        data = self.take(size, what).split(b"\0", 1)[0]
        try:
            found = data.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fault(f"{what} is not text", at=start) from None
        if not found.isprintable():
            raise self.fault(f"{what} is not text", at=start)
        return found
