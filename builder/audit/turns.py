"""How long one thread of the interpreter may keep the others waiting while wheels are looked at.

A thread that inflates comes back for the interpreter every half millisecond, for some microseconds. Where another runs
Python the whole time, it would wait five milliseconds each time (`sys.getswitchinterval`), and stand still in effect.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quick_turns"]

_TURN = 0.0002
"""Seconds."""
_lock = threading.Lock()
_inside = 0
_before = 0.0


@contextmanager
def quick_turns() -> Iterator[None]:
    """Short turns for the threads of this process; as they were when the last of those who asked for it is done."""
    global _inside, _before  # the interval is one for the whole process, and so is what it was
    with _lock:
        if not _inside:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_TURN, _before))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_before)
