"""A build's outcome as the JSON of `builder build --json`, and as text for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from builder.audit.document import finding_document
from builder.audit.values import Finding
from builder.image.preview import Budget, LayerPlan
from builder.lock.policy import load_package_policy
from builder.lock.trap import summary
from builder.pipeline.values import BuildOutcome
from builder.smoke.document import report_document

__all__ = ["build_document", "build_text"]

_SHOWN = 6
"""Findings named in the text; all of them are in the JSON."""


def build_document(outcome: BuildOutcome) -> dict[str, Any]:
    """The document `builder/build/1` (docs/schemas/build.json)."""
    image, lock = outcome.image, outcome.lock
    return {
        "schema": "builder/build/1",
        "verdict": outcome.verdict,
        "image": {
            "ref": image.reference,
            "digest": str(image.digest),
            "size": image.size,
            "layers": [
                {
                    "digest": str(layer.descriptor.digest),
                    "diff_id": str(layer.diff_id),
                    "size": layer.descriptor.size,
                    "title": layer.title,
                }
                for layer in image.layers
            ],
        }
        if image
        else None,
        "steps": [
            {"name": step.name, "verdict": step.verdict, "seconds": round(step.seconds, 3), "detail": step.detail}
            for step in outcome.steps
        ],
        "blocked": [
            {"package": row.package, "backend": row.backend, "chain": list(row.chain), "why": row.why, "fix": row.fix}
            for row in outcome.blocked
        ],
        "findings": [{"file": file, **finding_document(finding)} for file, finding in _findings(outcome)],
        "proofs": [
            {"node_class": proof.node_class, "verdict": proof.answer, "reasons": list(proof.reasons)}
            for proof in outcome.proofs
        ],
        "unknown": list(lock.unknown_allowed) if lock else [],
        "tags": list(outcome.tags),
        "smoke": report_document(outcome.smoke, reference=image.reference) if outcome.smoke and image else None,
        "plan": {
            "layers": [
                {"title": layer.title, "size": layer.size, "exact": layer.exact, "wheels": list(layer.wheels)}
                for layer in outcome.plan.layers
            ],
            "size": outcome.plan.size,
            "limit": outcome.plan.limit,
        }
        if outcome.plan
        else None,
        "budget": {
            "limit": outcome.budget.limit,
            "size": outcome.budget.size,
            "largest": [{"title": title, "size": size} for title, size in outcome.budget.largest],
        }
        if outcome.budget
        else None,
        "run": outcome.run_line or None,
    }


def build_text(outcome: BuildOutcome, *, verdict: Callable[[str], str]) -> str:
    """What was built, or what refused it, why and how to mend it; `verdict` paints a verdict word."""
    lines: list[str] = []
    if outcome.plan is not None:
        return "\n".join([*_plan_lines(outcome.plan), verdict(outcome.verdict)])
    if outcome.budget is not None and not outcome.budget.kept:
        lines += _budget_lines(outcome.budget)
    if outcome.blocked and outcome.lock:
        lines.append(summary(outcome.blocked, outcome.lock, load_package_policy()))
    blocking = [(file, item) for file, item in _findings(outcome) if item.severity == "error"]
    for file, finding in blocking[:_SHOWN]:
        lines.append(f"{file}: {finding.evidence} ({finding.rule}, {finding.path})")
        if len(finding.chain) > 1:
            lines.append(f"  chain: {' → '.join(finding.chain)}")
        if finding.fix:
            lines.append(f"  fix:   {finding.fix}")
    if len(blocking) > _SHOWN:
        lines.append(f"… and {len(blocking) - _SHOWN} more findings (--json lists all)")
    for proof in outcome.proofs:
        if proof.answer != "proven":
            lines.append(f"{proof.node_class}: {verdict(proof.answer)}")
            lines += [f"  {reason}" for reason in proof.reasons]
    if outcome.smoke is not None and outcome.smoke.verdict != "passed":
        lines += [
            f"{check.name}: {verdict(check.verdict)}: {check.detail}"
            for check in outcome.smoke.checks
            if check.verdict != "passed"
        ]
    if outcome.lock is not None and outcome.verdict == "candidate":
        lines += [f"not known: {question}" for question in outcome.lock.unknown_allowed]
    if outcome.image is not None:
        image = outcome.image
        steps = ", ".join(f"{step.name} {step.verdict}" for step in outcome.steps)
        lines += [
            f"image   {image.reference}",
            f"digest  {image.digest}",
            f"size    {image.size / 1e6:.1f} MB in {len(image.layers)} layers",
            f"steps   {steps}",
        ]
        if outcome.run_line:
            lines.append(f"run     {outcome.run_line}")
    return "\n".join([*lines, verdict(outcome.verdict)])


def _plan_lines(plan: LayerPlan) -> list[str]:
    lines = [f"{len(plan.layers)} of at most {plan.limit} layers, about {plan.size / 1e6:.1f} MB to pull"]
    for number, layer in enumerate(plan.layers, start=1):
        about = " " if layer.exact else "~"
        lines.append(f"{number:3}  {about}{layer.size / 1e6:9.1f} MB  {layer.title}")
    return lines


def _budget_lines(budget: Budget) -> list[str]:
    lines = [
        f"the image has {budget.size / 1e6:.1f} MB, {(budget.size - budget.limit) / 1e6:.1f} MB more than its max-size",
        "  largest layers:",
    ]
    lines += [f"    {size / 1e6:9.1f} MB  {size / budget.size:4.0%}  {title}" for title, size in budget.largest]
    return [*lines, "  fix:   leave out or replace one of these, or raise max-size of the backend in the project file"]


def _findings(outcome: BuildOutcome) -> list[tuple[str, Finding]]:
    if outcome.audit is None:
        return []
    found = [(target.file, finding) for target in outcome.audit.targets for finding in target.findings]
    return found + [("", finding) for finding in outcome.audit.graph_findings]
