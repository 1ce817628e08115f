"""Verification believes nothing: each kind of damage is put into a real image, and must be found."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from builder.errors import BadInput
from builder.events import SilentReporter
from builder.names import Digest
from builder.registry.dsse import PublicKey, read_key
from builder.registry.intoto import statement
from builder.registry.layout import Layout
from builder.registry.manifests import EMPTY_CONFIG, canonical_json
from builder.registry.values import Descriptor, Manifest, MediaType, Repository
from builder.release.evidence import attach, evidence
from builder.release.provenance import provenance_draft, read_provenance
from builder.release.sbom import sbom_draft
from builder.release.statements import audit_draft
from builder.release.values import Draft, EvidenceType, PredicateType
from builder.release.verify import Verification, verify
from tests.conftest import RunBuilder
from tests.registry.samples import image, put
from tests.release import samples
from tests.schemas import document, error


def drafts(digest: Digest) -> list[Draft]:
    lock = samples.lock()
    return [
        sbom_draft(lock, image=digest, name="demo", version="1", licences={}),
        provenance_draft(lock, image=digest, name="demo", version="1", engine="oci"),
        audit_draft(samples.audit(), image=digest, name="demo"),
    ]


def whole(repository: Repository, tag: str = "1.0", text: str = "hello") -> Manifest:
    made = image(repository, tag=tag, text=text)
    attach(repository, made.descriptor, drafts(made.digest))
    return made


def checked(repository: Repository, digest: Digest, *keys: PublicKey) -> Verification:
    return verify(repository, digest, keys=keys, reporter=SilentReporter())


def failed(found: Verification) -> list[str]:
    return [check.name for check in found.checks if check.verdict == "failed"]


def test_a_whole_image_is_ok(target: Repository) -> None:
    made = whole(target)
    found = checked(target, made.digest)
    assert found.verdict == "ok", found.checks
    assert all(len(check.detail) < 200 for check in found.checks)
    assert {check.name for check in found.checks} >= {"manifest", "config", "layer", "sbom", "provenance", "materials"}


def test_provenance_names_all_that_the_image_is_made_of(target: Repository) -> None:
    made = whole(target)
    (piece,) = [piece for piece in evidence(target, made.digest) if piece.kind == "provenance"]
    facts = read_provenance(piece.content)
    lock = samples.lock()
    wanted = {package.sha256 for package in lock.packages} | {deb.sha256 for deb in lock.base.packages}
    assert facts.materials == wanted | {lock.base.digest}
    assert (facts.image, piece.problem) == (made.digest, "")
    assert b"/home/ann" not in piece.content
    assert b"secret" not in piece.content
    value = json.loads(piece.content)
    assert value["predicate"]["buildDefinition"]["externalParameters"]["requirements"] == list(lock.requirements)


def layers_of(made: Manifest) -> list[Digest]:
    return [Digest.parse(layer["digest"]) for layer in json.loads(made.raw)["layers"]]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
@pytest.mark.parametrize("part", ["layer", "config", "manifest"])
def test_damaged_content_is_found(tmp_path: Path, damage: Callable[[Path], None], part: str) -> None:
    layout = Layout(tmp_path / "layout")
    made = whole(layout)
    config = Digest.parse(json.loads(made.raw)["config"]["digest"])
    digest = {"layer": layers_of(made)[0], "config": config, "manifest": made.digest}[part]
    damage(layout.blob_path(digest))
    assert part in failed(checked(Layout(tmp_path / "layout"), made.digest))


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_damaged_evidence_is_found(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    layout = Layout(tmp_path / "layout")
    made = whole(layout)
    damage(layout.blob_path(Digest.of(drafts(made.digest)[1].content)))
    assert failed(checked(layout, made.digest)) == ["evidence"]


def test_a_wrong_diff_id_is_found(tmp_path: Path) -> None:
    """Every digest is right; only what the layer unpacks to is not what the configuration says."""
    layout = Layout(tmp_path / "layout")
    value = json.loads(image(layout).raw)
    config = json.loads(b"".join(layout.read_blob(Digest.parse(value["config"]["digest"]))))
    config["rootfs"]["diff_ids"] = [str(Digest.of(b"something else"))]
    value["config"] = put(layout, canonical_json(config), MediaType.CONFIG).to_json()
    lying = Manifest(MediaType.MANIFEST, canonical_json(value))
    layout.put_manifest(lying, tag="lying")
    attach(layout, lying.descriptor, drafts(lying.digest))
    found = checked(layout, lying.digest)
    assert failed(found) == ["layer"]
    assert "unpacks to" in next(check.detail for check in found.checks if check.verdict == "failed")


def test_evidence_about_another_image_is_found(target: Repository) -> None:
    other = image(target, text="other")
    made = image(target, text="this")
    attach(target, made.descriptor, drafts(other.digest))
    assert {"audit", "provenance", "sbom"} <= set(failed(checked(target, made.digest)))


def test_missing_evidence_is_named_and_can_be_done_without(target: Repository) -> None:
    made = image(target)
    assert failed(checked(target, made.digest)) == ["sbom", "audit", "provenance"]
    assert verify(target, made.digest, required=(), reporter=SilentReporter()).verdict == "ok"


def test_an_sbom_with_a_wheel_that_the_build_did_not_use_is_found(target: Repository) -> None:
    made = image(target)
    lock = samples.lock()
    more = replace(lock, packages=(*lock.packages, samples.wheel("sneaked-in", "1.0")))
    attach(
        target,
        made.descriptor,
        [
            sbom_draft(more, image=made.digest, name="demo", version="1", licences={}),
            *drafts(made.digest)[1:],
        ],
    )
    assert failed(checked(target, made.digest)) == ["materials"]


def test_each_image_of_an_index_is_checked(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    children = [whole(layout, tag=arch, text=arch) for arch in ("amd64", "arm64")]
    entries = [
        {**child.descriptor.to_json(), "platform": {"os": "linux", "architecture": arch}}
        for child, arch in zip(children, ("amd64", "arm64"), strict=True)
    ]
    index = Manifest(
        MediaType.INDEX, canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": entries})
    )
    layout.put_manifest(index, tag="multi")
    assert checked(layout, index.digest).verdict == "ok"
    flip(layout.blob_path(layers_of(children[1])[0]))
    assert failed(checked(layout, index.digest)) == ["layer"]


# Signatures.


SIGNERS: dict[str, Callable[[], CryptoSigner]] = {
    "ed25519": lambda: CryptoSigner(ed25519.Ed25519PrivateKey.generate()),
    "ecdsa": lambda: CryptoSigner(ec.generate_private_key(ec.SECP256R1())),
    "rsa": lambda: CryptoSigner(rsa.generate_private_key(65537, 2048)),
}


def public(signer: CryptoSigner, path: Path) -> PublicKey:
    path.write_bytes(signer._private_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return read_key(path)


def signed(signer: CryptoSigner, payload: bytes, payload_type: str, *, keyid: str | None = None) -> bytes:
    envelope = Envelope(payload, payload_type, {})
    envelope.sign(signer)
    value = envelope.to_dict()
    if keyid is not None:
        value["signatures"][0]["keyid"] = keyid
    return json.dumps(value).encode()


def attach_envelope(
    repository: Repository, subject: Descriptor, content: bytes, artifact_type: str = EvidenceType.DSSE
) -> None:
    repository.put_referrers(
        [
            Manifest(
                MediaType.MANIFEST,
                canonical_json(
                    {
                        "schemaVersion": 2,
                        "mediaType": MediaType.MANIFEST,
                        "artifactType": artifact_type,
                        "config": put(repository, EMPTY_CONFIG, MediaType.EMPTY).to_json(),
                        "layers": [put(repository, content, artifact_type).to_json()],
                        "subject": subject.to_json(),
                    }
                ),
            )
        ]
    )


def sign_all(repository: Repository, made: Manifest, signer: CryptoSigner, *, keyid: str | None = None) -> None:
    for draft in drafts(made.digest):
        attach_envelope(repository, made.descriptor, signed(signer, draft.content, draft.artifact_type, keyid=keyid))


@pytest.mark.parametrize("name", SIGNERS)
def test_signed_evidence_is_ok_for_the_signers_key_alone(tmp_path: Path, target: Repository, name: str) -> None:
    made = whole(target)
    signer, stranger = SIGNERS[name](), SIGNERS[name]()
    sign_all(target, made, signer, keyid="")
    ours, theirs = public(signer, tmp_path / "ours.pub"), public(stranger, tmp_path / "theirs.pub")
    found = checked(target, made.digest, theirs, ours)
    assert found.verdict == "ok", found.checks
    assert {check.detail for check in found.checks if check.name.endswith("signature")} == {"ours.pub"}
    names = ["audit signature", "provenance signature", "sbom signature"]
    assert sorted(failed(checked(target, made.digest, theirs))) == names


def test_unsigned_evidence_is_not_enough_when_a_key_is_given(tmp_path: Path, target: Repository) -> None:
    made = whole(target)
    signer = SIGNERS["ed25519"]()
    first, *_ = drafts(made.digest)
    attach_envelope(target, made.descriptor, signed(signer, first.content, first.artifact_type))
    found = checked(target, made.digest, public(signer, tmp_path / "ours.pub"))
    assert sorted(failed(found)) == ["audit signature", "provenance signature"]


def test_a_changed_payload_or_type_is_not_signed(tmp_path: Path, target: Repository) -> None:
    made = whole(target)
    signer = SIGNERS["ed25519"]()
    for draft in drafts(made.digest):
        value = json.loads(signed(signer, draft.content + b" ", draft.artifact_type))
        value["payload"] = base64.b64encode(draft.content).decode()
        attach_envelope(target, made.descriptor, json.dumps(value).encode())
        value = json.loads(signed(signer, draft.content, draft.artifact_type))
        value["payloadType"] = "text/plain"
        attach_envelope(target, made.descriptor, json.dumps(value).encode())
    found = checked(target, made.digest, public(signer, tmp_path / "ours.pub"))
    assert len(failed(found)) == 3


def test_a_bundle_with_a_statement_of_the_same_predicate_counts_and_one_about_another_image_does_not(
    tmp_path: Path, target: Repository
) -> None:
    made = whole(target)
    signer = SIGNERS["ecdsa"]()
    draft = next(item for item in drafts(made.digest) if item.kind == "audit")
    predicate = json.loads(draft.content)["predicate"]
    key = public(signer, tmp_path / "ours.pub")
    for subject, verdict in ((Digest.of(b"other"), "failed"), (made.digest, "ok")):
        payload = statement(subject, "signed elsewhere", draft.predicate_type or "", predicate)
        envelope = json.loads(signed(signer, payload, EvidenceType.IN_TOTO))
        for signature in envelope["signatures"]:
            del signature["keyid"]
        bundle = json.dumps({"mediaType": EvidenceType.SIGSTORE_BUNDLE, "dsseEnvelope": envelope}).encode()
        attach_envelope(target, made.descriptor, bundle, EvidenceType.SIGSTORE_BUNDLE)
        found = verify(target, made.digest, required=("audit",), keys=[key], reporter=SilentReporter())
        assert found.verdict == verdict, found.checks


def test_an_artifact_that_only_calls_itself_an_audit_is_none(target: Repository) -> None:
    made = image(target, tag="1.0")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MediaType.MANIFEST,
        "artifactType": "application/octet-stream",
        "config": put(target, EMPTY_CONFIG, MediaType.EMPTY).to_json(),
        "layers": [put(target, b"nothing", "application/octet-stream").to_json()],
        "subject": made.descriptor.to_json(),
        "annotations": {"in-toto.io/predicate-type": PredicateType.AUDIT},
    }
    target.put_referrers([Manifest(MediaType.MANIFEST, canonical_json(manifest))])
    found = verify(target, made.digest, required=("audit",), reporter=SilentReporter())
    assert failed(found) == ["audit"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"payload": "!", "payloadType": "x", "signatures": []}'])
def test_what_is_no_envelope_is_named(tmp_path: Path, target: Repository, content: bytes) -> None:
    made = whole(target)
    attach_envelope(target, made.descriptor, content)
    found = checked(target, made.digest, public(SIGNERS["ed25519"](), tmp_path / "ours.pub"))
    assert "signature" in failed(found)


def test_a_file_that_is_no_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    for name in ("key.pub", "none.pub"):
        with pytest.raises(BadInput, match="cannot read the public key"):
            read_key(tmp_path / name)


def test_the_command(run_builder: RunBuilder, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "dist")
    made = whole(layout)
    done = run_builder("verify", "oci:dist:1.0", "--json")
    found = document(done, "verify")
    assert (done.returncode, found["verdict"], found["signatures"]) == (0, "ok", "not-checked")
    signer = SIGNERS["ed25519"]()
    public(signer, tmp_path / "ours.pub")
    unsigned = run_builder("verify", "oci:dist:1.0", "--json", env={"BUILDER_KEYS": "ours.pub"})
    assert (unsigned.returncode, document(unsigned, "verify")["verdict"]) == (1, "failed")
    sign_all(layout, made, signer)
    text = run_builder("verify", "oci:dist:1.0", "--key", "ours.pub")
    assert (text.returncode, "ours.pub" in text.stdout) == (0, True)
    flip(layout.blob_path(layers_of(made)[0]))
    broken = run_builder("verify", "oci:dist:1.0", "--require", "none", "--json")
    assert (broken.returncode, document(broken, "verify")["verdict"]) == (1, "failed")
    assert "did you mean 'sbom'" in error(run_builder("verify", "oci:dist", "--require", "sbm", "--json"), 2)["fix"]
