"""How the core tells what it is doing. Only the CLI prints; the core calls a `Reporter`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Advance", "Reporter", "SilentReporter"]


class Advance(Protocol):
    """Called with the number of units finished since the last call; safe to call from several threads."""

    def __call__(self, amount: int, /) -> None:
        """Count `amount` more units as finished."""


class Reporter(Protocol):
    """Receives progress. Methods may be called from worker threads and must not raise."""

    def note(self, text: str) -> None:
        """One line a user should see (shown unless --quiet)."""

    def detail(self, text: str) -> None:
        """One line for --verbose."""

    def task(self, title: str, *, total: int | None = None, unit: str = "B") -> AbstractContextManager[Advance]:
        """A piece of work with a progress bar; `total` in `unit`s (bytes for "B"), None when not known."""


class SilentReporter:
    """Drops everything: for library use and tests."""

    def note(self, text: str) -> None:
        """Drop."""

    def detail(self, text: str) -> None:
        """Drop."""

    @contextmanager
    def task(self, title: str, *, total: int | None = None, unit: str = "B") -> Iterator[Advance]:
        """Drop."""
        yield lambda amount, /: None
