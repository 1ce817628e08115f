"""The audit for people: one block a wheel, worst first, and a summary line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from builder.audit.values import AuditReport, ExceptionUse, Finding, Level, TargetAudit
from builder.report.places import seen

__all__ = ["Paint", "audit_text", "exception_text"]

Paint = Callable[[str], str]
"""Gives a verdict word its colour."""

_ORDER: tuple[Level, ...] = ("block", "carry", "warn", "ok")
_INDENT = " " * 10
_MOST_TARGETS = 12
_MOST_FILES = 3


def audit_text(report: AuditReport, *, paint: Paint = str, verbose: bool = False) -> str:
    """Findings of severity info are shown when `verbose`; clean wheels take one line."""
    lines: list[str] = []
    for target in sorted(report.targets, key=lambda item: (_ORDER.index(item.level), item.name)):
        block = list(_target(target, report.backend, paint, verbose))
        if len(block) > 1 and lines and lines[-1]:
            lines.append("")
        lines += block
    between = [finding for finding in report.graph_findings if verbose or finding.severity != "info"]
    for finding in between:
        lines += ["", *_finding(finding, report.backend, paint, verbose)]
    for name, chains in report.chains.items():
        lines += ["", f"{name} is pulled in by", *(f"  {' > '.join(way)}" for way in chains.ways)]
        if chains.more:
            lines.append("  … and more ways")
    notes = [exception_text(use) for use in report.exceptions]
    if notes:
        lines += ["", *notes]
    if lines and lines[-1]:
        lines.append("")
    return "\n".join([*lines, _summary(report, paint)])


def exception_text(use: ExceptionUse) -> str:
    """One line: what is excepted, for how long, why, and what to do about it."""
    exception = use.exception
    number = f"{use.findings} finding{'' if use.findings == 1 else 's'}"
    subject = f"{exception.package} {exception.rule}"
    if use.state == "used":
        return f"excepted until {exception.expires}: {subject} ({number}): {exception.reason}"
    if use.state == "expired":
        again = f"{number} count{'s' if use.findings == 1 else ''} again" if use.findings else "nothing left, remove it"
        return f"exception expired on {exception.expires}: {subject} ({again}): {exception.reason}"
    return f"exception for nothing: {subject}: remove it, or check the names"


def _target(target: TargetAudit, backend: str, paint: Paint, verbose: bool) -> Iterator[str]:
    shown = [finding for finding in target.findings if verbose or finding.severity != "info"]
    head = f"{paint(target.level)}{' ' * (7 - len(target.level))}{target.name} {target.version}"
    own = target.tokens.get(backend)
    if not shown:
        yield head + (f"  ({backend}: {' '.join(own)})" if own else "")
        return
    yield f"{head}  {target.file}"
    for other, tokens in target.tokens.items():
        yield f"  {other}: {' '.join(tokens)}{_archs(target, other)}"
    for finding in shown:
        yield from _finding(finding, backend, paint, verbose)
    yield ""


def _archs(target: TargetAudit, backend: str) -> str:
    archs = target.archs
    targets = {
        "cuda": (*archs.cuda_sm, *archs.cuda_ptx),
        "rocm": archs.gfx,
        "npu": archs.ascend_soc,
    }.get(backend, ())
    if not targets:
        return ""
    more = f" and {len(targets) - _MOST_TARGETS} more" if len(targets) > _MOST_TARGETS else ""
    return f"  ({' '.join(targets[:_MOST_TARGETS])}{more})"


def _finding(finding: Finding, backend: str, paint: Paint, verbose: bool) -> Iterator[str]:
    word = {"error": "block", "warning": "warn", "info": "ok"}[finding.severity]
    label = paint(word).replace(word, finding.severity)
    of = f" [{finding.backend}]" if finding.backend != backend else ""
    yield f"  {label}{' ' * (8 - len(finding.severity))}{finding.rule}{of}"
    parts = seen(finding)
    for part in parts if verbose else parts[:_MOST_FILES]:
        yield f"{_INDENT}{part}"
    if not verbose and len(parts) > _MOST_FILES:
        yield f"{_INDENT}… more files under --verbose"
    if len(finding.chain) > 1:
        yield f"{_INDENT}pulled in by {' > '.join(finding.chain)}"
    if finding.fix:
        yield f"{_INDENT}fix: {finding.fix}"


def _summary(report: AuditReport, paint: Paint) -> str:
    levels = Counter(target.level for target in report.targets)
    counts = ", ".join(f"{levels[level]} {level}" for level in _ORDER if levels[level])
    number = len(report.targets)
    found = sum(finding.severity != "info" for finding in report.graph_findings)
    between = f", {found} between wheels" if found else ""
    wheels = f"{number} wheel{'' if number == 1 else 's'}"
    return f"{paint(report.level)}: {wheels} for {report.backend}: {counts or 'nothing to audit'}{between}"
