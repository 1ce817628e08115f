"""Where programs keep the engines they compile: checks/engines.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.errors import BadInput, did_you_mean

__all__ = ["EngineFolder", "load_folders"]

_KEYS = ("variable", "env", "source")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFolder:
    """How a program is told where to keep its engines."""

    variable: str
    """Environment variable that names the folder."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Further variables without which nothing is kept."""
    source: str = ""


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
                source=str(row["source"]),
            )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{path} cannot be used", why=f"{type(error).__name__}: {error}") from error
    return folders
