"""Smoke: run the checks of a backend in one image, one after the other, and say what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from builder.errors import BadInput
from builder.events import Reporter
from builder.image.labels import read_labels
from builder.image.values import VENV
from builder.matrix.values import RunLine
from builder.names import Digest
from builder.node.values import NodeClass
from builder.smoke.judge import judge_check, judge_command
from builder.smoke.plan import PlannedCheck, blocked_by, plan_checks
from builder.smoke.preflight import node_differences
from builder.smoke.table import load_table
from builder.smoke.values import (
    Bind,
    CheckResult,
    CheckVerdict,
    Command,
    Completed,
    Container,
    RunnableImage,
    Runner,
    SmokeReport,
)

__all__ = ["CHECKS_TARGET", "run_command", "run_smoke"]

CHECKS_TARGET = "/run/builder/checks"
"""Where the check programs are seen in the image while they run; they are never part of it."""


def run_smoke(
    image: RunnableImage,
    *,
    checks: Path,
    runner: Runner,
    run: RunLine,
    reporter: Reporter,
    started: str,
    backend: str | None = None,
    node_class: NodeClass | None = None,
    machine: NodeClass | None = None,
    lock: Digest | None = None,
    timeout: float | None = None,
) -> SmokeReport:
    """Run every check that the image's labels call for.

    With a `node_class`, the first check is whether this machine, as `machine` describes it, is of that class; without
    that no result here would be evidence for it. Every program gets the environment of the class. `checks` is the
    folder of check programs and tables, `started` the time in UTC ISO 8601, `timeout` an upper bound in seconds for
    each check. `backend` and `lock`, when given, must be what the image says of itself (`BadInput`). `CannotTell` or
    `OutsideFailed` when the runner cannot work here; a check that fails or cannot run is a result.
    """
    facts = read_labels(image.labels, image=image.name)
    _same("backend", backend, facts.backend, image)
    _same("lock", lock, facts.lock, image)
    planned, left_out = plan_checks(load_table(checks, facts.backend), facts)
    rows = {check.name: check.row for check in planned}
    results = [] if node_class is None else [_node_check(node_class, machine)]
    rows |= {result.name: result.name for result in results}
    env = node_class.environment if node_class is not None else {}
    with runner.open(image, run=run) as container:
        for check in planned:
            reason = blocked_by(check, rows, results)
            if reason:
                result = CheckResult(name=check.name, verdict="not-run", seconds=0.0, measures={}, detail=reason)
            else:
                result = _run_one(container, check, results, checks, timeout, env)
            reporter.note(f"{result.verdict:8} {result.name} ({result.seconds:.1f} s)")
            results.append(result)
    return SmokeReport(
        image=image.digest,
        backend=facts.backend,
        node_class=node_class.name if node_class else None,
        runner=runner.name,
        checks=tuple(results),
        started=started,
        lock=facts.lock,
        left_out=left_out,
    )


def run_command(
    image: RunnableImage,
    argv: tuple[str, ...],
    *,
    runner: Runner,
    timeout: float,
    run: RunLine | None = None,
    env: Mapping[str, str] | None = None,
    binds: tuple[Bind, ...] = (),
    network: bool = False,
) -> Completed:
    """Run one program in the image, as a container of it would: the image's user, working directory and environment."""
    with runner.open(image, run=run or RunLine()) as container:
        return container.run(Command(argv=argv, timeout=timeout, env=env or {}, binds=binds, network=network))


def _node_check(wanted: NodeClass, machine: NodeClass | None) -> CheckResult:
    """Whether the results count for the class: `not-run` where they do not, which keeps the whole from passing."""
    if machine is None:
        verdict: CheckVerdict = "not-run"
        detail = f"this machine could not be described, so it may not be {wanted.name}"
    else:
        differences = node_differences(wanted, machine)
        verdict = "not-run" if differences else "passed"
        detail = f"this machine is not {wanted.name}: {'; '.join(differences)}" if differences else ""
    return CheckResult(name="node-class", verdict=verdict, seconds=0.0, measures={}, detail=detail)


def _run_one(
    container: Container,
    check: PlannedCheck,
    before: list[CheckResult],
    checks: Path,
    timeout: float | None,
    env: Mapping[str, str],
) -> CheckResult:
    limit = min(check.timeout, timeout) if timeout is not None else check.timeout
    if check.program is None:
        return judge_command(check.name, container.run(Command(argv=check.command, timeout=limit, env=env)))
    options = {**check.options, "results": {result.name: result.verdict for result in before}}
    argv = (f"{VENV}/bin/python", "-B", f"{CHECKS_TARGET}/run.py", check.name, check.program, json.dumps(options))
    done = container.run(Command(argv=argv, timeout=limit, env=env, binds=(Bind(source=checks, target=CHECKS_TARGET),)))
    return judge_check(check.name, done)


def _same(what: str, asked: object, found: object, image: RunnableImage) -> None:
    if asked is not None and asked != found:
        raise BadInput(
            f"{image.name} is not the image that was meant",
            why=f"its label says {what} {found}, asked for {asked}",
            fix="name the image of this lock, or build it again",
        )
