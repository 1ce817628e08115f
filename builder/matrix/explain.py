"""Is this combination supported? Every rule that has something to say, and the worst of what they say."""

from __future__ import annotations

import dataclasses

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules import RULES
from builder.matrix.rules.devices import device_row
from builder.matrix.values import Explanation, worst

__all__ = ["explain"]

_SPOKEN = {
    "target": "arch (a device target)",
    "machine": "arch (x86_64 or aarch64)",
    "packages": "a framework",
    "libc": "libc or os",
}


def explain(backend: Backend, question: Question) -> Explanation:
    """What the rules say about one combination of one backend.

    A device that is named without its target is looked up first. Rules that lack a part are listed in `needs`; no rule
    at all means unknown.
    """
    question = with_target(backend, question)
    kinds = {table.kind.name for table in backend.tables}
    verdicts = []
    needs = []
    for rule in RULES:
        if not kinds.intersection(rule.kinds) or not rule.speaks(backend):
            continue
        verdict = rule.check(question, backend)
        if verdict is not None:
            verdicts.append(verdict)
            continue
        missing = [key for key in rule.keys if not question.has(key)]
        if missing and len(missing) < len(rule.keys):
            needs.append(f"{rule.name} would need {' and '.join(_SPOKEN.get(key, key) for key in missing)}")
    return Explanation(
        verdict=worst(tuple(verdict.verdict for verdict in verdicts)), rules=tuple(verdicts), needs=tuple(needs)
    )


def with_target(backend: Backend, question: Question) -> Question:
    """The question with the device's target filled in, where the device tables know it."""
    if question.device is None or question.target is not None:
        return question
    row = device_row(backend, question.device)
    return dataclasses.replace(question, target=row.text("target")) if row else question
