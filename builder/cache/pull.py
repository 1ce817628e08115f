"""Finding the engines of a node class at an image, and pulling what is missing of them.

Finding takes one request for the list of what is attached to the image, and one for each engine of the node class. A
part is fetched only when the signature of a given key holds, and only when this cache lacks a file in it. Fetched parts
wait in `pulls/` of the cache until their engine is whole, so that a broken pull goes on where it was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.cache.cache import EngineCache
from builder.cache.incoming import Incoming
from builder.cache.judge import judge, verdict_of
from builder.cache.keys import engine_key
from builder.cache.kinds import engine_kind
from builder.cache.locks import holding
from builder.cache.parts import Part, Piece, needed
from builder.cache.push import differs_from_node
from builder.cache.statement import (
    ENGINE_TYPE,
    PAYLOAD_TYPE,
    EngineStatement,
    Listed,
    listed,
    read_engine_statement,
    read_envelope,
)
from builder.cache.trees import parse_manifest
from builder.cache.values import Difference, EngineKey, Entry, Verdict
from builder.errors import BadInput
from builder.events import Reporter
from builder.names import Digest
from builder.node.values import NodeClass
from builder.registry.dsse import PublicKey, open_envelope
from builder.registry.errors import MissingContent
from builder.registry.manifests import pointed_blobs
from builder.registry.threads import each
from builder.registry.values import CHUNK, Repository
from builder.store import CorruptBlob, disk_errors

__all__ = ["Found", "Pulled", "Suits", "find", "lacking", "pull", "suiting"]

_STALE = 7 * 24 * 3600.0
"""Seconds after which parts of a pull that nobody went on with are cleared."""
_WORKERS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """An engine of a node class that is attached to an image."""

    listed: Listed
    told: EngineStatement | None
    """What the signed statement says; None when it cannot be believed."""
    signers: tuple[str, ...]
    problem: str = ""
    """Why it is not used; empty when it may be pulled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulled:
    """An engine that is in the cache now."""

    entry: Entry
    kept: bool
    """It was there before."""
    parts: int
    """Blobs that were fetched."""
    size: int
    """Bytes of them."""


def find(
    repository: Repository,
    image: Digest,
    *,
    node: NodeClass,
    keys: Sequence[PublicKey],
    wanted: Callable[[Listed], bool] = lambda _: True,
) -> tuple[Found, ...]:
    """The engines attached to an image for a node class, their statements held against the keys.

    Nothing else of them is fetched. One that is signed by another key, about another image, damaged, or against what
    the class is known to be, is returned with its `problem`.
    """
    entries = listed(repository.referrers(image, artifact_type=ENGINE_TYPE))
    return tuple(
        _judged(repository, one, image, node, keys) for one in entries if one.node_class == node.name and wanted(one)
    )


def _judged(repository: Repository, one: Listed, image: Digest, node: NodeClass, keys: Sequence[PublicKey]) -> Found:
    def refused(problem: str) -> Found:
        return Found(listed=one, told=None, signers=(), problem=problem)

    try:
        envelope = open_envelope(read_envelope(repository, one.envelope or _envelope_of(repository, one)), keys)
    except (BadInput, MissingContent, CorruptBlob) as error:
        return refused(f"its statement cannot be read: {error.what} ({error.why})")
    if not envelope.signers:
        return refused("it is signed by none of the given keys")
    if envelope.payload_type != PAYLOAD_TYPE:
        return refused(f"what is signed is of the type {envelope.payload_type}")
    try:
        told = read_engine_statement(envelope.payload)
        kind = engine_kind(told.entry.key.kind)
    except BadInput as error:
        return refused(f"its statement cannot be read: {error.what} ({error.why})")
    if told.image != image:
        return refused(f"it is signed for another image, {told.image}")
    if told.node_class != node.name or str(told.entry.digest) != one.key or kind.name != one.kind:
        return refused("the list shows it as something else than what is signed")
    blocking = [item for item in differs_from_node(told.entry, node) if item.blocks]
    if blocking:
        names = ", ".join(f"{item.name} {item.found}, not {item.wanted}" for item in blocking)
        return refused(f"it is not for this node class: {names}")
    return Found(listed=one, told=told, signers=envelope.signers)


def _envelope_of(repository: Repository, one: Listed) -> Digest:
    """The envelope as the manifest names it, for a list without annotations."""
    manifest = repository.manifest(one.manifest)
    if manifest is None:
        raise MissingContent(f"{one.manifest} is listed and not there")
    return pointed_blobs(manifest)[0].digest


@dataclass(frozen=True, kw_only=True, slots=True)
class Suits:
    """An engine in a registry that is a hit or usable for what is wanted."""

    found: Found
    told: EngineStatement
    verdict: Verdict
    differs: tuple[Difference, ...]


def suiting(found: Sequence[Found], wanted: EngineKey) -> tuple[Suits, ...]:
    """Which engines suit a key, the best first: hits, then usable ones with the fewest differences.

    Decided from the signed statements alone, by the rules that `EngineCache.lookup` goes by; nothing is fetched for it.
    """
    kind = engine_kind(wanted.kind)
    suits = []
    for one in found:
        if one.told is None or (one.told.entry.key.kind, one.told.entry.key.model) != (wanted.kind, wanted.model):
            continue
        differs = judge(kind, wanted.factors, one.told.entry.key.factors)
        verdict = verdict_of(differs)
        if verdict in ("hit", "usable"):
            suits.append(Suits(found=one, told=one.told, verdict=verdict, differs=differs))
    return tuple(sorted(suits, key=lambda one: (one.verdict != "hit", len(one.differs), one.told.entry.digest.hex)))


def unsuited(entry: Entry, stated: Mapping[str, str]) -> tuple[Difference, ...]:
    """By which of the stated properties an engine cannot be used; what is not stated does not count.

    Decided from its factors alone, as `EngineCache.lookup` decides; `BadInput` for a property its kind does not have.
    """
    kind = engine_kind(entry.key.kind)
    spelled = engine_key(kind, properties=stated).factors
    wanted = {**entry.key.factors, **{name: spelled[name] for name in stated}}
    return tuple(one for one in judge(kind, wanted, entry.key.factors) if one.blocks)


def lacking(cache: EngineCache, told: EngineStatement) -> tuple[Part, ...]:
    """The blobs of an engine that this cache would have to fetch; none when it holds the engine."""
    if _there(cache, told.entry) is not None:
        return ()
    return tuple({part.digest: part for part in needed(told.parts, _missing(cache, told))}.values())


def _there(cache: EngineCache, entry: Entry) -> Entry | None:
    try:
        return cache.store.entry(entry.digest)
    except BadInput:
        return None


def _files(told: EngineStatement) -> dict[Digest, int]:
    """Every file that the parts hold, with its size."""
    sizes: dict[Digest, int] = {}
    for part in told.parts:
        for piece in part.pieces:
            sizes[piece.file] = sizes.get(piece.file, 0) + piece.size
    return sizes


def _missing(cache: EngineCache, told: EngineStatement) -> dict[Digest, int]:
    return {digest: size for digest, size in _files(told).items() if not cache.store.has_part(digest, size)}


def pull(cache: EngineCache, repository: Repository, told: EngineStatement, *, reporter: Reporter) -> Pulled:
    """Fetch what the cache lacks of an engine and keep it there; `told` must come from a statement that was verified.

    Whole, or not at all: `CorruptBlob` or `MissingContent` for parts that are not what was signed. One pull at a time
    fetches into a cache; others wait.
    """
    there = _there(cache, told.entry)
    if there is not None:
        return Pulled(entry=there, kept=True, parts=0, size=0)
    store = cache.store
    folder = store.root / "pulls"
    with holding(store.root / "locks" / "pull.lock", exclusive=True, timeout=3600.0, what="another pull"):
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        _clear(folder, store.clock() - _STALE)
        there = _there(cache, told.entry)
        if there is not None:
            return Pulled(entry=there, kept=True, parts=0, size=0)
        with Incoming(store) as incoming:
            places, missing = _taken_over(cache, told, incoming)
            parts = needed(told.parts, missing)
            # a file that repeats itself has pieces that are one blob
            fresh = list({part.digest: part for part in parts if not _waiting(folder, part)}.values())
            _fetch(repository, fresh, folder, reporter)
            stretches = _stretches(parts)
            for digest in missing:
                places[digest] = _assemble(digest, stretches.get(digest, ()), folder, incoming)
            _complete(told.entry, _files(told), places, incoming)
            entry = incoming.publish(told.entry)
        for part in parts:
            (folder / part.digest.hex).unlink(missing_ok=True)
    cache.keep_within_budget(entry)
    return Pulled(entry=entry, kept=False, parts=len(fresh), size=sum(part.size for part in fresh))


def _clear(folder: Path, before: float) -> None:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if path.name.startswith(".") or path.stat().st_mtime < before:
                path.unlink()


def _waiting(folder: Path, part: Part) -> bool:
    """Whether an earlier pull fetched the part; one that is not whole any more is removed."""
    path = folder / part.digest.hex
    try:
        if path.stat().st_size == part.size and Digest.of_file(path) == part.digest:
            return True
    except FileNotFoundError:
        return False
    path.unlink(missing_ok=True)
    return False


def _taken_over(
    cache: EngineCache, told: EngineStatement, incoming: Incoming
) -> tuple[dict[Digest, Path], dict[Digest, int]]:
    """Take the files that are in the cache, each checked, so that nobody can clear them away; and which are missing."""
    places: dict[Digest, Path] = {}
    missing: dict[Digest, int] = {}
    for digest, size in _files(told).items():
        place = _taken(cache.store.part_path(digest), digest, incoming)
        if place is None:
            missing[digest] = size
        else:
            places[digest] = place
    return places, missing


def _taken(source: Path, digest: Digest, incoming: Incoming) -> Path | None:
    """A file of the cache as a part of what comes in, by a second name, or copied where there are no hard links."""
    path = incoming.new_path()
    try:
        os.link(source, path)
    except FileNotFoundError:
        return None
    except OSError:
        return source if incoming.add_file(source).digest == digest else None
    try:
        incoming.adopt(path, digest)
    except CorruptBlob:
        path.unlink(missing_ok=True)
        return None
    return path


def _fetch(repository: Repository, parts: Sequence[Part], folder: Path, reporter: Reporter) -> None:
    """Fetch parts into the folder, a few at a time; each appears there whole and verified."""
    stop = threading.Event()
    with reporter.task("pull engines", total=sum(part.size for part in parts)) as advance:

        def fetch(part: Part) -> None:
            path = folder / f".{part.digest.hex}"
            size = 0
            with disk_errors(path), path.open("wb") as file:
                for chunk in repository.read_blob(part.digest):
                    size += len(chunk)
                    if stop.is_set():
                        raise _Stopped
                    if size > part.size:
                        raise CorruptBlob(
                            f"part {part.digest} is not what was signed", why=f"more than {part.size} bytes"
                        )
                    file.write(chunk)
                    advance(len(chunk))
            if size != part.size:
                raise CorruptBlob(f"part {part.digest} is not what was signed", why=f"{size} bytes, not {part.size}")
            path.replace(folder / part.digest.hex)

        each(parts, fetch, workers=_WORKERS, stop=stop)


class _Stopped(Exception):
    """Another part failed; this one is given up."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Where a piece of a file lies."""

    piece: Piece
    part: Digest
    start: int
    """Offset in the part."""


def _stretches(parts: Sequence[Part]) -> dict[Digest, list[_Stretch]]:
    """The pieces of each file, in the order of the file."""
    found: dict[Digest, list[_Stretch]] = {}
    for part in parts:
        start = 0
        for piece in part.pieces:
            found.setdefault(piece.file, []).append(_Stretch(piece, part.digest, start))
            start += piece.size
    for places in found.values():
        places.sort(key=lambda place: place.piece.offset)
    return found


def _assemble(digest: Digest, stretches: Sequence[_Stretch], folder: Path, incoming: Incoming) -> Path:
    """Put a file together from the fetched parts; `CorruptBlob` when it is not the file that was signed."""
    path = incoming.new_path()
    with disk_errors(path), path.open("wb") as out:
        for one in stretches:
            with (folder / one.part.hex).open("rb") as file:
                file.seek(one.start)
                left = one.piece.size
                while left and (chunk := file.read(min(CHUNK, left))):
                    left -= len(chunk)
                    out.write(chunk)
    try:
        incoming.adopt(path, digest)
    except CorruptBlob:
        for one in stretches:
            (folder / one.part.hex).unlink(missing_ok=True)
        raise
    return path


def _complete(entry: Entry, files: Mapping[Digest, int], places: Mapping[Digest, Path], incoming: Incoming) -> None:
    """Hold what came against what the entry names; `BadInput` when something of it is not there."""
    named = {entry.content: entry.size if entry.form == "file" else entry.manifest_size}
    if entry.form == "tree" and entry.content in places:
        items = parse_manifest(places[entry.content].read_bytes(), f"the manifest of {entry.digest}")
        named |= {item.digest: item.size for item in items if item.digest is not None}
    for digest, size in named.items():
        if not size and digest == Digest.of(b""):
            incoming.add_bytes(b"")
        elif files.get(digest) != size:
            raise BadInput(
                f"engine {entry.digest} is not whole",
                why=f"its file {digest} of {size} bytes is in none of its parts",
                fix="push it again",
            )
