"""Copying an image, or an index of images, with what is attached to it, between any two repositories."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from builder.events import Reporter
from builder.names import Digest
from builder.registry.errors import MissingContent
from builder.registry.layout import Layout
from builder.registry.manifests import check_index, pointed_blobs, pointed_manifests
from builder.registry.threads import each
from builder.registry.values import BlobSource, Descriptor, FileSource, Manifest, Repository, VerifiedSource

__all__ = ["Copied", "copy"]

_DEPTH = 4
"""Levels of what is attached to what is attached; a circle cannot be made of digests, a long chain can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """What a copy did."""

    descriptor: Descriptor
    """The image or index at the target."""
    sent_blobs: int
    sent_bytes: int
    """Bytes of blobs that had to be sent; blobs that were there or were mounted do not count."""


@dataclass(slots=True)
class _Tally:
    blobs: int = 0
    size: int = 0
    looked: int = 0
    """Blobs of manifests that were not there: some may have been, sent by a run that was stopped."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, size: int) -> None:
        with self.lock:
            self.blobs += 1
            self.size += size


def copy(
    source: Repository,
    target: Repository,
    digest: Digest,
    *,
    referrers: bool = True,
    reporter: Reporter,
    workers: int = 4,
) -> Copied:
    """Copy a manifest and all it points at: blobs first, manifests last, so that the target is whole at any moment.

    No tag is written. What the target holds is not sent again; a manifest that is there vouches for its blobs. An index
    with two images of one platform is refused (FR-27).
    """
    tally = _Tally()
    with reporter.task(f"copy {digest.hex[:12]}", total=None) as advance:

        def sent(size: int) -> None:
            tally.add(size)
            advance(size)

        run = _Run(source, target, reporter, workers, sent, tally)
        manifest = run.copy(digest)
        if 0 < tally.blobs < tally.looked:
            reporter.note(f"{tally.looked - tally.blobs} of {tally.looked} blobs were there already, the rest was sent")
        if referrers:
            run.attached(digest, depth=0)
            for child in pointed_manifests(manifest):
                run.attached(child.digest, depth=0)
    return Copied(descriptor=manifest.descriptor, sent_blobs=tally.blobs, sent_bytes=tally.size)


class _Run:
    def __init__(
        self,
        source: Repository,
        target: Repository,
        reporter: Reporter,
        workers: int,
        sent: Callable[[int], None],
        tally: _Tally,
    ) -> None:
        self._source = source
        self._target = target
        self._reporter = reporter
        self._workers = workers
        self._sent = sent
        self._tally = tally
        ours, theirs = source.place, target.place
        self._mount_from = ours[1] if ours and theirs and ours[0] == theirs[0] else None

    def copy(self, digest: Digest) -> Manifest:
        present = self._target.manifest(digest)
        if present is not None:
            return present
        manifest = self._source.manifest(digest)
        if manifest is None:
            raise MissingContent(f"{self._source} has no manifest {digest}", fix="check the reference")
        children = pointed_manifests(manifest)
        check_index(children)
        for child in children:
            self.copy(child.digest)
        self._blobs(pointed_blobs(manifest))
        self._target.put_manifest(manifest)
        return manifest

    def attached(self, subject: Digest, *, depth: int) -> None:
        """Copy the referrers of a subject that the target does not list yet."""
        wanted = self._source.referrers(subject)
        if not wanted or depth >= _DEPTH:
            return
        listed = {entry.digest for entry in self._target.referrers(subject)}
        fresh = []
        for entry in wanted:
            if entry.digest in listed:
                continue
            manifest = self._source.manifest(entry.digest)
            if manifest is None:
                self._reporter.note(f"{entry.digest} is listed as attached to {subject}, but is not there")
                continue
            self._blobs(pointed_blobs(manifest))
            fresh.append(manifest)
        if fresh:
            self._target.put_referrers(fresh)
        for entry in wanted:
            self.attached(entry.digest, depth=depth + 1)

    def _blobs(self, blobs: tuple[Descriptor, ...]) -> None:
        """Send blobs, the largest first, a few at a time; the first failure stops the rest."""
        self._tally.looked += len(blobs)
        stop = threading.Event()

        def send(blob: Descriptor) -> None:
            source = _stoppable(_blob_source(self._source, blob), stop)
            if self._target.put_blob(blob, source, mount_from=self._mount_from):
                self._sent(blob.size)

        each(sorted(blobs, key=lambda blob: -blob.size), send, workers=self._workers, stop=stop)


def _blob_source(repository: Repository, blob: Descriptor) -> BlobSource:
    if isinstance(repository, Layout):
        return FileSource(repository.blob_path(blob.digest))
    return VerifiedSource(lambda: repository.read_blob(blob.digest))


class _Stopped(Exception):
    """Another blob failed; this one is given up."""


def _stoppable(source: BlobSource, stop: threading.Event) -> BlobSource:
    def opened() -> Iterator[bytes]:
        for chunk in source():
            if stop.is_set():
                raise _Stopped
            yield chunk

    return VerifiedSource(opened) if isinstance(source, VerifiedSource) else opened
