"""Engines on their way into the store: parts first, unseen; then one rename makes the entry appear."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Self

from builder.cache.copying import Copied, copy_hashed, hash_file, open_source, sync_file, sync_folder
from builder.cache.locks import take
from builder.cache.store import EngineStore
from builder.cache.values import Entry, ForeignEntry, canonical_json
from builder.errors import BadInput, Refused
from builder.names import Digest
from builder.store import CorruptBlob, disk_errors

__all__ = ["EntryInUse", "Incoming"]


class EntryInUse(Refused):
    """Another process uses the entry, so it is not replaced."""

    kind = "entry-in-use"


class Incoming:
    """A context for the parts of one entry. Nothing of it is seen until `publish`; leaving removes what is left.

    Parts can be added by several threads.
    """

    def __init__(self, store: EngineStore) -> None:
        self._store = store
        self._folder = store.root / "incoming" / os.urandom(8).hex()
        self._handle = -1
        self._parts: dict[Digest, Path] = {}

    def __enter__(self) -> Self:
        root = self._store.root
        with disk_errors(root):
            root.mkdir(parents=True, exist_ok=True)
        # left-overs are cleared by who has the store alone, so that nobody sees the folder before its lock is held
        with self._store.lock.shared(), disk_errors(self._folder):
            self._folder.mkdir(parents=True)
            self._handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            take(self._handle, self._folder / "lock", exclusive=True, timeout=None)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._handle >= 0:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
            os.close(self._handle)
            self._handle = -1

    def new_path(self) -> Path:
        """A name for bytes that are being received; hand it to `adopt` when they are complete."""
        return self._folder / os.urandom(8).hex()

    def add_file(self, source: Path, *, search: bytes = b"") -> Copied:
        """Copy a file in. Safe to call from several threads."""
        target = self.new_path()
        with open_source(source) as handle, disk_errors(target):
            out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            try:
                copied = copy_hashed(handle, out, search=search)
                if self._store.durable:
                    os.fsync(out)
            finally:
                os.close(out)
        self._parts[copied.digest] = target
        return copied

    def add_bytes(self, data: bytes) -> Digest:
        """Bytes at hand as a part."""
        target = self.new_path()
        with disk_errors(target):
            out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            with os.fdopen(out, "wb") as file:
                file.write(data)
                if self._store.durable:
                    file.flush()
                    os.fsync(file.fileno())
        digest = Digest.of(data)
        self._parts[digest] = target
        return digest

    def adopt(self, path: Path, digest: Digest) -> None:
        """A complete file of `new_path`, whose bytes are checked here; `CorruptBlob` when they are others."""
        with open_source(path) as handle, disk_errors(path):
            found = hash_file(handle)
            if found.digest != digest:
                raise CorruptBlob(f"received {found.digest}, expected {digest}", why=f"{found.size} bytes came")
            if self._store.durable:
                os.fsync(handle)
        path.chmod(0o444)
        self._parts[digest] = path

    def publish(self, entry: Entry, *, replace: bool = False) -> Entry:
        """Make the entry appear, its parts before it; returns the one that is there, which may be an earlier one.

        The first writer of a key wins: two builds of one engine need not give the same bytes, and somebody may use the
        first. With `replace` it is replaced, or `EntryInUse` is raised. A part that is here already is digested again,
        and replaced when it is damaged.
        """
        store = self._store
        sound = self._sound()
        path, marker = store.entry_path(entry.digest), store.marker(entry)
        with store.lock.shared():
            if not replace and (there := _readable(store, entry.digest)) is not None:
                return there
            if replace and not store.remove(entry.digest, None):
                raise EntryInUse(
                    f"entry {entry.digest} is in use",
                    why="another process reads it at this moment",
                    fix="try again when it is done",
                )
            # what was sound a moment ago may have been cleared since; from here on nobody clears
            moves = [
                (part, target)
                for digest, part in self._parts.items()
                if not (target := store.part_path(digest)).exists() or digest not in sound
            ]
            folders = {path.parent, marker.parent, *(target.parent for _, target in moves)}
            with disk_errors(store.root):
                for folder in folders:
                    folder.mkdir(parents=True, exist_ok=True)
                for part, target in moves:
                    part.replace(target)
                _create(marker, store.clock())
                document = self._folder / "entry"
                _write(document, canonical_json(entry.to_json()) + b"\n", durable=store.durable)
                if store.durable:
                    for folder in sorted(folders - {path.parent}):
                        sync_folder(folder)
                document.replace(path)
                if store.durable:
                    sync_folder(path.parent)
        self._parts.clear()
        store.forget_failure(entry.digest)
        return entry

    def _sound(self) -> set[Digest]:
        """Parts that are in the store already, every byte of them as it should be."""
        found = set()
        for digest, part in self._parts.items():
            size = part.stat().st_size
            if self._store.has_part(digest, size) and not self._store.check_part(digest, size, set_aside=False):
                found.add(digest)
                if self._store.durable:
                    sync_file(self._store.part_path(digest))
        return found


def _readable(store: EngineStore, key: Digest) -> Entry | None:
    try:
        return store.entry(key)
    except ForeignEntry:
        raise
    except BadInput:
        return None


def _create(path: Path, now: float) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    os.utime(path, (now, now))


def _write(path: Path, data: bytes, *, durable: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
