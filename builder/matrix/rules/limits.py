"""Limits: what tables of kind `limit` say holds, or does not, under conditions.

Footnotes, floors and lists of what a maker supports are rows, not code. A row speaks when everything in `when` holds:
then `allow` is what the other keys must be, or `verdict` is the answer. A row that names rules in `lifts` is an
exception: its answer stands in the place of theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from builder.matrix.conditions import holds, value_of
from builder.matrix.grammar import spoken
from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.tables import Row
from builder.matrix.values import RuleVerdict, Verdict

__all__ = ["Limits", "judge_limits", "lift"]

_WORST: tuple[Verdict, ...] = ("unsupported", "unknown", "supported")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the limits of a backend say about one question."""

    verdicts: tuple[RuleVerdict, ...]
    """One for each rule that spoke, by name: the worst of its rows."""
    lifted: tuple[tuple[str, RuleVerdict], ...]
    """Rules whose answer an exception replaces, with that exception."""
    needs: tuple[tuple[str, str], ...]
    """Rule, and a key that would let it speak."""
    read: frozenset[str]
    """Keys that decided something."""


def judge_limits(question: Question, backend: Backend, rows: Iterable[Row] | None = None) -> Limits:
    """Every limit whose conditions hold, or those of `rows` that do. Source: each row names its own."""
    found: dict[str, list[RuleVerdict]] = {}
    lifted: list[tuple[str, RuleVerdict]] = []
    needs: dict[tuple[str, str], None] = {}
    read: set[str] = set()
    for row in backend.rows("limit") if rows is None else rows:
        name = row.text("rule") or ""
        when = row.mapping("when")
        answers = {key: holds(question, key, text) for key, text in when.items()}
        if False in answers.values():
            continue
        missing = [key for key, answer in answers.items() if answer is None]
        if missing:
            needed = len(missing) == 1 and len(when) > 1 and not row.texts("lifts")
            if needed and not _names_package(missing[0], backend):
                needs[name, missing[0]] = None
            continue
        verdict = _answer(question, row, name)
        if verdict is None:
            if not question_has(question, row.mapping("allow")):
                needs.update({(name, key): None for key in row.mapping("allow") if not _names_package(key, backend)})
            continue
        read.update((*when, *row.mapping("allow")))
        found.setdefault(name, []).append(verdict)
        lifted += [(rule, verdict) for rule in row.texts("lifts") or ()]
    verdicts = tuple(min(rows, key=lambda one: _WORST.index(one.verdict)) for _, rows in sorted(found.items()))
    spoken = {verdict.rule for verdict in verdicts}
    return Limits(
        verdicts=verdicts,
        lifted=tuple(lifted),
        needs=tuple(need for need in needs if need[0] not in spoken),
        read=frozenset(read),
    )


def question_has(question: Question, keys: Iterable[str]) -> bool:
    """Whether any of these keys was asked."""
    return any(value_of(question, key) is not None for key in keys)


def _names_package(key: str, backend: Backend) -> bool:
    return key not in ("toolkit", "driver", "firmware", "device", "target", "machine", "os", "kernel", "python", "libc")


def _answer(question: Question, row: Row, name: str) -> RuleVerdict | None:
    note = f" ({row.note})" if row.note else ""
    why = f"{row.text('why')}{note}"
    given = row.text("verdict")
    if given is not None:
        verdict: Verdict = next(word for word in _WORST if word == given)
        return _verdict(row, name, verdict, why)
    allow = row.mapping("allow")
    answers = {key: holds(question, key, text) for key, text in allow.items()}
    known = {key: answer for key, answer in answers.items() if answer is not None}
    if not known:
        return None
    wrong = [key for key, answer in known.items() if not answer]
    if not wrong:
        return _verdict(row, name, "supported", why)
    otherwise: Verdict = "unknown" if row.text("otherwise") == "unknown" else "unsupported"
    asked = ", ".join(f"{key} {value_of(question, key)}" for key in wrong)
    fix = row.text("fix") or "; ".join(f"{key} {spoken(allow[key])}" for key in wrong)
    return _verdict(row, name, otherwise, f"{why}; asked: {asked}", fix)


def _verdict(row: Row, name: str, verdict: Verdict, why: str, fix: str = "") -> RuleVerdict:
    if row.confidence == "uncertain" and verdict != "supported":
        verdict = "unknown"
    fix = "" if verdict == "supported" else fix or row.text("fix") or ""
    return RuleVerdict(rule=name, verdict=verdict, why=why, source=row.source.text, fix=fix)


def lift(verdicts: Iterable[RuleVerdict], lifted: Iterable[tuple[str, RuleVerdict]]) -> list[RuleVerdict]:
    """The verdicts, with the answers of exceptions in the place of the general ones."""
    by = dict(lifted)
    out = []
    for verdict in verdicts:
        exception = by.get(verdict.rule)
        if exception is None or verdict.verdict == exception.verdict:
            out.append(verdict if exception is None else dataclasses.replace(verdict, fix=exception.fix or verdict.fix))
            continue
        why = f"{verdict.why}; but {exception.why}"
        out.append(
            dataclasses.replace(verdict, verdict=exception.verdict, why=why, source=exception.source, fix=exception.fix)
        )
    return out
