"""What a node should run, and what a repository holds."""

from __future__ import annotations

from collections.abc import Sequence

from builder.errors import Refused
from builder.names import Digest
from builder.registry.manifests import is_image
from builder.registry.values import Repository
from builder.release.evidence import listed_evidence
from builder.release.history import latest_record
from builder.release.records import node_class_tag
from builder.release.values import Evidence, ImageRow, Picked

__all__ = ["images", "pick"]


def pick(repository: Repository, node_class: str) -> Picked:
    """The digest that a node of this class runs: where its tag points, when a promotion put it there.

    `Refused` when nothing was promoted to the class, or when the tag was moved by other means.
    """
    tag = node_class_tag(node_class)
    found = repository.resolve(tag)
    if found is None:
        raise Refused(
            f"no image for node class {node_class!r} in {repository}",
            why="nothing was promoted to it",
            fix=f"builder promote {repository}@DIGEST --node-class {node_class}",
        )
    record = latest_record(repository, found.digest, node_class)
    if record is None:
        raise Refused(
            f"no promoted image for node class {node_class!r} in {repository}",
            why=f"tag {tag!r} points at {found.digest}, but no promotion put it there",
            fix=f"builder promote {repository}@{found.digest} --node-class {node_class}",
        )
    return Picked(node_class=node_class, digest=found.digest, since=record.when, evidence=record.evidence)


def images(repository: Repository) -> tuple[ImageRow, ...]:
    """Every tagged image with all its tags and what is attached to it, in the order of its first tag."""
    tags: dict[Digest, list[str]] = {}
    for tag in repository.tags():
        found = repository.resolve(tag)
        if found is None:  # deleted since the tags were listed
            continue
        manifest = repository.manifest(found.digest) if found.digest not in tags else None
        if manifest is None or is_image(manifest):
            tags.setdefault(found.digest, []).append(tag)
    return tuple(
        ImageRow(digest=digest, tags=tuple(names), evidence=_sorted(listed_evidence(repository, digest)))
        for digest, names in tags.items()
    )


def _sorted(found: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Sorted by kind, then digest."""
    return tuple(sorted(found, key=lambda piece: (piece.kind, piece.digest)))
