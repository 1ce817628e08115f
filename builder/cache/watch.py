"""Which files of a folder are opened while a program runs: inotify(7), which also sees through bind mounts.

A cache that is read leaves no other trace: times of access are off on many mounts, and what a framework counts it
counts in its own words.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from builder.errors import OutsideFailed

__all__ = ["Seen", "watching"]

_IN_OPEN = 0x20
_IN_CREATE = 0x100
_IN_ISDIR = 0x40000000
_IN_Q_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Seen:
    """Files that were opened or made, relative to the folder; filled when the watching ends."""

    opened: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    """Names that came into being, also those that went again; in folders that were there before."""
    complete: bool = True
    """False when there were more openings than the kernel kept."""


@contextmanager
def watching(folder: Path) -> Iterator[Seen]:
    """Watch the files that are there now, in all folders below. `OutsideFailed` when the kernel has no more watches."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.inotify_init1(_FLAGS)
    if number < 0:
        raise _failed(ctypes.get_errno())
    seen = Seen()
    done = threading.Event()
    try:
        places: dict[int, str] = {}
        for path, _, _ in os.walk(folder):
            watch = libc.inotify_add_watch(number, os.fsencode(path), _IN_OPEN | _IN_CREATE)
            if watch < 0:
                raise _failed(ctypes.get_errno())
            places[watch] = os.path.relpath(path, folder)
        reader = threading.Thread(target=_read, args=(number, places, seen, done), daemon=True)
        reader.start()
        try:
            yield seen
        finally:
            done.set()
            reader.join()
    finally:
        os.close(number)


def _read(number: int, places: dict[int, str], seen: Seen, done: threading.Event) -> None:
    """Take events off the kernel's queue, which is short, until the watching ends; then what is left."""
    while True:
        last = done.wait(0.02)
        while True:
            try:
                data = os.read(number, 1 << 16)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                name = data[offset + _EVENT.size : offset + _EVENT.size + length].rstrip(b"\0")
                offset += _EVENT.size + length
                if mask & _IN_Q_OVERFLOW:
                    seen.complete = False
                elif name and not mask & _IN_ISDIR:
                    path = os.path.normpath(os.path.join(places[watch], os.fsdecode(name)))
                    (seen.made if mask & _IN_CREATE else seen.opened).add(path)
        if last:
            return


def _failed(number: int) -> OutsideFailed:
    return OutsideFailed(
        "what the program reads cannot be watched",
        why=f"inotify: {os.strerror(number)}",
        fix="raise fs.inotify.max_user_watches and fs.inotify.max_user_instances",
    )
