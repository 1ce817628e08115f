"""Envelopes are signed and held against keys; a wrong key, type or byte is no signature."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from builder.errors import BadInput
from builder.registry.dsse import open_envelope, read_key, read_private_key, seal

KEYS: dict[str, Callable[[], Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey]] = {
    "ed25519": Ed25519PrivateKey.generate,
    "ecdsa": lambda: generate_private_key(SECP256R1()),
    "rsa": lambda: generate_rsa(65537, 2048),
}
KIND = "application/vnd.in-toto+json"


def pair(folder: Path, scheme: str, name: str = "ours") -> tuple[Path, Path]:
    key = KEYS[scheme]()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.mark.parametrize("scheme", KEYS)
def test_a_sealed_payload_names_its_signer_alone(tmp_path: Path, scheme: str) -> None:
    private, public = pair(tmp_path, scheme)
    _, other = pair(tmp_path, scheme, "theirs")
    sealed = seal(b"payload", KIND, read_private_key(private))
    found = open_envelope(sealed, [read_key(other), read_key(public)])
    assert (found.payload, found.payload_type, found.signers) == (b"payload", KIND, ("ours.pub",))
    assert open_envelope(sealed, [read_key(other)]).signers == ()
    assert open_envelope(json.dumps({"dsseEnvelope": json.loads(sealed)}).encode(), [read_key(public)]).signers


def test_another_payload_or_type_is_not_signed(tmp_path: Path) -> None:
    private, public = pair(tmp_path, "ed25519")
    value = json.loads(seal(b"payload", KIND, read_private_key(private)))
    for change in ({"payload": base64.b64encode(b"payloae").decode()}, {"payloadType": "text/plain"}):
        assert open_envelope(json.dumps({**value, **change}).encode(), [read_key(public)]).signers == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"payload": "!", "payloadType": "x", "signatures": []}'])
def test_what_is_no_envelope_is_named(content: bytes) -> None:
    with pytest.raises(BadInput, match="not a DSSE envelope"):
        open_envelope(content, [])


def test_a_private_key_that_cannot_be_used_is_named_without_its_words(tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    key = Ed25519PrivateKey.generate()
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    (tmp_path / "text.pem").write_text("s3cret words")
    for name in ("locked.pem", "text.pem", "absent.pem"):
        with pytest.raises(BadInput, match=r"cannot (read|open) the private key") as caught:
            read_private_key(tmp_path / name)
        assert ("--password-file" if name == "locked.pem" else "give a PEM file") in caught.value.fix
        assert "s3cret" not in str(caught.value)
