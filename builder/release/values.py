"""What a release is made of: evidence attached to a digest, tags that move, and what was found missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.errors import Refused
from builder.names import Digest
from builder.registry.dsse import DSSE

__all__ = [
    "Draft",
    "Evidence",
    "EvidenceKind",
    "EvidenceType",
    "ImageRow",
    "Licence",
    "Missing",
    "Picked",
    "PredicateType",
    "Promotion",
    "PromotionRecord",
    "PromotionRefused",
    "Published",
]

EvidenceKind = Literal["sbom", "audit", "smoke", "proof", "provenance", "promotion", "other"]
"""What a piece of evidence says; `other` is what somebody else attached (a signature, another tool's report)."""


class EvidenceType:
    """Artifact types (the media types that the formats registered for themselves)."""

    CYCLONEDX = "application/vnd.cyclonedx+json"
    IN_TOTO = "application/vnd.in-toto+json"
    DSSE = DSSE
    SIGSTORE_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


class PredicateType:
    """What an in-toto statement says (in-toto attestation framework, `predicateType`)."""

    TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
    AUDIT = "urn:builder:audit:1"
    PROOF = "urn:builder:proof:1"
    PROMOTION = "urn:builder:promotion:1"
    PROVENANCE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """Evidence that is not attached yet. Equal content gives equal digests, so attaching it twice changes nothing."""

    kind: EvidenceKind
    artifact_type: str
    content: bytes
    title: str
    """File name that tools save it under, e.g. `sbom.cdx.json`."""
    predicate_type: str | None = None
    """Of an in-toto statement."""
    summary: Mapping[str, str] = field(default_factory=dict)
    """`verdict`, `node-class`, …: shown in lists, never relied upon."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A piece of evidence as the registry holds it, its bytes verified."""

    digest: Digest
    """Of the manifest that attaches it."""
    subject: Digest
    """The image it is about."""
    kind: EvidenceKind
    artifact_type: str
    content: bytes
    predicate_type: str | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    """Why it counts for nothing: it names another subject, or cannot be read. Empty when it is sound."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Licence:
    """What a wheel's metadata says about its licence."""

    expression: str | None = None
    """SPDX expression (PEP 639, License-Expression)."""
    names: tuple[str, ...] = ()
    """From the older License field and classifiers, where there is no expression."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """One thing a promotion needs and the registry does not hold."""

    need: str
    """`smoke`, `audit`, `proof`, …"""
    why: str
    fix: str


class PromotionRefused(Refused):
    """The registry does not hold what the promotion needs; `missing` says what, one by one."""

    kind = "promotion-refused"

    def __init__(self, *, digest: Digest, node_class: str, repository: str, missing: tuple[Missing, ...]) -> None:
        self.digest = digest
        self.node_class = node_class
        self.missing = missing
        super().__init__(
            f"{digest} is not promoted to {node_class!r} in {repository}",
            why="; ".join(f"{item.need}: {item.why}" for item in missing),
            fix="; ".join(dict.fromkeys(item.fix for item in missing if item.fix)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PromotionRecord:
    """One move of a node class's tag, attached to the image it moved to. The newest record tells the way back."""

    image: Digest
    node_class: str
    action: Literal["promote", "rollback"]
    sequence: int
    """Number of this move of the tag, from 1."""
    history: tuple[Digest, ...]
    """What the tag pointed at before, the latest first; a rollback goes to the first of them."""
    replaced: Digest | None
    """What the tag pointed at when it was moved."""
    evidence: tuple[Digest, ...]
    """The evidence it rests on, sorted."""
    when: str
    """UTC ISO 8601."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """An image in a registry with its evidence."""

    digest: Digest
    tag: str | None
    evidence: tuple[Digest, ...]
    """Manifests attached by this publishing, in the order of the drafts."""
    sent_blobs: int
    sent_bytes: int
    adopted: bool
    """The tag pointed at this very image already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Promotion:
    """The tag of a node class after a promotion or rollback."""

    node_class: str
    digest: Digest
    previous: Digest | None
    """What the tag pointed at before."""
    record: Digest | None
    """The manifest that records the move; None when nothing had to move."""
    evidence: tuple[Digest, ...]
    moved: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Picked:
    """What a node of a class runs."""

    node_class: str
    digest: Digest
    since: str
    """When it was promoted (UTC ISO 8601)."""
    evidence: tuple[Digest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRow:
    """One image of a repository."""

    digest: Digest
    tags: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    """Without content: `content` is empty."""
