"""What a project asks for, held against the cells of a set. Requirements the tables do not know restrict nothing."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.matrix.load import Backend
from builder.matrix.tables import Row
from builder.matrix.values import Label
from builder.matrix.versions import is_exact, parse, within

__all__ = ["Wants", "cell_for", "meets", "parse_wants"]

Wants = dict[str, SpecifierSet]
"""Normalised name to the bounds asked for."""


def parse_wants(requirements: Iterable[Requirement], *, python: str | None, arch: str, known: frozenset[str]) -> Wants:
    """The requirements on packages the tables know, their markers evaluated for the target (Linux, CPython)."""
    environment = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": arch}
    if python is not None:
        environment |= {"python_version": python.rstrip("t"), "python_full_version": f"{python.rstrip('t')}.0"}
    wants: Wants = {}
    for requirement in requirements:
        name = str(canonicalize_name(requirement.name))
        if name not in known or (requirement.marker is not None and not requirement.marker.evaluate(environment)):
            continue
        wants[name] = wants.get(name, SpecifierSet()) & requirement.specifier
    return wants


def cell_for(backend: Backend, row: Row, package: str, arch: str) -> str:
    """The cell of a package with the label the backend asks for on this architecture: `2.13.0` → `2.13.0+cpu`."""
    cell = row.packages()[package]
    label = _label(backend, package, arch)
    return f"{cell}+{label.label}" if label is not None and is_exact(cell) and "+" not in cell else cell


def _label(backend: Backend, package: str, arch: str) -> Label | None:
    return next(
        (
            label
            for label in backend.spec.labels
            if label.package == package and label.arch == arch and label.since is None
        ),
        None,
    )


def meets(cell: str, bounds: SpecifierSet, *, label: str | None = None) -> bool:
    """Whether a cell can satisfy bounds.

    `label` is the build an unlabelled cell is: `2.15.0` of a cu132 row; or a pattern of it, which what is asked for by
    its whole version may match.
    """
    if is_exact(cell):
        version = parse(cell)
        if version is None:
            return not bounds or str(bounds) == f"=={cell}"
        if label and _is_pattern(label):
            pins = [Version(item.version) for item in bounds if item.operator == "==" and "+" in item.version]
            named = (version, *(pin for pin in pins if fnmatchcase(pin.local or "", label) and within(str(pin), cell)))
        else:
            named = (version, Version(f"{cell}+{label}")) if label and version.local is None else (version,)
        return any(bounds.contains(one, prereleases=True) for one in named)
    pinned = [item.version for item in bounds if item.operator == "==" and not item.version.endswith("*")]
    if pinned:
        return all(within(_public(version), cell) for version in pinned)
    if cell.endswith(".*") and cell[0].isdigit():
        prefix = cell[:-2]
        return any(bounds.contains(Version(f"{prefix}.{patch}"), prereleases=True) for patch in (0, 1, 999999))
    return True


def _public(version: str) -> str:
    return version.partition("+")[0]


def needs_label(cell: str, bounds: SpecifierSet, label: str | None) -> bool:
    """Whether bounds hold only for the labelled spelling of a cell, which another index than the default one has."""
    if label is None or _is_pattern(label) or not is_exact(cell):
        return False
    return not meets(cell, bounds) and meets(cell, bounds, label=label)


def _is_pattern(label: str) -> bool:
    return "*" in label
