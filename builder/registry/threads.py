"""A few threads that work off a list, and all stop at the first failure."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["each"]

_GRACE = 2.0
"""Seconds that threads get to clean up after themselves when the work is given up."""

T = TypeVar("T")


def each(items: Sequence[T], job: Callable[[T], None], *, workers: int, stop: threading.Event) -> None:
    """Run the job for all items in a few threads; the first error, or Ctrl-C, sets `stop` and is raised.

    The threads are daemons: one that waits for a slow registry must not keep an interrupted program alive.
    """
    waiting = deque(items)
    results: SimpleQueue[BaseException | None] = SimpleQueue()

    def work() -> None:
        while not stop.is_set():
            try:
                item = waiting.popleft()
            except IndexError:
                return
            try:
                job(item)
            except BaseException as error:  # relayed to the thread that waits
                results.put(error)
                stop.set()  # after it is told, so that what stops because of it is told later
            else:
                results.put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(items)))]
    for thread in threads:
        thread.start()
    try:
        for _ in items:
            error = results.get()
            if error is not None:
                raise error
    except BaseException:
        stop.set()
        for thread in threads:
            thread.join(_GRACE / len(threads))
        raise
    for thread in threads:
        thread.join()
