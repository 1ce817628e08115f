"""Which images may go: untagged and never promoted ones, and versions beyond a number that is kept of each backend.

What is attached to an image goes and stays with it, so no image is ever kept without its evidence. What a node class
runs or ran is kept, for `builder rollback` goes back to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from builder.events import Reporter
from builder.names import Digest
from builder.registry.client import Remote
from builder.registry.collect import ListedImage, collect_layout
from builder.registry.layout import Layout
from builder.registry.prune import prune_repository
from builder.registry.values import Repository
from builder.release.evidence import listed_evidence
from builder.store import Removed

__all__ = ["clear_layout", "clear_registry"]


def clear_layout(
    layout: Layout, *, keep: int | None, min_age: float, now: float, dry_run: bool = False
) -> tuple[Removed, ...]:
    """Clear a layout; `keep` is how many tagged images of each backend stay, the newest (None: all of them)."""

    def choose(images: Sequence[ListedImage]) -> Mapping[Digest, str]:
        return _doomed(layout, images, keep)

    return collect_layout(layout, choose, min_age=min_age, now=now, dry_run=dry_run)


def clear_registry(repository: Remote, *, keep: int, reporter: Reporter, dry_run: bool = True) -> tuple[Removed, ...]:
    """Delete all but the `keep` newest tagged images of each backend, and what was promoted, from a registry."""

    def choose(images: Sequence[ListedImage]) -> Mapping[Digest, str]:
        return _doomed(repository, images, keep)

    return prune_repository(repository, choose, reporter=reporter, dry_run=dry_run)


def _doomed(repository: Repository, images: Sequence[ListedImage], keep: int | None) -> dict[Digest, str]:
    doomed = {item.digest: "no tag names it" for item in images if item.old and not item.tags}
    if keep is not None:
        for backend in {item.backend for item in images}:
            named = f" of {backend}" if backend else ""
            tagged = sorted((item for item in images if item.tags and item.backend == backend), key=_age)
            surplus = [item for item in tagged[: max(0, len(tagged) - keep)] if item.old]
            doomed |= {item.digest: f"not among the newest {keep}{named}" for item in surplus}
    holds = {item.digest: item.holds for item in images}
    return {
        digest: why
        for digest, why in doomed.items()
        if not any(_promoted(repository, inner) for inner in (digest, *holds[digest]))
    }


def _age(item: ListedImage) -> tuple[str, list[tuple[int, str]]]:
    """By date, then by tag as people count: images of the same wheels have one date, and 1.10 comes after 1.9."""
    words = re.findall(r"\d+|\D+", max(item.tags))
    return item.created, [(int(word), "") if word.isdigit() else (0, word) for word in words]


def _promoted(repository: Repository, digest: Digest) -> bool:
    return any(piece.kind == "promotion" for piece in listed_evidence(repository, digest))
