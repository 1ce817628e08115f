"""Where a finding is shown: the line of the lock that holds the package, or the wheel itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.audit.values import AuditReport, Finding, TargetAudit

__all__ = ["LockPlaces", "Place", "fingerprint", "lock_places", "placed_findings", "seen"]

_NAME = re.compile(r'name\s*=\s*"([^"]+)"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A file that a reviewer can open, and a 1-based line when there is one."""

    file: str
    line: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LockPlaces:
    """Lines of a lock file."""

    file: str
    """Path as the reader of the report knows it, `/`-separated."""
    lines: Mapping[str, int]
    """Package name to the 1-based line of its table."""

    def place(self, package: str) -> Place:
        """The package's line, or the file's first."""
        return Place(file=self.file, line=self.lines.get(package, 1))


def lock_places(path: Path, *, shown_as: str | None = None) -> LockPlaces:
    """Read the line of each `[[packages]]` name in a lock file.

    A path below the current folder is shown relative to it, as code scanning services know files.
    """
    lines: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _NAME.match(line)
        if match:
            lines.setdefault(match[1], number)
    here = Path.cwd()
    near = path.absolute()
    shown = near.relative_to(here) if near.is_relative_to(here) else path
    return LockPlaces(file=shown_as or shown.as_posix(), lines=lines)


def placed_findings(
    report: AuditReport, places: LockPlaces | None, *, excepted: bool = False
) -> Iterator[tuple[Finding, TargetAudit | None, Place]]:
    """Every finding above info with its wheel (None between wheels) and its place; with `excepted`, those that the
    project lives with too.
    """
    for target in report.targets:
        for finding in target.findings:
            if finding.severity != "info" or (excepted and finding.excepted):
                yield finding, target, places.place(target.name) if places else Place(file=target.file)
    for finding in report.graph_findings:
        if finding.severity != "info" or (excepted and finding.excepted):
            package = finding.chain[-1] if finding.chain else ""
            yield finding, None, places.place(package) if places else Place(file=finding.path)


def seen(finding: Finding) -> tuple[str, ...]:
    """The evidence, one `path: what was seen` a file."""
    parts = finding.evidence.split(" | ")
    if not parts[0].startswith(finding.path):
        parts[0] = f"{finding.path}: {parts[0]}"
    return tuple(parts)


def fingerprint(finding: Finding, target: TargetAudit | None) -> str:
    """Stays the same when versions, lines, offsets and evidence change: package, rule and the backend it is about.

    Between wheels the path too, which says what they share; who pulled them in may change.
    """
    subject = target.name if target else f"{'/'.join(finding.chain[-1:])}|{finding.path}"
    return hashlib.sha256(f"{subject}|{finding.rule}|{finding.backend}".encode()).hexdigest()[:32]
