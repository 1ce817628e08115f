"""What the audit sees (signals), what it makes of it (findings), and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.names import Digest
from builder.project.exceptions import AuditException

__all__ = [
    "LEVELS",
    "Archs",
    "AuditReport",
    "Chains",
    "ExceptionUse",
    "Finding",
    "Level",
    "Severity",
    "Signal",
    "TargetAudit",
]

Level = Literal["ok", "warn", "carry", "block"]
"""docs/cli.md, "Audit levels": mildest first."""

LEVELS: tuple[Level, ...] = ("ok", "warn", "carry", "block")
"""Mildest first."""

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One observed fact about a wheel."""

    kind: str
    """needed, filter, dlopen, ctypes, fatbin, cubin, hip-bundle, amdgpu, ascend-kernel, static-runtime, member,
    exports, undefined, requires-dist, …"""
    value: str
    """What was seen: a soname, a requirement, a target."""
    path: str
    """Member of the wheel, or METADATA."""
    detail: str = ""
    """Offset, section, symbol or marker: what someone needs to check it by hand."""
    confidence: Literal["certain", "likely", "possible"] = "certain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Signal times policy: this does not belong here."""

    rule: str
    """Stable kebab-case name of the policy rule."""
    severity: Severity
    backend: str
    """The backend the thing belongs to."""
    path: str
    evidence: str
    chain: tuple[str, ...] = ()
    """Who pulled the wheel in: names, project requirement first."""
    fix: str = ""
    means: Level = "ok"
    """The level that this finding alone gives its wheel."""
    excepted: str = ""
    """Until when and why the project lives with it; then it counts for nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Archs:
    """Device code found, by vendor; each sorted."""

    cuda_sm: tuple[str, ...] = ()
    cuda_ptx: tuple[str, ...] = ()
    gfx: tuple[str, ...] = ()
    ascend_soc: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetAudit:
    """One wheel's audit for one backend."""

    name: str
    version: str
    file: str
    sha256: Digest
    level: Level
    tokens: Mapping[str, tuple[str, ...]]
    """Backend to tokens, strongest first (docs/cli.md, "Tokens"); backends without any are left out."""
    archs: Archs
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExceptionUse:
    """What became of one of the project's exceptions."""

    exception: AuditException
    state: Literal["used", "expired", "unused"]
    findings: int
    """Findings it holds for; of an expired one, those that count again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """Ways to one package, shortest first; each is names, a requirement of the project first."""

    ways: tuple[tuple[str, ...], ...]
    more: bool
    """Whether there are more than were listed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """The audit of a whole lock, folder or list of wheels."""

    backend: str
    targets: tuple[TargetAudit, ...]
    graph_findings: tuple[Finding, ...] = ()
    """What only shows between wheels: two owners of one path, two versions of one soname."""
    policy: str = ""
    """Version of the policy tables and rules the verdicts rest on."""
    exceptions: tuple[ExceptionUse, ...] = ()
    chains: Mapping[str, Chains] = field(default_factory=dict)
    """Package with findings to every way to it, where that was asked for."""

    @property
    def level(self) -> Level:
        """The worst level of all targets; an error among graph findings blocks."""
        if any(finding.severity == "error" for finding in self.graph_findings):
            return "block"
        return max((target.level for target in self.targets), key=LEVELS.index, default="ok")
