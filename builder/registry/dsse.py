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
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
    from securesystemslib.signer import CryptoSigner, Key

__all__ = ["DSSE", "Envelope", "PrivateKey", "PublicKey", "open_envelope", "read_key", "read_private_key", "seal"]

DSSE = "application/vnd.dsse.envelope.v1+json"
"""Media type of an envelope (dsse, envelope.md, "File naming")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """A key that signatures are held against."""

    name: str
    """The file it was read from."""
    ways: tuple[Key, ...]
    """The same key for each scheme it may sign with; RSA has two paddings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateKey:
    """A key to sign with. The secret is in the signer, which does not show it."""

    signer: CryptoSigner
    public: PublicKey
    """Its other half, to see what it signed before."""


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
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise _missing("signatures cannot be checked here", error) from error
    try:
        return _public(path.name, load_pem_public_key(path.read_bytes()))
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise BadInput(
            f"cannot read the public key {path}",
            why=_why(error),
            fix="give a PEM file with an Ed25519, ECDSA or RSA public key",
            where=where_path(path),
        ) from error


def _public(name: str, key: PublicKeyTypes) -> PublicKey:
    """A key with all the ways it may sign; ValueError for an algorithm that securesystemslib does not know."""
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from securesystemslib.signer import SSlibKey
    except ImportError as error:
        raise _missing("signatures cannot be checked here", error) from error
    schemes = ("rsassa-pss-sha256", "rsa-pkcs1v15-sha256") if isinstance(key, RSAPublicKey) else (None,)
    return PublicKey(name=name, ways=tuple(SSlibKey.from_crypto(key, scheme=scheme) for scheme in schemes))


def read_private_key(path: Path, password: bytes | None = None) -> PrivateKey:
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
        raise _missing("nothing can be signed here", error) from error
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
            why=_why(error),
            fix=f"check the password; {fix}" if password is not None else fix,
            where=where_path(path),
        ) from error
    return PrivateKey(signer=signer, public=_public(path.name, key.public_key()))


def _why(error: Exception) -> str:
    """What is wrong with a key file; cryptography's own words for what is no PEM speak to programmers."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is no PEM file" if "PEM file" in str(error) else str(error)


def _missing(what: str, error: ImportError) -> BadInput:
    return BadInput(
        what,
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
