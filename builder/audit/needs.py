"""Libraries that files need and nobody brings: undeclared by one wheel's metadata, or absent from a whole lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.audit.facts import ElfFacts, WheelFacts
from builder.audit.judge import promised_machine
from builder.audit.tables import Provider, Tables, library_stem, load_providers, load_tables
from builder.audit.values import Finding

__all__ = ["absent_libraries", "other_majors", "undeclared_libraries"]

_SHOWN = 5
_MAJOR = re.compile(r"\.so\.(\d+)(?:\.\d+)*$")


def undeclared_libraries(facts: WheelFacts, *, chain: tuple[str, ...]) -> Iterator[Finding]:
    """Libraries of known distributions that a wheel needs, does not hold and does not require, not even under an extra.

    A wheel that requires torch gets the libraries that torch requires and is left alone.
    """
    required = set(_required(facts))
    if "torch" in required:
        return
    inside = set(_provided([facts]))
    needed = {name: elf.path for elf in _loadable(facts) for name in elf.needed if name not in inside}
    for row in load_providers().providers if needed else ():
        if any(fnmatchcase(name, pattern) for name in (*required, facts.name) for pattern in row.distributions):
            continue
        found = {
            name: path
            for name, path in needed.items()
            if any(fnmatchcase(library_stem(name) or "", stem) for stem in row.libraries)
        }
        owner = next((library for name in found if (library := load_tables().library(name))), None)
        if owner is not None:
            yield Finding(
                rule="undeclared-library",
                severity="info",
                backend=owner.backend,
                path=next(iter(found.values())),
                evidence=f"needs {', '.join(sorted(found)[:_SHOWN])}, and no requirement brings it, under no extra",
                chain=chain,
                fix=f"when this file is used, add {' or '.join(row.distributions)} to the project's requirements",
            )


def absent_libraries(
    wheels: Iterable[WheelFacts],
    chains: Mapping[str, tuple[str, ...]],
    *,
    backend: str,
    tables: Tables,
    plain_base: bool,
) -> tuple[Finding, ...]:
    """Libraries that no wheel of a lock holds, no host injects and no system has: the base must bring them.

    `plain_base` says that the base is a bare system: then a vendor's library of the image's own backend cannot be
    there, which is a warning. Other backends' libraries are findings of their wheels already.
    """
    everything = tuple(wheels)
    there = set(_provided(everything))
    found: list[Finding] = []
    for facts in everything:
        vendor: dict[str, str] = {}
        plain: dict[str, str] = {}
        for elf in _loadable(facts):
            for name in (*elf.needed, *elf.filters):
                library = tables.library(name)
                if name in there or _is_system(name) or (library is not None and library.host):
                    continue
                if library is None:
                    plain.setdefault(name, elf.path)
                elif library.backend == backend:
                    vendor.setdefault(name, elf.path)
        for names, certain in ((vendor, plain_base), (plain, False)):
            if names:
                found.append(_absent(facts, names, chains, backend, certain=certain))
    return tuple(found)


def other_majors(
    wheels: Iterable[WheelFacts], chains: Mapping[str, tuple[str, ...]], *, backend: str, tables: Tables
) -> tuple[Finding, ...]:
    """Libraries of the image's own backend that a wheel needs or opens in another major version than the lock holds,
    and no other (FR-26): metadata does not show it, and the first use fails.

    A wheel that names several versions, or the library without one, finds what there is and is left alone.
    """
    everything = tuple(wheels)
    found: list[Finding] = []
    for row in load_providers().providers:
        holders: dict[str, set[str]] = {}
        there: set[tuple[str, str]] = set()
        for facts in everything:
            for name in _provided([facts]):
                if _is_of(name, row) and (major := _major(name)):
                    holders.setdefault(major, set()).add(facts.name)
                    there.add((library_stem(name) or "", major))
        for facts in everything if holders else ():
            named = {
                name: path
                for name, path in _named(facts)
                if _is_of(name, row) and (library := tables.library(name)) is not None and library.backend == backend
            }
            majors = {_major(name) for name in named}
            # What a wheel brings of its own may still open parts that it does not bring.
            absent = [name for name in sorted(named) if (library_stem(name) or "", _major(name)) not in there]
            others = {major: names - {facts.name} for major, names in holders.items() if names - {facts.name}}
            if not absent or not others or "" in majors or majors & others.keys():
                continue
            held = ", ".join(f"{major} in {min(names)}" for major, names in sorted(others.items()))
            found.append(
                Finding(
                    rule="other-major-of-library",
                    severity="error",
                    backend=backend,
                    path=named[absent[0]],
                    evidence=f"{facts.name} asks for {', '.join(absent[:_SHOWN])}; the lock has major version {held}",
                    chain=chains.get(facts.name, (facts.name,)),
                    fix=f"use a build of {facts.name} for the version that is there, or lock "
                    f"{' or '.join(row.distributions)} in version {' or '.join(sorted(majors))}",
                )
            )
    return tuple(found)


def _major(name: str) -> str:
    match = _MAJOR.search(name)
    return match[1] if match else ""


def _is_of(name: str, row: Provider) -> bool:
    stem = library_stem(name) or ""
    return any(fnmatchcase(stem, pattern) for pattern in row.libraries)


def _named(facts: WheelFacts) -> Iterator[tuple[str, str]]:
    """(library, file) that a wheel's files need or open."""
    for elf in _loadable(facts):
        yield from ((name, elf.path) for name in (*elf.needed, *elf.filters))
        if elf.can_dlopen:
            yield from ((entry.name, elf.path) for entry in elf.dlopen)
    yield from ((use.name, use.path) for use in facts.python if use.how == "call")


def _absent(
    facts: WheelFacts, names: Mapping[str, str], chains: Mapping[str, tuple[str, ...]], backend: str, *, certain: bool
) -> Finding:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = f"{', '.join(sorted(names)[:_SHOWN])}{more}"
    base = "the base is a plain system without it" if certain else "the base must bring it"
    return Finding(
        rule="library-in-no-wheel",
        severity="warning" if certain else "info",
        backend=backend,
        path=next(iter(names.values())),
        evidence=f"{facts.name} needs {listed}: no locked wheel holds it, no host injects it, {base}",
        chain=chains.get(facts.name, (facts.name,)),
        fix="lock the distribution that brings it, or choose a base that does; `builder prove` tells for the image",
    )


def _loadable(facts: WheelFacts) -> tuple[ElfFacts, ...]:
    machine = promised_machine(facts.file)
    return tuple(elf for elf in facts.elf if elf.type != "relocatable" and machine in (None, elf.machine))


def _provided(wheels: Iterable[WheelFacts]) -> Iterator[str]:
    """Names under which the loader finds the wheels' libraries."""
    for facts in wheels:
        for elf in facts.elf:
            yield elf.path.rsplit("/", 1)[-1]
            if elf.soname:
                yield elf.soname


def _is_system(name: str) -> bool:
    stem = name.split(".so", 1)[0]
    return stem in load_providers().system


def _required(facts: WheelFacts) -> Iterator[str]:
    for line in facts.requires_dist:
        try:
            yield canonicalize_name(Requirement(line).name)
        except InvalidRequirement:
            continue
