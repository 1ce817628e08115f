"""Packages that no set holds, and that tables of releases or limits name all the same: onnxruntime of a ROCm release,
vLLM of a Gaudi release. Which of the versions they tell of goes with a stack, by the rules that `explain` asks too."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from packaging.specifiers import SpecifierSet

from builder.matrix.grammar import KEYS, alternatives
from builder.matrix.load import Backend
from builder.matrix.question import Question, known_packages
from builder.matrix.rules.limits import judge_limits
from builder.matrix.rules.members import package_pins, release_members
from builder.matrix.sets import touches
from builder.matrix.tables import Row
from builder.matrix.values import RuleVerdict
from builder.matrix.versions import is_exact, parse, sort_key, within
from builder.matrix.wants import meets

__all__ = ["companion", "companion_packages"]


@lru_cache(maxsize=64)
def companion_packages(backend: Backend) -> frozenset[str]:
    """Every distribution that only tables of releases or limits name a version of."""
    return frozenset(_cells(backend)) - known_packages(backend)


@lru_cache(maxsize=64)
def _cells(backend: Backend) -> dict[str, tuple[str, ...]]:
    """Distribution name to the versions and prefixes that are told of it, newest first."""
    told: dict[str, set[str]] = {}
    for kind, column in (("release", "members"), ("limit", "allow")):
        for row in backend.rows(kind):
            for name, text in row.mapping(column).items():
                if name not in KEYS:
                    told.setdefault(name, set()).update(_versions(text))
    return {name: tuple(sorted(cells, key=sort_key, reverse=True)) for name, cells in told.items() if cells}


def _versions(text: str) -> list[str]:
    cells = [part.removeprefix("==") for part in alternatives(text)]
    return [cell for cell in cells if cell[:1].isdigit() and parse(cell.removesuffix(".*")) is not None]


@lru_cache(maxsize=1024)
def _elsewhere(backend: Backend, name: str, toolkit: str) -> frozenset[str]:
    """Versions of a package that are told of other releases of the toolkit and not of this one."""
    lists = [
        (row.text("toolkit") or "", _versions(row.mapping("members").get(name, ""))) for row in backend.rows("release")
    ]
    here = {cell for release, cells in lists if touches(toolkit, release) for cell in cells}
    return frozenset(cell for _, cells in lists for cell in cells) - here


def companion(backend: Backend, question: Question, name: str, bounds: SpecifierSet) -> tuple[str | None, RuleVerdict]:
    """The newest version of `name` within bounds that goes with the packages and toolkit of a question, and what says
    so; None, and what stands against it, when there is none.

    A version that is asked for by itself is judged though no table names it.
    """
    pins = [item.version for item in bounds if item.operator == "==" and not item.version.endswith("*")]
    known = _cells(backend).get(name, ())  # none for what only a set names, as another package's companion
    cells = [cell for cell in known if meets(cell, bounds)]
    cells = [*(pin for pin in pins if not any(within(pin, cell) for cell in cells)), *cells]
    other = _elsewhere(backend, name, question.toolkit) if question.toolkit is not None else ()
    # Where this release has none, the newest of the others tells what is wrong.
    cells = [cell for cell in cells if cell not in other] or cells[:1]
    against: RuleVerdict | None = None
    for cell in cells:
        version = next((pin for pin in pins if within(pin, cell)), cell.replace("*", "0"))
        said = _said(backend, question, name, version)
        if said and all(one.verdict == "supported" for one in said):
            return cell if is_exact(cell) else f"=={cell}", said[0]
        wrong = [one for one in said if one.verdict != "supported"]
        if wrong and (against is None or (against.verdict, wrong[0].verdict) == ("unsupported", "unknown")):
            against = wrong[0]
    if against is not None:
        return None, against
    title = f"{backend.spec.toolkit} {question.toolkit}" if question.toolkit else "this set"
    told = ", ".join(known[:3])
    return None, RuleVerdict(
        rule="companion",
        verdict="unknown",
        why=f"no table says which {name} goes with {title}"
        if cells or not told
        else f"no table names a {name}{bounds}; the newest it does are {told}",
        source=backend.spec.source,
        fix=f"another release, or leave {name} out" if cells or not told else f"ask for one of these: {told}",
    )


def _said(backend: Backend, question: Question, name: str, version: str) -> list[RuleVerdict]:
    """What the tables that name the package say of this version beside the rest."""
    limits, pinned = _naming(backend, name)
    beside = dataclasses.replace(question, packages={**question.packages, name: version})
    found = [release_members(dataclasses.replace(question, packages={name: version}), backend)]
    if pinned & beside.packages.keys():
        before = package_pins(question, backend)
        found += [one for one in (package_pins(beside, backend),) if one != before]
    return [one for one in (*found, *judge_limits(beside, backend, limits).verdicts) if one is not None]


@lru_cache(maxsize=256)
def _naming(backend: Backend, name: str) -> tuple[tuple[Row, ...], frozenset[str]]:
    """The limits that name a package, and the packages whose metadata pin it or that its own pins."""
    limits = (row for row in backend.rows("limit") if name in row.mapping("when") or name in row.mapping("allow"))
    pins = [(row.text("package") or "", row.mapping("requires")) for row in backend.rows("pins")]
    pinned = {own for own, requires in pins if name in requires}
    pinned.update(other for own, requires in pins if own == name for other in requires)
    return tuple(limits), frozenset(pinned)
