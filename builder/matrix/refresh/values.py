"""What a generator makes of a maker's source, and how that differs from a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from builder.errors import Refused
from builder.matrix.schema import Cell

__all__ = ["Change", "Drift", "Generator", "TooShort"]


class TooShort(Refused):
    """A source yields fewer rows than can be true: a page that moved, a file cut off, a form that changed."""

    kind = "too-short"


@dataclass(frozen=True, kw_only=True, slots=True)
class Generator:
    """Turns one maker's machine-readable source into rows of one table."""

    name: str
    table: str
    """Table below matrices/, e.g. `neuron/sdk`."""
    title: str
    """What the source is, for the header of the table."""
    minimum: int
    """Fewer rows than this cannot be true of the whole source."""
    columns: tuple[str, ...]
    """Columns it owns; others of an existing row stay as they are."""
    rows: Callable[[str], tuple[Mapping[str, Cell], ...]]
    """Pure: the text to rows, key columns included. `BadInput` when the text is not of that form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One row that is new, or a cell of one that differs."""

    key: tuple[str, ...]
    column: str
    """Empty for a new row."""
    old: str
    new: str

    def __str__(self) -> str:
        name = " / ".join(self.key)
        return f"+ {name}: {self.new}" if not self.column else f"~ {name}: {self.column}: {self.old} -> {self.new}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """How a source differs from a table, sorted by key and column; and the table's text with it taken in."""

    generator: str
    table: str
    changes: tuple[Change, ...]
    unseen: tuple[tuple[str, ...], ...]
    """Keys of the table that the source does not have. They stay: what was true of a release stays true."""
    text: str
    """Canonical text of the table with the changes."""
