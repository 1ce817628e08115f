"""Runs a program of this machine with a time limit, keeping only the end of what it says."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from builder.smoke.values import Completed

__all__ = ["OUTPUT_LIMIT", "Process"]

OUTPUT_LIMIT = 1 << 20
"""Bytes of each output that are kept: the last ones, where results and last words are."""

_GRACE = 10.0
"""Seconds that a stopped program's pipes are given to drain; a stray child may hold them open for ever."""


class Process:
    """A started program; call `finish` exactly once."""

    def __init__(
        self, argv: Sequence[str], *, pass_fds: tuple[int, ...] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self._start = time.monotonic()
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            env=env,
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        assert self._process.stderr is not None  # noqa: S101
        self._out = _Tail(self._process.stdout)
        self._err = _Tail(self._process.stderr)

    def kill(self) -> None:
        """End the program itself at once."""
        self._process.kill()

    def finish(self, timeout: float, *, stop: Callable[[], None]) -> Completed:
        """Wait for the end; after `timeout` seconds, or when interrupted, call `stop`, which must make it end."""
        timed_out = False
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            self._stop(stop)
        except BaseException:
            self._stop(stop)
            raise
        code = self._process.returncode
        return Completed(
            code=code if code >= 0 else 128 - code,
            stdout=self._out.finish(),
            stderr=self._err.finish(),
            seconds=time.monotonic() - self._start,
            timed_out=timed_out,
        )

    def _stop(self, stop: Callable[[], None]) -> None:
        stop()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Tail:
    """Reads a pipe to its end in a thread and keeps the last `OUTPUT_LIMIT` bytes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._data = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            while chunk := self._pipe.read1(1 << 16):  # type: ignore[attr-defined]
                self._data += chunk
                if len(self._data) > 2 * OUTPUT_LIMIT:
                    del self._data[:-OUTPUT_LIMIT]

    def finish(self) -> bytes:
        self._thread.join(_GRACE)
        return bytes(self._data[-OUTPUT_LIMIT:])
