"""Where two locks of a project part ways: the same package in another version, and what makes it so."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.lock.values import Lock

__all__ = ["Divergence", "compare"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """One package that two locks hold in different versions."""

    name: str
    first: str
    second: str
    label_only: bool
    """Whether only the local label differs: two builds of one release, as each backend needs its own."""
    why: tuple[str, ...]


def compare(first: Lock, second: Lock) -> tuple[Divergence, ...]:
    """Packages both locks hold in different versions, by name; what only one holds is no divergence."""
    mine = {item.name: item.version for item in first.packages}
    theirs = {item.name: item.version for item in second.packages}
    return tuple(
        Divergence(
            name=name,
            first=mine[name],
            second=theirs[name],
            label_only=_public(mine[name]) == _public(theirs[name]),
            why=tuple(_reasons(name, first, second)),
        )
        for name in sorted(mine.keys() & theirs.keys())
        if mine[name] != theirs[name]
    )


def _public(version: str) -> str:
    try:
        return Version(version).public
    except InvalidVersion:
        return version


def _reasons(name: str, first: Lock, second: Lock) -> list[str]:
    """What each lock says that bears on the package, the closest cause first."""
    found = []
    for lock in (first, second):
        bounds = [line for line in (*lock.overrides, *lock.requirements, *lock.constraints) if _names(line, name)]
        found += [f"{lock.backend}: {line}" for line in dict.fromkeys(bounds)]
        pins = [pin.index for pin in lock.indexes if name in pin.packages]
        found += [f"{lock.backend}: only from {index}" for index in pins]
    mine, theirs = _askers(name, first), _askers(name, second)
    for lock, without, askers in ((first, second, mine - theirs), (second, first, theirs - mine)):
        found += [f"{lock.backend}: {asker} asks for it, and not in {without.backend}" for asker in sorted(askers)]
    for what, own, other in (
        ("Python", first.python, second.python),
        ("architecture", first.arch, second.arch),
        ("files until", first.exclude_newer, second.exclude_newer),
    ):
        if own != other:
            found.append(f"{what}: {first.backend} {own}, {second.backend} {other}")
    return found or ["neither lock says: lock both again with --upgrade"]


def _names(line: str, name: str) -> bool:
    try:
        return canonicalize_name(Requirement(line).name) == name
    except InvalidRequirement:
        return False


def _askers(name: str, lock: Lock) -> set[str]:
    return {item.name for item in lock.packages if name in item.requires}
