"""The faults of one link, each kept once at its heaviest: many modules run into the same one."""

from __future__ import annotations

from dataclasses import dataclass, field

from builder.proof.loader import Missing
from builder.proof.values import Assumption, Role, SymbolVersion, Unresolved, Weight

__all__ = ["WEIGHTS", "Faults", "Opened", "why_missing"]

WEIGHTS: tuple[Weight, ...] = ("optional", "undecided", "required")
"""Lightest first."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What was started, imported or opened, and how much it matters."""

    path: str
    role: Role
    weight: Weight
    why: str = ""


@dataclass(slots=True)
class Faults:
    """What was found so far."""

    unresolved: dict[tuple[str, str], Unresolved] = field(default_factory=dict)
    versions: dict[tuple[str, str, str], SymbolVersion] = field(default_factory=dict)
    assumed: dict[tuple[str, str], Assumption] = field(default_factory=dict)
    host: dict[str, set[str]] = field(default_factory=dict)
    """Name of a library of the node's driver, to the objects that ask for it."""
    inside: dict[str, str] = field(default_factory=dict)
    """Of those names, the ones that a file of the image answers to."""

    def add(self, fault: Unresolved) -> None:
        """Keep a missing file unless it is known at the same weight or heavier."""
        known = self.unresolved.get((fault.object, fault.needed))
        if known is None or WEIGHTS.index(fault.weight) > WEIGHTS.index(known.weight):
            self.unresolved[fault.object, fault.needed] = fault

    def add_version(self, fault: SymbolVersion) -> None:
        """Keep a missing version unless it is known at the same weight or heavier."""
        key = (fault.object, fault.library, fault.version)
        known = self.versions.get(key)
        if known is None or WEIGHTS.index(fault.weight) > WEIGHTS.index(known.weight):
            self.versions[key] = fault


def why_missing(missing: Missing) -> str:
    """Why the loader does not get the library, in half a sentence."""
    outcome = missing.outcome
    if outcome.broken:
        return f"the loader stops at {outcome.broken}, which is no ELF file"
    text = f"not in any of {len(outcome.searched)} places searched"
    if outcome.skipped:
        text += f"; passed over {outcome.skipped[0]}: it is for another processor"
    return text
