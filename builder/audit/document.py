"""The audit's JSON document, `builder/audit/1` (docs/schemas/audit.json): printed by the CLI, attached to images."""

from __future__ import annotations

from typing import Any

from builder.audit.compare import Comparison, Profile
from builder.audit.values import AuditReport, ExceptionUse, Finding, TargetAudit

__all__ = ["audit_document", "comparison_document", "finding_document", "target_document"]


def audit_document(report: AuditReport) -> dict[str, Any]:
    """Keys in a fixed order; `verdict` is the worst level."""
    return {
        "schema": "builder/audit/1",
        "verdict": report.level,
        "backend": report.backend,
        "policy": report.policy,
        "targets": [target_document(target) for target in report.targets],
        "findings": [finding_document(finding) for finding in report.graph_findings],
        "exceptions": [_exception(use) for use in report.exceptions],
        **({"chains": _chains(report)} if report.chains else {}),
    }


def _exception(use: ExceptionUse) -> dict[str, Any]:
    return {
        "package": use.exception.package,
        "rule": use.exception.rule,
        "reason": use.exception.reason,
        "expires": use.exception.expires.isoformat(),
        "state": use.state,
        "findings": use.findings,
    }


def _chains(report: AuditReport) -> dict[str, Any]:
    return {
        name: {"ways": [list(way) for way in chains.ways], "more": chains.more}
        for name, chains in report.chains.items()
    }


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """`builder/audit-diff/1` (docs/schemas/audit-diff.json); `verdict` is same, changed or worse."""
    changed = "changed" if comparison.changes else "same"
    return {
        "schema": "builder/audit-diff/1",
        "verdict": "worse" if comparison.worse else changed,
        "backend": comparison.backend,
        "policy": comparison.policy,
        "changes": [
            {
                "name": change.name,
                "old": _profile(change.old),
                "new": _profile(change.new),
                "worse": change.worse,
                "differs": [
                    {"aspect": turn.aspect, "added": list(turn.added), "removed": list(turn.removed)}
                    for turn in change.turns
                ],
            }
            for change in comparison.changes
        ],
    }


def _profile(profile: Profile | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    return {"version": profile.version, "file": profile.file, "level": profile.level}


def target_document(target: TargetAudit) -> dict[str, Any]:
    """One wheel, as reports and lines of results show it."""
    return {
        "name": target.name,
        "version": target.version,
        "file": target.file,
        "sha256": target.sha256.hex,
        "level": target.level,
        "tokens": {backend: list(tokens) for backend, tokens in target.tokens.items()},
        "archs": {
            "cuda_sm": list(target.archs.cuda_sm),
            "cuda_ptx": list(target.archs.cuda_ptx),
            "gfx": list(target.archs.gfx),
            "ascend_soc": list(target.archs.ascend_soc),
        },
        "findings": [finding_document(finding) for finding in target.findings],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding, as every document of this tool shows it."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "backend": finding.backend,
        "path": finding.path,
        "evidence": finding.evidence,
        "chain": list(finding.chain),
        "fix": finding.fix,
    }
