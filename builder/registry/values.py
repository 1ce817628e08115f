"""Descriptors, manifests and the seam between images and where they are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from builder.errors import where_path
from builder.names import Digest
from builder.store import CorruptBlob

__all__ = [
    "CHUNK",
    "REF_NAME",
    "BlobSource",
    "BytesSource",
    "Descriptor",
    "FileSource",
    "Manifest",
    "MediaType",
    "Repository",
    "VerifiedSource",
]

CHUNK = 1 << 20
"""Bytes read, hashed and sent at a time."""

REF_NAME = "org.opencontainers.image.ref.name"
"""Annotation that holds a tag in a layout's index.json (image-spec, annotations.md)."""


class MediaType:
    """Media types used here (image-spec, media-types.md; Docker schema 2 for reading bases)."""

    MANIFEST = "application/vnd.oci.image.manifest.v1+json"
    INDEX = "application/vnd.oci.image.index.v1+json"
    CONFIG = "application/vnd.oci.image.config.v1+json"
    LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
    LAYER_TAR = "application/vnd.oci.image.layer.v1.tar"
    LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
    EMPTY = "application/vnd.oci.empty.v1+json"
    DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
    DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptor:
    """A typed pointer to content (image-spec, descriptor.md)."""

    media_type: str
    digest: Digest
    size: int
    """Length of the content in bytes."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None
    platform: Mapping[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """The descriptor as image-spec JSON."""
        value: dict[str, Any] = {"mediaType": self.media_type, "digest": str(self.digest), "size": self.size}
        if self.artifact_type is not None:
            value["artifactType"] = self.artifact_type
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        if self.platform is not None:
            value["platform"] = dict(self.platform)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Descriptor:
        """Parse image-spec JSON; KeyError, TypeError or `BadInput` when a required key is missing or malformed."""
        return cls(
            media_type=value["mediaType"],
            digest=Digest.parse(value["digest"]),
            size=int(value["size"]),
            annotations=dict(value.get("annotations") or {}),
            artifact_type=value.get("artifactType"),
            platform=value.get("platform"),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or index exactly as received; the digest is of these bytes."""

    media_type: str
    raw: bytes

    @property
    def digest(self) -> Digest:
        """Digest of the raw bytes."""
        return Digest.of(self.raw)

    @property
    def descriptor(self) -> Descriptor:
        """A descriptor that points at it."""
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.raw))


BlobSource = Callable[[], Iterator[bytes]]
"""Opens the blob's bytes from the start; called again when an upload is retried."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A `BlobSource` that is a file."""

    path: Path
    immutable: bool = False
    """The file is in a content-addressed store, and nothing changes it. A layout then links it instead of copying."""
    verified: bool = False
    """This process hashed its bytes when it wrote them; otherwise they are hashed before they are linked."""

    def __call__(self) -> Iterator[bytes]:
        """The file's bytes, `CHUNK` at a time."""
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def damaged(self, digest: Digest) -> CorruptBlob:
        """What to raise when the bytes are not those of `digest`; a store's file is removed, to be made anew."""
        fix = f"delete {self.path} and run again"
        if self.immutable:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
                fix = "it is removed: run again to make or fetch it anew, and check the disk"
        return CorruptBlob(
            f"the store's copy of {digest} was damaged" if self.immutable else f"{self.path} was damaged",
            why=f"its bytes are no longer those of {digest}",
            fix=fix,
            where=where_path(self.path),
        )


@dataclass(frozen=True, slots=True)
class BytesSource:
    """A `BlobSource` that is in memory."""

    data: bytes

    def __call__(self) -> Iterator[bytes]:
        """The bytes, in one piece."""
        yield self.data


@dataclass(frozen=True, slots=True)
class VerifiedSource:
    """A `BlobSource` that holds its bytes against the digest on the way, such as `Repository.read_blob`.

    Who reads it to its end need not hash them once more: it raises there when they are not the digest's.
    """

    read: BlobSource

    def __call__(self) -> Iterator[bytes]:
        """The bytes as they come."""
        return self.read()


class Repository(Protocol):
    """One repository of a registry, or one OCI layout on disk. Methods are safe to call from several threads.

    A missing thing is None or False; everything else that goes wrong is an `OutsideFailed`, never "absent".
    """

    @property
    def place(self) -> tuple[str, str] | None:
        """Registry host and repository name, from which another repository of that registry can mount blobs."""

    def resolve(self, tag: str) -> Descriptor | None:
        """What the tag points at now."""

    def manifest(self, reference: Digest | str) -> Manifest | None:
        """The manifest by digest (verified) or tag."""

    def has_blob(self, digest: Digest) -> bool:
        """Whether the blob is there."""

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        """The blob's bytes, verified against the digest while streaming; raises when absent or damaged."""

    def put_blob(self, descriptor: Descriptor, source: BlobSource, *, mount_from: str | None = None) -> bool:
        """Store a blob unless it is there; True when bytes were sent.

        `mount_from` names a repository of the same registry that may already hold it.
        """

    def put_manifest(self, manifest: Manifest, *, tag: str | None = None) -> Descriptor:
        """Store a manifest under its digest, and under the tag when given. Its blobs must be there already."""

    def put_referrers(self, manifests: Sequence[Manifest]) -> None:
        """Store manifests that have a `subject`, as `put_manifest` does, and list those of one subject in one go."""

    def move_tag(self, tag: str, digest: Digest, *, expected: Digest | None) -> Descriptor:
        """Point `tag` at a manifest that is there, if it points at `expected` now (None: if there is no such tag).

        `TagMoved` when it points elsewhere, before or after; a layout decides under its lock, a registry has no
        conditional write, so there the tag is read before and after.
        """

    def tags(self) -> tuple[str, ...]:
        """All tags of images, sorted; tags that only hold lists of referrers are left out."""

    def referrers(self, subject: Digest, *, artifact_type: str | None = None) -> tuple[Descriptor, ...]:
        """Manifests whose `subject` is this digest, with artifact type and annotations filled in."""
