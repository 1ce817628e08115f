"""What only shows between wheels: who pulled whom in, two owners of one path, two libraries of one SONAME."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.audit.facts import WheelFacts
from builder.audit.values import Finding
from builder.lock.values import Lock
from builder.wheels.archive import WheelArchive

__all__ = ["InstalledFile", "chains_of", "installed_files", "same_paths", "same_sonames", "shortest_chains"]

_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledFile:
    """One file as it lands in site-packages."""

    path: str
    size: int
    crc32: int


def chains_of(lock: Lock) -> dict[str, tuple[str, ...]]:
    """Package to the shortest way to it: names, a project requirement first; packages nobody asked for are absent."""
    requires = {package.name: package.requires for package in lock.packages}
    roots: list[str] = []
    for line in lock.requirements:
        try:
            name = canonicalize_name(Requirement(line).name)
        except InvalidRequirement:
            continue
        if name in requires:
            roots.append(name)
    return shortest_chains(requires, roots)


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
        found.append(InstalledFile(path=path, size=member.size, crc32=member.crc32))
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
                if (one.size, one.crc32) != (other.size, other.crc32):
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
