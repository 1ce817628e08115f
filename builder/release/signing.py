"""Signing evidence: one DSSE envelope for each piece, attached to the image, as `signatures` reads it back.

Source: DSSE v1.0 (secure-systems-lab/dsse, protocol.md, envelope.md). The payload is the evidence's own bytes, so what
is signed is what is attached, and nothing about it can be told differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builder.errors import Refused
from builder.names import Digest
from builder.registry.dsse import PrivateKey, seal
from builder.registry.errors import MissingContent
from builder.registry.manifests import INDEX_TYPES, pointed_manifests
from builder.registry.values import Manifest, Repository
from builder.release.evidence import attach, evidence
from builder.release.signatures import signed_payloads
from builder.release.values import Draft, Evidence, EvidenceType

__all__ = ["SignedEvidence", "sign"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedEvidence:
    """One piece of evidence, signed."""

    image: Digest
    piece: Evidence
    envelope: Digest
    """The manifest that attaches the signature."""
    fresh: bool
    """It was signed now; False when this key had signed it before."""


def sign(repository: Repository, digest: Digest, key: PrivateKey) -> tuple[SignedEvidence, ...]:
    """Sign all evidence of an image, or of each image of an index; what the key has signed is not signed again.

    `Refused` when an image has no evidence, or some that does not stand: then nothing at all is signed.
    """
    images = _images(repository, digest)
    found = {image.digest: _sound(repository, image.digest) for image in images}
    return tuple(signed for image in images for signed in _sign_image(repository, image, found[image.digest], key))


def _images(repository: Repository, digest: Digest) -> tuple[Manifest, ...]:
    manifest = repository.manifest(digest)
    if manifest is None:
        raise MissingContent(f"{digest} is not in {repository}", fix="publish the image there first")
    if manifest.media_type not in INDEX_TYPES:
        return (manifest,)
    children = pointed_manifests(manifest)
    known = [child for child in children if (child.platform or {}).get("architecture") not in (None, "unknown")]
    return tuple(image for child in known for image in _images(repository, child.digest))


def _sound(repository: Repository, image: Digest) -> tuple[Evidence, ...]:
    found = [piece for piece in evidence(repository, image) if piece.kind != "other"]
    broken = [piece for piece in found if piece.problem]
    if broken or not found:
        raise Refused(
            f"nothing of {image} is signed",
            why="; ".join(f"{piece.kind} {piece.digest}: {piece.problem}" for piece in broken)
            or "no evidence is attached to it",
            fix="see builder verify, and detach or replace what does not stand"
            if broken
            else "publish it with evidence",
        )
    return tuple(found)


def _sign_image(
    repository: Repository, image: Manifest, pieces: Sequence[Evidence], key: PrivateKey
) -> list[SignedEvidence]:
    before = {
        item.payload: item.digest for item in signed_payloads(repository, image.digest, [key.public]) if item.signers
    }
    fresh = [piece for piece in pieces if piece.content not in before]
    made = dict(
        zip(
            (piece.digest for piece in fresh),
            attach(repository, image.descriptor, [_draft(piece, key) for piece in fresh]),
            strict=True,
        )
    )
    return [
        SignedEvidence(
            image=image.digest,
            piece=piece,
            envelope=made.get(piece.digest) or before[piece.content],
            fresh=piece.digest in made,
        )
        for piece in pieces
    ]


def _draft(piece: Evidence, key: PrivateKey) -> Draft:
    return Draft(
        kind="other",
        artifact_type=EvidenceType.DSSE,
        content=seal(piece.content, piece.artifact_type, key),
        title=f"{piece.kind}.dsse.json",
        summary={"signs": piece.kind, "keyid": key.signer.public_key.keyid},
    )
