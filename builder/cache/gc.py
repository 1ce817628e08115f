"""Clearing a cache: least recently used first, never what is in use, never the part of a kept entry."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from builder.cache.cache import EngineCache
from builder.cache.locks import LockTimeout, take
from builder.cache.store import EngineStore, Marker
from builder.cache.values import Entry, ForeignEntry
from builder.errors import BadInput
from builder.names import Digest
from builder.store import CorruptBlob, Removed, disk_errors

__all__ = ["Cleared", "clear"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleared:
    """What clearing did."""

    removed: tuple[Removed, ...]
    kept: tuple[tuple[str, str], ...]
    """Entries that should have gone and did not, each with the reason."""
    entries: int
    """Entries left."""
    size: int
    """Bytes of the parts that the entries left need; a part that several share counts once."""


@dataclass(slots=True)
class _Census:
    """What there is, read without a lock: parts of entries, and when each was used last."""

    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Entry to the hex names and sizes of its parts."""
    entries: dict[str, Entry] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    """Entries of another version: what they need is not known."""
    broken: set[str] = field(default_factory=set)
    """Entries whose document or manifest cannot be read: nothing can load them."""

    def take(self, cache: EngineCache, key: Digest) -> None:
        """Add one entry."""
        try:
            entry = cache.store.entry(key)
        except ForeignEntry:
            self.foreign.add(key.hex)
            return
        except BadInput:
            self.broken.add(key.hex)
            return
        if entry is None:
            return
        needed = {entry.content.hex: entry.size if entry.form == "file" else entry.manifest_size}
        try:
            for item in cache.items(entry):
                if item.digest is not None:
                    needed[item.digest.hex] = item.size
        except (CorruptBlob, BadInput):
            self.broken.add(key.hex)
            return
        self.entries[key.hex] = entry
        self.parts[key.hex] = needed


def clear(
    cache: EngineCache,
    *,
    budget: int | None = None,
    unused: float | None = None,
    dry_run: bool = False,
    timeout: float = 10.0,
) -> Cleared:
    """Remove entries until the rest needs at most `budget` bytes, and those not used for `unused` seconds.

    Least recently used first; a time of use that lies in the future, from a clock that was wrong, counts as now. Then
    everything that no entry needs: parts, left-overs of dead writers, expired failures, free locks. When somebody adds
    for longer than `timeout` seconds, everything stays for the next time.
    """
    store = cache.store
    if not store.root.is_dir():
        return Cleared(removed=(), kept=(), entries=0, size=0)
    census = _Census()
    for key in store.all_keys():
        census.take(cache, key)
    removed: list[Removed] = []
    kept: list[tuple[str, str]] = []
    if dry_run:
        removed, kept = _evict(store, census, budget, unused, dry_run=True)
    else:
        try:
            with store.lock.alone(timeout=timeout):
                _recount(cache, census)
                removed, kept = _evict(store, census, budget, unused, dry_run=False)
                removed += _sweep(store, census)
        except LockTimeout as error:
            kept.append(("everything", error.why))
    needed = {name: size for parts in census.parts.values() for name, size in parts.items()}
    return Cleared(removed=tuple(removed), kept=tuple(kept), entries=len(census.entries), size=sum(needed.values()))


def _by_use(store: EngineStore, census: _Census) -> list[tuple[float, str, Path | None]]:
    """Entries with the time of their last use, oldest first; one that the index does not know is oldest of all."""
    now = store.clock()
    known = {marker.key.hex: marker for marker in store.markers()}

    def used(name: str) -> tuple[float, str, Path | None]:
        marker: Marker | None = known.get(name)
        return (min(marker.used, now), name, marker.path) if marker else (0.0, name, None)

    return sorted((used(name) for name in census.entries), key=lambda one: one[:2])


def _evict(
    store: EngineStore,
    census: _Census,
    budget: int | None,
    unused: float | None,
    *,
    dry_run: bool,
) -> tuple[list[Removed], list[tuple[str, str]]]:
    removed: list[Removed] = []
    kept: list[tuple[str, str]] = []
    needed = Counter(name for parts in census.parts.values() for name in parts)
    sizes = {name: size for parts in census.parts.values() for name, size in parts.items()}
    total = sum(sizes.values())
    for used, name, marker in _by_use(store, census):
        old = unused is not None and used < store.clock() - unused
        large = budget is not None and total > budget
        if not old and not large:
            continue
        if not dry_run and not store.remove(Digest(name), marker):
            kept.append((f"sha256:{name}", "in use"))
            continue
        freed = 0
        for part, size in census.parts.pop(name).items():
            needed[part] -= 1
            if not needed[part]:
                freed += size
        total -= freed
        entry = census.entries.pop(name)
        why = "not used" if old else f"least recently used, over the budget of {budget} bytes"
        removed.append(Removed(name=f"{entry.key.kind} {entry.name} sha256:{name}", size=freed, why=why))
    return removed, kept


def _recount(cache: EngineCache, census: _Census) -> None:
    """What changed since the census was taken without a lock: entries that came, and such as were replaced."""
    store = cache.store
    there = {key.hex for key in store.all_keys()}
    for name in [*census.entries]:
        if name not in there:
            del census.entries[name], census.parts[name]
    for name in there - census.foreign:
        known = census.entries.get(name)
        try:
            if known is not None and store.entry(Digest(name)) is known:
                continue
        except BadInput:
            pass
        census.entries.pop(name, None)
        census.parts.pop(name, None)
        census.broken.discard(name)
        census.take(cache, Digest(name))


def _sweep(store: EngineStore, census: _Census) -> list[Removed]:
    """Remove what no entry needs. The store is ours alone: nobody is between adding a part and its entry."""
    removed: list[Removed] = []
    with disk_errors(store.root):
        for name in sorted(census.broken):
            path = store.entry_path(Digest(name))
            removed.append(Removed(name=str(path.relative_to(store.root)), size=0, why="damaged"))
            path.unlink(missing_ok=True)
        if not census.foreign:
            needed = {name for parts in census.parts.values() for name in parts}
            for path, size in list(store.parts()):
                if path.parent.name + path.name not in needed:
                    path.unlink(missing_ok=True)
                    removed.append(Removed(name=str(path.relative_to(store.root)), size=size, why="no entry needs it"))
        for marker in store.markers():
            if not store.entry_path(marker.key).exists():
                marker.path.unlink(missing_ok=True)
        removed += _left_overs(store)
        _expired(store)
    return removed


def _left_overs(store: EngineStore) -> list[Removed]:
    """Folders of writers that are dead, which their locks tell."""
    removed = []
    for folder in sorted((store.root / "incoming").glob("*")):
        try:
            handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            handle = -1
        try:
            if handle >= 0 and not take(handle, folder / "lock", exclusive=True, timeout=0.0):
                continue
            size = sum(path.lstat().st_size for path in folder.glob("*"))
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(Removed(name=f"incoming/{folder.name}", size=size, why="left by a writer that is dead"))
        finally:
            if handle >= 0:
                os.close(handle)
    return removed


def _expired(store: EngineStore) -> None:
    """Failures that have expired, and locks that nobody holds."""
    for path in sorted((store.root / "failures").glob("*/*.json")):
        if len(path.stem) == 62 and store.failure(Digest(path.parent.name + path.stem)) is None:
            path.unlink(missing_ok=True)
    for path in sorted((store.root / "locks").glob("*.lock")):
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if take(handle, path, exclusive=True, timeout=0.0):
                    path.unlink(missing_ok=True)
            finally:
                os.close(handle)
