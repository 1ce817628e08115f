"""The trap: another backend's packages in a lock, who pulled them in, and what to write instead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.lock.pins import pin_of
from builder.lock.policy import Owner, PackagePolicy
from builder.lock.values import BlockedPackage, Lock, LockedPackage

__all__ = ["blocked", "shortest_chains", "summary"]


def shortest_chains(packages: Iterable[LockedPackage], roots: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For every package a root reaches: the names on a shortest way to it, root first.

    Of several shortest ways the one whose names come first in root order, then in alphabetical order.
    """
    edges = {package.name: package.requires for package in packages}
    chains: dict[str, tuple[str, ...]] = {}
    queue: deque[str] = deque()
    for root in roots:
        if root in edges and root not in chains:
            chains[root] = (root,)
            queue.append(root)
    while queue:
        name = queue.popleft()
        for child in sorted(edges[name]):
            if child in edges and child not in chains:
                chains[child] = (*chains[name], child)
                queue.append(child)
    return chains


def blocked(lock: Lock, policy: PackagePolicy) -> tuple[BlockedPackage, ...]:
    """Packages of the lock that belong to another backend: causes before what they pull in, then by name."""
    owners = {
        package.name: owner
        for package in lock.packages
        if (owner := policy.owner(package.name, package.version, lock.arch)) is not None
        and not owner.welcome(lock.backend)
    }
    if not owners:
        return ()
    by_name = {package.name: package for package in lock.packages}
    chains = shortest_chains(lock.packages, lock.roots())
    found = []
    for name, owner in owners.items():
        chain = chains.get(name, (name,))
        cause = next((step for step in chain if step in owners), name)
        why = owner.why if cause == name else f"{owner.why}, pulled in because {owners[cause].why}"
        found.append(
            BlockedPackage(
                package=name,
                version=by_name[name].version,
                backend=owner.backend,
                chain=chain,
                why=why,
                fix=_mend(lock, chain, owners, policy),
                size=by_name[name].size,
                source=owner.source,
            )
        )
    return tuple(sorted(found, key=lambda item: (len(item.chain), item.package)))


def _mend(lock: Lock, chain: tuple[str, ...], owners: Mapping[str, Owner], policy: PackagePolicy) -> str:
    bounds: dict[str, str] = {canonicalize_name(Requirement(line).name): line for line in lock.constraints}
    versions = {package.name: package.version for package in lock.packages}
    for step in chain:
        bound = bounds.get(step)
        if bound is not None and not Requirement(bound).specifier.contains(versions[step], prereleases=True):
            return _require(lock, bound, step)
        # `torch==2.13.0` lets both builds in, so a bound with a label is a mend even where the version fits it.
        if bound is not None and "+" in bound and "+" not in versions[step]:
            return _require(lock, bound, step)
    for step in chain:
        if step in owners and owners[step].fix:
            return f"{owners[step].fix}: ask for that instead of {step}"
    own = next((row.pattern for row in policy.labels if row.backend == lock.backend), None)
    built = next((step for step in chain if any(row.name == step for row in policy.builds)), None)
    if own is not None and built is not None and "+" not in versions[built]:
        return f'ask for the {lock.backend} build of {built} by its label: "{built}=={versions[built]}+{own}"'
    if len(chain) > 1:
        cause = next(step for step in chain if step in owners)
        return (
            f"choose a build of {chain[max(chain.index(cause) - 1, 0)]} for {lock.backend}, "
            f'or leave {chain[0]} out with exclude = ["{chain[0]}"] in [backend.{lock.backend}]'
        )
    return f'leave it out of this backend: exclude = ["{chain[0]}"] in [backend.{lock.backend}]'


def _require(lock: Lock, bound: str, name: str) -> str:
    index = pin_of(name, lock.indexes)
    source = f" (from {index})" if index else ""
    return f'add requirements = ["{bound}"] to [backend.{lock.backend}]{source}'


def summary(items: tuple[BlockedPackage, ...], lock: Lock, policy: PackagePolicy) -> str:
    """What is wrong, how it came in and what the mend saves, in a few lines for people; empty when nothing is."""
    lines: list[str] = []
    causes: dict[str, list[BlockedPackage]] = {}
    names = {item.package for item in items}
    for item in items:
        cause = next(step for step in item.chain if step in names)
        causes.setdefault(cause, []).append(item)
    for cause, group in causes.items():
        head = next(item for item in group if item.package == cause)
        pulled = [item for item in group if item.package != cause]
        text = head.why
        if pulled:
            text += f" and pulls in {_counted(pulled, lock, policy)}"
        lines.append(text)
        shown = min(pulled, key=lambda item: (len(item.chain), -(item.size or 0), item.package), default=head)
        lines.append(f"  chain: {' > '.join(shown.chain)}")
        if saved := _saving(group):
            lines.append(f"  saves: {saved}")
        lines.append(f"  fix:   {head.fix}")
    return "\n".join(lines)


def _saving(group: list[BlockedPackage]) -> str:
    """What is not downloaded and not installed when none of these is locked; a lower bound where figures lack."""
    parts = []
    for values, word in (
        ([item.size for item in group], "to download"),
        ([item.installed for item in group], "installed"),
    ):
        known = [value for value in values if value is not None]
        if known:
            parts.append(f"{'' if len(known) == len(values) else 'at least '}{sum(known) / 1e9:.1f} GB {word}")
    return ", ".join(parts)


def _counted(items: list[BlockedPackage], lock: Lock, policy: PackagePolicy) -> str:
    counts: dict[str, int] = {}
    for item in items:
        owner = policy.owner(item.package, item.version, lock.arch)
        word = owner.group if owner is not None and owner.group else item.backend
        counts[word] = counts.get(word, 0) + 1
    return " and ".join(
        f"{count} {word} package{'s' if count > 1 else ''}"
        for word, count in sorted(counts.items(), key=lambda pair: -pair[1])
    )
