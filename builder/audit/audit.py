"""The audit's public door: one wheel, a folder of wheels, or a whole lock, for one backend."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TypeVar

from builder.audit.environment import marker_environment
from builder.audit.facts import WheelFacts
from builder.audit.graph import (
    InstalledFile,
    chains_of,
    chains_to_findings,
    installed_files,
    roots_of,
    same_paths,
    same_sonames,
)
from builder.audit.judge import Claim, archs_of, claims_of, tokens_of
from builder.audit.needs import absent_libraries, other_majors
from builder.audit.policy import (
    AuditException,
    AuditPolicy,
    exception_uses,
    judge_wheel,
    load_audit_policy,
    waived_between,
)
from builder.audit.tables import Tables, load_mends, load_tables, load_translations
from builder.audit.values import AuditReport, Finding, TargetAudit
from builder.audit.wheel import SCAN_VERSION, WheelScanner
from builder.errors import BadInput, BuilderError, did_you_mean
from builder.events import Reporter
from builder.lock.policy import PackagePolicy, load_package_policy
from builder.lock.values import Lock, LockedPackage
from builder.names import Digest
from builder.store import Store
from builder.wheels.archive import WheelArchive
from builder.wheels.values import WheelSource

__all__ = [
    "RULES_VERSION",
    "Rules",
    "audit_lock",
    "audit_wheel",
    "audit_wheels",
    "judged_facts",
    "judged_target",
    "load_rules",
    "provided_by",
    "scanned_as_they_arrive",
]

S = TypeVar("S")
R = TypeVar("R")

RULES_VERSION = 4
"""Raised when the same facts lead to another verdict."""

_INSTALLED_KIND = "audit-installed-1"
"""What the store calls a wheel's installed files; raised when `installed_files` gives others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Every table a verdict rests on."""

    scanner: WheelScanner
    packages: PackagePolicy
    policy: AuditPolicy

    @property
    def tables(self) -> Tables:
        """What is known about vendors."""
        return self.scanner.tables

    @property
    def version(self) -> str:
        """Names tables and code together, e.g. `5.1-3f2a9c0b1d2e`; goes into reports."""
        hasher = hashlib.sha256(f"{self.tables.digest}{self.policy.digest}{self.packages!r}{load_mends()!r}".encode())
        return f"{SCAN_VERSION}.{RULES_VERSION}-{hasher.hexdigest()[:12]}"

    def published_for(self, name: str) -> str | None:
        """The backend a distribution's name says it is for, when it is for exactly one."""
        row = next((row for row in self.packages.packages if fnmatchcase(name, row.pattern)), None)
        return None if row is None or row.backend == "none" or row.also else row.backend


@cache
def load_rules() -> Rules:
    """The package's own tables, read and checked once per process."""
    return Rules(scanner=WheelScanner(load_tables()), packages=load_package_policy(), policy=load_audit_policy())


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What wheels that stand on their own are asked, and under which conditions."""

    backend: str
    environment: Mapping[str, str]
    """The target's marker environment (`builder.audit.environment`)."""
    exceptions: tuple[AuditException, ...] = ()
    translations: tuple[str, ...] = ()
    today: date | None = None


def audit_wheel(
    path: Path,
    filename: str,
    terms: Terms,
    *,
    store: Store | None,
    digest: Digest | None = None,
    rules: Rules | None = None,
    record: bool = False,
) -> TargetAudit:
    """Audit one wheel file.

    `record` holds every member's hash against RECORD too, which reads the wheel twice.

    `digest` is the file's, when the caller knows it (a store's blob); it is computed otherwise.
    Raises `BadInput` when the file is no wheel at all; damage that still lets it be read is a finding.
    """
    rules = rules or load_rules()
    digest = digest or Digest.of_file(path)
    facts = rules.scanner.facts(path, filename, digest=digest, store=store)
    if record:
        facts = rules.scanner.recorded(facts, path, digest=digest, store=store)
    return judged_facts(facts, digest, terms, rules)


def judged_facts(facts: WheelFacts, digest: Digest, terms: Terms, rules: Rules) -> TargetAudit:
    """The audit of one wheel on its own, from what a scan saw: the wheel itself is not needed."""
    claims = claims_of(
        facts,
        tables=rules.tables,
        packages=rules.packages,
        environment=terms.environment,
        provided=provided_by(terms.translations, terms.backend),
    )
    return judged_target(facts, claims, digest, terms.backend, rules, exceptions=terms.exceptions, today=terms.today)


def audit_wheels(
    wheels: Iterable[tuple[Path, str]],
    terms: Terms,
    *,
    store: Store | None,
    reporter: Reporter,
    jobs: int | None = None,
    record: bool = False,
) -> AuditReport:
    """Audit wheels on their own, as if each were locked alone; in the order given: (path, wheel file name)."""
    found = tuple(wheels)
    rules = load_rules()
    provided_by(terms.translations, terms.backend)

    def one(wheel: tuple[Path, str]) -> TargetAudit:
        path, filename = wheel
        audit = audit_wheel(path, filename, terms, store=store, rules=rules, record=record)
        advance(path.stat().st_size)
        return audit

    total = sum(path.stat().st_size for path, _ in found)
    with (
        reporter.task(f"auditing {_count(len(found), 'wheel')}", total=total) as advance,
        _pool(jobs) as pool,
    ):
        targets = _largest_first(pool, one, found, lambda wheel: wheel[0].stat().st_size)
    return AuditReport(
        backend=terms.backend,
        targets=targets,
        policy=rules.version,
        exceptions=exception_uses(targets, (), terms.exceptions, terms.today),
    )


@contextmanager
def scanned_as_they_arrive(store: Store, *, jobs: int | None = None) -> Iterator[Callable[[WheelSource], None]]:
    """What is to be called with each wheel that has come into the store (`arrived` of `fetch`).

    It is looked at at once, while others are still fetched, and what was seen is kept in the store for the audit that
    follows. Few are looked at at a time. What cannot be read that audit says.
    """
    rules = load_rules()

    def scan(wheel: WheelSource) -> None:
        with suppress(BuilderError):
            rules.scanner.facts(store.path(wheel.sha256), wheel.file, digest=wheel.sha256, store=store)

    with _pool(jobs) as pool:
        futures: list[Future[None]] = []
        try:
            yield lambda wheel, /: futures.append(pool.submit(scan, wheel))
            for future in futures:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # of a fetch that failed, nothing more is looked at


def audit_lock(
    lock: Lock,
    files: Mapping[str, Path],
    *,
    backend: str,
    reporter: Reporter,
    store: Store | None = None,
    jobs: int | None = None,
    exceptions: Iterable[AuditException] = (),
    translations: Iterable[str] = (),
    today: date | None = None,
    all_chains: bool = False,
    record: bool = False,
) -> AuditReport:
    """Audit every wheel of a lock, and what shows only between them. `files` maps wheel file names to paths
    (`Wheelhouse.files`).

    Requirements that the lock resolved away (an override, a variant without them) and extras nobody asked for are not
    held against a wheel: the lock says what is installed. Chains come from the lock's edges; with `all_chains`, every
    way to a package with findings is told.
    """
    rules = load_rules()
    waived = tuple(exceptions)
    chains = chains_of(lock)
    present = {package.name: package for package in lock.packages}
    environment = marker_environment(lock.python, lock.arch)
    provided = provided_by(translations, backend)

    def one(package: LockedPackage) -> tuple[WheelFacts, TargetAudit, tuple[InstalledFile, ...]]:
        path = files[package.file]
        facts = rules.scanner.facts(path, package.file, digest=package.sha256, store=store)
        if record:
            facts = rules.scanner.recorded(facts, path, digest=package.sha256, store=store)
        claims = claims_of(
            facts, tables=rules.tables, packages=rules.packages, environment=environment, provided=provided
        )
        kept = tuple(_as_locked(claim, package, present) for claim in claims)
        audit = judged_target(
            facts,
            tuple(claim for claim in kept if claim is not None),
            package.sha256,
            backend,
            rules,
            chain=chains.get(package.name, ()),
            exceptions=waived,
            today=today,
            glibc=lock.glibc,
        )
        installed = _installed(path, package, store)
        advance(path.stat().st_size)
        return facts, audit, installed

    total = sum(files[package.file].stat().st_size for package in lock.packages)
    title = f"auditing {_count(len(lock.packages), 'wheel')} for {backend}"
    with reporter.task(title, total=total) as advance, _pool(jobs) as pool:
        results = _largest_first(pool, one, lock.packages, lambda package: files[package.file].stat().st_size)
    between: tuple[Finding, ...] = (
        *same_paths({facts.name: installed for facts, _, installed in results}, chains, backend=backend),
        *same_sonames((facts for facts, _, _ in results), chains, backend=backend),
        *other_majors((facts for facts, _, _ in results), chains, backend=backend, tables=rules.tables),
        *absent_libraries(
            (facts for facts, _, _ in results),
            chains,
            backend=backend,
            tables=rules.tables,
            plain_base=bool(lock.base.packages),
        ),
    )
    between = waived_between(between, waived, today)
    targets = tuple(audit for _, audit, _ in results)
    return AuditReport(
        backend=backend,
        targets=targets,
        graph_findings=between,
        policy=rules.version,
        exceptions=exception_uses(targets, between, waived, today),
        chains=chains_to_findings(
            {package.name: package.requires for package in lock.packages}, roots_of(lock), targets, between
        )
        if all_chains
        else {},
    )


def _installed(path: Path, package: LockedPackage, store: Store | None) -> tuple[InstalledFile, ...]:
    """What a locked wheel writes below site-packages; a wheel is opened for it once in the life of a store."""
    kept = None if store is None else store.derived(_INSTALLED_KIND, str(package.sha256))
    if kept is not None:
        return tuple(InstalledFile(path=name, content=content) for name, content in kept["files"])
    with WheelArchive.open(path, filename=package.file, inspect=True) as archive:
        found = installed_files(archive)
    if store is not None:
        rows = [(file.path, file.content) for file in found]
        store.put_derived(_INSTALLED_KIND, str(package.sha256), {"files": rows})
    return found


def provided_by(translations: Iterable[str], backend: str) -> dict[str, str]:
    """Stem of a library to the layer that stands in for it, in images of `backend`: those declared, and those that the
    backend's own toolkit always is.

    `BadInput` for a name that is not in the table, or is there for other backends.
    """
    known = {row.name: row for row in load_translations()}
    found: dict[str, str] = {}
    for name in (*(row.name for row in known.values() if row.always and row.backend == backend), *translations):
        row = known.get(name)
        if row is None or row.backend != backend:
            raise BadInput(
                f"no translation layer {name!r} for {backend}",
                why=f"it is for {row.backend}" if row else "checks/policies/translations.toml has no such row",
                fix=did_you_mean(name, [item.name for item in known.values() if item.backend == backend]),
            )
        found.update(dict.fromkeys((*row.libraries, *row.own), name))
    return found


def _as_locked(claim: Claim, package: LockedPackage, present: Mapping[str, LockedPackage]) -> Claim | None:
    """A claim about metadata in the light of what the lock holds; None when the lock resolved it away."""
    if not claim.requirement:
        return claim
    if claim.requirement not in present or claim.requirement not in package.requires:
        return None
    if claim.token == "meta-extra":
        return replace(claim, token="meta")
    return claim


def judged_target(
    facts: WheelFacts,
    claims: tuple[Claim, ...],
    digest: Digest,
    backend: str,
    rules: Rules,
    *,
    chain: tuple[str, ...] = (),
    exceptions: Iterable[AuditException] = (),
    today: date | None = None,
    glibc: str | None = None,
) -> TargetAudit:
    """The audit of one wheel from its facts and what they claim."""
    judgement = judge_wheel(
        facts,
        claims,
        backend=backend,
        policy=rules.policy,
        packages=rules.packages,
        owned_by=rules.published_for(facts.name),
        chain=chain,
        exceptions=exceptions,
        today=today,
        glibc=glibc,
    )
    return TargetAudit(
        name=facts.name,
        version=facts.version,
        file=facts.file,
        sha256=digest,
        level=judgement.level,
        tokens=tokens_of(claims),
        archs=archs_of(facts),
        findings=judgement.findings,
    )


def _largest_first(
    pool: ThreadPoolExecutor, work: Callable[[S], R], items: Sequence[S], size: Callable[[S], int]
) -> tuple[R, ...]:
    """The results in the order of the items. A large one begun last would leave all but one thread without work."""
    order = sorted(range(len(items)), key=lambda number: -size(items[number]))
    futures = {number: pool.submit(work, items[number]) for number in order}
    return tuple(futures[number].result() for number in range(len(items)))


def _pool(jobs: int | None) -> ThreadPoolExecutor:
    """Threads: searching runs outside the interpreter lock, as fetching does; inflating by isal 1.9 does not."""
    return ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1, thread_name_prefix="audit")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
