"""Short turns of threads end with what asked for them."""

from __future__ import annotations

import sys

import pytest

from builder.audit.turns import quick_turns


def test_turns_are_as_before_when_the_last_is_done() -> None:
    before = sys.getswitchinterval()
    with quick_turns():
        short = sys.getswitchinterval()
        assert short < before
        with quick_turns():
            assert sys.getswitchinterval() == short
        assert sys.getswitchinterval() == short
    assert sys.getswitchinterval() == before


def test_turns_are_as_before_after_an_error() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), quick_turns():
        _ = 1 / 0
    assert sys.getswitchinterval() == before
