"""An engine in a registry: its signed statement, and the manifest that attaches it to an image.

The statement (in-toto, predicate type `urn:builder:engine:1`) is about the image, and says for which node class the
engine is, its entry with all factors, and the digest of every part and file. It is signed as a DSSE envelope, which is
the manifest's configuration; the layers are the parts. So one small blob decides everything before anything is fetched,
and nothing that is not named by a signed digest is ever looked at. Manifest: OCI image-spec, manifest.md, "Guidelines
for Artifact Usage"; the annotations help to find it and are not believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from builder.cache.parts import Part, parse_part
from builder.cache.values import Entry
from builder.errors import BadInput
from builder.names import Digest
from builder.registry.dsse import DSSE
from builder.registry.intoto import one_subject, read_statement, statement
from builder.registry.manifests import canonical_json
from builder.registry.values import Descriptor, Manifest, MediaType, Repository
from builder.store import CorruptBlob

__all__ = [
    "ENGINE_TYPE",
    "PAYLOAD_TYPE",
    "EngineStatement",
    "Listed",
    "engine_manifest",
    "listed",
    "read_engine_statement",
]

ENGINE_TYPE = "application/vnd.builder.engine.v1+json"
"""Artifact type of an engine."""
PART_TYPE = "application/vnd.builder.engine.part.v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE = "urn:builder:engine:1"

_LIMIT = 64 << 20
"""Bytes of an envelope that are read at most."""

_KIND, _KEY, _MODEL, _CLASS, _ENVELOPE = (
    f"dev.builder.engine.{name}" for name in ("kind", "key", "model", "node-class", "envelope")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStatement:
    """What a statement says."""

    image: Digest
    node_class: str
    entry: Entry
    parts: tuple[Part, ...]

    def payload(self, image_name: str) -> bytes:
        """The statement's bytes, the same for the same engine."""
        predicate: dict[str, Any] = {
            "nodeClass": self.node_class,
            "entry": self.entry.to_json(),
            "parts": [part.to_json() for part in self.parts],
        }
        return statement(self.image, image_name, PREDICATE, predicate)


def read_engine_statement(payload: bytes) -> EngineStatement:
    """What a payload says; `BadInput` when it is no statement of this kind, or contradicts itself."""
    return read_statement(payload, PREDICATE, _parsed)


def _parsed(value: dict[str, Any]) -> EngineStatement:
    predicate = value["predicate"]
    entry = Entry.from_json(predicate["entry"], "the entry of an engine")
    parts = tuple(parse_part(item) for item in predicate["parts"])
    return EngineStatement(image=one_subject(value), node_class=str(predicate["nodeClass"]), entry=entry, parts=parts)


def engine_manifest(told: EngineStatement, envelope: bytes, subject: Descriptor) -> Manifest:
    """The manifest of an engine; its blobs are the envelope and the parts."""
    config = Descriptor(media_type=DSSE, digest=Digest.of(envelope), size=len(envelope))
    blobs = {part.digest: part.size for part in told.parts}
    layers = [Descriptor(media_type=PART_TYPE, digest=digest, size=size) for digest, size in blobs.items()]
    about = Descriptor(media_type=subject.media_type, digest=subject.digest, size=subject.size)
    return Manifest(
        MediaType.MANIFEST,
        canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": MediaType.MANIFEST,
                "artifactType": ENGINE_TYPE,
                "config": config.to_json(),
                "layers": [layer.to_json() for layer in layers],
                "subject": about.to_json(),
                "annotations": {
                    _KIND: told.entry.key.kind,
                    _KEY: str(told.entry.digest),
                    _MODEL: told.entry.key.model or "",
                    _CLASS: told.node_class,
                    _ENVELOPE: str(config.digest),
                },
            }
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """An engine as the list of what is attached to an image shows it: nothing of it is verified."""

    manifest: Digest
    kind: str
    key: str
    model: str
    node_class: str
    envelope: Digest | None
    """None when the list does not say it; the manifest does."""


def listed(entries: Sequence[Descriptor]) -> tuple[Listed, ...]:
    """The engines among what is attached to an image, by node class, kind and key."""
    found = []
    for entry in entries:
        if entry.artifact_type != ENGINE_TYPE:
            continue
        notes = entry.annotations
        try:
            envelope = Digest.parse(notes.get(_ENVELOPE, ""))
        except BadInput:
            envelope = None
        kind, key, model, node = (str(notes.get(name, "")) for name in (_KIND, _KEY, _MODEL, _CLASS))
        found.append(Listed(manifest=entry.digest, kind=kind, key=key, model=model, node_class=node, envelope=envelope))
    return tuple(sorted(found, key=lambda one: (one.node_class, one.kind, one.key, one.manifest.hex)))


def read_envelope(repository: Repository, digest: Digest) -> bytes:
    """The bytes of an envelope; `CorruptBlob` when it is longer than any."""
    data = bytearray()
    for chunk in repository.read_blob(digest):
        data += chunk
        if len(data) > _LIMIT:
            raise CorruptBlob(f"statement {digest} is too long", why=f"more than {_LIMIT} bytes")
    return bytes(data)
