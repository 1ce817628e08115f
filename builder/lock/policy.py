"""The table that says which backend a distribution belongs to: checks/policies/packages.toml, as typed rows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder import resources
from builder.errors import Fault, Where, did_you_mean, raise_faults
from builder.names import Arch

__all__ = ["BuildRow", "ExtraRow", "LabelRow", "Owner", "PackagePolicy", "PackageRow", "load_package_policy"]

_NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRow:
    """Distributions whose name says it."""

    pattern: str
    backend: str
    source: str
    also: tuple[str, ...] = ()
    group: str = ""
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelRow:
    """Builds whose local version label says it."""

    pattern: str
    backend: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRow:
    """Builds without a label whose backend depends on version and machine."""

    name: str
    versions: str
    arches: tuple[str, ...]
    backend: str
    source: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraRow:
    """Extras of a distribution for all that pull a backend in."""

    name: str
    extra: str
    """Shell-style pattern of normalised extras."""
    backend: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The backend a package belongs to, and why."""

    backend: str
    also: tuple[str, ...]
    why: str
    source: str
    group: str = ""
    fix: str = ""

    def welcome(self, backend: str) -> bool:
        """Whether it may be in an image of this backend. CPU builds may be in any."""
        return self.backend in (backend, "cpu") or backend in self.also


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagePolicy:
    """The whole table."""

    packages: tuple[PackageRow, ...]
    labels: tuple[LabelRow, ...]
    builds: tuple[BuildRow, ...]
    extras: tuple[ExtraRow, ...] = ()

    def extras_backend(self, name: str, extras: Iterable[str]) -> str:
        """The backend that these extras of a distribution pull in; empty when the table says nothing."""
        for row in self.extras:
            if row.name == name and any(fnmatchcase(canonicalize_name(extra), row.extra) for extra in extras):
                return row.backend
        return ""

    def label_backend(self, version: str) -> LabelRow | None:
        """The row that a version's local label matches."""
        try:
            local = Version(version).local or ""
        except InvalidVersion:
            return None
        segments = local.split(".") if local else []
        return next((row for row in self.labels if any(fnmatchcase(part, row.pattern) for part in segments)), None)

    def owner(self, name: str, version: str, arch: Arch) -> Owner | None:
        """The backend of one package on one machine architecture; None when the table says nothing or "none"."""
        by_name = next((row for row in self.packages if fnmatchcase(name, row.pattern)), None)
        if by_name is not None:
            if by_name.backend == _NONE:
                return None
            return Owner(
                backend=by_name.backend,
                also=by_name.also,
                why=f"{name} is a {by_name.backend} package",
                source=by_name.source,
                group=by_name.group,
                fix=by_name.fix,
            )
        labelled = self.label_backend(version)
        if labelled is not None:
            why = f"{name} {version} is the {labelled.backend} build"
            return Owner(backend=labelled.backend, also=(), why=why, source=labelled.source)
        for row in self.builds:
            if row.name == name and arch in row.arches and _within(version, row.versions):
                return Owner(
                    backend=row.backend,
                    also=(),
                    why=f"{name} {version} without a label is the {row.backend} build on {arch}",
                    source=row.source,
                    fix=row.fix,
                )
        return None


def _within(version: str, versions: str) -> bool:
    try:
        found = Version(version)
    except InvalidVersion:
        return False
    return found.local is None and SpecifierSet(versions).contains(found, prereleases=True)


Row = TypeVar("Row", PackageRow, LabelRow, BuildRow, ExtraRow)


def load_package_policy(path: Path | None = None) -> PackagePolicy:
    """Read and check the table; every fault in one `BadInput`."""
    path = path or resources.policies_dir() / "packages.toml"
    faults: list[Fault] = []
    table: Mapping[str, Any] = {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        faults.append(Fault(what=str(error)))
    known = {"package": PackageRow, "label": LabelRow, "build": BuildRow, "extra": ExtraRow}
    faults += [Fault(what=f"unknown table {key!r}", fix=did_you_mean(key, known)) for key in table if key not in known]
    policy = PackagePolicy(
        packages=_rows(PackageRow, "package", table, faults),
        labels=_rows(LabelRow, "label", table, faults),
        builds=_rows(BuildRow, "build", table, faults),
        extras=_rows(ExtraRow, "extra", table, faults),
    )
    for number, row in enumerate(policy.builds):
        try:
            SpecifierSet(row.versions)
        except InvalidSpecifier as error:
            faults.append(Fault(what=f"build[{number}].versions: {error}"))
    patterns = [row.pattern for row in policy.packages]
    faults += [
        Fault(what=f"package pattern {name!r} stands twice")
        for name in sorted(set(patterns))
        if patterns.count(name) > 1
    ]
    raise_faults(f"cannot use {path.name}", faults, where=Where(file=str(path)))
    return policy


def _rows(kind: type[Row], key: str, table: Mapping[str, Any], faults: list[Fault]) -> tuple[Row, ...]:
    allowed = {field.name: field for field in fields(kind)}
    rows: list[Row] = []
    for number, raw in enumerate(table.get(key, ())):
        place = f"{key}[{number}]"
        wrong = [
            Fault(what=f"{place}: unknown key {name!r}", fix=did_you_mean(name, allowed))
            for name in raw
            if name not in allowed
        ]
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
        for name, field in allowed.items():
            wanted = tuple if field.type == "tuple[str, ...]" else str
            if name not in values:
                if name not in ("also", "group", "fix"):
                    wrong.append(Fault(what=f"{place}: {name} is missing"))
            elif not isinstance(values[name], wanted) or not values[name]:
                wrong.append(Fault(what=f"{place}: {name} is not {'a list' if wanted is tuple else 'a text'}"))
        faults += wrong
        if not wrong:
            made: Any = kind
            rows.append(made(**values))
    return tuple(rows)
