"""Bytes from here to there, digested on the way: what is digested is what is written, read once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import BadInput
from builder.names import Digest
from builder.store import disk_errors

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Copied", "copy_hashed", "hash_file", "open_source", "sync_file", "sync_folder", "workers"]

_CHUNK = 1 << 20
_OVERLAP = 4 << 20
"""Files from this size on are digested by a second thread while the first one writes."""
_SEARCHED = 64 << 20
"""Files up to this size are searched for the path they were made in; paths stand in code and text, not in weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """What was copied."""

    digest: Digest
    size: int
    found: bool
    """Whether the searched bytes occur."""


@contextmanager
def open_source(path: Path) -> Iterator[int]:
    """A regular file, opened for reading; `BadInput` when it is something else or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise BadInput(f"cannot read {path}", why=error.strerror or str(error), fix="check the path") from error
    try:
        yield handle
    finally:
        os.close(handle)


def copy_hashed(source: int, target: int, *, search: bytes = b"") -> Copied:
    """Copy an open file to another from where they stand; `search` is looked for in files that are not large."""
    size = os.fstat(source).st_size
    wanted = search if size <= _SEARCHED else b""
    if size >= _OVERLAP:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            return _copy(source, target, wanted, pool)
    return _copy(source, target, wanted, None)


def _copy(source: int, target: int, search: bytes, pool: ThreadPoolExecutor | None) -> Copied:
    hasher = hashlib.sha256()
    buffers = [bytearray(_CHUNK), bytearray(_CHUNK)] if pool else [bytearray(_CHUNK)]
    busy: list[Future[None] | None] = [None, None]
    size, turn, found, tail = 0, 0, False, b""
    while True:
        if (pending := busy[turn]) is not None:
            pending.result()
        buffer = buffers[turn]
        count = os.readv(source, [buffer])
        if not count:
            break
        part = memoryview(buffer)[:count]
        if pool is None:
            hasher.update(part)
        else:
            busy[turn] = pool.submit(hasher.update, part)
        if search and not found:
            found = buffer.find(search, 0, count) >= 0 or search in tail + bytes(part[: len(search)])
            tail = bytes(part[-len(search) :])
        if target >= 0:
            _write_all(target, part)
        size += count
        turn = (turn + 1) % len(buffers)
    for pending in busy:
        if pending is not None:
            pending.result()
    return Copied(digest=Digest(hasher.hexdigest()), size=size, found=found)


def _write_all(handle: int, part: memoryview) -> None:
    while part:
        part = part[os.write(handle, part) :]


def hash_file(handle: int) -> Copied:
    """The digest of an open file, read from where it stands."""
    return _copy(handle, -1, b"", None)


def sync_file(path: Path) -> None:
    """Flush a file that somebody wrote to the disk."""
    with open_source(path) as handle, disk_errors(path):
        os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Flush a folder's names to the disk (fsync of the folder; after a rename the name is durable only then)."""
    with disk_errors(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def workers() -> int:
    """Threads for copying many files: the processors of this process, four at most."""
    return max(1, min(4, len(os.sched_getaffinity(0))))
