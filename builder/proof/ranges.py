"""A file's bytes by range, from memory or from disk, so that a library of gigabytes is never held."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Protocol

__all__ = ["BytesRanges", "FileRanges", "Ranges"]

_WINDOW = 4 << 20


class Ranges(Protocol):
    """Random access to one file."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, offset: int, size: int, /) -> bytes:
        """The bytes there, fewer at the end of the file."""

    def find(self, words: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
        """Every place of each of these words, by rising offset within a window of the file."""


class BytesRanges:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self._data)

    def read(self, offset: int, size: int, /) -> bytes:
        """The bytes there."""
        return self._data[offset : offset + size]

    def find(self, words: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
        """Places of the words."""
        yield from _places(self._data, words)


class FileRanges:
    """A file on disk, open for reading; searched through one window at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._handle = file.fileno()

    @property
    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._handle).st_size

    def read(self, offset: int, size: int, /) -> bytes:
        """The bytes there."""
        return os.pread(self._handle, size, offset)

    def find(self, words: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
        """Places of the words; windows overlap by the longest word, so that none is cut."""
        overlap = max(map(len, words)) - 1
        for start in range(0, self.size, _WINDOW):
            window = self.read(start, _WINDOW + overlap)
            for offset, word in _places(window, words):
                # what begins in the overlap begins again in the next window
                if offset < _WINDOW:
                    yield start + offset, word


def _places(data: bytes, words: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for word in words:
        at = data.find(word)
        while at >= 0:
            found.append((at, word))
            at = data.find(word, at + 1)
    yield from sorted(found)
