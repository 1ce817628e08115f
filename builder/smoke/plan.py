"""Which checks one image must pass: the backend's table times what the image's lock holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from builder.image.labels import ImageFacts
from builder.smoke.table import CheckTable, TableCheck
from builder.smoke.values import CheckResult, LeftOut

__all__ = ["PlannedCheck", "blocked_by", "plan_checks"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCheck:
    """One check to run, or one that is known not to run before anything starts."""

    name: str
    row: str
    """Name of the table row it comes from; `needs` speaks of rows."""
    program: str | None = None
    command: tuple[str, ...] = ()
    """The warmup's argv, when there is no program."""
    timeout: float = 300.0
    needs: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    cannot_run: str = ""
    """Why it will not be run; empty for a check that will."""


def plan_checks(table: CheckTable, facts: ImageFacts) -> tuple[tuple[PlannedCheck, ...], tuple[LeftOut, ...]]:
    """The checks required of this image, in order, and those rows it does not call for, with the reason.

    Every planned check must pass for the image to pass. A row for frameworks is planned once for each framework that
    the lock holds. Without any, the table decides: on an accelerator the check is required all the same and will be
    `not-run`, since nothing would show that the device works; on cpu the row is left out and told.
    """
    planned: list[PlannedCheck] = []
    left_out: list[LeftOut] = []
    for row in table.checks:
        if row.program is None:
            if facts.warmup is None:
                left_out.append(LeftOut(name=row.name, why="the project has no warmup command"))
            else:
                planned.append(
                    PlannedCheck(
                        name=row.name,
                        row=row.name,
                        command=facts.warmup.command,
                        timeout=facts.warmup.timeout,
                        needs=row.needs,
                    )
                )
        elif not row.frameworks:
            planned.append(_program(row, row.name, facts, {}))
        elif present := [name for name in row.frameworks if name in facts.packages]:
            for name in present:
                framework = table.frameworks[name]
                chosen = {
                    "framework": {
                        "distribution": name,
                        "module": framework.module,
                        "device": framework.device,
                        "imports": list(framework.imports),
                    }
                }
                planned.append(_program(row, f"{row.name}-{name}", facts, chosen))
        else:
            why = f"the lock holds none of {', '.join(row.frameworks)}"
            if row.without_framework == "leave-out":
                left_out.append(LeftOut(name=row.name, why=why))
            else:
                planned.append(PlannedCheck(name=row.name, row=row.name, needs=row.needs, cannot_run=why))
    return tuple(planned), tuple(left_out)


def blocked_by(check: PlannedCheck, rows: Mapping[str, str], results: Iterable[CheckResult]) -> str:
    """Why `check` is not run given the results so far, or "". `rows` maps the name of a result to its table row."""
    if check.cannot_run:
        return check.cannot_run
    for result in results:
        if rows[result.name] in check.needs and result.verdict != "passed":
            word = "failed" if result.verdict == "failed" else "did not run"
            return f"needs {result.name}, which {word}: {result.detail}"
    return ""


def _program(row: TableCheck, name: str, facts: ImageFacts, chosen: Mapping[str, Any]) -> PlannedCheck:
    return PlannedCheck(
        name=name,
        row=row.name,
        program=row.program,
        timeout=row.timeout,
        needs=row.needs,
        options={"backend": facts.backend, "packages": dict(facts.packages), **row.options, **chosen},
    )
