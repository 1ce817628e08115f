"""From how a check program ended to its result. Pure."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any

from builder.smoke.values import CheckResult, CheckVerdict, Completed

__all__ = ["exit_detail", "judge_check", "judge_command"]

_LAST_WORDS = 600
_SIGNALS: Mapping[int, str] = {
    signal.SIGILL: "instruction set fault: the program uses CPU instructions that this machine does not have "
    "(or was stopped by a deliberate trap); build for the node's CPU level, or run it on newer machines",
    signal.SIGSEGV: "memory access fault in native code",
    signal.SIGBUS: "bus error: often /dev/shm or a mapped file too small",
    signal.SIGABRT: "native code aborted",
    signal.SIGFPE: "arithmetic fault in native code",
    signal.SIGKILL: "killed: most often for lack of memory",
    signal.SIGTERM: "terminated from outside",
}


def exit_detail(code: int) -> str:
    """What an exit status means; 128 + n is death by signal n (FR-32: 132 is SIGILL)."""
    if code == 126:
        return "exit 126: found but cannot be executed"
    if code == 127:
        return "exit 127: program not found in the image"
    if code > 128:
        number = code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        meaning = _SIGNALS.get(number, "ended by a signal")
        return f"exit {code} ({name}): {meaning}"
    return f"exit {code}"


def judge_check(name: str, done: Completed) -> CheckResult:
    """The result of a check program: its last line of stdout that is a result, unless it was cut short or crashed.

    Shape of the line: `{"name", "verdict", "measures", "detail"}` (checks/run.py). A program that exits 0 without one
    failed: silence is not a pass.
    """
    if done.timed_out or done.code != 0:
        return _ended_badly(name, done)
    found = _result_line(done.stdout)
    if found is None:
        return CheckResult(
            name=name,
            verdict="failed",
            seconds=done.seconds,
            measures={},
            detail=f"the check printed no result; {_last_words(done)}".rstrip("; "),
        )
    verdict, measures, detail = found
    return CheckResult(name=name, verdict=verdict, seconds=done.seconds, measures=measures, detail=detail)


def judge_command(name: str, done: Completed) -> CheckResult:
    """The result of a command that knows nothing of checks (the project's warmup): exit 0 passed, else failed."""
    if done.timed_out or done.code != 0:
        return _ended_badly(name, done)
    return CheckResult(name=name, verdict="passed", seconds=done.seconds, measures={}, detail=_last_line(done.stdout))


def _ended_badly(name: str, done: Completed) -> CheckResult:
    why = f"still running after {done.seconds:.0f} s, stopped" if done.timed_out else exit_detail(done.code)
    words = _last_words(done)
    return CheckResult(
        name=name,
        verdict="failed",
        seconds=done.seconds,
        measures={} if done.timed_out else {"exit_code": done.code},
        detail=f"{why}; {words}" if words else why,
    )


def _result_line(stdout: bytes) -> tuple[CheckVerdict, dict[str, float | int | str], str] | None:
    for line in reversed(stdout.decode(errors="replace").splitlines()):
        try:
            value: Any = json.loads(line)
        except ValueError:
            continue
        if not isinstance(value, dict) or not isinstance(value.get("measures"), dict):
            continue
        verdict = value.get("verdict")
        if verdict not in ("passed", "failed", "not-run"):
            continue
        measures = {
            str(key): item
            for key, item in sorted(value["measures"].items())
            if isinstance(item, (int, float, str)) and not isinstance(item, bool)
        }
        return verdict, measures, str(value.get("detail", ""))
    return None


def _last_words(done: Completed) -> str:
    text = (done.stderr or done.stdout).decode(errors="replace").strip()
    return f"…{text[-_LAST_WORDS:]}" if len(text) > _LAST_WORDS else text


def _last_line(stdout: bytes) -> str:
    lines = stdout.decode(errors="replace").strip().splitlines()
    return lines[-1][-_LAST_WORDS:] if lines else ""
