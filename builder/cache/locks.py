"""Locks between processes: `flock`, which the kernel lets go of when a process dies, however it dies.

Decision and what it was compared with: docs/decisions/0080-engine-cache.md. A lock is held on an open file; taking it
waits in small steps, because the system call has no time limit of its own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from builder.errors import OutsideFailed
from builder.store import disk_errors

__all__ = ["LockTimeout", "NoLocks", "StoreLock", "holding", "take"]

_FIRST_WAIT = 0.002
_LONGEST_WAIT = 0.1


class LockTimeout(OutsideFailed):
    """Somebody else held the lock all the time."""

    kind = "lock-timeout"


class NoLocks(OutsideFailed):
    """The file system has no locks, so nothing can be kept in it safely."""

    kind = "no-locks"


def take(handle: int, path: Path, *, exclusive: bool, timeout: float | None) -> bool:
    """Take the lock of an open file; False when it was not to be had in `timeout` seconds (None: wait for ever).

    `NoLocks` where the file system cannot lock.
    """
    operation = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
    end = None if timeout is None else time.monotonic() + timeout
    wait = _FIRST_WAIT
    while True:
        try:
            fcntl.flock(handle, operation)
        except (BlockingIOError, PermissionError):
            now = time.monotonic()
            if end is not None and now >= end:
                return False
            time.sleep(wait if end is None else min(wait, end - now))
            wait = min(wait * 2, _LONGEST_WAIT)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise NoLocks(
                    f"{path} cannot be locked",
                    why=f"the file system says: {error.strerror}",
                    fix="mount it with locks (NFS: version 4, or lockd; Lustre: -o flock), or choose another folder",
                ) from error
            raise
        else:
            return True


@contextmanager
def holding(path: Path, *, exclusive: bool, timeout: float | None, what: str) -> Iterator[int]:
    """Hold the lock of a file, made when it is not there; `LockTimeout` says what was waited for.

    The file stays: whoever deletes lock files does so while holding them (see `still_there`).
    """
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        handle = _opened(path, exclusive=exclusive)
        try:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not take(handle, path, exclusive=exclusive, timeout=left):
                raise LockTimeout(
                    f"waited {timeout:g} s for {what}",
                    why=f"another process holds {path}",
                    fix="wait longer (--wait), or look what that process is doing; the lock ends with it",
                )
            if still_there(handle, path):
                try:
                    yield handle
                finally:
                    # a child that was forked meanwhile has the same open file: closing ours alone would not let go
                    fcntl.flock(handle, fcntl.LOCK_UN)
                return
        finally:
            os.close(handle)


def still_there(handle: int, path: Path) -> bool:
    """Whether the locked file is still the one of that name: it may have been deleted while we waited."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(handle)
    return (opened.st_ino, opened.st_dev) == (named.st_ino, named.st_dev)


def _opened(path: Path, *, exclusive: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if exclusive or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            with disk_errors(path):
                raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class StoreLock:
    """Shared by all who add or read, alone for the one that removes.

    Whoever wants it alone closes the gate first: later comers wait there, so that a busy store cannot keep it out for
    ever. The gate is always taken before the lock and never the other way round.
    """

    def __init__(self, root: Path) -> None:
        self._gate = root / "gate"
        self._lock = root / "lock"

    @contextmanager
    def shared(self, *, timeout: float | None = 120.0) -> Iterator[None]:
        """Keep everything in the store from being removed. A store that cannot be written is not locked."""
        if not self._writable():
            yield
            return
        what = "the engine cache to be cleared"
        with ExitStack() as stack:
            with holding(self._gate, exclusive=False, timeout=timeout, what=what):
                stack.enter_context(holding(self._lock, exclusive=False, timeout=timeout, what=what))
            yield

    @contextmanager
    def alone(self, *, timeout: float | None = 10.0) -> Iterator[None]:
        """Nobody adds or reads meanwhile."""
        what = "those who use the engine cache"
        with (
            holding(self._gate, exclusive=True, timeout=timeout, what=what),
            holding(self._lock, exclusive=True, timeout=timeout, what=what),
        ):
            yield

    def _writable(self) -> bool:
        return self._lock.exists() or os.access(self._lock.parent, os.W_OK)
