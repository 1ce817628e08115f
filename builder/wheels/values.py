"""What is fetched and where it lies afterwards, and the members of a wheel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from builder.names import Digest

__all__ = ["Member", "WheelSource", "Wheelhouse"]


class WheelSource(Protocol):
    """One wheel to fetch: what a lock says about it."""

    @property
    def file(self) -> str:
        """Wheel file name."""

    @property
    def sha256(self) -> Digest:
        """Digest of the wheel's bytes."""

    @property
    def url(self) -> str:
        """http(s) or file URL, without credentials."""

    @property
    def size(self) -> int | None:
        """Length in bytes, when known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheelhouse:
    """The locked wheels on disk, verified."""

    files: Mapping[str, Path]
    """Wheel file name to the blob in the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One file of the archive, in central-directory order. Directories are not members."""

    name: str
    """Path as written, `/`-separated, relative, without `..`."""
    size: int
    """Uncompressed length in bytes."""
    compressed_size: int
    """Length in bytes of the data at `offset`."""
    crc32: int
    method: int
    """Compression method (APPNOTE 4.4.5): 0 stored, 8 deflated; others must be re-encoded."""
    mode: int
    """Unix permission bits (0 when the archive was not made on Unix)."""
    offset: int
    """Position in the file of the first byte of compressed data."""

    symlink: bool = False
    """Whether the archive marks it as a symbolic link (its data is the target); only seen with `inspect=True`."""

    @property
    def executable(self) -> bool:
        """Whether any execute bit is set; PEP 427 keeps this bit alone when installing."""
        return bool(self.mode & 0o111)
