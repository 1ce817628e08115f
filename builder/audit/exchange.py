"""What audits saw, put into a registry and taken from it: one artefact whose layers are tars of JSON files.

Every fact is kept under a hash of the wheel's digest and name, and belongs to one version of scan and tables. Facts are
spread over a fixed number of layers by that hash and written in one way, so that a layer in which nothing is new has
the digest it had, and is not sent again.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from builder.audit.audit import load_rules
from builder.audit.facts import WheelFacts
from builder.errors import BadInput, OutsideFailed
from builder.events import Advance, Reporter
from builder.names import Digest
from builder.registry.errors import TagMoved
from builder.registry.layers import BlobStream, decompressed, reading, tar_members
from builder.registry.manifests import EMPTY_CONFIG, canonical_json, parse_manifest
from builder.registry.values import CHUNK, BytesSource, Descriptor, FileSource, Manifest, MediaType, Repository
from builder.store import Store

__all__ = ["ARTIFACT_TYPE", "Exchanged", "pull_facts", "push_facts"]

ARTIFACT_TYPE = "application/vnd.dev.builder.audit-facts.v1"
KIND = "dev.builder.audit-facts"
"""Annotation: which scan and tables saw it."""
_TITLE = "org.opencontainers.image.title"
_LAYERS = "0123456789abcdef"
_NAME = re.compile(r"[0-9a-f]{64}")
_LARGEST = 256 << 20
"""Bytes of one wheel's facts that are taken at most; the largest wheels have some MiB."""
_TRIES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchanged:
    """What was moved."""

    verdict: str
    """pushed, pulled, present (nothing new) or absent (there is nothing under the tag)."""
    digest: Digest | None
    """Of the artefact's manifest."""
    wheels: int
    """Wheels it has facts of."""
    taken: int
    """Wheels whose facts were not in the store before."""
    sent_bytes: int = 0


def pull_facts(
    repository: Repository, tag: str, *, store: Store, reporter: Reporter, missing_ok: bool = False
) -> Exchanged:
    """Take the facts under a tag into the store; those of other tables are of no use here, and `BadInput`."""
    manifest = repository.manifest(tag)
    if manifest is None:
        if missing_ok:
            return Exchanged(verdict="absent", digest=None, wheels=0, taken=0)
        raise BadInput(
            f"{repository} has no tag {tag!r}",
            why="nothing was pushed there yet, or by a builder with other tables",
            fix="audit push first, or add --missing-ok",
        )
    value = _artefact(manifest, tag)
    kind = load_rules().scanner.kind
    made = (value.get("annotations") or {}).get(KIND)
    if made != kind:
        raise BadInput(
            f"{tag} was made with other tables",
            why=f"it holds {made}, this builder needs {kind}",
            fix="leave the tag out: each version of the tables has its own",
        )
    wheels = taken = 0
    layers = _descriptors(value)
    with reporter.task(f"taking {tag}", total=sum(layer.size for layer in layers)) as advance:
        for layer in layers:
            for name, data in _entries(repository, layer, advance):
                wheels += 1
                taken += store.take_derived(kind, name, data)
    return Exchanged(verdict="pulled" if taken else "present", digest=manifest.digest, wheels=wheels, taken=taken)


def push_facts(repository: Repository, tag: str, *, store: Store, reporter: Reporter) -> Exchanged:
    """Put the store's facts under a tag, joined with those that are there; again when another push came between."""
    kind = load_rules().scanner.kind
    taken = sent = 0
    for _ in range(_TRIES):
        before = repository.resolve(tag)
        if before is not None:
            there = pull_facts(repository, tag, store=store, reporter=reporter)
            taken += there.taken
        layers: list[Descriptor] = []
        wheels = 0
        for letter in _LAYERS:
            names = store.derived_files(kind, letter)
            if names:
                wheels += len(names)
                layer, size = _put_layer(repository, store, letter, names)
                layers.append(layer)
                sent += size
        if not layers:
            raise BadInput(
                "there is nothing to push",
                why="the store holds nothing that these tables saw",
                fix="audit wheels first",
            )
        manifest = _manifest(layers, kind)
        if before is not None and before.digest == manifest.digest:
            return Exchanged(verdict="present", digest=before.digest, wheels=wheels, taken=taken)
        empty = Descriptor(media_type=MediaType.EMPTY, digest=Digest.of(EMPTY_CONFIG), size=len(EMPTY_CONFIG))
        repository.put_blob(empty, BytesSource(EMPTY_CONFIG))
        repository.put_manifest(manifest)
        try:
            repository.move_tag(tag, manifest.digest, expected=None if before is None else before.digest)
        except TagMoved:
            reporter.note(f"{tag} was pushed to meanwhile; joining once more")
            continue
        return Exchanged(verdict="pushed", digest=manifest.digest, wheels=wheels, taken=taken, sent_bytes=sent)
    raise OutsideFailed(
        f"{tag} does not hold still", why=f"it moved during each of {_TRIES} tries", fix="push again in a while"
    )


def _put_layer(
    repository: Repository, store: Store, letter: str, names: Sequence[tuple[str, Path]]
) -> tuple[Descriptor, int]:
    """Its descriptor, and the bytes that had to be sent."""
    with store.partial() as path:
        with (
            path.open("wb") as raw,
            zstandard.ZstdCompressor(level=6).stream_writer(raw, closefd=False) as out,
            tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as archive,
        ):
            for name, file in names:
                data = file.read_bytes()
                info = tarfile.TarInfo(f"{name}.json")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        layer = Descriptor(
            media_type=MediaType.LAYER_ZSTD,
            digest=Digest.of_file(path),
            size=path.stat().st_size,
            annotations={_TITLE: f"facts-{letter}.tar.zst"},
        )
        sent = repository.put_blob(layer, FileSource(path))
        return layer, layer.size if sent else 0


def _manifest(layers: list[Descriptor], kind: str) -> Manifest:
    """An artefact without a configuration (image-spec, manifest.md, "Guidelines for Artifact Usage")."""
    empty = Descriptor(media_type=MediaType.EMPTY, digest=Digest.of(EMPTY_CONFIG), size=len(EMPTY_CONFIG))
    return Manifest(
        MediaType.MANIFEST,
        canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": MediaType.MANIFEST,
                "artifactType": ARTIFACT_TYPE,
                "config": empty.to_json(),
                "layers": [layer.to_json() for layer in layers],
                "annotations": {KIND: kind},
            }
        ),
    )


def _artefact(manifest: Manifest, tag: str) -> dict[str, Any]:
    value = parse_manifest(manifest)
    if value.get("artifactType") != ARTIFACT_TYPE:
        raise BadInput(
            f"{tag} holds no facts of audits",
            why=f"it is {value.get('artifactType') or manifest.media_type}",
            fix="name the repository and tag that audit push wrote",
        )
    return value


def _descriptors(value: dict[str, Any]) -> tuple[Descriptor, ...]:
    try:
        return tuple(Descriptor.from_json(layer) for layer in value["layers"])
    except (KeyError, TypeError, ValueError) as error:
        raise OutsideFailed("the artefact's manifest is malformed", why=f"a layer lacks {error}") from error


def _entries(repository: Repository, layer: Descriptor, advance: Advance) -> Iterator[tuple[str, bytes]]:
    """(name, JSON) of a layer, each checked to be facts; the layer's digest is checked when all were read."""
    stream = BlobStream(repository.read_blob(layer.digest), advance)
    with reading(layer):
        source = decompressed(stream, layer)
        for tar, member in tar_members(source):
            name, _, ending = member.name.partition(".")
            opened = tar.extractfile(member) if member.isreg() else None
            if ending != "json" or _NAME.fullmatch(name) is None or member.size > _LARGEST or opened is None:
                raise OutsideFailed(f"layer {layer.digest} holds no facts", why=f"it has a member {member.name!r}")
            data = opened.read()
            try:
                WheelFacts.from_json(json.loads(data))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise OutsideFailed(
                    f"layer {layer.digest} holds no facts", why=f"{member.name} cannot be read: {error!r}"
                ) from error
            yield name, data
        while source.read(CHUNK):
            pass
    stream.drain()
