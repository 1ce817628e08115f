"""Signing evidence: one DSSE envelope for each piece, attached to the image, as `signatures` reads it back.

Source: DSSE v1.0 (secure-systems-lab/dsse, protocol.md, envelope.md). The payload is the evidence's own bytes, so what
is signed is what is attached, and nothing about it can be told differently.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import BadInput, Refused, where_path
from builder.names import Digest
from builder.registry.errors import MissingContent
from builder.registry.manifests import INDEX_TYPES, canonical_json, pointed_manifests
from builder.registry.values import Manifest, Repository
from builder.release.evidence import attach, evidence
from builder.release.signatures import PublicKey, missing_extra, public_key, signed_payloads
from builder.release.values import Draft, Evidence, EvidenceType

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

__all__ = ["PrivateKey", "SignedEvidence", "read_private_key", "sign"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateKey:
    """A key to sign with. The secret is in the signer, which does not show it."""

    signer: CryptoSigner
    public: PublicKey
    """Its other half, to see what it signed before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedEvidence:
    """One piece of evidence, signed."""

    image: Digest
    piece: Evidence
    envelope: Digest
    """The manifest that attaches the signature."""
    fresh: bool
    """It was signed now; False when this key had signed it before."""


def read_private_key(path: Path, password: bytes | None) -> PrivateKey:
    """A private key from a PEM file (PKCS#8, or the older forms of OpenSSL): Ed25519, ECDSA on a NIST curve or RSA.

    `password` opens a protected one; None is for a key without.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from securesystemslib.signer import CryptoSigner
    except ImportError as error:
        raise missing_extra("nothing can be signed here", error) from error
    fix = "give a PEM file with an Ed25519, ECDSA or RSA private key"
    try:
        data = path.read_bytes()
        if b"ENCRYPTED SIGSTORE PRIVATE KEY" in data or b"ENCRYPTED COSIGN PRIVATE KEY" in data:
            raise ValueError("it is in cosign's own form")
        key = load_pem_private_key(data, password)
        if not isinstance(key, (Ed25519PrivateKey, EllipticCurvePrivateKey, RSAPrivateKey)):
            raise ValueError("its algorithm is another")  # noqa: TRY004 - the file's fault, told below
        signer = CryptoSigner(key)
    except TypeError as error:  # what cryptography raises when a password is missing, or given for nothing
        fix = "name its password: --password-file FILE or BUILDER_KEY_PASSWORD"
        if password is not None:
            fix = "leave the password out: the key has none"
        raise BadInput(
            f"cannot open the private key {path}", why=str(error), fix=fix, where=where_path(path)
        ) from error
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise BadInput(
            f"cannot read the private key {path}",
            why=str(error),
            fix=f"check the password; {fix}" if password is not None else fix,
            where=where_path(path),
        ) from error
    return PrivateKey(signer=signer, public=public_key(path.name, key.public_key()))


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
    kind = piece.artifact_type.encode()
    signature = key.signer.sign(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(piece.content), piece.content))
    envelope = {
        "payload": base64.b64encode(piece.content).decode(),
        "payloadType": piece.artifact_type,
        "signatures": [
            {"keyid": signature.keyid, "sig": base64.b64encode(bytes.fromhex(signature.signature)).decode()}
        ],
    }
    return Draft(
        kind="other",
        artifact_type=EvidenceType.DSSE,
        content=canonical_json(envelope),
        title=f"{piece.kind}.dsse.json",
        summary={"signs": piece.kind, "keyid": signature.keyid},
    )
