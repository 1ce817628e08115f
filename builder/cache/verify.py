"""Checking a cache: every part of every entry, digested again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from builder.cache.cache import EngineCache
from builder.cache.values import Entry, ForeignEntry
from builder.errors import BadInput
from builder.names import Digest
from builder.store import disk_errors

__all__ = ["Damage", "verify"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """Something in the cache that is not as it should be."""

    entry: str
    """The entry's key, or the path of a document that cannot be read."""
    what: str
    foreign: bool = False
    """Whether it is of another version of this tool, which is no damage."""


def verify(cache: EngineCache, keys: Iterable[Digest] | None = None, *, drop: bool = False) -> tuple[int, list[Damage]]:
    """Digest every part of every entry, or of those named; the number of entries checked, and what is wrong.

    With `drop` damaged parts are set aside and their entries removed, so that a lookup misses.
    """
    store = cache.store
    found: list[Damage] = []
    checked = 0
    seen: dict[tuple[str, int], str] = {}
    for key in store.all_keys() if keys is None else keys:
        try:
            entry = store.entry(key)
        except BadInput as error:
            foreign = isinstance(error, ForeignEntry)
            found.append(Damage(entry=str(key), what=f"{error.what}: {error.why}", foreign=foreign))
            if drop and not foreign:
                with disk_errors(store.root):
                    store.entry_path(key).unlink(missing_ok=True)
            continue
        if entry is None:
            if keys is not None:
                found.append(Damage(entry=str(key), what="there is no such entry"))
            continue
        checked += 1
        faults = _faults(cache, entry, seen, drop=drop)
        found += [Damage(entry=str(key), what=what) for what in faults]
        if faults and drop:
            store.drop(entry)
    return checked, found


def _faults(cache: EngineCache, entry: Entry, seen: dict[tuple[str, int], str], *, drop: bool) -> list[str]:
    if entry.form == "tree":
        what = cache.store.check_part(entry.content, entry.manifest_size, set_aside=drop)
        if what:
            return [f"the manifest: {what}"]
    try:
        items = cache.items(entry)
    except BadInput as error:
        return [f"the manifest: {error.why}"]
    faults = []
    for item in items:
        if item.digest is None:
            continue
        place = (item.digest.hex, item.size)
        if place not in seen:
            seen[place] = cache.store.check_part(item.digest, item.size, set_aside=drop)
        if seen[place]:
            faults.append(f"{item.path}: {seen[place]}")
    return faults
