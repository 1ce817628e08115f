from __future__ import annotations

import pytest

from builder.errors import (
    BadInput,
    BuilderError,
    CannotTell,
    Fault,
    OutsideFailed,
    Refused,
    Where,
    did_you_mean,
    raise_faults,
)


@pytest.mark.parametrize(("kind", "code"), [(Refused, 1), (BadInput, 2), (OutsideFailed, 3), (CannotTell, 4)])
def test_each_answer_has_its_exit_code(kind: type[BuilderError], code: int) -> None:
    assert kind("x").exit_code == code


def test_a_message_says_what_where_why_and_how_to_mend_it() -> None:
    error = Refused("no", why="because", fix="do this", where=Where(file="a.toml", line=3, key="image.user"))
    assert str(error).splitlines() == [
        "no",
        "  where: a.toml:3 (image.user)",
        "  why:   because",
        "  fix:   do this",
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert str(Refused("no")) == "no"
    assert str(Where(file="a")) == "a"


def test_one_fault_becomes_the_reason_itself() -> None:
    where = Where(file="a.toml", line=1)
    with pytest.raises(BadInput) as caught:
        raise_faults("a.toml cannot be used", [Fault(what="bad", where=where, fix="mend it")])
    assert (caught.value.why, caught.value.fix, caught.value.where, caught.value.faults) == (
        "bad",
        "mend it",
        where,
        (),
    )


def test_several_faults_are_reported_together() -> None:
    faults = [Fault(what="one", where=Where(file="a", line=1)), Fault(what="two", fix="mend")]
    with pytest.raises(BadInput) as caught:
        raise_faults("a cannot be used", faults)
    assert str(caught.value).splitlines() == ["a cannot be used", "  why:   2 faults", "  - a:1: one", "  - two; mend"]


def test_no_fault_raises_nothing() -> None:
    raise_faults("fine", [])


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("cude", "did you mean 'cuda'?"),
        ("zzz", "known: cpu, cuda, rocm"),
    ],
)
def test_a_wrong_word_gets_the_closest_ones_or_all(word: str, hint: str) -> None:
    assert did_you_mean(word, ["rocm", "cuda", "cpu"]) == hint


def test_with_nothing_known_there_is_no_hint() -> None:
    assert did_you_mean("x", []) == ""
