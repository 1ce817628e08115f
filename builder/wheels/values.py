"""What is fetched and where it lies afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from builder.names import Digest

__all__ = ["WheelSource", "Wheelhouse"]


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
