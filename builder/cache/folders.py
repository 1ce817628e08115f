"""Where programs keep the engines they compile: checks/engines.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.errors import BadInput, did_you_mean

__all__ = ["EngineFolder", "load_folders"]

_KEYS = ("variable", "env", "needed", "default", "before", "writes", "code", "source")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFolder:
    """How a program is told where to keep its engines."""

    variable: str
    """Environment variable that names the folder."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Further variables without which nothing is kept, or something is compiled again although it is."""
    needed: tuple[str, ...] = ()
    """Those of `env` without which nothing is found."""
    default: str = ""
    """The folder when no variable names one: a path with {home}, {cache}, {temporary} and {user}; empty: none."""
    before: tuple[tuple[str, str], ...] = ()
    """Variables that come next, each with what follows its folder."""
    writes: bool = False
    """Whether engines are found only where the folder can be written."""
    code: bool = False
    """Whether shared objects are loaded from it."""
    source: str = ""


def _before(text: str) -> tuple[str, str]:
    name, _, rest = text.partition(":")
    return name, rest


def load_folders(path: Path) -> dict[str, EngineFolder]:
    """Kind to folder. `BadInput` when the table is damaged."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        folders = {}
        for kind, row in table.items():
            for name in row.keys() - set(_KEYS):
                raise ValueError(f"{kind} has {name!r}; {did_you_mean(name, _KEYS)}")
            folders[kind] = EngineFolder(
                variable=str(row["variable"]),
                env={str(name): str(value) for name, value in row.get("env", {}).items()},
                needed=tuple(map(str, row.get("needed", ()))),
                default=str(row.get("default", "")),
                before=tuple(_before(str(one)) for one in row.get("before", ())),
                writes=bool(row.get("writes", False)),
                code=bool(row.get("code", False)),
                source=str(row["source"]),
            )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{path} cannot be used", why=f"{type(error).__name__}: {error}") from error
    return folders
