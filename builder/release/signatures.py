"""Signatures over evidence: DSSE envelopes attached to an image, held against public keys.

Source: DSSE v1.0 (secure-systems-lab/dsse, protocol.md, envelope.md). The arithmetic is securesystemslib's; key ids in
envelopes are only hints and are not looked at, as the protocol asks.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.errors import BadInput, BuilderError, where_path
from builder.names import Digest
from builder.registry.manifests import pointed_blobs
from builder.registry.values import MediaType, Repository
from builder.release.intoto import parse_statement, subjects
from builder.release.values import EvidenceType

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
    from securesystemslib.signer import Key

__all__ = ["PublicKey", "SignedPayload", "missing_extra", "public_key", "read_key", "signed_payloads"]

_LIMIT = 64 << 20
"""Bytes of an envelope that are read at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """A key that signatures are held against."""

    name: str
    """The file it was read from."""
    ways: tuple[Key, ...]
    """The same key for each scheme it may sign with; RSA has two paddings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedPayload:
    """One envelope attached to an image."""

    digest: Digest
    """Of the manifest that attaches it."""
    payload: bytes
    signers: tuple[str, ...]
    """Names of the keys that signed exactly this payload."""
    problem: str = ""
    """Why it cannot be read."""

    def covers(self, content: bytes, image: Digest) -> bool:
        """Whether the payload is this evidence: its bytes, or a statement on this image with the same predicate."""
        if self.payload == content:
            return True
        try:
            ours, theirs = parse_statement(content), parse_statement(self.payload)
        except BuilderError:
            return False
        same = all(ours.get(key) == theirs.get(key) for key in ("predicateType", "predicate"))
        return same and image in subjects(theirs)


def read_key(path: Path) -> PublicKey:
    """A public key from a PEM file: Ed25519, ECDSA or RSA."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise missing_extra("signatures cannot be checked here", error) from error
    try:
        return public_key(path.name, load_pem_public_key(path.read_bytes()))
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise BadInput(
            f"cannot read the public key {path}",
            why=str(error),
            fix="give a PEM file with an Ed25519, ECDSA or RSA public key",
            where=where_path(path),
        ) from error


def public_key(name: str, key: PublicKeyTypes) -> PublicKey:
    """A key with all the ways it may sign; ValueError for an algorithm that securesystemslib does not know."""
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from securesystemslib.signer import SSlibKey
    except ImportError as error:
        raise missing_extra("signatures cannot be checked here", error) from error
    schemes = ("rsassa-pss-sha256", "rsa-pkcs1v15-sha256") if isinstance(key, RSAPublicKey) else (None,)
    return PublicKey(name=name, ways=tuple(SSlibKey.from_crypto(key, scheme=scheme) for scheme in schemes))


def missing_extra(what: str, error: ImportError) -> BadInput:
    """What to raise when the packages for signatures are not installed."""
    return BadInput(
        what,
        why=f"the package {error.name} is not installed",
        fix="install builder with its extra: pip install 'builder[signatures]'",
    )


def signed_payloads(repository: Repository, image: Digest, keys: Sequence[PublicKey]) -> tuple[SignedPayload, ...]:
    """All envelopes attached to an image, with the keys that signed them; sigstore bundles that hold one as well."""
    found = []
    for entry in repository.referrers(image):
        if entry.artifact_type not in (EvidenceType.DSSE, EvidenceType.SIGSTORE_BUNDLE):
            continue
        manifest = repository.manifest(entry.digest)
        layers = [blob for blob in pointed_blobs(manifest) if blob.media_type != MediaType.EMPTY] if manifest else []
        if len(layers) != 1 or layers[0].size > _LIMIT:
            found.append(SignedPayload(digest=entry.digest, payload=b"", signers=(), problem="it has no one envelope"))
            continue
        found.append(_read(entry.digest, b"".join(repository.read_blob(layers[0].digest)), keys))
    return tuple(found)


def _read(digest: Digest, content: bytes, keys: Sequence[PublicKey]) -> SignedPayload:
    try:
        value: dict[str, Any] = json.loads(content)
        value = value.get("dsseEnvelope", value)
        payload = _decoded(value["payload"])
        kind = str(value["payloadType"]).encode()
        signatures = [_decoded(item["sig"]) for item in value["signatures"]]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        return SignedPayload(digest=digest, payload=b"", signers=(), problem=f"it is no DSSE envelope: {error!r}")
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    signers = tuple(key.name for key in keys if any(_verifies(key, signature, signed) for signature in signatures))
    return SignedPayload(digest=digest, payload=payload, signers=signers)


def _decoded(text: str) -> bytes:
    """Base64, in the standard or the URL alphabet (envelope.md lets both stand)."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)


def _verifies(key: PublicKey, signature: bytes, signed: bytes) -> bool:
    from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
    from securesystemslib.signer import Signature

    for way in key.ways:
        try:
            way.verify_signature(Signature(way.keyid, signature.hex()), signed)
        except (UnverifiedSignatureError, VerificationError):
            continue
        return True
    return False
