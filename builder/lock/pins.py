"""Which of the stack's bounds and index pins bind this lock.

A bound or a pin binds when the project names the package (or another of the same pin, a family such as torch and
torchvision). For packages that others pull in it is not applied but proposed: the lock that comes out is the one any
installer would make, and when that holds another backend's packages it is refused with the chain and the mend, so
that what an image is made of stands in the project file. See docs/decisions, "stack bounds".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.matrix.values import IndexPin

__all__ = [
    "Applied",
    "applied",
    "asked_labels",
    "labels_demanded",
    "mentioned",
    "named_in",
    "pin_of",
    "unlabelled_pins",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """What of the stack binds."""

    constraints: tuple[str, ...]
    pins: Mapping[str, str]
    """Normalised name to index URL."""


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


def applied(
    requirements: Iterable[str], constraints: Iterable[str], indexes: Iterable[IndexPin], *, also: Iterable[str] = ()
) -> Applied:
    """The bounds and pins that bind when these are the roots; for the names in `also` the pins bind, not the bounds."""
    named = {_name(line) for line in requirements}
    family = named.union(*(pin.packages for pin in indexes if named & set(pin.packages)))
    pins: dict[str, str] = {}
    for pin in indexes:
        if (named | set(also)) & set(pin.packages):
            pins |= dict.fromkeys(pin.packages, pin.index)
    return Applied(constraints=tuple(line for line in constraints if _name(line) in family), pins=pins)


def pin_of(name: str, indexes: Iterable[IndexPin]) -> str | None:
    """The index a package is pinned to by the stack, applied or not."""
    return next((pin.index for pin in indexes if name in pin.packages), None)


def mentioned(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that a resolver's explanation says it could not find (at all, or at a version), sorted."""
    found = []
    for name in sorted(set(names)):
        word = rf"(?<![A-Za-z0-9._-]){re.escape(name)}(?![A-Za-z0-9_-])"
        missing = (
            rf"{word} was not found|no versions? of {word}|{word} has no|No matching distribution found for {word}"
        )
        if re.search(missing, text):
            found.append(name)
    return tuple(found)


def named_in(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that the explanation speaks of at all, sorted."""
    return tuple(name for name in sorted(set(names)) if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text))


def labels_demanded(text: str, names: Iterable[str]) -> dict[str, str]:
    """Those of `names` that the explanation wants at a version with a local label: name to version (`2.9.0+cpu`)."""
    found: dict[str, str] = {}
    for name in sorted(set(names)):
        match = re.search(rf"no versions? of {re.escape(name)}===?([^\s,+]+\+[A-Za-z0-9.]*[A-Za-z0-9])", text)
        if match is not None:
            found[name] = match[1]
    return found


def asked_labels(lines: Iterable[str]) -> frozenset[str]:
    """Names whose local label some line spells out (`torch==2.13.0+cpu`)."""
    return frozenset(
        _name(line)
        for line in lines
        if any(
            "+" in specifier.version and specifier.operator in ("==", "===")
            for specifier in Requirement(line).specifier
        )
    )


def unlabelled_pins(requirements: Iterable[str], constraints: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Requirements that pin a version without the label the stack wants: (requirement, the stack's bound), FR-21."""
    bounds = {_name(line): line for line in constraints if "+" in line}
    return tuple(
        (line, bounds[_name(line)])
        for line in requirements
        if _name(line) in bounds
        and any(
            specifier.operator == "==" and "+" not in specifier.version for specifier in Requirement(line).specifier
        )
    )
