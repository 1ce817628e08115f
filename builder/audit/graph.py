"""What only shows between wheels: who pulled whom in, two owners of one path, two libraries of one SONAME."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.audit.facts import WheelFacts
from builder.audit.values import Chains, Finding, TargetAudit
from builder.lock.values import Lock
from builder.wheels.archive import WheelArchive

__all__ = [
    "InstalledFile",
    "all_chains",
    "chains_of",
    "chains_to_findings",
    "installed_files",
    "roots_of",
    "same_paths",
    "same_sonames",
    "shortest_chains",
]

_SHOWN = 5
_MOST_CHAINS = 50
_MOST_STEPS = 20_000
"""Partial ways looked at for one package: graphs with many cycles have more ways than anybody can list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledFile:
    """One file as it lands in site-packages."""

    path: str
    content: str
    """Differs when the bytes differ: length and CRC-32 of a member, or the hash of a RECORD."""


def chains_of(lock: Lock) -> dict[str, tuple[str, ...]]:
    """Package to the shortest way to it: names, a project requirement first; packages nobody asked for are absent."""
    return shortest_chains({package.name: package.requires for package in lock.packages}, roots_of(lock))


def roots_of(lock: Lock) -> tuple[str, ...]:
    """The project's requirements that are locked, by normalised name, each once."""
    locked = {package.name for package in lock.packages}
    roots: list[str] = []
    for line in lock.requirements:
        try:
            name = canonicalize_name(Requirement(line).name)
        except InvalidRequirement:
            continue
        if name in locked:
            roots.append(name)
    return tuple(dict.fromkeys(roots))


def shortest_chains(requires: Mapping[str, Iterable[str]], roots: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Name to the shortest way to it, a root first; names that no root leads to are absent."""
    found: dict[str, tuple[str, ...]] = {}
    queue: deque[tuple[str, ...]] = deque((root,) for root in dict.fromkeys(roots))
    while queue:
        chain = queue.popleft()
        if chain[-1] in found:
            continue
        found[chain[-1]] = chain
        queue.extend((*chain, name) for name in sorted(requires.get(chain[-1], ())) if name not in found)
    return found


def all_chains(
    requires: Mapping[str, Iterable[str]],
    roots: Iterable[str],
    name: str,
    *,
    most: int = _MOST_CHAINS,
    steps: int = _MOST_STEPS,
) -> Chains:
    """Every way to a package that visits nothing twice, shortest first and by name among equals.

    Only what leads to it is walked, best first by the length a way will have at least; it ends after `most` ways or
    `steps` partial ones, and says so.
    """
    left = _distances(requires, name)
    heap: list[tuple[int, tuple[str, ...]]] = [
        (left[root] + 1, (root,)) for root in dict.fromkeys(roots) if root in left
    ]
    heapq.heapify(heap)
    ways: list[tuple[str, ...]] = []
    while heap and len(ways) < most and steps > 0:
        steps -= 1
        _, way = heapq.heappop(heap)
        if way[-1] == name:
            ways.append(way)
            continue
        for step in set(requires.get(way[-1], ())):
            if step in left and step not in way:
                heapq.heappush(heap, (len(way) + 1 + left[step], (*way, step)))
    return Chains(ways=tuple(ways), more=bool(heap))


def _distances(requires: Mapping[str, Iterable[str]], name: str) -> dict[str, int]:
    """How many steps from each package to `name` at least; what does not lead there is absent."""
    asked_by: dict[str, list[str]] = {}
    for package, names in requires.items():
        for other in names:
            asked_by.setdefault(other, []).append(package)
    found = {name: 0}
    queue = deque([name])
    while queue:
        at = queue.popleft()
        for package in asked_by.get(at, ()):
            if package not in found:
                found[package] = found[at] + 1
                queue.append(package)
    return found


def chains_to_findings(
    requires: Mapping[str, Iterable[str]],
    roots: Iterable[str],
    targets: Iterable[TargetAudit],
    between: Iterable[Finding],
) -> dict[str, Chains]:
    """Package with a finding above a note to every way to it."""
    dirty = {target.name for target in targets if any(finding.severity != "info" for finding in target.findings)}
    dirty |= {finding.chain[-1] for finding in between if finding.chain and finding.severity != "info"}
    starts = tuple(roots)
    return {name: all_chains(requires, starts, name) for name in sorted(dirty)}


def installed_files(archive: WheelArchive) -> tuple[InstalledFile, ...]:
    """What a wheel writes below site-packages, without its .dist-info; scripts and data go elsewhere."""
    found: list[InstalledFile] = []
    for member in archive.members:
        top, _, rest = member.name.partition("/")
        path = member.name
        if top.endswith(".dist-info"):
            continue
        if top.endswith(".data"):
            scheme, _, path = rest.partition("/")
            if scheme not in ("purelib", "platlib"):
                continue
        found.append(InstalledFile(path=path, content=f"{member.size}-{member.crc32}"))
    return tuple(found)


def same_paths(
    files: Mapping[str, Iterable[InstalledFile]], chains: Mapping[str, tuple[str, ...]], *, backend: str
) -> tuple[Finding, ...]:
    """Pairs of packages that install different bytes at one path: whoever comes last wins (FR-04).

    Equal bytes (empty `__init__.py` of a shared namespace) do no harm and are not reported.
    """
    owners: dict[str, list[tuple[str, InstalledFile]]] = {}
    for name in sorted(files):
        for file in files[name]:
            owners.setdefault(file.path, []).append((name, file))
    clashes: dict[tuple[str, str], list[str]] = {}
    for path, holders in owners.items():
        for place, (first, one) in enumerate(holders):
            for second, other in holders[place + 1 :]:
                if one.content != other.content:
                    clashes.setdefault((first, second), []).append(path)
    return tuple(
        _clash(first, second, sorted(paths), chains, backend) for (first, second), paths in sorted(clashes.items())
    )


def _clash(first: str, second: str, paths: list[str], chains: Mapping[str, tuple[str, ...]], backend: str) -> Finding:
    # The one further from the project's own requirements is the one that was dragged in.
    distance = {name: len(chains.get(name, ())) or 99 for name in (first, second)}
    dragged = max((first, second), key=lambda name: (distance[name], len(second) - len(name)))
    stays = second if dragged == first else first
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return Finding(
        rule="two-owners-of-one-path",
        severity="error",
        backend=backend,
        path=paths[0],
        evidence=f"{first} and {second} both install {', '.join(paths[:_SHOWN])}{more}, with different contents: "
        "whichever is installed last wins",
        chain=chains.get(dragged, (dragged,)),
        fix=f"let {stays} stand in for {dragged}: add overrides = [\"{dragged} ; sys_platform == 'never'\"] under "
        f"[backend.{backend}], and check that {(chains.get(dragged) or (dragged,))[-2:][0]} accepts it",
    )


def same_sonames(
    facts: Iterable[WheelFacts], chains: Mapping[str, tuple[str, ...]], *, backend: str
) -> tuple[Finding, ...]:
    """Different libraries of one SONAME in two packages: the loader takes whichever was loaded first for both."""
    holders: dict[str, list[tuple[str, str, int]]] = {}
    for wheel in facts:
        for elf in wheel.elf:
            if elf.soname and elf.type == "shared" and not elf.python_module:
                holders.setdefault(elf.soname, []).append((wheel.name, elf.path, elf.crc32))
    found: list[Finding] = []
    for soname, places in sorted(holders.items()):
        names = sorted({name for name, _, _ in places})
        if len(names) < 2 or len({crc for _, _, crc in places}) < 2:
            continue
        shown = ", ".join(f"{name} ({path})" for name, path, _ in places[:_SHOWN])
        found.append(
            Finding(
                rule="two-versions-of-one-soname",
                severity="warning",
                backend=backend,
                path=places[0][1],
                evidence=f"{soname} is in {shown}, with different contents",
                chain=chains.get(names[-1], (names[-1],)),
                fix=f"lock versions of {' and '.join(names)} that were built together",
            )
        )
    return tuple(found)
