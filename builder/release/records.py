"""Records of promotions: how a node class's tag came to point where it does."""

from __future__ import annotations

from typing import Any

from builder.errors import BadInput
from builder.names import Digest, parse_tag
from builder.registry.intoto import member, one_subject, read_statement, statement
from builder.registry.manifests import is_referrers_tag
from builder.release.values import Draft, EvidenceType, PredicateType, PromotionRecord

__all__ = ["node_class_tag", "promotion_draft", "read_promotion"]


def node_class_tag(name: str) -> str:
    """The tag of a node class is its name; `BadInput` when that is no tag, or one with another meaning."""
    parse_tag(name)
    if is_referrers_tag(name):
        raise BadInput(f"not the name of a node class: {name!r}", why="such tags hold lists of referrers")
    return name


def promotion_draft(record: PromotionRecord, *, name: str) -> Draft:
    """A move of a node class's tag as a statement about the image it moved to."""
    predicate = {
        "node_class": record.node_class,
        "action": record.action,
        "sequence": record.sequence,
        "history": [str(digest) for digest in record.history],
        "replaced": None if record.replaced is None else str(record.replaced),
        "evidence": [str(digest) for digest in record.evidence],
        "when": record.when,
    }
    return Draft(
        kind="promotion",
        artifact_type=EvidenceType.IN_TOTO,
        content=statement(record.image, name, PredicateType.PROMOTION, predicate),
        title="promotion.intoto.json",
        predicate_type=PredicateType.PROMOTION,
        summary={"verdict": record.action, "node-class": record.node_class, "sequence": str(record.sequence)},
    )


def read_promotion(content: bytes) -> PromotionRecord:
    """The record in a statement that `promotion_draft` wrote; `BadInput` for anything else."""

    def parse(value: dict[str, Any]) -> PromotionRecord:
        predicate = value["predicate"]
        return PromotionRecord(
            image=one_subject(value),
            node_class=str(predicate["node_class"]),
            action=member(predicate["action"], ("promote", "rollback")),
            sequence=int(predicate["sequence"]),
            history=tuple(Digest.parse(digest) for digest in predicate["history"]),
            replaced=None if predicate["replaced"] is None else Digest.parse(predicate["replaced"]),
            evidence=tuple(Digest.parse(digest) for digest in predicate["evidence"]),
            when=str(predicate["when"]),
        )

    return read_statement(content, PredicateType.PROMOTION, parse)
