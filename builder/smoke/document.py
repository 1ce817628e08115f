"""A smoke report as the JSON of `builder smoke --json`, and as text for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from builder.smoke.values import SmokeReport

__all__ = ["report_document", "report_text"]


def report_document(report: SmokeReport, *, reference: str) -> dict[str, Any]:
    """The document `builder/smoke/1` (docs/schemas/smoke.json)."""
    return {
        "schema": "builder/smoke/1",
        "verdict": report.verdict,
        "image": {"ref": reference, "digest": str(report.image)},
        "backend": report.backend,
        "lock": str(report.lock) if report.lock else None,
        "node_class": report.node_class,
        "runner": report.runner,
        "started": report.started,
        "checks": [
            {
                "name": check.name,
                "verdict": check.verdict,
                "seconds": round(check.seconds, 3),
                "measures": dict(check.measures),
                "detail": check.detail,
            }
            for check in report.checks
        ],
        "left_out": [{"name": row.name, "why": row.why} for row in report.left_out],
    }


def report_text(report: SmokeReport, *, reference: str, verdict: Callable[[str], str]) -> str:
    """One line for each check, its measures and reason below it; `verdict` paints a verdict word."""
    lines = [f"{reference} on {report.node_class or 'this machine'}, runner {report.runner}"]
    for check in report.checks:
        lines.append(f"  {verdict(check.verdict)}{' ' * (8 - len(check.verdict))} {check.name}  {check.seconds:.1f} s")
        if check.measures:
            lines.append("           " + ", ".join(f"{key} {value}" for key, value in sorted(check.measures.items())))
        if check.detail:
            lines.append(f"           {check.detail}")
    lines += [f"  left out {row.name}: {row.why}" for row in report.left_out]
    lines.append(f"{verdict(report.verdict)} {report.image}")
    return "\n".join(lines)
