"""Clearing a registry's repository: images that nobody wants any more, and what is attached to them.

A registry lists tags, not manifests, so what has no tag is out of reach here. An image goes before what is attached to
it, and the list of what is attached goes last: a crash leaves evidence without its image, never the other way round,
and the list it leaves is found by its tag the next time. Bytes are freed by the registry's own garbage collection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from builder.errors import Refused
from builder.events import Reporter
from builder.names import Digest
from builder.registry.client import Remote
from builder.registry.collect import Choose, ListedImage, backend_of, created_of
from builder.registry.manifests import (
    is_image,
    parse_index,
    pointed_blobs,
    pointed_manifests,
    referrers_tag,
)
from builder.registry.values import Manifest
from builder.store import Removed

__all__ = ["prune_repository"]


@dataclass(slots=True)
class _Seen:
    """The tagged part of a repository as it was listed."""

    tags: dict[Digest, list[str]] = field(default_factory=dict)
    manifests: dict[Digest, Manifest] = field(default_factory=dict)

    def within(self, digest: Digest) -> set[Digest]:
        """A manifest and, of an index, all manifests in it."""
        found = {digest}
        manifest = self.manifests.get(digest)
        for child in pointed_manifests(manifest) if manifest is not None else ():
            found |= self.within(child.digest)
        return found

    def sizes(self, digests: set[Digest]) -> dict[Digest, int]:
        """Digest to bytes of all manifests and blobs that these images need."""
        found: dict[Digest, int] = {}
        for digest in digests:
            manifest = self.manifests.get(digest)
            if manifest is not None:
                found[digest] = len(manifest.raw)
                found |= {blob.digest: blob.size for blob in pointed_blobs(manifest)}
        return found


def prune_repository(
    repository: Remote, choose: Choose, *, reporter: Reporter, dry_run: bool = True
) -> tuple[Removed, ...]:
    """Delete the tagged images that `choose` names, each with the reason; says what went, or would.

    An image that is part of an index which stays, stays too. Right before an image goes its tags are read again:
    one that moved, or came, is `Refused`. The sizes are of what no image that stays needs.
    """
    seen = _look(repository, reporter)
    images = [
        ListedImage(
            digest=digest,
            tags=tuple(sorted(tags)),
            created=created_of(seen.manifests[digest]),
            backend=backend_of(seen.manifests[digest]),
            old=True,
            holds=tuple(sorted(seen.within(digest) - {digest})),
        )
        for digest, tags in seen.tags.items()
        if is_image(seen.manifests[digest])
    ]
    doomed = choose(images)
    held = {inner for item in images if item.digest not in doomed for inner in seen.within(item.digest)}
    doomed = {digest: why for digest, why in doomed.items() if digest not in held}
    needed = set(seen.sizes(held))
    gone = []
    with reporter.task("clearing", total=len(doomed), unit="images") as advance:
        for digest, why in sorted(doomed.items()):
            inside = seen.within(digest) - held
            freed = sum(size for blob, size in seen.sizes(inside).items() if blob not in needed)
            if not dry_run:
                if not _still_doomed(repository, digest, seen, choose):
                    continue
                _delete(repository, digest, inside)
            gone.append(Removed(name=str(digest), size=freed, why=f"{why} ({', '.join(sorted(seen.tags[digest]))})"))
            needed |= set(seen.sizes(inside))  # what two of them share is freed once
            advance(1)
    return (*gone, *_leftovers(repository, dry_run=dry_run))


def _leftovers(repository: Remote, *, dry_run: bool) -> list[Removed]:
    """What is attached to images that are gone, as far as fallback lists name it."""
    gone = []
    for subject in repository.referrer_lists():
        if repository.manifest(subject) is None:
            if not dry_run:
                for piece in _attached(repository, subject):
                    repository.delete_manifest(piece)
                _delete_list(repository, subject)
            gone.append(Removed(name=referrers_tag(subject), size=0, why="what was attached to an image that is gone"))
    return gone


def _look(repository: Remote, reporter: Reporter) -> _Seen:
    seen = _Seen()
    tags = repository.tags()
    with reporter.task("reading", total=len(tags), unit="tags") as advance:
        for tag in tags:
            found = repository.resolve(tag)
            if found is not None and _read(repository, found.digest, seen):
                seen.tags.setdefault(found.digest, []).append(tag)
            advance(1)
    return seen


def _read(repository: Remote, digest: Digest, seen: _Seen) -> bool:
    """Read a manifest and all within; False when it is gone since it was listed."""
    if digest in seen.manifests:
        return True
    manifest = repository.manifest(digest)
    if manifest is None:
        return False
    seen.manifests[digest] = manifest
    for child in pointed_manifests(manifest):
        _read(repository, child.digest, seen)
    return True


def _still_doomed(repository: Remote, digest: Digest, seen: _Seen, choose: Choose) -> bool:
    """Whether it is there still; `Refused` when somebody promoted it, or moved one of its tags, since it was judged."""
    for tag in seen.tags[digest]:
        found = repository.resolve(tag)
        if found is not None and found.digest != digest:
            raise _changed(repository, f"tag {tag!r} moved from {digest} to {found.digest} meanwhile")
    if repository.manifest(digest) is None:
        return False
    holds = tuple(sorted(seen.within(digest) - {digest}))
    if digest not in choose([ListedImage(digest=digest, tags=(), created="", backend="", old=True, holds=holds)]):
        raise _changed(repository, f"{digest} was promoted meanwhile")
    return True


def _changed(repository: Remote, why: str) -> Refused:
    return Refused(
        f"nothing more is deleted from {repository}", why=why, fix="look at what is there now, and run it again"
    )


def _delete(repository: Remote, digest: Digest, inside: set[Digest]) -> None:
    """The image or index, what it holds, all that is attached to these, and the lists of it."""
    attached = {item: _attached(repository, item) for item in inside}
    for item in (digest, *sorted(inside - {digest})):
        repository.delete_manifest(item)
    for item, pieces in attached.items():
        for piece in pieces:
            repository.delete_manifest(piece)
        for subject in (item, *pieces):
            _delete_list(repository, subject)


def _attached(repository: Remote, subject: Digest) -> list[Digest]:
    """What is attached, and what is attached to that; each before what hangs on it."""
    found: list[Digest] = []
    for entry in repository.referrers(subject):
        found += [entry.digest, *_attached(repository, entry.digest)]
    return found


def _delete_list(repository: Remote, subject: Digest) -> None:
    """The fallback list of a subject; one that names nothing may be that of another subject too, and stays."""
    manifest = repository.manifest(referrers_tag(subject))
    if manifest is not None and parse_index(manifest):
        repository.delete_manifest(manifest.digest)
