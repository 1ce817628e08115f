"""An OCI image layout on disk as a repository (image-spec, image-layout.md).

Blobs appear under their digest only when complete, verified and flushed. index.json is changed under an exclusive lock
on the file `oci-layout`, which is never replaced, so that two processes lose nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from builder.errors import BuilderError, where_path
from builder.names import Digest, parse_tag
from builder.registry.errors import DamagedLayout, MissingContent, TagMoved
from builder.registry.manifests import (
    INDEX_TYPES,
    is_referrers_tag,
    pointed_blobs,
    pointed_manifests,
    referrer_entry,
    subject_of,
)
from builder.registry.values import (
    CHUNK,
    REF_NAME,
    BlobSource,
    Descriptor,
    FileSource,
    Manifest,
    MediaType,
    VerifiedSource,
)
from builder.store import CorruptBlob, disk_errors, write_atomic

__all__ = ["Layout"]

_VERSION = {"imageLayoutVersion": "1.0.0"}


class Layout:
    """One layout folder; made on the first write. Implements `builder.registry.values.Repository`.

    A folder that does not exist reads as a repository without anything in it. Safe for many threads and processes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._about: dict[Digest, tuple[Digest | None, Descriptor]] = {}
        """Subject and entry of manifests read before; a digest's content never changes."""

    def __str__(self) -> str:
        return f"oci:{self.path}"

    def blob_path(self, digest: Digest) -> Path:
        """Where the blob is, or would be."""
        return self.path / "blobs" / "sha256" / digest.hex

    @property
    def place(self) -> tuple[str, str] | None:
        """Nothing can be mounted from a folder."""
        return None

    # --- reading

    def resolve(self, tag: str) -> Descriptor | None:
        """What the tag points at now."""
        for entry in self._entries():
            if entry.annotations.get(REF_NAME) == tag:
                return Descriptor(media_type=entry.media_type, digest=entry.digest, size=entry.size)
        return None

    def manifest(self, reference: Digest | str) -> Manifest | None:
        """The manifest by digest or tag, verified."""
        if isinstance(reference, str):
            found = self.resolve(reference)
            if found is None:
                return None
            digest, media_type = found.digest, found.media_type
        else:
            digest, media_type = reference, ""
        try:
            raw = self.blob_path(digest).read_bytes()
        except FileNotFoundError:
            if isinstance(reference, Digest):
                return None
            raise MissingContent(
                f"{self} has the tag {reference!r} but not its manifest {digest}",
                fix="the layout was damaged or copied in part: build or copy it again",
            ) from None
        _verify(digest, Digest.of(raw), len(raw), self.blob_path(digest))
        return Manifest(media_type or _media_type(raw, self.blob_path(digest)), raw)

    def has_blob(self, digest: Digest) -> bool:
        """Whether the blob is there."""
        return self.blob_path(digest).is_file()

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        """The blob's bytes; `MissingContent` when absent, `CorruptBlob` after the last chunk when damaged."""
        hasher = hashlib.sha256()
        size = 0
        try:
            file = self.blob_path(digest).open("rb")
        except FileNotFoundError:
            raise MissingContent(f"blob {digest} is not in {self}", fix="build or copy the image again") from None
        with file:
            while chunk := file.read(CHUNK):
                hasher.update(chunk)
                size += len(chunk)
                yield chunk
        _verify(digest, Digest(hasher.hexdigest()), size, self.blob_path(digest))

    def tags(self) -> tuple[str, ...]:
        """All tags of images, sorted."""
        names = {entry.annotations[REF_NAME] for entry in self._entries() if REF_NAME in entry.annotations}
        return tuple(sorted(name for name in names if not is_referrers_tag(name)))

    def referrers(self, subject: Digest, *, artifact_type: str | None = None) -> tuple[Descriptor, ...]:
        """Manifests listed in index.json whose `subject` is this digest, sorted by digest."""
        found = {}
        for entry in self._entries():
            about, listed = self._look_at(entry)
            if about == subject and (artifact_type is None or listed.artifact_type == artifact_type):
                found[listed.digest] = listed
        return tuple(found[digest] for digest in sorted(found))

    # --- writing

    def put_blob(self, descriptor: Descriptor, source: BlobSource, *, mount_from: str | None = None) -> bool:
        """Store a blob unless it is there; a file of a content-addressed store is linked where the disk allows it."""
        target = self.blob_path(descriptor.digest)
        if self._claim(target, descriptor.size):
            return False
        self._create()
        with disk_errors(target):
            if isinstance(source, FileSource) and source.immutable and _link(source, target, descriptor):
                return True
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
            partial = Path(name)
            try:
                hasher = None if isinstance(source, VerifiedSource) else hashlib.sha256()
                size = 0
                with os.fdopen(handle, "wb") as file:
                    for chunk in source():
                        if hasher is not None:
                            hasher.update(chunk)
                        size += len(chunk)
                        file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                found = descriptor.digest if hasher is None else Digest(hasher.hexdigest())
                origin = source.path if isinstance(source, FileSource) else target
                _verify(descriptor.digest, found, size, origin, expected_size=descriptor.size)
                partial.chmod(0o644)
                partial.replace(target)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        return True

    def put_manifest(self, manifest: Manifest, *, tag: str | None = None) -> Descriptor:
        """Store a manifest, and the tag when given. `MissingContent` when something it points at is not here."""
        if tag is not None:
            parse_tag(tag)
        with self.index() as entries:  # what it points at cannot be cleared away before it is listed
            self._store_manifest(manifest)
            _enter(entries, manifest, tag)
        return manifest.descriptor

    def put_referrers(self, manifests: Sequence[Manifest]) -> None:
        """Store manifests that have a subject, with one change of index.json."""
        with self.index() as entries:
            for manifest in manifests:
                self._store_manifest(manifest)
                _enter(entries, manifest, None)

    def move_tag(self, tag: str, digest: Digest, *, expected: Digest | None) -> Descriptor:
        """Point the tag at a manifest of this layout, if it points at `expected` now; decided under the lock."""
        parse_tag(tag)
        with self.index() as entries:
            manifest = self.manifest(digest)
            if manifest is None:
                raise MissingContent(f"manifest {digest} is not in {self}", fix="publish the image there first")
            now = next((e["digest"] for e in entries if (e.get("annotations") or {}).get(REF_NAME) == tag), None)
            found = None if now is None else Digest.parse(now)
            if found != expected:
                raise TagMoved(tag, repository=str(self), expected=expected, found=found)
            _enter(entries, manifest, tag)
        return manifest.descriptor

    # --- inside

    def _claim(self, target: Path, size: int) -> bool:
        """Whether a blob is there; noted as used now, so that it is not cleared away before a manifest names it."""
        if not target.is_file() or target.stat().st_size != size:
            return False
        try:
            with (self.path / "oci-layout").open("rb") as marker:
                fcntl.flock(marker, fcntl.LOCK_SH)
                os.utime(target)
        except (FileNotFoundError, PermissionError):
            return target.is_file()
        return True

    def _store_manifest(self, manifest: Manifest) -> None:
        needed = (*pointed_blobs(manifest), *pointed_manifests(manifest))
        missing = [descriptor.digest for descriptor in needed if not self.has_blob(descriptor.digest)]
        if missing:
            raise MissingContent(
                f"manifest {manifest.digest} is not put into {self}",
                why=f"{len(missing)} things it points at are not there, first {missing[0]}",
                fix="put the blobs first",
            )
        self._create()
        path = self.blob_path(manifest.digest)
        if not path.is_file():
            write_atomic(path, manifest.raw)

    def _create(self) -> None:
        """Make the folder a layout. The file `oci-layout` is linked into place, so it has one inode for ever."""
        marker = self.path / "oci-layout"
        if marker.is_file():
            return
        with disk_errors(self.path):
            self._refuse_other_folder()
            (self.path / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path, prefix=".oci-layout.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(_VERSION, file)
                Path(name).chmod(0o644)
                marker.hardlink_to(name)
            except FileExistsError:
                pass
            finally:
                Path(name).unlink()

    def _refuse_other_folder(self) -> None:
        """`DamagedLayout` for a folder with content of another kind; half a layout (blobs only) is finished."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise DamagedLayout(f"{self.path} is not a folder", fix="name a new or empty folder after oci:")
        others = [p.name for p in self.path.iterdir() if p.name != "blobs" and not p.name.startswith(".oci-layout.")]
        if others and "oci-layout" not in others:  # another writer may have been faster
            raise DamagedLayout(
                f"{self.path} is not an OCI layout",
                why=f"it has no file oci-layout, but holds {min(others)!r}",
                fix="name a new or empty folder after oci:",
            )

    @contextmanager
    def index(self) -> Iterator[list[dict[str, Any]]]:
        """The entries of index.json for changing, under the lock; written back when they changed."""
        self._create()
        with disk_errors(self.path), (self.path / "oci-layout").open("r+b") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX)
            document = self._document()
            before = json.dumps(document)
            entries = document.setdefault("manifests", [])
            yield entries
            if json.dumps(document) != before:
                write_atomic(self.path / "index.json", json.dumps(document, separators=(",", ":")).encode())

    def _document(self) -> dict[str, Any]:
        path = self.path / "index.json"
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            if self.path.exists() and not (self.path / "oci-layout").is_file():
                self._refuse_other_folder()
            return {"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": []}
        try:
            document = json.loads(raw)
        except ValueError as error:
            raise DamagedLayout(
                f"{path} is not JSON", why=str(error), fix="build or copy the layout again", where=where_path(path)
            ) from error
        if not isinstance(document, dict) or not isinstance(document.get("manifests", []), list):
            raise DamagedLayout(
                f"{path} is not an image index", fix="build or copy the layout again", where=where_path(path)
            )
        return document

    def _entries(self) -> tuple[Descriptor, ...]:
        document = self._document()
        try:
            return tuple(Descriptor.from_json(entry) for entry in document.get("manifests", []))
        except (KeyError, TypeError, ValueError, BuilderError) as error:
            path = self.path / "index.json"
            raise DamagedLayout(
                f"{path} has an entry that cannot be read",
                why=repr(error),
                fix="build or copy the layout again",
                where=where_path(path, key="manifests"),
            ) from error

    def _look_at(self, entry: Descriptor) -> tuple[Digest | None, Descriptor]:
        known = self._about.get(entry.digest)
        if known is None:
            manifest = self.manifest(entry.digest)
            if manifest is None:
                return None, entry
            known = self._about[entry.digest] = subject_of(manifest), referrer_entry(manifest)
        return known


def _enter(entries: list[dict[str, Any]], manifest: Manifest, tag: str | None) -> None:
    """Put a manifest into the index. What a moved tag pointed at before stays listed, without the tag."""
    digest = str(manifest.digest)
    kept: list[dict[str, Any]] = []
    for entry in entries:
        annotations = entry.get("annotations") or {}
        if tag is not None and annotations.get(REF_NAME) == tag:
            if entry["digest"] == digest:
                return
            rest = {key: value for key, value in annotations.items() if key != REF_NAME}
            entry = {key: value for key, value in entry.items() if key != "annotations"}
            if rest:
                entry["annotations"] = rest
        kept.append(entry)
    same = [entry for entry in kept if entry["digest"] == digest]
    untagged = [entry for entry in same if REF_NAME not in (entry.get("annotations") or {})]
    if tag is None and same:
        return
    new = untagged[0] if untagged else _entry(manifest)
    if tag is not None:
        new = {**new, "annotations": {**(new.get("annotations") or {}), REF_NAME: tag}}
    kept = [entry for entry in kept if entry not in untagged]
    entries[:] = [*_without_doubles(kept), new]


def _entry(manifest: Manifest) -> dict[str, Any]:
    entry = manifest.descriptor.to_json()
    if subject_of(manifest) is not None:
        entry["artifactType"] = referrer_entry(manifest).artifact_type
    return entry


def _without_doubles(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop untagged entries of a digest that is listed already (left by a tag that moved away)."""
    kept: list[dict[str, Any]] = []
    listed = [(entry["digest"], REF_NAME in (entry.get("annotations") or {})) for entry in entries]
    seen = {digest for digest, tagged in listed if tagged}
    for entry, (digest, tagged) in zip(entries, listed, strict=True):
        if tagged or digest not in seen:
            kept.append(entry)
            seen.add(digest)
    return kept


def _link(source: FileSource, target: Path, descriptor: Descriptor) -> bool:
    """Hard-link a store file into place; False where that cannot be done (other disk, no permission, other size).

    A disk may have changed its bytes since they were stored, and under a link that would be the layout's fault.
    """
    if source.path.stat().st_size != descriptor.size:
        return False
    if not source.verified and Digest.of_file(source.path) != descriptor.digest:
        raise source.damaged(descriptor.digest)
    temporary = target.parent / f".partial-{os.getpid()}-{os.urandom(6).hex()}"
    try:
        temporary.hardlink_to(source.path)
    except OSError:
        return False
    temporary.replace(target)
    temporary.unlink(missing_ok=True)  # rename(2) leaves the old name when both already are one inode
    return True


def _verify(digest: Digest, found: Digest, size: int, path: Path, *, expected_size: int | None = None) -> None:
    if found != digest or (expected_size is not None and size != expected_size):
        wanted = f"{digest}" if expected_size is None else f"{digest} of {expected_size} bytes"
        raise CorruptBlob(
            f"blob {digest} is damaged",
            why=f"{size} bytes with the digest {found}, expected {wanted}",
            fix="delete the file and build or copy the image again",
            where=where_path(path),
        )


def _media_type(raw: bytes, path: Path) -> str:
    """The media type a manifest names for itself, or the one its shape has (image-spec allows leaving it out)."""
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DamagedLayout(f"blob {path.name} is not a manifest", where=where_path(path))
    named = value.get("mediaType")
    if isinstance(named, str):
        return named
    return INDEX_TYPES[0] if "manifests" in value else MediaType.MANIFEST
