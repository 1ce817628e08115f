"""The catalogue of a repository: what there is for which backend, as one artifact that any OCI client can pull.

An image index cannot tell accelerators apart (FR-27): two entries of one platform are the same to a client. The
catalogue says in plain JSON what an index cannot: backend, toolkit, Python and node classes of each image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from builder.image.labels import BACKEND, PYTHON, TOOLKIT
from builder.names import Digest
from builder.registry.errors import TagMoved
from builder.registry.manifests import (
    EMPTY_CONFIG,
    INDEX_TYPES,
    canonical_json,
    is_image,
    parse_manifest,
    pointed_manifests,
)
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType, Repository
from builder.release.evidence import listed_evidence

__all__ = ["CATALOGUE", "TAG", "CatalogueEntry", "Written", "read_repository", "write_catalogue"]

CATALOGUE = "application/vnd.dev.builder.catalogue.v1+json"
"""Artifact type, and media type of the one layer."""

TAG = "catalogue"

_ATTEMPTS = 5
_KEYS = {"backend": BACKEND, "toolkit": TOOLKIT, "python": PYTHON}
_VERSION = "org.opencontainers.image.version"
_CREATED = "org.opencontainers.image.created"


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """One tagged image or index."""

    digest: Digest
    media_type: str
    tags: tuple[str, ...]
    """Version tags, sorted."""
    node_classes: tuple[str, ...]
    """Classes whose tag points at it by promotion, sorted."""
    platforms: tuple[str, ...]
    """Of an index, e.g. linux/arm64; empty for a single image, which says its own."""
    backend: str | None
    toolkit: str | None
    python: str | None
    version: str | None
    created: str | None

    def to_json(self) -> dict[str, Any]:
        """As it stands in the catalogue; null is not known."""
        return {
            "digest": str(self.digest),
            "mediaType": self.media_type,
            "tags": list(self.tags),
            "node_classes": list(self.node_classes),
            "platforms": list(self.platforms),
            "backend": self.backend,
            "toolkit": self.toolkit,
            "python": self.python,
            "version": self.version,
            "created": self.created,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What came of writing a catalogue."""

    digest: Digest
    entries: tuple[CatalogueEntry, ...]
    moved: bool
    """False when the catalogue said the same before."""


def read_repository(repository: Repository) -> tuple[CatalogueEntry, ...]:
    """All tagged images, sorted by backend, version and digest; what is no image, as the catalogue, is left out."""
    tags: dict[Digest, list[str]] = {}
    for tag in repository.tags():
        found = repository.resolve(tag)
        if found is not None:  # deleted since the tags were listed
            tags.setdefault(found.digest, []).append(tag)
    entries = []
    for digest, names in tags.items():
        manifest = repository.manifest(digest)
        if manifest is not None and is_image(manifest):
            entries.append(_entry(repository, manifest, names))
    return tuple(sorted(entries, key=lambda entry: (entry.backend or "", entry.version or "", entry.digest)))


def write_catalogue(repository: Repository) -> Written:
    """Make the catalogue and put it under its tag, which moves by compare and set.

    Another writer who is faster wrote what was true a moment ago: the repository is read again, a few times at most.
    `TagMoved` when the tag holds something that is no catalogue, or keeps moving.
    """
    for attempt in range(_ATTEMPTS):
        before = _current(repository)
        entries = read_repository(repository)
        manifest = _manifest(repository, entries)
        if before == manifest.digest:
            return Written(digest=manifest.digest, entries=entries, moved=False)
        repository.put_manifest(manifest)
        try:
            repository.move_tag(TAG, manifest.digest, expected=before)
        except TagMoved:
            if attempt + 1 == _ATTEMPTS:
                raise
            continue
        return Written(digest=manifest.digest, entries=entries, moved=True)
    raise AssertionError("the last attempt returns or raises")


def _current(repository: Repository) -> Digest | None:
    manifest = repository.manifest(TAG)
    if manifest is None:
        return None
    if parse_manifest(manifest).get("artifactType") != CATALOGUE:
        raise TagMoved(TAG, repository=str(repository), expected=None, found=manifest.digest)
    return manifest.digest


def _entry(repository: Repository, manifest: Manifest, names: list[str]) -> CatalogueEntry:
    told = {
        piece.summary.get("node-class")
        for piece in listed_evidence(repository, manifest.digest)
        if piece.kind == "promotion"
    }
    notes = _annotations(repository, manifest)
    platforms = {
        "/".join(str((child.platform or {}).get(key, "?")) for key in ("os", "architecture"))
        for child in pointed_manifests(manifest)
        if (child.platform or {}).get("architecture") not in (None, "unknown")
    }
    return CatalogueEntry(
        digest=manifest.digest,
        media_type=manifest.media_type,
        tags=tuple(sorted(name for name in names if name not in told)),
        node_classes=tuple(sorted(name for name in names if name in told)),
        platforms=tuple(sorted(platforms)),
        **{key: notes.get(label) for key, label in _KEYS.items()},
        version=notes.get(_VERSION),
        created=notes.get(_CREATED),
    )


def _annotations(repository: Repository, manifest: Manifest) -> Mapping[str, str]:
    """The image's own annotations; those of an index' first image where it has none, for they are of one backend."""
    own = parse_manifest(manifest).get("annotations") or {}
    if own or manifest.media_type not in INDEX_TYPES:
        return {str(key): str(value) for key, value in own.items()}
    first = next((repository.manifest(child.digest) for child in pointed_manifests(manifest)), None)
    return {} if first is None else _annotations(repository, first)


def _manifest(repository: Repository, entries: tuple[CatalogueEntry, ...]) -> Manifest:
    content = canonical_json({"schema": "builder/catalogue/1", "images": [entry.to_json() for entry in entries]})
    blobs = []
    for data, media_type in ((EMPTY_CONFIG, MediaType.EMPTY), (content, CATALOGUE)):
        blob = Descriptor(media_type=media_type, digest=Digest.of(data), size=len(data))
        repository.put_blob(blob, BytesSource(data))
        blobs.append(blob)
    config, layer = blobs
    document = {
        "schemaVersion": 2,
        "mediaType": MediaType.MANIFEST,
        "artifactType": CATALOGUE,
        "config": config.to_json(),
        "layers": [{**layer.to_json(), "annotations": {"org.opencontainers.image.title": "catalogue.json"}}],
    }
    return Manifest(MediaType.MANIFEST, canonical_json(document))
