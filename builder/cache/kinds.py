"""Engine kinds: which properties make an engine of each kind valid. Read from matrices/engines, one table a kind.

The tables have the form of all tables (docs/matrix-tables.md) and are judged by `builder matrix check`. A lookup reads
one without the rooms that judge it: they would take longer to load than the lookup takes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from builder import resources
from builder.cache.rules import OF_ITSELF
from builder.cache.values import Group, Hold
from builder.errors import BadInput, did_you_mean

__all__ = ["FOLDER", "GROUPS", "HOLDS", "EngineKind", "Property", "engine_kind", "kind_names"]

FOLDER = "engines"
GROUPS: tuple[Group, ...] = ("model", "option", "builder", "device", "env", "format")
HOLDS: tuple[Hold, ...] = ("hard", "soft", "forgotten")


@dataclass(frozen=True, kw_only=True, slots=True)
class Property:
    """One row: a thing that an engine's validity depends on."""

    name: str
    group: Group
    hold: Hold
    rule: str
    """Name of builder.cache.rules.RULES."""
    form: str
    """Name of builder.cache.forms.FORMS."""
    by: str | None
    """The property the rule looks at as well."""
    limits: tuple[str, ...]
    ignore: tuple[str, ...]
    """Flags that change no result and are left out of the value."""
    default: str | None
    """The value when none is stated; None: it is not known then."""
    node: str | None
    """Which value of a node class it is (builder.cache.devices); None when a node class does not tell."""
    why: str
    cost: str
    source: str

    @property
    def decides(self) -> bool:
        """Whether a difference can make an engine unusable."""
        return self.hold != "soft"

    @property
    def required(self) -> bool:
        """Whether an engine cannot be kept without it; what only the header of the artefact tells may be unreadable."""
        return self.decides and self.group != "format" and self.default is None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EngineKind:
    """One kind of engine. Compared by identity: each is loaded once."""

    name: str
    title: str
    properties: Mapping[str, Property]
    """By name, in the order of the table."""
    required: tuple[str, ...]
    """Properties an engine cannot be kept without."""
    equal: tuple[Property, ...]
    """Properties that decide and must be equal."""
    loose: tuple[Property, ...]
    """Properties that decide by any other rule."""
    of_itself: bool
    """Whether a property is judged even when two keys are equal."""

    @property
    def environment(self) -> tuple[str, ...]:
        """Environment variables that count, and no other."""
        return tuple(one.name for one in self.properties.values() if one.group == "env")


def kind_names(root: Path | None = None) -> tuple[str, ...]:
    """All kinds, sorted."""
    return tuple(sorted(path.stem for path in _files(root or resources.matrices_dir())))


@lru_cache(maxsize=64)
def engine_kind(name: str, root: Path | None = None) -> EngineKind:
    """One kind, read once; `BadInput` with the closest names when there is none."""
    return _load(name, root or resources.matrices_dir())


def _load(name: str, root: Path) -> EngineKind:
    path = root / FOLDER / f"{name}.toml"
    if path not in _files(root):
        raise BadInput(f"unknown engine kind {name!r}", fix=did_you_mean(name, kind_names(root)))
    return _kind(path)


def _files(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob("*.toml"))


def _kind(path: Path) -> EngineKind:
    """Only read here, not judged: `check_engine_tables` does that, and the tests of this project call it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        sources = {str(name): str(source["text"]) for name, source in data["sources"].items()}
        properties = [_property(row, sources) for row in data["rows"]]
        title = str(data["title"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise BadInput(
            f"{path} describes no engine kind", why=f"{type(error).__name__}: {error}", fix="builder matrix check tells"
        ) from error
    return EngineKind(
        name=path.stem,
        title=title,
        properties=MappingProxyType({one.name: one for one in properties}),
        required=tuple(one.name for one in properties if one.required),
        equal=tuple(one for one in properties if one.decides and one.rule == "equal"),
        loose=tuple(one for one in properties if one.decides and one.rule != "equal"),
        of_itself=any(one.rule in OF_ITSELF for one in properties),
    )


def _property(row: Mapping[str, Any], sources: Mapping[str, str]) -> Property:
    group = next(group for group in GROUPS if group == row["group"])
    return Property(
        name=str(row["property"]),
        group=group,
        hold=next(hold for hold in HOLDS if hold == row["class"]),
        rule=str(row["rule"]),
        form=str(row.get("form", "text")),
        by=row.get("by"),
        limits=tuple(row.get("limits", ())),
        ignore=tuple(row.get("ignore", ())),
        default="" if group == "env" else row.get("default"),
        node=row.get("node"),
        why=str(row["why"]),
        cost=str(row.get("cost", "")),
        source=sources[row["source"]],
    )
