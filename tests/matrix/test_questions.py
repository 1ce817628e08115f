"""What `matrix explain` answers to several hundred questions; the verdicts are those of the makers' tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import BadInput
from builder.matrix import explain, load_backend, parse_question

QUESTIONS = Path(__file__).parent / "questions.txt"
Line = tuple[str, str, str, str, str]


def lines() -> list[Line]:
    found: list[Line] = []
    for text in QUESTIONS.read_text(encoding="utf-8").splitlines():
        if text and not text.startswith("#"):
            backend, settings, verdict, rule, why = (cell.strip() for cell in text.split(" | ", 4))
            found.append((backend, settings, verdict, rule, why))
    return found


@pytest.mark.parametrize(("backend", "settings", "verdict", "rule", "why"), lines())
def test_a_question_is_answered(backend: str, settings: str, verdict: str, rule: str, why: str) -> None:
    loaded = load_backend(backend)
    pairs = dict(part.partition("=")[::2] for part in settings.split("; "))
    if verdict == "error":
        with pytest.raises(BadInput) as refused:
            parse_question(pairs, loaded)
        assert refused.value.fix, "an error says how to mend it"
        return
    answer = explain(loaded, parse_question(pairs, loaded))
    told = [(one.rule, one.verdict, one.why) for one in answer.rules]
    assert answer.verdict == verdict, (why, told)
    assert rule == "-" or rule in {one.rule for one in answer.rules if one.verdict == verdict}, told
    for one in answer.rules:
        assert one.source, f"{one.rule} names no source"
        assert one.why, f"{one.rule} does not say why"
        assert one.fix or one.verdict == "supported", f"{one.rule} does not say what would turn it: {one.why}"


def test_every_question_is_asked_once() -> None:
    asked = [line[:2] for line in lines()]
    assert sorted(set(asked)) == sorted(asked)
