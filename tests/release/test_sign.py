"""`builder sign`: what it attaches is what `builder verify` and DSSE's own library accept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from securesystemslib.dsse import Envelope

from builder.errors import BadInput
from builder.names import Digest
from builder.registry.dsse import read_key, read_private_key
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json
from builder.registry.values import Manifest, MediaType, Repository
from builder.release.evidence import attach, evidence
from builder.release.signing import sign
from builder.release.statements import audit_draft
from builder.release.values import EvidenceType
from tests.conftest import RunBuilder
from tests.registry.samples import image
from tests.release import samples
from tests.release.test_verify import checked, failed, whole
from tests.schemas import document, error

KEYS: dict[str, Callable[[], PrivateKeyTypes]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ecdsa": lambda: ec.generate_private_key(ec.SECP384R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}


def write_pair(folder: Path, name: str, made: PrivateKeyTypes, password: bytes | None = None) -> None:
    protection = BestAvailableEncryption(password) if password else NoEncryption()
    private = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
    (folder / f"{name}.pem").write_bytes(private)
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pub").write_bytes(public)


@pytest.mark.parametrize("name", KEYS)
def test_what_is_signed_verifies_with_that_key_alone(tmp_path: Path, target: Repository, name: str) -> None:
    made = whole(target)
    write_pair(tmp_path, "ours", KEYS[name]())
    write_pair(tmp_path, "theirs", KEYS[name]())
    ours, theirs = read_key(tmp_path / "ours.pub"), read_key(tmp_path / "theirs.pub")
    done = sign(target, made.digest, read_private_key(tmp_path / "ours.pem", None))
    assert sorted(item.piece.kind for item in done) == ["audit", "provenance", "sbom"]
    assert checked(target, made.digest, ours).verdict == "ok"
    assert len(failed(checked(target, made.digest, theirs))) == 3
    for entry in target.referrers(made.digest, artifact_type=EvidenceType.DSSE):
        manifest = target.manifest(entry.digest)
        assert manifest is not None
        (layer,) = json.loads(manifest.raw)["layers"]
        assert layer["mediaType"] == EvidenceType.DSSE
        envelope = Envelope.from_dict(json.loads(b"".join(target.read_blob(Digest.parse(layer["digest"])))))
        assert envelope.verify([ours.ways[0]], 1)


def test_the_same_key_signs_once_and_another_beside_it(tmp_path: Path, target: Repository) -> None:
    made = whole(target)
    for name in ("one", "two"):
        write_pair(tmp_path, name, KEYS["ecdsa"]())
    first = sign(target, made.digest, read_private_key(tmp_path / "one.pem", None))
    again = sign(target, made.digest, read_private_key(tmp_path / "one.pem", None))
    assert [item.fresh for item in (*first, *again)] == [True] * 3 + [False] * 3
    assert [item.envelope for item in again] == [item.envelope for item in first]
    sign(target, made.digest, read_private_key(tmp_path / "two.pem", None))
    for name in ("one", "two"):
        assert checked(target, made.digest, read_key(tmp_path / f"{name}.pub")).verdict == "ok"
    attach(target, made.descriptor, [audit_draft(samples.audit("warn"), image=made.digest, name="demo")])
    later = sign(target, made.digest, read_private_key(tmp_path / "one.pem", None))
    assert [item.piece.kind for item in later if item.fresh] == ["audit"]


def test_envelopes_are_not_evidence(tmp_path: Path, target: Repository) -> None:
    made = whole(target)
    write_pair(tmp_path, "ours", KEYS["ed25519"]())
    before = {piece.digest for piece in evidence(target, made.digest)}
    sign(target, made.digest, read_private_key(tmp_path / "ours.pem", None))
    added = [piece for piece in evidence(target, made.digest) if piece.digest not in before]
    assert [(piece.kind, piece.problem) for piece in added] == [("other", "")] * 3


def test_each_image_of_an_index_is_signed(run_builder: RunBuilder, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "dist")
    children = [whole(layout, tag=arch, text=arch) for arch in ("amd64", "arm64")]
    entries = [
        {**child.descriptor.to_json(), "platform": {"os": "linux", "architecture": arch}}
        for child, arch in zip(children, ("amd64", "arm64"), strict=True)
    ]
    index = {"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": entries}
    layout.put_manifest(Manifest(MediaType.INDEX, canonical_json(index)), tag="multi")
    write_pair(tmp_path, "ours", KEYS["ed25519"](), b"open sesame")
    words = ("sign", "oci:dist:multi", "--key", "ours.pem", "--json")
    found = document(run_builder(*words, env={"BUILDER_KEY_PASSWORD": "open sesame"}), "sign")
    assert (found["verdict"], len(found["evidence"])) == ("signed", 6)
    assert {item["image"] for item in found["evidence"]} == {str(child.digest) for child in children}
    (tmp_path / "password").write_text("open sesame\n")
    again = document(run_builder(*words, "--password-file", "password"), "sign")
    assert again["verdict"] == "unchanged"
    assert again["evidence"] == [{**item, "fresh": False} for item in found["evidence"]]
    verified = document(run_builder("verify", "oci:dist:multi", "--key", "ours.pub", "--json"), "verify")
    assert verified["verdict"] == "ok"


def test_what_cannot_be_signed_is_refused_whole(run_builder: RunBuilder, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "dist")
    write_pair(tmp_path, "ours", KEYS["ed25519"]())
    bare = image(layout, text="bare", tag="bare")
    said = error(run_builder("sign", "oci:dist:bare", "--key", "ours.pem", "--json"), 1)
    assert said["why"] == "no evidence is attached to it"
    made = whole(layout)
    attach(layout, made.descriptor, [audit_draft(samples.audit(), image=bare.digest, name="demo")])
    said = error(run_builder("sign", "oci:dist:1.0", "--key", "ours.pem", "--json"), 1)
    assert "is not about" in said["why"]
    assert layout.referrers(made.digest, artifact_type=EvidenceType.DSSE) == ()


def test_passwords_and_forms_that_do_not_fit_are_said(tmp_path: Path) -> None:
    write_pair(tmp_path, "closed", KEYS["ed25519"](), b"secret")
    write_pair(tmp_path, "open", KEYS["ed25519"]())
    write_pair(tmp_path, "ed448", ed448.Ed448PrivateKey.generate())
    (tmp_path / "cosign.pem").write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n")
    (tmp_path / "not.pem").write_text("nothing")
    for name, password, said, fix in (
        ("closed", None, "Password was not given", "BUILDER_KEY_PASSWORD"),
        ("open", b"secret", "Password was given", "leave the password out"),
        ("closed", b"wrong", "", "check the password"),
        ("ed448", None, "its algorithm is another", "Ed25519, ECDSA or RSA"),
        ("cosign", None, "it is in cosign's own form", "PEM file"),
        ("not", None, "", "PEM file"),
        ("absent", None, "No such file", "PEM file"),
    ):
        with pytest.raises(BadInput, match=r"cannot (open|read) the private key") as caught:
            read_private_key(tmp_path / f"{name}.pem", password)
        assert said in caught.value.why
        assert fix in caught.value.fix
        assert "secret" not in str(caught.value)
