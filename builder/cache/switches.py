"""What makes a program compile although its engine is there: checks/engine-switches.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from builder.errors import BadInput

__all__ = ["Effect", "Program", "Switch", "load_switches"]

Effect = Literal["off", "moves", "costs"]
"""off: the cache is not asked; moves: another folder or key is asked; costs: part of the work is done again."""

_EFFECTS: tuple[Effect, ...] = ("off", "moves", "costs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """An environment variable that stands between a program and its engines."""

    variable: str
    kinds: frozenset[str]
    values: tuple[str, ...] | None
    """Those that matter, in small letters."""
    unless: tuple[str, ...] | None
    """All matter but these, in small letters."""
    contains: str | None
    """It matters when this is in it."""
    effect: Effect
    why: str
    source: str

    def matters(self, value: str) -> bool:
        """Whether the variable has its effect when it has this value."""
        if self.contains is not None:
            return self.contains in value
        small = value.strip().lower()
        return small in self.values if self.values is not None else small not in (self.unless or ())


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program that must be where the engines are used."""

    names: tuple[str, ...]
    """Any of these will do."""
    variable: str
    """Environment variable that names another; empty when there is none."""
    kinds: frozenset[str]
    needed: frozenset[str]
    """Backends on which nothing is found without it."""
    why: str
    fix: str
    source: str


def load_switches(path: Path) -> tuple[tuple[Switch, ...], tuple[Program, ...]]:
    """The two tables. `BadInput` when the file is damaged."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return (
            tuple(_switch(row) for row in table["switches"]),
            tuple(_program(row) for row in table["programs"]),
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError, StopIteration) as error:
        raise BadInput(f"{path} cannot be used", why=f"{type(error).__name__}: {error}") from error


def _switch(row: Mapping[str, Any]) -> Switch:
    tests = [name for name in ("values", "unless", "contains") if name in row]
    if len(tests) != 1:
        raise ValueError(f"{row['variable']} needs one of values, unless, contains")
    return Switch(
        variable=str(row["variable"]),
        kinds=frozenset(row["kinds"]),
        values=tuple(map(str, row["values"])) if "values" in row else None,
        unless=tuple(map(str, row["unless"])) if "unless" in row else None,
        contains=row.get("contains"),
        effect=next(one for one in _EFFECTS if one == row["effect"]),
        why=str(row["why"]),
        source=str(row["source"]),
    )


def _program(row: Mapping[str, Any]) -> Program:
    return Program(
        names=tuple(map(str, row["names"])),
        variable=str(row.get("variable", "")),
        kinds=frozenset(row["kinds"]),
        needed=frozenset(row["needed"]),
        why=str(row["why"]),
        fix=str(row["fix"]),
        source=str(row["source"]),
    )
