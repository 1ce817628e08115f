"""GitHub workflow commands: annotations on the lock's lines, and the job summary as Markdown."""

from __future__ import annotations

from builder.audit.values import AuditReport
from builder.report.audit_text import exception_text
from builder.report.places import LockPlaces, placed_findings, seen

__all__ = ["github_annotations", "github_summary"]


def github_annotations(report: AuditReport, places: LockPlaces | None = None) -> str:
    """One `::error` or `::warning` line a finding (GitHub documentation, "Workflow commands")."""
    lines: list[str] = []
    for finding, target, place in placed_findings(report, places):
        subject = f"{target.name} {target.version}" if target else "between wheels"
        chain = f"\nPulled in by {' > '.join(finding.chain)}" if len(finding.chain) > 1 else ""
        fix = f"\nFix: {finding.fix}" if finding.fix else ""
        properties = [f"file={_property(place.file)}"]
        if place.line:
            properties.append(f"line={place.line}")
        properties.append(f"title={_property(f'{finding.rule}: {subject}')}")
        message = _message("\n".join(seen(finding)) + chain + fix)
        lines.append(f"::{finding.severity} {','.join(properties)}::{message}")
    return "\n".join(lines)


def github_summary(report: AuditReport) -> str:
    """A Markdown table of the wheels that are not clean, for the job summary."""
    lines = [f"### Audit for {report.backend}: {report.level}", ""]
    dirty = [target for target in report.targets if target.level != "ok"]
    lines.append(f"{len(report.targets)} wheels, {len(dirty)} with findings, policy `{report.policy}`.")
    if dirty:
        lines += ["", "| level | wheel | why |", "| --- | --- | --- |"]
    for target in dirty:
        why = "; ".join(
            f"{other}: {' '.join(tokens)}" for other, tokens in target.tokens.items() if other != report.backend
        )
        lines.append(f"| {target.level} | {target.name} {target.version} | {_cell(why)} |")
    lines += [
        f"- **{finding.rule}**: {_cell(finding.evidence)}"
        for finding in report.graph_findings
        if finding.severity != "info"
    ]
    if report.exceptions:
        lines += ["", *(f"- {_cell(exception_text(use))}" for use in report.exceptions)]
    return "\n".join(lines) + "\n"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
