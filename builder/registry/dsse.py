"""DSSE envelopes: signing a payload, and telling whose signatures on one hold.

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

from builder.errors import BadInput, where_path
from builder.registry.manifests import canonical_json

if TYPE_CHECKING:
    from securesystemslib.signer import Key, Signer

__all__ = ["DSSE", "Envelope", "PrivateKey", "PublicKey", "open_envelope", "read_key", "read_private_key", "seal"]

DSSE = "application/vnd.dsse.envelope.v1+json"
"""Media type of an envelope (dsse, envelope.md, "File naming")."""

_PUBLIC = "give a PEM file with an Ed25519, ECDSA or RSA public key"
_PRIVATE = "give an unencrypted PEM file with an Ed25519, ECDSA or RSA private key"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """A key that signatures are held against."""

    name: str
    """The file it was read from."""
    ways: tuple[Key, ...]
    """The same key for each scheme it may sign with; RSA has two paddings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateKey:
    """A key that signs."""

    name: str
    """The file it was read from."""
    signer: Signer


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """What an envelope holds, and who signed exactly that."""

    payload: bytes
    payload_type: str
    signers: tuple[str, ...]
    """Names of the given keys whose signature holds."""


def read_key(path: Path) -> PublicKey:
    """A public key from a PEM file: Ed25519, ECDSA or RSA."""
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from securesystemslib.signer import SSlibKey
    except ImportError as error:
        raise _missing(error, "checked") from error
    try:
        key = load_pem_public_key(path.read_bytes())
        schemes = ("rsassa-pss-sha256", "rsa-pkcs1v15-sha256") if isinstance(key, RSAPublicKey) else (None,)
        ways = tuple(SSlibKey.from_crypto(key, scheme=scheme) for scheme in schemes)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read the public key {path}", why=str(error), fix=_PUBLIC, where=where_path(path)
        ) from error
    return PublicKey(name=path.name, ways=ways)


def read_private_key(path: Path) -> PrivateKey:
    """A private key from a PEM file without a password: Ed25519, ECDSA or RSA."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from securesystemslib.signer import CryptoSigner
    except ImportError as error:
        raise _missing(error, "made") from error
    try:
        signer = CryptoSigner(load_pem_private_key(path.read_bytes(), password=None))
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        # the library's own words may quote the file
        why = error.strerror or "it cannot be opened" if isinstance(error, OSError) else "it is no such key"
        raise BadInput(f"cannot read the private key {path}", why=why, fix=_PRIVATE, where=where_path(path)) from error
    return PrivateKey(name=path.name, signer=signer)


def _missing(error: ImportError, done: str) -> BadInput:
    return BadInput(
        f"signatures cannot be {done} here",
        why=f"the package {error.name} is not installed",
        fix="install builder with its extra: pip install 'builder[signatures]'",
    )


def seal(payload: bytes, payload_type: str, key: PrivateKey) -> bytes:
    """The envelope of a payload, signed with one key."""
    signature = key.signer.sign(_signed_bytes(payload, payload_type))
    return canonical_json(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [
                {
                    "keyid": signature.keyid,
                    "sig": base64.b64encode(bytes.fromhex(signature.signature)).decode(),
                }
            ],
        }
    )


def open_envelope(content: bytes, keys: Sequence[PublicKey]) -> Envelope:
    """An envelope, also inside a sigstore bundle, with those of the keys that signed it; `BadInput` when it is none.

    Nobody may have signed it: look at `signers` before the payload is believed.
    """
    try:
        value: dict[str, Any] = json.loads(content)
        value = value.get("dsseEnvelope", value)
        payload = _decoded(value["payload"])
        kind = str(value["payloadType"])
        signatures = [_decoded(item["sig"]) for item in value["signatures"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise BadInput("not a DSSE envelope", why=repr(error)) from error
    signed = _signed_bytes(payload, kind)
    signers = tuple(key.name for key in keys if any(_verifies(key, signature, signed) for signature in signatures))
    return Envelope(payload=payload, payload_type=kind, signers=signers)


def _signed_bytes(payload: bytes, payload_type: str) -> bytes:
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


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
