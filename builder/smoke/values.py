"""The result of checks run in one image on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from builder.names import Digest

__all__ = ["CheckResult", "CheckVerdict", "SmokeReport"]

CheckVerdict = Literal["passed", "failed", "not-run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """One check."""

    name: str
    verdict: CheckVerdict
    seconds: float
    measures: Mapping[str, float | int | str]
    """Figures with the unit in the name: `matmul_seconds`, `device_memory_bytes`."""
    detail: str = ""
    """Why it failed or did not run; the program's own last words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeReport:
    """All checks of one run."""

    image: Digest
    backend: str
    node_class: str | None
    runner: str
    checks: tuple[CheckResult, ...]
    started: str
    """UTC ISO 8601."""

    @property
    def verdict(self) -> CheckVerdict:
        """failed when any failed; passed only when all passed; else not-run."""
        verdicts = {check.verdict for check in self.checks}
        if "failed" in verdicts:
            return "failed"
        return "passed" if verdicts == {"passed"} else "not-run"
