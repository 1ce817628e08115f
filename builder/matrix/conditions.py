"""Conditions of a limit held against a question; builder/matrix/grammar.py has their grammar."""

from __future__ import annotations

import re

from packaging.version import Version

from builder.matrix.grammar import NAMES, alternatives
from builder.matrix.question import Question, family_name
from builder.matrix.sets import touches
from builder.matrix.systems import same_system
from builder.matrix.versions import parse, within

__all__ = ["holds", "value_of"]


def value_of(question: Question, key: str) -> str | None:
    """What was asked for a key; None when it was not named."""
    match key:
        case "toolkit" | "driver" | "firmware" | "target" | "machine" | "os" | "python" | "libc" | "device":
            value: str | None = getattr(question, key)
            return value
        case "capability":
            return _capability(question.target)
        case "features":
            return question.features
        case "kernel":
            match = re.match(r"\d+(?:\.\d+)*", question.kernel or "")
            return match[0] if match else None
        case _:
            own = question.packages.get(key) or question.settings.get(key)
            return own or next((text for name, text in question.packages.items() if family_name(name) == key), None)


def _capability(target: str | None) -> str | None:
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", target or "")
    return f"{match[1]}.{match[2]}" if match else None


def holds(question: Question, key: str, text: str) -> bool | None:
    """Whether what was asked for a key meets a condition; None when the question does not say."""
    value = value_of(question, key)
    if value is None:
        return None
    parts = alternatives(text)
    refused = [part.removeprefix("not ").strip() for part in parts if part.startswith("not ")]
    wanted = [part for part in parts if not part.startswith("not ")]
    if any(_meets(key, value, part) for part in refused):
        return False
    return not wanted or any(_meets(key, value, part) for part in wanted)


def _meets(key: str, value: str, wanted: str) -> bool:
    if wanted == "*":
        return True
    if key == "os":
        return same_system(value, wanted)
    if key == "device":
        return _words(wanted) <= _words(value)
    if key in NAMES:
        return value.casefold() == wanted.casefold()
    if key == "toolkit":
        return touches(value, wanted)
    if key in ("python", "libc"):
        return _plain(value, wanted)
    found = parse(value)
    if found is not None and found.local is not None and "+" not in wanted:
        return within(str(Version(found.public)), wanted) or _short(value, wanted)
    return within(value, wanted) or _short(value, wanted)


def _short(value: str, wanted: str) -> bool:
    """A version asked by its first parts (10.13) is meant by one that is written out (10.13.2)."""
    return wanted[0].isdigit() and not wanted.endswith("*") and within(wanted, f"{value.partition('+')[0]}.*")


def _plain(value: str, wanted: str) -> bool:
    if value.endswith("t"):
        return value == wanted
    return value == wanted or (not wanted.endswith("t") and within(value, wanted))


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9.]+", name.casefold())) - {""}
