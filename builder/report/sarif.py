"""SARIF 2.1.0 (OASIS, 2020-03-27), as code scanning services read it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.parse import quote

from builder import __version__
from builder.audit.values import AuditReport, Finding, TargetAudit
from builder.report.places import LockPlaces, Place, fingerprint, placed_findings, seen

__all__ = ["sarif"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif(report: AuditReport, places: LockPlaces | None = None) -> str:
    """One run; each result points at the lock line of its package, or at the wheel."""
    found = list(placed_findings(report, places, excepted=True))
    seen_before: Counter[str] = Counter()
    rules = sorted({finding.rule for finding, _, _ in found})
    document = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "builder",
                        "semanticVersion": __version__,
                        "rules": [{"id": rule, "shortDescription": {"text": rule.replace("-", " ")}} for rule in rules],
                    }
                },
                "automationDetails": {"id": f"builder/audit/{report.backend}"},
                "results": [_result(finding, target, place, rules, seen_before) for finding, target, place in found],
                "properties": {"policy": report.policy, "verdict": report.level},
            }
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _result(
    finding: Finding, target: TargetAudit | None, place: Place, rules: list[str], seen_before: Counter[str]
) -> dict[str, Any]:
    mark = fingerprint(finding, target)
    seen_before[mark] += 1
    # A wheel may break one rule several times: then they are told apart by their order.
    number = f"-{seen_before[mark]}" if seen_before[mark] > 1 else ""
    accepted = [{"kind": "external", "status": "accepted", "justification": f"excepted {finding.excepted}"}]
    subject = f"{target.name} {target.version}" if target else "the lock"
    parts = [f"{subject}: {'; '.join(seen(finding))}"]
    if len(finding.chain) > 1:
        parts.append(f"Pulled in by {' > '.join(finding.chain)}.")
    if finding.fix:
        parts.append(f"Fix: {finding.fix}.")
    return {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": _LEVELS[finding.severity],
        "message": {"text": " ".join(parts)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(place.file, safe="/:@+!$&'()*,;=~")},
                    "region": {"startLine": place.line or 1},
                }
            }
        ],
        "partialFingerprints": {
            "builderFinding/v1": f"{mark}{number}",
            # The one that GitHub compares; without it, its action takes the text of the line, which moves and changes.
            "primaryLocationLineHash": f"{mark}:{seen_before[mark]}",
        },
        **({"suppressions": accepted} if finding.excepted else {}),
    }
