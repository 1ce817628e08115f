"""Clearing a layout: images that nobody wants any more, and bytes that nothing points at.

Everything is decided under the layout's lock. The list is written first and blobs go last, so that a crash leaves bytes
too many, never a listed image without its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.names import Digest
from builder.registry.layout import Layout
from builder.registry.manifests import is_image, parse_manifest, pointed_blobs, pointed_manifests, subject_of
from builder.registry.values import REF_NAME, Manifest
from builder.store import Removed, last_used

__all__ = ["Choose", "ListedImage", "backend_of", "collect_layout", "created_of"]

_CREATED = "org.opencontainers.image.created"
_BACKEND = "dev.builder.backend"


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedImage:
    """An image or index that a layout lists by itself."""

    digest: Digest
    tags: tuple[str, ...]
    created: str
    """Its own annotation, "" when it has none."""
    backend: str
    """Its own annotation, "" when it has none."""
    old: bool
    """Listed longer than the age below which nothing is cleared."""
    holds: tuple[Digest, ...] = ()
    """The images of an index that go with it."""


def created_of(manifest: Manifest) -> str:
    """When an image says it was made (image-spec, annotations.md), "" when it does not."""
    return str((parse_manifest(manifest).get("annotations") or {}).get(_CREATED, ""))


def backend_of(manifest: Manifest) -> str:
    """The backend an image says it is for, "" when it does not."""
    return str((parse_manifest(manifest).get("annotations") or {}).get(_BACKEND, ""))


Choose = Callable[[Sequence[ListedImage]], Mapping[Digest, str]]
"""Says which images go, each with the reason. What is attached to an image goes and stays with it."""


def collect_layout(
    layout: Layout, choose: Choose, *, min_age: float, now: float, dry_run: bool = False
) -> tuple[Removed, ...]:
    """Unlist the images that `choose` names, then remove blobs that nothing points at; says what went.

    Nothing younger than `min_age` seconds goes: a build puts blobs before the manifest that names them.
    """
    if not (layout.path / "oci-layout").is_file():
        return ()
    with layout.index() as entries:
        doomed = choose(_images(layout, entries, min_age, now))
        remaining = _remaining(layout, entries, frozenset(doomed))
        listed = list(entries)
        if not dry_run:
            entries[:] = remaining
    gone = [Removed(name=str(digest), size=0, why=why) for digest, why in sorted(doomed.items())]
    with layout.index() as entries:
        live = _live(layout, [entry for entry in listed if entry in remaining] if dry_run else entries)
        for path in sorted((layout.path / "blobs" / "sha256").iterdir()):
            why = "left by an interrupted command" if path.name.startswith(".") else "nothing points at it"
            if path.name in live or last_used(path) > now - min_age:
                continue
            gone.append(Removed(name=str(path.relative_to(layout.path)), size=path.stat().st_size, why=why))
            if not dry_run:
                path.unlink()
    return tuple(gone)


def _images(
    layout: Layout, entries: Sequence[Mapping[str, Any]], min_age: float, now: float
) -> tuple[ListedImage, ...]:
    tags: dict[Digest, list[str]] = {}
    for entry in entries:
        tag = (entry.get("annotations") or {}).get(REF_NAME)
        tags.setdefault(Digest.parse(entry["digest"]), []).extend([] if tag is None else [tag])
    found = []
    for digest, names in tags.items():
        manifest = layout.manifest(digest)
        if manifest is None or subject_of(manifest) is not None or (names and not is_image(manifest)):
            continue
        found.append(
            ListedImage(
                digest=digest,
                tags=tuple(sorted(names)),
                created=created_of(manifest),
                backend=backend_of(manifest),
                old=last_used(layout.blob_path(digest)) <= now - min_age,
            )
        )
    return tuple(found)


def _remaining(layout: Layout, entries: Sequence[dict[str, Any]], doomed: frozenset[Digest]) -> list[dict[str, Any]]:
    """The entries that stay: neither doomed, nor about something doomed that no index which stays holds."""
    subjects = {digest: _subject(layout, digest) for digest in (Digest.parse(entry["digest"]) for entry in entries)}
    held: set[Digest] = set()
    for digest in subjects:
        if digest not in doomed:
            held |= _within(layout, digest)
    gone = set(doomed) - held
    while more := {digest for digest, subject in subjects.items() if subject in gone and digest not in gone}:
        gone |= more
    return [entry for entry in entries if Digest.parse(entry["digest"]) not in gone | doomed]


def _live(layout: Layout, entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """Names of all blobs that the entries need."""
    live: set[str] = set()
    for entry in entries:
        for digest in _within(layout, Digest.parse(entry["digest"])):
            manifest = layout.manifest(digest)
            live.add(digest.hex)
            if manifest is not None:
                live |= {blob.digest.hex for blob in pointed_blobs(manifest)}
    return live


def _within(layout: Layout, digest: Digest) -> set[Digest]:
    """A manifest and, for an index, all manifests in it."""
    manifest = layout.manifest(digest)
    found = {digest}
    for child in pointed_manifests(manifest) if manifest is not None else ():
        found |= _within(layout, child.digest)
    return found


def _subject(layout: Layout, digest: Digest) -> Digest | None:
    manifest = layout.manifest(digest)
    return None if manifest is None else subject_of(manifest)
