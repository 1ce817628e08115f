"""Two audits side by side: what a version bump changes, and what a changed lock adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from builder.audit.facts import WheelFacts
from builder.audit.floors import symbol_floors
from builder.audit.values import LEVELS, AuditReport, Finding, Level, TargetAudit

__all__ = ["Change", "Comparison", "Profile", "Turn", "compared", "only_added", "profile_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """What of a wheel a change of version may change; each aspect a set of words."""

    name: str
    version: str
    file: str
    level: Level
    aspects: Mapping[str, frozenset[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One aspect that differs."""

    aspect: str
    """tokens, libraries, archs, requirements, symbol-floors or findings."""
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One package in both, or in one of them."""

    name: str
    old: Profile | None
    new: Profile | None
    turns: tuple[Turn, ...]

    @property
    def worse(self) -> bool:
        """Whether the level got worse; a package that is new starts from ok."""
        before: Level = self.old.level if self.old else "ok"
        return self.new is not None and LEVELS.index(self.new.level) > LEVELS.index(before)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Everything that differs between two wheels or two sets of wheels."""

    backend: str
    policy: str
    changes: tuple[Change, ...]
    """By name; packages without any difference are left out."""

    @property
    def worse(self) -> bool:
        """Whether any package got worse."""
        return any(change.worse for change in self.changes)

    @property
    def level(self) -> Level:
        """The worst level among packages that got worse; ok when none did."""
        found = (change.new.level for change in self.changes if change.worse and change.new)
        return max(found, key=LEVELS.index, default="ok")


def profile_of(target: TargetAudit, facts: WheelFacts) -> Profile:
    """The profile of one audited wheel."""
    inside = {name for elf in facts.elf for name in (elf.soname, elf.path.rsplit("/", 1)[-1]) if name}
    needed = {name for elf in facts.elf for name in (*elf.needed, *elf.filters)} - inside
    archs = target.archs
    return Profile(
        name=target.name,
        version=target.version,
        file=target.file,
        level=target.level,
        aspects={
            "tokens": frozenset(f"{other}: {token}" for other, tokens in target.tokens.items() for token in tokens),
            "libraries": frozenset(needed),
            "archs": frozenset((*archs.cuda_sm, *archs.cuda_ptx, *archs.gfx, *archs.ascend_soc)),
            "requirements": frozenset(facts.requires_dist),
            "symbol-floors": frozenset(f"{family}_{seen[0]}" for family, seen in symbol_floors(facts.elf).items()),
            "findings": frozenset(
                f"{found.rule} [{found.backend}]" for found in target.findings if found.severity != "info"
            ),
        },
    )


def compared(old: Sequence[Profile], new: Sequence[Profile], *, backend: str, policy: str) -> Comparison:
    """Pair by name; two single wheels are a pair whatever their names (a package that was renamed)."""
    before = {profile.name: profile for profile in old}
    after = {profile.name: profile for profile in new}
    if len(old) == len(new) == 1:
        before = {new[0].name: old[0]}
    changes = (
        Change(
            name=name,
            old=before.get(name),
            new=after.get(name),
            turns=tuple(_turns(before.get(name), after.get(name))),
        )
        for name in sorted(before.keys() | after.keys())
    )
    return Comparison(
        backend=backend,
        policy=policy,
        changes=tuple(change for change in changes if change.turns or _identity(change.old) != _identity(change.new)),
    )


def _identity(profile: Profile | None) -> tuple[str, str] | None:
    return None if profile is None else (profile.name, profile.file)


def _turns(old: Profile | None, new: Profile | None) -> Iterable[Turn]:
    aspects = (new or old or Profile(name="", version="", file="", level="ok", aspects={})).aspects
    for aspect in aspects:
        before = old.aspects[aspect] if old else frozenset()
        after = new.aspects[aspect] if new else frozenset()
        if before != after:
            yield Turn(aspect=aspect, added=tuple(sorted(after - before)), removed=tuple(sorted(before - after)))


def only_added(old: AuditReport, new: AuditReport) -> AuditReport:
    """Of `new`, the findings that `old` has not (same package, rule and backend), and the levels they mean.

    Packages that add none are left out. What an upgrade only moves or words differently is not new.
    """
    known = {
        (target.name, found.rule, found.backend)
        for target in old.targets
        for found in target.findings
        if found.severity != "info"
    }
    between = {_between(found) for found in old.graph_findings}
    targets: list[TargetAudit] = []
    for target in new.targets:
        added = tuple(
            found
            for found in target.findings
            if found.severity != "info" and (target.name, found.rule, found.backend) not in known
        )
        if added:
            level = max((found.means for found in added), key=LEVELS.index)
            targets.append(replace(target, findings=added, level=level))
    return replace(
        new,
        targets=tuple(targets),
        graph_findings=tuple(found for found in new.graph_findings if _between(found) not in between),
    )


def _between(finding: Finding) -> tuple[str, str, str]:
    return finding.rule, finding.chain[-1] if finding.chain else "", finding.path
