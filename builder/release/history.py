"""How a node class's tag came to point at an image: the newest record of its moves."""

from __future__ import annotations

from builder.names import Digest
from builder.registry.values import Repository
from builder.release.evidence import evidence
from builder.release.records import read_promotion
from builder.release.values import EvidenceKind, PromotionRecord

__all__ = ["latest_record"]


def latest_record(repository: Repository, digest: Digest, node_class: str) -> PromotionRecord | None:
    """The newest record of this image's moves to this node class: highest number, then latest time."""
    kinds: tuple[EvidenceKind, ...] = ("promotion",)
    records = [
        read_promotion(piece.content) for piece in evidence(repository, digest, kinds=kinds) if not piece.problem
    ]
    ours = [record for record in records if record.node_class == node_class]
    return max(ours, key=lambda record: (record.sequence, record.when), default=None)
