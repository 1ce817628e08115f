"""Is this combination supported? Every rule that has something to say, and the worst of what they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from builder.matrix.images import read_image
from builder.matrix.load import Backend
from builder.matrix.notes import told
from builder.matrix.products import device_row
from builder.matrix.question import Question
from builder.matrix.rules import RULES
from builder.matrix.rules.forward import FORWARD
from builder.matrix.rules.frameworks import clash, set_toolkit, system_libc
from builder.matrix.rules.limits import judge_limits, lift
from builder.matrix.rules.members import release_toolkit
from builder.matrix.rules.settings import unjudged_settings
from builder.matrix.values import Explanation, RuleVerdict, worst

__all__ = ["explain"]

_SPOKEN = {
    "target": "arch (a device target)",
    "machine": "arch (x86_64 or aarch64)",
    "packages": "a framework",
    "libc": "libc or os",
}


def explain(backend: Backend, question: Question) -> Explanation:
    """What the rules say about one combination of one backend.

    A device that is named without its target is looked up first; a toolkit that is not named is that of the packages,
    where they are one set, for the rules on drivers. Rules that lack a part are listed in `needs`, parts no rule reads
    in `notes`; no rule at all means unknown.
    """
    question = with_image(backend, with_target(backend, question))
    derived = None
    if question.toolkit is None:
        derived = set_toolkit(question, backend) or release_toolkit(question, backend)
    with_toolkit = dataclasses.replace(question, toolkit=derived[0]) if derived is not None else question
    verdicts: list[RuleVerdict] = []
    needs: list[str] = []
    notes: list[str] = []
    read: set[str] = set()
    for rule in RULES:
        if not backend.kinds.intersection(rule.kinds) or not rule.speaks(backend):
            continue
        asked = with_toolkit if rule.toolkit_of_set else question
        read.update(rule.keys)
        verdict = rule.check(asked, backend)
        if verdict is not None:
            verdicts.append(verdict)
            if derived is not None and rule.toolkit_of_set:
                notes.append(f"{rule.name}: {backend.spec.toolkit} {derived[0]} is that of {derived[1]}")
            continue
        missing = [key for key in rule.keys if not asked.has(key)]
        if missing and len(missing) < len(rule.keys) and not rule.asked_only:
            needs.append(f"{rule.name} would need {' and '.join(_SPOKEN.get(key, key) for key in missing)}")
    libc = question.libc or system_libc(question.os, backend)
    exact = with_toolkit if derived is None or "." in derived[0] else question
    limits = judge_limits(dataclasses.replace(exact, libc=libc), backend)
    verdicts = [*lift(verdicts, (*_exceptions(verdicts, question, backend), *limits.lifted)), *limits.verdicts]
    stray = unjudged_settings(question, backend, {verdict.rule for verdict in verdicts}, limits.read)
    if stray is not None:
        verdicts.append(stray)
    needs += [f"{name} would need {_SPOKEN.get(key, key)}" for name, key in limits.needs]
    read |= limits.read | {"os"}
    if "driver" in read:
        read.add("firmware")
    if question.packages:
        read.add("toolkit")
    if derived is not None and "toolkit" in limits.read and question.toolkit is None:
        notes.append(f"{backend.spec.toolkit} {derived[0]} is that of {derived[1]}")
    notes += [f"no rule of backend {backend.name} reads {key}: it was not judged" for key in _unread(question, read)]
    return Explanation(
        verdict=worst(tuple(verdict.verdict for verdict in verdicts)),
        rules=tuple(verdicts),
        needs=tuple(dict.fromkeys(needs)),
        notes=(*dict.fromkeys(notes), *told(question, backend)),
    )


def _exceptions(verdicts: list[RuleVerdict], question: Question, backend: Backend) -> Iterator[tuple[str, RuleVerdict]]:
    """Rules whose answer another rule replaces: a newer user-mode driver in the image lifts the floor of the kernel
    driver (or leaves it open); a release that lists packages stands above the builds of an index."""
    refused = any(one.rule == "driver-floor" and one.verdict == "unsupported" for one in verdicts)
    for one in verdicts:
        if one.rule == FORWARD and (one.verdict == "supported" or (refused and one.verdict == "unknown")):
            yield "driver-floor", one
        elif one.rule == "release-members" and one.verdict == "supported" and clash(question, backend) is None:
            yield "framework-set", one


def _unread(question: Question, read: set[str]) -> list[str]:
    parts = ("toolkit", "driver", "firmware", "device", "target", "os", "kernel", "python", "libc")
    return [_SPOKEN.get(part, part) for part in parts if getattr(question, part) is not None and part not in read]


def with_image(backend: Backend, question: Question) -> Question:
    """The question with what the named image holds, where the question does not say it itself."""
    image = question.settings.get("image")
    contents = read_image(backend, image) if image is not None else None
    if contents is None:
        return question
    return dataclasses.replace(
        question,
        toolkit=question.toolkit or contents.toolkit,
        os=question.os or contents.os,
        python=question.python or contents.python,
    )


def with_target(backend: Backend, question: Question) -> Question:
    """The question with the device's target filled in, where the device tables know it."""
    if question.device is None or question.target is not None:
        return question
    row = device_row(backend, question.device)
    return dataclasses.replace(question, target=row.text("target")) if row else question
