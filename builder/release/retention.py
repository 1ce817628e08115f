"""Which images of a layout may go: untagged and never promoted ones, and versions beyond a number that is kept.

What is attached to an image goes and stays with it, so no image is ever kept without its evidence. What a node class
runs or ran is kept, for `builder rollback` goes back to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from builder.names import Digest
from builder.registry.collect import ListedImage, collect_layout
from builder.registry.layout import Layout
from builder.release.evidence import listed_evidence
from builder.store import Removed

__all__ = ["clear_layout"]


def clear_layout(
    layout: Layout, *, keep: int | None, min_age: float, now: float, dry_run: bool = False
) -> tuple[Removed, ...]:
    """Clear a layout; `keep` is how many tagged images stay, the newest by their own date (None: all of them)."""

    def choose(images: Sequence[ListedImage]) -> Mapping[Digest, str]:
        free = [item for item in images if item.old and not _promoted(layout, item.digest)]
        doomed = {item.digest: "no tag names it" for item in free if not item.tags}
        if keep is not None:
            tagged = sorted((item for item in images if item.tags), key=lambda item: (item.created, item.tags))
            surplus = {item.digest for item in tagged[: max(0, len(tagged) - keep)]}
            doomed |= {item.digest: f"not among the newest {keep}" for item in free if item.digest in surplus}
        return doomed

    return collect_layout(layout, choose, min_age=min_age, now=now, dry_run=dry_run)


def _promoted(layout: Layout, digest: Digest) -> bool:
    return any(piece.kind == "promotion" for piece in listed_evidence(layout, digest))
