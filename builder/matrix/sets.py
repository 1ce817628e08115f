"""Comparing what is asked with the rows of a table of sets."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from builder.matrix.load import Backend
from builder.matrix.tables import Row, Table
from builder.matrix.versions import is_exact, matches, parse, within

__all__ = ["agrees", "describe", "set_tables", "targets_of", "toolkit_agrees", "touches"]


def touches(asked: str, cell: str) -> bool:
    """Whether a release as asked (`7.2` or `7.2.1`) and a cell (`7.2.1`, `==7.2.*`) speak of the same.

    A pre-release is not the release it leads to: 9.1.0 is not 9.1.0-beta.3.
    """
    if within(asked, cell):
        return True
    have = parse(cell) if is_exact(cell) else None
    return have is not None and not have.is_prerelease and within(cell, f"{asked}.*")


def agrees(backend: Backend, row: Row, package: str, asked: str) -> bool:
    """Whether an asked version is the one of a row.

    An unlabelled version as asked stands for the build the row names; a label must be the row's own: `2.13.0+cu126`
    is not the `2.13.0` of a CUDA 13.0 row, although PEP 440 lets `==2.13.0` match it.
    """
    cell = row.packages().get(package)
    if cell is None:
        return False
    labels, any_label = _labels(backend, package)
    return _agrees(cell, asked, row.text("label"), labels, any_label)


@lru_cache(maxsize=1024)
def _labels(backend: Backend, package: str) -> tuple[frozenset[str], bool]:
    """Labels the backend's builds of a package carry, and whether any other works too."""
    named = [label for label in backend.spec.labels if label.package == package]
    return frozenset(label.label for label in named), bool(named) and not any(label.required for label in named)


@lru_cache(maxsize=65536)
def _agrees(cell: str, asked: str, own: str | None, labels: frozenset[str], any_label: bool) -> bool:
    version = parse(asked)
    if version is None:
        return asked == cell
    if version.local is None:
        return within(asked, cell) or (is_exact(cell) and within(cell, asked))
    if "+" in cell:
        return within(asked, cell)
    fits = any_label or version.local in labels or (own is not None and fnmatchcase(version.local, own))
    return fits and within(version.public, cell)


def toolkit_agrees(row: Row, asked: str) -> bool | None:
    """Whether a row goes with a toolkit; None when the row does not say."""
    cell = row.text("toolkit")
    if cell is None:
        return None
    release = row.text("toolkit_release")
    if touches(asked, cell) or (release is not None and touches(asked, release)):
        return True
    if is_exact(cell) and cell.count(".") == 1 and within(asked, f"{cell}.*"):
        return True
    return matches(asked, row.texts("also_toolkit") or ())


def targets_of(row: Row, machine: str | None) -> tuple[str, ...] | None:
    """Device targets of a set on a machine architecture; None when not known."""
    if machine == "aarch64" and (special := row.texts("targets_aarch64")) is not None:
        return special
    return row.texts("targets")


@lru_cache(maxsize=256)
def set_tables(backend: Backend, role: str | None = None) -> tuple[Table, ...]:
    """The tables of sets, those the backend prefers first."""
    order = {lead: number for number, lead in enumerate(backend.spec.prefer)}
    tables = [table for table in backend.of_kind("set") if role is None or table.role == role]
    return tuple(sorted(tables, key=lambda table: (order.get(table.lead or "", len(order)), table.name)))


def describe(row: Row) -> str:
    """`torch-npu 2.12.0, torch 2.12.0 with 9.1.0` for messages."""
    text = ", ".join(f"{name} {version}" for name, version in row.packages().items())
    toolkit = row.text("toolkit_release") or row.text("toolkit")
    return f"{text} with toolkit {toolkit}" if toolkit else text
