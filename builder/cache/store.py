"""Where engines are kept: one folder that many processes share, also on a shared file system, without a server.

Layout under the root, `<user store>/engines/v1`:

    entries/<2 hex>/<62 hex>.json          an entry's document, named by its key; whole or not there
    sha256/<2 hex>/<62 hex>                parts: files of engines and manifests of trees, named by their bytes
    index/<kind>/<2>/<62 of model>/<key>   an empty file: which entries there are of a model; its time is the last use
    failures/<2 hex>/<62 hex>.json         builds that failed, until they expire
    locks/<key>.lock                       who builds that key
    incoming/<name>/                       parts being written; locked by their writer, cleared when it is dead
    damaged/                               parts whose bytes were not what their name says, kept to be looked at
    gate, lock                             see builder.cache.locks.StoreLock

An entry is published by one rename, after all its parts have been renamed into place; so an entry that can be read is
complete, and a writer that dies leaves only a folder in incoming/. Parts are digested again whenever they are read.

Flushing: with `durable` every part, document and folder is flushed (fsync) before the entry appears, and a published
entry survives a loss of power. Without, it survives any death of a process; after a loss of power a part may be short
or empty, which reading finds, and the entry then is a miss. Nothing wrong is ever loaded either way.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from builder.cache.copying import Copied, copy_hashed, hash_file, open_source
from builder.cache.locks import LockTimeout, NoLocks, StoreLock, still_there, take
from builder.cache.values import EngineKey, Entry, Failure, canonical_json
from builder.errors import BadInput, OutsideFailed, Refused
from builder.names import Digest
from builder.store import CorruptBlob, disk_errors, write_atomic

__all__ = ["LAYOUT", "EngineStore", "EntryGone", "Marker"]

LAYOUT = "v1"
"""Another layout gets another folder, so that versions of this tool share a store without seeing each other's."""
_TOUCH_AFTER = 60.0
"""Seconds after which another use is noted: an entry asked for a thousand times a second is stamped once a minute."""
_KEPT_IN_MEMORY = 200_000


class EntryGone(Refused):
    """The entry was removed, by `gc` or because it was damaged."""

    kind = "entry-gone"


@dataclass(frozen=True, slots=True)
class Marker:
    """An entry as the index knows it."""

    kind: str
    key: Digest
    used: float
    """When it was last used, in seconds since the epoch, as the file system says."""
    path: Path


class EngineStore:
    """The files of one engine cache. Several objects, threads and processes may use one folder at a time."""

    def __init__(self, root: Path, *, durable: bool, clock: Callable[[], float]) -> None:
        self.root = root
        self.durable = durable
        self.lock = StoreLock(root)
        self.clock = clock
        self._entries: dict[str, tuple[tuple[int, int, int], Entry]] = {}
        self._touched: dict[str, float] = {}
        self._prefix = f"{root}/entries/"
        self._index = f"{root}/index/"

    # --- entries -----------------------------------------------------------------------------------------------------

    def entry_path(self, key: Digest) -> Path:
        """Where the entry's document is, or would be."""
        return self.root / "entries" / key.hex[:2] / f"{key.hex[2:]}.json"

    def entry(self, key: Digest, *, known: EngineKey | None = None) -> Entry | None:
        """The entry of exactly this key, or None; `BadInput` for a document that is damaged or of another version.

        `known` is the whole key, where it is at hand.
        """
        return self._entry(key.hex, known)

    def _entry(self, name: str, key: EngineKey | None = None) -> Entry | None:
        """By hex name; what was read before is believed as long as the file is the same one."""
        path = f"{self._prefix}{name[:2]}/{name[2:]}.json"
        known = self._entries.get(name)
        try:
            if known is not None and known[0] == _stamp(os.stat(path)):
                return known[1]
            data, stamp = _read(path)
        except (FileNotFoundError, NotADirectoryError):
            self._entries.pop(name, None)
            return None
        self._entries.pop(name, None)
        entry = _parsed(data, path, key)
        if entry.digest.hex != name:
            raise BadInput(f"{path} is damaged", why=f"it holds the entry {entry.digest}")
        if len(self._entries) >= _KEPT_IN_MEMORY:
            self._entries.clear()
        self._entries[name] = (stamp, entry)
        return entry

    def entries_of(self, kind: str, model: str) -> list[Entry]:
        """The readable entries of one kind and model; what is damaged or of another version is left out.

        One that was read before is not looked at again: a key's factors never change. It may have been replaced or
        removed meanwhile; ask `entry` for the one that is chosen.
        """
        found = []
        for name in _names(self._folder_of(kind, model)):
            known = self._entries.get(name)
            if known is not None:
                found.append(known[1])
                continue
            with suppress(BadInput):
                entry = self._entry(name)
                if entry is not None:
                    found.append(entry)
        return found

    def all_keys(self) -> Iterator[Digest]:
        """The keys of all entries, in order, readable or not."""
        folder = self.root / "entries"
        for fan in sorted(_names(folder)):
            for name in sorted(_names(folder / fan)):
                if name.endswith(".json") and len(name) == 67:
                    yield Digest(fan + name[:-5])

    def markers(self) -> Iterator[Marker]:
        """Everything in the index; an entry need not be there any more."""
        top = self.root / "index"
        for kind in sorted(_names(top)):
            for fan in sorted(_names(top / kind)):
                for model in sorted(_names(top / kind / fan)):
                    folder = top / kind / fan / model
                    for name in sorted(_names(folder)):
                        with suppress(FileNotFoundError):
                            used = (folder / name).stat().st_mtime
                            yield Marker(kind, Digest(name), used, folder / name)

    def marker(self, entry: Entry) -> Path:
        """The index file of an entry."""
        return Path(self._folder_of(entry.key.kind, entry.key.model or ""), entry.digest.hex)

    def _folder_of(self, kind: str, model: str) -> str:
        name = model.removeprefix("sha256:")
        return f"{self._index}{kind}/{name[:2]}/{name[2:]}"

    def touch(self, entry: Entry) -> None:
        """Note that an entry is used; a store that cannot be written notes nothing."""
        now = self.clock()
        name = entry.digest.hex
        last = self._touched.get(name)
        if last is not None and 0 <= now - last < _TOUCH_AFTER:
            return
        self._touched[name] = now
        try:  # noqa: SIM105 - suppress() takes as long as the call itself
            os.utime(f"{self._folder_of(entry.key.kind, entry.key.model or '')}/{name}", (now, now))
        except OSError:
            pass

    @contextmanager
    def held(self, entry: Entry, *, timeout: float | None = 30.0) -> Iterator[None]:
        """Keep an entry from being removed or replaced; `EntryGone` when it was removed before."""
        path = self.entry_path(entry.digest)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _gone(entry) from None
        try:
            # where there are no locks nobody clears either: `clear` is refused there
            with suppress(NoLocks):
                if not take(handle, path, exclusive=False, timeout=timeout):
                    why, fix = "it is being removed", "look it up again"
                    raise LockTimeout(f"waited {timeout:g} s for {path}", why=why, fix=fix)
            if not still_there(handle, path):
                raise _gone(entry)
            try:
                yield
            finally:
                with suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)

    def remove(self, key: Digest, marker: Path | None) -> bool:
        """Remove an entry unless somebody uses it; its parts go when the store is swept. False: it is in use.

        For whoever holds the store's lock: alone, or shared and about to publish this very key.
        """
        path = self.entry_path(key)
        with disk_errors(path):
            while True:
                try:
                    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                except FileNotFoundError:
                    break
                try:
                    if not take(handle, path, exclusive=True, timeout=0.0):
                        return False
                    if still_there(handle, path):
                        path.unlink()
                        break
                finally:
                    os.close(handle)
            if marker is not None:
                marker.unlink(missing_ok=True)
        self._entries.pop(key.hex, None)
        return True

    def drop(self, entry: Entry) -> None:
        """Remove an entry, used or not: it is damaged, and nobody can load it. Where that cannot be, it stays.

        The store is taken alone, so that it is not the entry of somebody who has just built it anew that goes.
        """
        with suppress(OSError, OutsideFailed), self.lock.alone():
            if self.entry(entry.digest) == entry:
                self.entry_path(entry.digest).unlink(missing_ok=True)
                self.marker(entry).unlink(missing_ok=True)
        self._entries.pop(entry.digest.hex, None)

    # --- parts -------------------------------------------------------------------------------------------------------

    def part_path(self, digest: Digest) -> Path:
        """Where the part is, or would be."""
        return self.root / "sha256" / digest.hex[:2] / digest.hex[2:]

    def has_part(self, digest: Digest, size: int) -> bool:
        """Whether a part of this length is here; its bytes are checked when it is read."""
        try:
            return self.part_path(digest).stat().st_size == size
        except FileNotFoundError:
            return False

    def parts(self) -> Iterator[tuple[Path, int]]:
        """Every part with its size."""
        top = self.root / "sha256"
        for fan in sorted(_names(top)):
            for name in sorted(_names(top / fan)):
                with suppress(FileNotFoundError):
                    yield top / fan / name, (top / fan / name).stat().st_size

    def read_part(self, digest: Digest, size: int) -> bytes:
        """A small part, whole; `CorruptBlob` when its bytes are not those of its name (it is set aside then)."""
        with self._part(digest) as handle, open(handle, "rb", closefd=False) as file:
            data = file.read(size + 1)
            if len(data) != size or Digest.of(data) != digest:
                raise self.set_aside(digest, Copied(digest=Digest.of(data), size=len(data), found=False))
            return data

    def copy_part(self, digest: Digest, size: int, target: Path, *, executable: bool) -> None:
        """A part as a file of its own, checked while it is copied; `CorruptBlob` when it is not what its name says."""
        with self._part(digest) as handle, disk_errors(target):
            out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755 if executable else 0o644)
            try:
                copied = copy_hashed(handle, out)
            finally:
                os.close(out)
        if copied.digest != digest or copied.size != size:
            target.unlink()
            raise self.set_aside(digest, copied)

    def check_part(self, digest: Digest, size: int, *, set_aside: bool) -> str:
        """What is wrong with a part; empty when nothing is."""
        try:
            with self._part(digest) as handle:
                found = hash_file(handle)
        except CorruptBlob:
            return "it is not there"
        if found.digest == digest and found.size == size:
            return ""
        if set_aside:
            self.set_aside(digest, found)
        return f"it has {found.size} bytes with the digest {found.digest}, not {size}"

    @contextmanager
    def _part(self, digest: Digest) -> Iterator[int]:
        path = self.part_path(digest)
        if not path.is_file():
            raise CorruptBlob(
                f"part {digest} of the engine cache is not there",
                why="it was removed by something else than this tool, or never reached the disk",
                fix="build the engine again; builder cache verify --drop clears what is damaged",
            )
        with open_source(path) as handle:
            yield handle

    def set_aside(self, digest: Digest, found: Copied) -> CorruptBlob:
        """Move a damaged part to damaged/, so that nothing loads it again; returns the error that says so."""
        path = self.part_path(digest)
        with suppress(OSError):
            (self.root / "damaged").mkdir(exist_ok=True)
            path.replace(self.root / "damaged" / digest.hex)
        return CorruptBlob(
            f"part {digest} of the engine cache is damaged",
            why=f"it has {found.size} bytes with the digest {found.digest}",
            fix="build the engine again; the damaged part is kept in damaged/ of the cache to be looked at",
        )

    # --- failures ----------------------------------------------------------------------------------------------------

    def failure(self, key: Digest) -> Failure | None:
        """The remembered failure of building this key, unless it has expired or lies in the future of this clock."""
        try:
            data = json.loads(self._failure_path(key).read_bytes())
            failure = Failure(
                reason=str(data["reason"]), created=float(data["created"]), expires=float(data["expires"])
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return failure if failure.created <= self.clock() < failure.expires else None

    def put_failure(self, key: Digest, reason: str, keep: float) -> Failure:
        """Remember for `keep` seconds that building this key failed."""
        now = self.clock()
        failure = Failure(reason=reason, created=now, expires=now + keep)
        document = {"reason": reason, "created": now, "expires": now + keep, "key": str(key)}
        write_atomic(self._failure_path(key), canonical_json(document))
        return failure

    def forget_failure(self, key: Digest) -> None:
        """The build worked after all."""
        with suppress(OSError):
            self._failure_path(key).unlink(missing_ok=True)

    def _failure_path(self, key: Digest) -> Path:
        return self.root / "failures" / key.hex[:2] / f"{key.hex[2:]}.json"


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    """What tells whether a file is still the same one."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: str) -> tuple[bytes, tuple[int, int, int]]:
    """A small file, whole, and its stamp, by the fewest calls: this is most of what the first lookup costs."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        stamp = _stamp(os.fstat(handle))
        return os.read(handle, stamp[2]), stamp
    finally:
        os.close(handle)


def _parsed(data: bytes, path: str, key: EngineKey | None) -> Entry:
    try:
        # decoded here: json.loads would first look for the encoding, which is known
        document = json.loads((data if key is None else _without_factors(data)).decode())
    except ValueError as error:
        raise BadInput(f"{path} is damaged", why=f"it is no JSON: {error}") from error
    return Entry.from_json(document, path, known=key)


def _without_factors(data: bytes) -> bytes:
    """A document with an empty list of factors, which are most of it: whoever has the key has them.

    They are found by the order of canonical JSON; a quote in a value is escaped, so no value can look like their end.
    """
    start = data.find(b'"factors":[')
    end = data.find(b'],"files":', start)
    return data if start < 0 or end < 0 else data[: start + 11] + data[end:]


def _names(folder: Path | str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _gone(entry: Entry) -> EntryGone:
    return EntryGone(
        f"entry {entry.digest} is no longer there", why="it was cleared, or found damaged", fix="look it up again"
    )
