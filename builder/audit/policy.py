"""What claims mean for the image of one backend: a level, and findings with the mend.

The meaning of each token is data: checks/policies/levels.toml.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from builder import resources
from builder.audit.facts import WheelFacts
from builder.audit.judge import TOKENS, Claim, asked_for
from builder.audit.needs import undeclared_libraries
from builder.audit.promises import glibc_findings, promise_findings
from builder.audit.tables import library_stem, load_contents, load_mends
from builder.audit.values import LEVELS, ExceptionUse, Finding, Level, Severity, TargetAudit
from builder.errors import BadInput, Fault, did_you_mean, raise_faults, where_path
from builder.lock.policy import PackagePolicy
from builder.project.exceptions import AuditException, parse_exceptions

__all__ = [
    "AuditException",
    "AuditPolicy",
    "Judgement",
    "exception_uses",
    "judge_wheel",
    "load_audit_policy",
    "load_exceptions",
    "waived_between",
]

_SEVERITIES: dict[Level, Severity] = {"block": "error", "carry": "warning", "warn": "warning", "ok": "info"}
_SHOWN = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPolicy:
    """checks/policies/levels.toml."""

    levels: Mapping[str, Level]
    """Token to the level it means when it is another backend's."""
    neutral: frozenset[str]
    """Backends that are never foreign."""
    fixes: Mapping[str, str]
    """Token to the mend; {name}, {backend} and {other} are filled in."""
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A wheel's level for one backend and why."""

    level: Level
    findings: tuple[Finding, ...]


@cache
def load_audit_policy(path: Path | None = None) -> AuditPolicy:
    """Read and check the table; every token must have a level and a mend."""
    path = path or resources.policies_dir() / "levels.toml"
    data = path.read_bytes()
    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path.name}", why=str(error), where=where_path(path)) from error
    words: dict[str, Level] = {"block": "block", "carry": "carry", "warn": "warn", "report": "ok"}
    faults: list[Fault] = []
    levels: dict[str, Level] = {}
    for word, tokens in table.get("levels", {}).items():
        if word not in words:
            faults.append(Fault(what=f"unknown level {word!r}", fix=did_you_mean(word, words)))
            continue
        for token in tokens:
            if token not in TOKENS:
                faults.append(Fault(what=f"unknown token {token!r}", fix=did_you_mean(token, TOKENS)))
            levels[token] = words[word]
    fixes: dict[str, str] = table.get("fix", {})
    for token in TOKENS:
        if token not in levels:
            faults.append(Fault(what=f"token {token!r} has no level"))
        if token not in fixes:
            faults.append(Fault(what=f"token {token!r} has no mend under [fix]"))
    raise_faults(f"cannot use {path.name}", faults, where=where_path(path))
    return AuditPolicy(
        levels=levels,
        neutral=frozenset(table.get("neutral", {}).get("backends", ())),
        fixes=fixes,
        digest=hashlib.sha256(data).hexdigest(),
    )


def load_exceptions(path: Path) -> tuple[AuditException, ...]:
    """`[[exception]]` tables with package, rule, reason and expires (a TOML date); every fault in one `BadInput`."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"no such file: {path}", fix="check --exceptions", where=where_path(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path.name}", why=str(error), where=where_path(path)) from error
    found, wrong = parse_exceptions(table.get("exception", ()))
    faults = [Fault(what=f"unknown table {key!r}") for key in table if key != "exception"]
    faults += [Fault(what=what, fix=fix) for what, fix in wrong]
    raise_faults(f"cannot use {path.name}", faults, where=where_path(path))
    return found


def judge_wheel(
    facts: WheelFacts,
    claims: Iterable[Claim],
    *,
    backend: str,
    policy: AuditPolicy,
    packages: PackagePolicy,
    owned_by: str | None = None,
    chain: tuple[str, ...] = (),
    exceptions: Iterable[AuditException] = (),
    today: date | None = None,
    glibc: str | None = None,
) -> Judgement:
    """Level and findings of one wheel in an image of `backend`.

    `owned_by` is the backend the distribution is published for, when its name says so: a wheel for the asked backend
    must contain something of it. `chain` tells who pulled the wheel in. Exceptions count until the day they expire
    (`today`), and stay visible as findings of severity info. `glibc` is the image's, when there is one.
    """
    claims = tuple(claims)
    findings = [
        *_foreign(facts, claims, backend, policy, chain),
        *_must_contain(facts, claims, backend, owned_by, chain),
        *_damage(facts, backend, chain),
        *_notes(facts, claims, backend, packages, chain),
        *((finding, finding.means) for finding in promise_findings(facts, backend=backend, chain=chain)),
        *((finding, finding.means) for finding in undeclared_libraries(facts, chain=chain)),
        *((finding, finding.means) for finding in _too_new(facts, backend, glibc, chain)),
    ]
    kept: list[Finding] = []
    level: Level = "ok"
    for finding, means in findings:
        waived = _waived(finding, facts.name, exceptions, today)
        if waived is not None:
            kept.append(waived)
            continue
        kept.append(replace(finding, means=means))
        level = max(level, means, key=LEVELS.index)
    return Judgement(level=level, findings=tuple(kept))


def _too_new(facts: WheelFacts, backend: str, glibc: str | None, chain: tuple[str, ...]) -> Iterator[Finding]:
    if glibc is not None:
        yield from glibc_findings(facts, glibc, backend=backend, chain=chain)


def _foreign(
    facts: WheelFacts, claims: tuple[Claim, ...], backend: str, policy: AuditPolicy, chain: tuple[str, ...]
) -> Iterator[tuple[Finding, Level]]:
    grouped: dict[tuple[str, str, bool], list[Claim]] = {}
    for claim in claims:
        if claim.backend != backend and claim.backend not in policy.neutral:
            grouped.setdefault((claim.token, claim.backend, claim.decided), []).append(claim)
    for (token, other, decided), group in grouped.items():
        means = policy.levels[token] if decided else "ok"
        yield (
            Finding(
                rule=f"foreign-{token}",
                severity=_SEVERITIES[means],
                backend=other,
                path=group[0].path,
                evidence=_evidence(group),
                chain=chain,
                fix=_mend(facts, token, backend, other, policy) if decided else "",
            ),
            means,
        )


def _mend(facts: WheelFacts, token: str, backend: str, other: str, policy: AuditPolicy) -> str:
    """The distribution to take instead, where one is known, before what helps in general."""
    general = policy.fixes[token].format(name=facts.name, backend=backend, other=other)
    for mend in load_mends():
        if mend.backend == backend and any(fnmatchcase(facts.name, pattern) for pattern in mend.names):
            public = facts.version.partition("+")[0]
            return f"use {mend.use.format(name=facts.name, version=public)}; or {general}"
    return general


def _evidence(group: list[Claim]) -> str:
    """What was seen, one file after another; long lists say how many more."""
    by_path: dict[str, list[str]] = {}
    for claim in group:
        by_path.setdefault(claim.path, []).append(claim.evidence)
    parts: list[str] = []
    for number, (path, seen) in enumerate(by_path.items()):
        if number == _SHOWN:
            parts.append(f"and {len(by_path) - _SHOWN} more files")
            break
        unique = list(dict.fromkeys(seen))
        more = f", and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
        parts.append(f"{path}: {'; '.join(unique[:_SHOWN])}{more}")
    return " | ".join(parts)


def _must_contain(
    facts: WheelFacts, claims: tuple[Claim, ...], backend: str, owned_by: str | None, chain: tuple[str, ...]
) -> Iterator[tuple[Finding, Level]]:
    absent = _absent(facts, claims, backend)
    if absent is None and owned_by == backend and not any(claim.backend == backend for claim in claims):
        absent = (
            f"{facts.name} is published for {backend}, and nothing in it belongs to {backend}: "
            f"no library, no device code, no requirement ({facts.paths} files)"
        )
    if absent is not None:
        yield (
            Finding(
                rule="must-contain",
                severity="warning",
                backend=backend,
                path=facts.file,
                evidence=absent,
                chain=chain,
                fix=f"check that the index serves the {backend} build of {facts.name}; some indexes hold placeholders",
            ),
            "warn",
        )


def _absent(facts: WheelFacts, claims: tuple[Claim, ...], backend: str) -> str | None:
    """What contents.toml asks of this wheel and it lacks."""
    label = facts.version.partition("+")[2]
    for row in load_contents():
        labelled = not row.label or any(fnmatchcase(part, row.label) for part in label.split("."))
        if row.backend != backend or not labelled or not fnmatchcase(facts.name, row.name):
            continue
        if row.library:
            names = (name for elf in facts.elf for name in (elf.soname, elf.path) if name)
            if not any(library_stem(name) == row.library for name in names):
                return f"{facts.name} for {backend} must hold {row.library}.so, and does not ({row.source})"
        elif facts.elf and not any(claim.backend == backend and claim.token in row.tokens for claim in claims):
            return (
                f"{facts.version} is labelled for {backend}, and none of its {len(facts.elf)} ELF files links to "
                f"{backend} or carries its device code"
            )
    return None


def _damage(facts: WheelFacts, backend: str, chain: tuple[str, ...]) -> Iterator[tuple[Finding, Level]]:
    for fault in facts.faults:
        yield (
            Finding(
                rule="unsafe-wheel",
                severity="error",
                backend=backend,
                path=facts.file,
                evidence=fault,
                chain=chain,
                fix="fetch it again; if it stays, report it to the package's makers",
            ),
            "block",
        )
    for name in facts.duplicates:
        yield (
            Finding(
                rule="duplicate-member",
                severity="warning",
                backend=backend,
                path=name,
                evidence="the archive holds this name more than once; installers write the last one, which was audited",
                chain=chain,
                fix="report it to the package's makers",
            ),
            "warn",
        )


def _notes(
    facts: WheelFacts, claims: tuple[Claim, ...], backend: str, packages: PackagePolicy, chain: tuple[str, ...]
) -> Iterator[tuple[Finding, Level]]:
    """What someone should see although it does not change the level."""
    touched = {claim.path for claim in claims}
    own = frozenset(item.path.split("/", 1)[0] for item in facts.elf if "/" in item.path)
    for elf in facts.elf:
        path = elf.runpath or elf.rpath or ""
        leaving = [place for entry in path.split(":") if (place := leaves_wheel(elf.path, entry, own)) is not None]
        if leaving and elf.path in touched:
            yield _note(
                "search-path-leaves-wheel",
                backend,
                elf.path,
                f"looks for libraries outside: {', '.join(leaving)}",
                chain,
            )
        for fault in elf.faults:
            yield _note("damaged-elf", backend, elf.path, fault, chain)
    yield from _computed(facts, backend, chain)
    yield from _installing(facts, backend, packages, chain)
    for elf in facts.elf:
        for code in elf.device:
            if code.kind == "ptx":
                seen = f"{code.count} programs in PTX, {code.detail}, the first at offset {code.offset}"
                yield _note("device-code-as-text", "cuda", elf.path, seen, chain)
    modules: dict[str, list[str]] = {}
    for member in facts.members:
        if member.kind == "spirv":
            modules.setdefault(member.backend, []).append(member.path)
    for interface, paths in sorted(modules.items()):
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        yield _note("spirv-modules", interface, paths[0], f"SPIR-V: {', '.join(paths[:_SHOWN])}{more}", chain)
    for member in facts.members:
        if member.kind == "not-elf" or (member.kind == "symlink" and member.backend):
            yield _note("library-in-name-only", member.backend, member.path, member.detail, chain)
        elif member.kind == "unread-archive":
            yield _note("unread-archive", backend, member.path, f"unknown content: {member.detail}", chain)
        elif member.kind == "broken-elf":
            yield _note("damaged-elf", backend, member.path, member.detail, chain)


def _computed(facts: WheelFacts, backend: str, chain: tuple[str, ...]) -> Iterator[tuple[Finding, Level]]:
    """Names of libraries that are made at run time: what they will be cannot be told from the files."""
    files = [elf for elf in facts.elf if elf.can_dlopen]
    silent = [(elf.path, elf.path) for elf in files if not elf.names]
    parts = [(elf.path, f"{elf.path} ({', '.join(elf.parts)})") for elf in files if elf.names and elf.parts]
    calls = [(use.path, f"{use.path} line {use.line} ({use.name})") for use in facts.python if use.how == "computed"]
    for why, places in (
        ("imports dlopen and holds no library's name, so names are made at run time", silent),
        ("imports dlopen and holds parts of names", parts),
        ("Python opens a library whose name is made at run time", calls),
    ):
        if places:
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            shown = ", ".join(text for _, text in places[:_SHOWN])
            yield _note("computed-dlopen", backend, places[0][0], f"unknown: {why}: {shown}{more}", chain)


def _installing(
    facts: WheelFacts, backend: str, packages: PackagePolicy, chain: tuple[str, ...]
) -> Iterator[tuple[Finding, Level]]:
    """Code that installs another backend's packages when it runs: no lock has them."""
    for use in facts.python:
        if use.how != "install":
            continue
        for other, word in asked_for(use.name, packages):
            if other != backend:
                evidence = f"line {use.line}: installs {word} at run time ({use.name})"
                fix = f"lock what {facts.name} installs, or see that this code is not reached"
                yield (
                    Finding(
                        rule="installs-at-run-time",
                        severity="warning",
                        backend=other,
                        path=use.path,
                        evidence=evidence,
                        chain=chain,
                        fix=fix,
                    ),
                    "ok",
                )


def _note(rule: str, backend: str, path: str, evidence: str, chain: tuple[str, ...]) -> tuple[Finding, Level]:
    return Finding(rule=rule, severity="info", backend=backend, path=path, evidence=evidence, chain=chain), "ok"


def leaves_wheel(path: str, entry: str, own: frozenset[str] = frozenset()) -> str | None:
    """Where an entry of RPATH/RUNPATH of the member `path` leads, when that is outside the installed wheel.

    `own` are the wheel's top folders with libraries. The answer is absolute, or relative to site-packages (`../` leads
    out of it). A sibling package counts as outside.
    """
    if not entry:
        return None
    plain = entry.replace("${ORIGIN}", "$ORIGIN")
    if not plain.startswith("$ORIGIN"):
        return entry
    folder = path.split("/")[:-1]
    place = list(folder)
    for part in plain.removeprefix("$ORIGIN").split("/"):
        if part == ".." and place and place[-1] != "..":
            place.pop()
        elif part not in ("", "."):
            place.append(part)
    top = folder[0] if folder else ""
    if not place or place[0] in own or place[0].removesuffix(".libs") == top.removesuffix(".libs"):
        return None
    return "/".join(place)


def _waived(finding: Finding, package: str, exceptions: Iterable[AuditException], today: date | None) -> Finding | None:
    for exception in exceptions:
        if exception.package != package or not fnmatchcase(finding.rule, exception.rule):
            continue
        if today is not None and today > exception.expires:
            continue
        until = f"until {exception.expires}: {exception.reason}"
        evidence = f"{finding.evidence} [excepted {until}]"
        return replace(finding, severity="info", evidence=evidence, means="ok", excepted=until)
    return None


def waived_between(
    findings: Iterable[Finding], exceptions: Iterable[AuditException], today: date | None
) -> tuple[Finding, ...]:
    """Findings between wheels, those excepted as notes; their package is the last one of their chain."""
    known = tuple(exceptions)
    return tuple(
        _waived(finding, finding.chain[-1] if finding.chain else "", known, today) or finding for finding in findings
    )


def exception_uses(
    targets: Iterable[TargetAudit],
    between: Iterable[Finding],
    exceptions: Iterable[AuditException],
    today: date | None,
) -> tuple[ExceptionUse, ...]:
    """What each exception held for, in the order given; one that is expired or for nothing should go."""
    found = [(target.name, finding) for target in targets for finding in target.findings]
    found += [(finding.chain[-1] if finding.chain else "", finding) for finding in between]
    uses: list[ExceptionUse] = []
    for exception in exceptions:
        expired = today is not None and today > exception.expires
        number = sum(
            name == exception.package
            and fnmatchcase(finding.rule, exception.rule)
            and (finding.severity != "info" if expired else bool(finding.excepted))
            for name, finding in found
        )
        state: Literal["used", "expired", "unused"] = "expired" if expired else "used" if number else "unused"
        uses.append(ExceptionUse(exception=exception, state=state, findings=number))
    return tuple(uses)
