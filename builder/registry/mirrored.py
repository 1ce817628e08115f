"""A repository read by way of its mirrors: in order, the registry itself last, and nobody's failure is "absent"."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from builder.errors import OutsideFailed
from builder.events import Reporter
from builder.names import Digest
from builder.registry.errors import MissingContent
from builder.registry.mirrors import Pull
from builder.registry.values import BlobSource, Descriptor, Manifest, Repository
from builder.store import CorruptBlob

__all__ = ["Mirrored"]

T = TypeVar("T")


class Mirrored:
    """Implements `builder.registry.values.Repository`. Safe for many threads.

    Manifests, tags and blobs are looked for at the mirrors first; a mirror that lacks them, fails or lies is passed
    over, and said so. The registry itself has the last word on what is absent. What is attached, which tags there are,
    and everything that is written is its business alone: a cache may hold less, or be late.
    """

    def __init__(self, primary: Repository, mirrors: Sequence[tuple[Repository, Pull]], *, reporter: Reporter) -> None:
        self._primary = primary
        self._mirrors = tuple(mirrors)
        self._reporter = reporter
        self._failed: set[str] = set()
        """Mirrors that failed once: they are not waited for again."""

    def __str__(self) -> str:
        return str(self._primary)

    @property
    def place(self) -> tuple[str, str] | None:
        """The registry's own."""
        return self._primary.place

    # --- reading

    def resolve(self, tag: str) -> Descriptor | None:
        """What the tag points at, at the first mirror that has it and may say so, else at the registry."""
        return self._first("tag", lambda source: source.resolve(tag), f"tag {tag!r}")

    def manifest(self, reference: Digest | str) -> Manifest | None:
        """The manifest by digest (verified) or tag."""
        kind = "digest" if isinstance(reference, Digest) else "tag"
        return self._first(kind, lambda source: source.manifest(reference), f"manifest {reference}")

    def has_blob(self, digest: Digest) -> bool:
        """Whether the registry itself has the blob."""
        return self._primary.has_blob(digest)

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        """The blob's bytes, verified; where a mirror stops, the next one goes on.

        What came before is held against what the next one has at that place: `CorruptBlob` when they differ, for then
        bytes that are nobody's were handed out already.
        """
        hasher, position = hashlib.sha256(), 0
        told: list[str] = []
        for source in self._asked("digest"):
            try:
                for chunk in _from(source, digest, position, hasher.digest()):
                    hasher.update(chunk)
                    position += len(chunk)
                    yield chunk
            except OutsideFailed as error:
                told.append(self._passed(source, f"blob {digest}", error))
                continue
            return
        try:
            yield from _from(self._primary, digest, position, hasher.digest())
        except OutsideFailed as error:
            raise _with_mirrors(error, told) from None

    def tags(self) -> tuple[str, ...]:
        """All tags of the registry itself."""
        return self._primary.tags()

    def referrers(self, subject: Digest, *, artifact_type: str | None = None) -> tuple[Descriptor, ...]:
        """What is attached at the registry itself."""
        return self._primary.referrers(subject, artifact_type=artifact_type)

    # --- writing: never to a mirror

    def put_blob(self, descriptor: Descriptor, source: BlobSource, *, mount_from: str | None = None) -> bool:
        """Store a blob at the registry itself."""
        return self._primary.put_blob(descriptor, source, mount_from=mount_from)

    def put_manifest(self, manifest: Manifest, *, tag: str | None = None) -> Descriptor:
        """Store a manifest at the registry itself."""
        return self._primary.put_manifest(manifest, tag=tag)

    def put_referrers(self, manifests: Sequence[Manifest]) -> None:
        """Attach at the registry itself."""
        self._primary.put_referrers(manifests)

    def move_tag(self, tag: str, digest: Digest, *, expected: Digest | None) -> Descriptor:
        """Move a tag of the registry itself."""
        return self._primary.move_tag(tag, digest, expected=expected)

    # --- inside

    def _first(self, kind: str, ask: Callable[[Repository], T | None], what: str) -> T | None:
        told: list[str] = []
        for mirror in self._asked(kind):
            try:
                found = ask(mirror)
            except OutsideFailed as error:
                told.append(self._passed(mirror, what, error))
                continue
            if found is not None:
                self._reporter.detail(f"{what} of {self._primary} comes from the mirror {mirror}")
                return found
        try:
            return ask(self._primary)
        except OutsideFailed as error:
            raise _with_mirrors(error, told) from None

    def _asked(self, kind: str) -> list[Repository]:
        return [
            mirror
            for mirror, pull in self._mirrors
            if pull in ("all", f"{kind}-only") and str(mirror) not in self._failed
        ]

    def _passed(self, mirror: Repository, what: str, error: OutsideFailed) -> str:
        """Say why a mirror is passed over; one that only lacks it is no news."""
        said = f"{error.what}: {error.why}" if error.why else error.what
        if isinstance(error, MissingContent):
            self._reporter.detail(f"the mirror {mirror} is passed over for {what}: {said}")
        else:
            self._failed.add(str(mirror))
            self._reporter.note(f"the mirror {mirror} is passed over from here on: {said}")
        return f"mirror {mirror}: {said}"


def _from(source: Repository, digest: Digest, position: int, before: bytes) -> Iterator[bytes]:
    """The blob from `position` on; `before` is the SHA-256 of what stands before it."""
    hasher, left = hashlib.sha256(), position
    checked = position == 0
    for chunk in source.read_blob(digest):
        head, rest = chunk[:left], chunk[left:]
        hasher.update(head)
        left -= len(head)
        if not checked and not left:
            if hasher.digest() != before:
                raise _lied(source, digest, position)
            checked = True
        if rest:
            yield rest
    if not checked:
        raise _lied(source, digest, position)


def _lied(source: Repository, digest: Digest, position: int) -> CorruptBlob:
    return CorruptBlob(
        f"a mirror has other bytes of blob {digest} than {source}",
        why=f"the first {position} bytes differ",
        fix="clear the mirror, or take it out of registries.conf",
    )


def _with_mirrors(error: OutsideFailed, told: Sequence[str]) -> OutsideFailed:
    if told:
        error.why = "; ".join(filter(None, (error.why, *told)))
    return error
