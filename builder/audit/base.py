"""Auditing a base image before anything is put on it: its own packages must fit together, and stay what they are.

In a vendor's image whose torch lacks a package that it requires, a resolver cannot keep that torch and takes the
public one, which is another backend's (FR-02). Wheels of a lock go into a virtual environment of their own and replace
nothing on disk, but vendors' images put their packages in front by PYTHONPATH, and two builds of one framework in a
process end badly: so a backend's packages in the base are frozen.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.audit.environment import marker_environment
from builder.audit.judge import applies
from builder.base.values import BaseDistribution
from builder.errors import Refused
from builder.lock.policy import PackagePolicy
from builder.names import Arch

__all__ = ["BaseFinding", "judge_base", "refuse_base"]

_SYSTEM = ("/usr", "/usr/local")
"""Prefixes that the system's Python imports from; Debian keeps its own packages in one and pip's in the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseFinding:
    """One thing that is wrong with a base for a backend."""

    rule: Literal["base-inconsistent", "base-foreign", "base-replaced"]
    severity: Literal["block", "warn"]
    package: str
    """Name and version of the base's distribution."""
    site: str
    """Where it lies in the base."""
    why: str
    fix: str


def judge_base(
    distributions: Sequence[BaseDistribution],
    *,
    backend: str,
    python: str,
    arch: Arch,
    policy: PackagePolicy,
    locked: Mapping[str, str],
) -> tuple[BaseFinding, ...]:
    """What is wrong with these distributions of a base, the blocking findings first.

    - base-inconsistent: a distribution lacks what it requires, or has it in a version that it does not take. It blocks
      when either belongs to a backend; among other packages it is a warning, as vendors' images are full of it.
    - base-foreign: a distribution belongs to another backend.
    - base-replaced: the lock has a backend's distribution of the base in another version. `locked`: normalised name to
      version.

    `python` decides markers where a distribution's folder does not say which interpreter imports it.
    """
    findings: list[BaseFinding] = []
    for one in distributions:
        seen = _visible(one, distributions)
        unmet, blocks = _unmet(one, seen, marker_environment(one.python or python, arch), arch, policy)
        owner = policy.owner(one.name, one.version, arch)
        about = f"{one.name} {one.version}"
        if unmet:
            findings.append(
                BaseFinding(
                    rule="base-inconsistent",
                    severity="block" if blocks or owner is not None else "warn",
                    package=about,
                    site=one.site,
                    why=(f"{owner.why}; it " if owner else f"{about} ") + "; it ".join(unmet),
                    fix="use a base whose packages fit together, for example a released one of the vendor or one "
                    "without the framework, and let the lock bring it",
                )
            )
        if owner is None:
            continue
        if not owner.welcome(backend):
            findings.append(
                BaseFinding(
                    rule="base-foreign",
                    severity="block",
                    package=about,
                    site=one.site,
                    why=f"{owner.why}, in a base for {backend}",
                    fix=f"use a base that is made for {backend}",
                )
            )
        version = locked.get(one.name)
        if version is not None and version != one.version:
            findings.append(
                BaseFinding(
                    rule="base-replaced",
                    severity="block",
                    package=about,
                    site=one.site,
                    why=f"{owner.why}, and the lock brings {one.name} {version} beside it",
                    fix=f'ask for "{one.name}=={one.version}", which the base has, or use a base without {one.name}',
                )
            )
    return tuple(sorted(findings, key=lambda found: (found.severity, found.rule, found.package, found.site)))


def refuse_base(reference: str, findings: Iterable[BaseFinding], *, backend: str) -> None:
    """Raise `Refused` when one of the findings blocks."""
    blocking = [found for found in findings if found.severity == "block"]
    if blocking:
        raise Refused(
            f"base {reference} is not fit for {backend}",
            why="; ".join(f"{found.why} ({found.rule}, {found.site})" for found in blocking),
            fix=blocking[0].fix + f". builder base check {reference} --backend {backend} lists all",
        )


def _unmet(
    one: BaseDistribution,
    seen: Mapping[str, Sequence[str]],
    environment: Mapping[str, str],
    arch: Arch,
    policy: PackagePolicy,
) -> tuple[list[str], bool]:
    """What it requires and does not get, in words, and whether one of that belongs to a backend by its name."""
    words: list[str] = []
    owned = False
    for line in one.requires:
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            words.append(f"requires {line!r}, which is no requirement")
            continue
        name = canonicalize_name(wanted.name)
        # "" means: it holds without an extra
        if applies(wanted.marker, environment) != "":
            continue
        there = seen.get(name, ())
        if any(_takes(wanted.specifier, version) for version in there):
            continue
        needs = f"{name}{wanted.specifier}"
        words.append(f"requires {needs}, but {f'{there[0]} is there' if there else 'that is not installed'}")
        owned = owned or policy.owner(name, there[0] if there else "0", arch) is not None
    return words, owned


def _takes(specifier: SpecifierSet, version: str) -> bool:
    """What cannot be compared is taken: only a version that is known not to fit makes a base inconsistent."""
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def _visible(one: BaseDistribution, everything: Iterable[BaseDistribution]) -> dict[str, list[str]]:
    """Normalised name to versions of what can be imported together with a distribution.

    A folder whose path names no interpreter is one that a vendor adds by PYTHONPATH: it goes with every interpreter.
    """
    found: dict[str, list[str]] = {}
    for other in everything:
        if _together(one, other):
            found.setdefault(other.name, []).append(other.version)
    return found


def _together(one: BaseDistribution, other: BaseDistribution) -> bool:
    if one.site == other.site or one.python is None or other.python is None:
        return True
    if one.python != other.python:
        return False
    system = _prefix(other.site) in _SYSTEM
    return system and (one.shares_system or _prefix(one.site) in _SYSTEM)


def _prefix(site: str) -> str:
    """`/opt/conda` of /opt/conda/lib/python3.12/site-packages."""
    return posixpath.dirname(posixpath.dirname(posixpath.dirname(site)))
