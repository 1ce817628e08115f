"""Pushing engines: each becomes a signed artefact attached to its image, its parts sent unless they are there."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from builder.cache.cache import EngineCache
from builder.cache.judge import judge
from builder.cache.keys import engine_key
from builder.cache.kinds import engine_kind
from builder.cache.parts import Cut, Part, cut
from builder.cache.statement import (
    ENGINE_TYPE,
    PAYLOAD_TYPE,
    EngineStatement,
    Listed,
    engine_manifest,
    listed,
    read_envelope,
)
from builder.cache.values import Difference, Entry
from builder.errors import BadInput, Refused
from builder.events import Reporter
from builder.names import Digest
from builder.node.values import NodeClass
from builder.registry.dsse import PrivateKey, open_envelope, seal
from builder.registry.errors import MissingContent
from builder.registry.manifests import pointed_blobs
from builder.registry.threads import each
from builder.registry.values import CHUNK, Descriptor, Manifest, Repository
from builder.store import CorruptBlob

__all__ = ["NotForNode", "Pushed", "PushedEngine", "differs_from_node", "push"]

_WORKERS = 4


class NotForNode(Refused):
    """An engine that cannot run on machines of the node class."""

    kind = "engine-not-for-node"


@dataclass(frozen=True, kw_only=True, slots=True)
class PushedEngine:
    """An engine that is in the registry now."""

    entry: Entry
    manifest: Digest
    adopted: bool
    """It was there before, signed by the same key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    """What a push did."""

    engines: tuple[PushedEngine, ...]
    sent_blobs: int
    sent_bytes: int
    """Bytes of parts and envelopes that were not there."""


def push(
    cache: EngineCache,
    entries: Sequence[Entry],
    repository: Repository,
    image: Digest,
    *,
    image_name: str,
    node: NodeClass,
    key: PrivateKey,
    reporter: Reporter,
) -> Pushed:
    """Attach entries of a cache to an image, signed, for a node class. What the registry holds is not sent again.

    `MissingContent` when the image is not there, `NotForNode` for an engine whose factors the class contradicts,
    `CorruptBlob` for one that is damaged here: nothing is attached then.
    """
    subject = repository.manifest(image)
    if subject is None:
        raise MissingContent(f"{image} is not in {repository}", fix="publish the image there first")
    for entry in entries:
        blocking = [one for one in differs_from_node(entry, node) if one.blocks]
        if blocking:
            raise NotForNode(
                f"{entry.key.kind} engine {entry.digest} is not for node class {node.name!r}",
                why="; ".join(f"{one.name} is {one.found}, the class has {one.wanted}" for one in blocking),
                fix="build it on such a node, or name the class it was built for",
            )
    there = listed(repository.referrers(image, artifact_type=ENGINE_TYPE))
    tally = _Tally()
    done: list[PushedEngine] = []
    fresh: list[Manifest] = []
    for entry in entries:
        with cache.store.held(entry):
            told, cuts = _statement(cache, entry, image, node.name)
            payload = told.payload(image_name)
            same = _same(repository, there, told, payload, key)
            if same is not None:
                done.append(PushedEngine(entry=entry, manifest=same, adopted=True))
                continue
            envelope = seal(payload, PAYLOAD_TYPE, key)
            manifest = engine_manifest(told, envelope, subject.descriptor)
            _send(cache, repository, manifest, envelope, cuts, tally, reporter)
        fresh.append(manifest)
        done.append(PushedEngine(entry=entry, manifest=manifest.digest, adopted=False))
    if fresh:
        repository.put_referrers(fresh)
    return Pushed(engines=tuple(done), sent_blobs=tally.blobs, sent_bytes=tally.size)


def differs_from_node(entry: Entry, node: NodeClass) -> tuple[Difference, ...]:
    """By what an engine is not exactly what a machine of the class wants; what the class does not know is left out."""
    kind = engine_kind(entry.key.kind)
    stated = {name: value for name, value in entry.key.factors.items() if name in kind.properties and value}
    known = engine_key(kind, node=node).factors
    devices = {one.name for one in kind.properties.values() if one.node is not None and one.group == "device"}
    told = {name: value for name, value in known.items() if name in devices}
    return judge(kind, {**stated, **told}, entry.key.factors)


def _statement(
    cache: EngineCache, entry: Entry, image: Digest, node_class: str
) -> tuple[EngineStatement, Mapping[Digest, Cut]]:
    """The statement of an entry, and how each of its parts is made from files of the cache."""
    files = {item.digest: item.size for item in cache.items(entry) if item.digest is not None}
    if entry.form == "tree":
        files[entry.content] = entry.manifest_size
    cuts: dict[Digest, Cut] = {}
    parts = []
    for one in cut(files):
        whole = len(one.pieces) == 1 and one.pieces[0].size == files[one.pieces[0].file]
        digest = one.pieces[0].file if whole else _digest(_content(cache, one))
        cuts[digest] = one
        parts.append(Part(digest=digest, pieces=one.pieces))
    return EngineStatement(image=image, node_class=node_class, entry=entry, parts=tuple(parts)), cuts


def _digest(chunks: Iterable[bytes]) -> Digest:
    hasher = hashlib.sha256()
    for chunk in chunks:
        hasher.update(chunk)
    return Digest(hasher.hexdigest())


def _content(cache: EngineCache, one: Cut) -> Iterator[bytes]:
    """The bytes of a blob, from the files it is made of."""
    for piece in one.pieces:
        left = piece.size
        try:
            with cache.store.part_path(piece.file).open("rb") as file:
                file.seek(piece.offset)
                while left and (chunk := file.read(min(CHUNK, left))):
                    left -= len(chunk)
                    yield chunk
        except FileNotFoundError:
            pass
        if left:
            raise CorruptBlob(
                f"part {piece.file} of the engine cache is damaged",
                why=f"{left} bytes of it are missing",
                fix="builder cache verify --drop clears what is damaged; build the engine again",
            )


def _same(
    repository: Repository, there: Sequence[Listed], told: EngineStatement, payload: bytes, key: PrivateKey
) -> Digest | None:
    """The manifest of this very engine, attached before and signed by the same key."""
    for one in there:
        if one.key == str(told.entry.digest) and one.node_class == told.node_class and one.envelope is not None:
            with suppress(BadInput, MissingContent, CorruptBlob):
                envelope = open_envelope(read_envelope(repository, one.envelope), [key.public])
                if envelope.signers and envelope.payload == payload:
                    return one.manifest
    return None


class _Tally:
    """Counts what was sent, from several threads."""

    def __init__(self) -> None:
        self.blobs = 0
        self.size = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self.blobs += 1
            self.size += size


def _send(
    cache: EngineCache,
    repository: Repository,
    manifest: Manifest,
    envelope: bytes,
    cuts: Mapping[Digest, Cut],
    tally: _Tally,
    reporter: Reporter,
) -> None:
    """Send the parts and the envelope of an engine, a few at a time; what is there is passed over."""
    stop = threading.Event()
    blobs = pointed_blobs(manifest)

    def chunks(blob: Descriptor) -> Iterator[bytes]:
        one = cuts.get(blob.digest)
        for chunk in (envelope,) if one is None else _content(cache, one):
            if stop.is_set():
                raise _Stopped
            yield chunk

    with reporter.task(f"push {manifest.digest.hex[:12]}", total=sum(blob.size for blob in blobs)) as advance:

        def send(blob: Descriptor) -> None:
            if repository.put_blob(blob, lambda: chunks(blob)):
                tally.add(blob.size)
            advance(blob.size)

        each(blobs, send, workers=_WORKERS, stop=stop)


class _Stopped(Exception):
    """Another part failed; this one is given up."""
