from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.errors import BadInput
from builder.names import Digest
from builder.registry.layout import Layout
from builder.registry.values import BytesSource, Descriptor, MediaType
from builder.release.evidence import attach, draft_from_file, evidence, listed_evidence
from builder.release.records import promotion_draft, read_promotion
from builder.release.statements import audit_draft, read_audit, read_smoke, smoke_draft
from builder.release.values import Draft, EvidenceKind, EvidenceType, PredicateType, PromotionRecord
from builder.smoke.values import CheckVerdict
from tests.registry.samples import image, referrer
from tests.release import samples

IMAGE = Digest.of(b"image")


def record() -> PromotionRecord:
    return PromotionRecord(
        image=IMAGE,
        node_class="h100-sxm",
        action="promote",
        sequence=3,
        history=(Digest.of(b"b"), Digest.of(b"a")),
        replaced=Digest.of(b"b"),
        evidence=(Digest.of(b"e"),),
        when="2026-10-01T09:00:00Z",
    )


@pytest.mark.parametrize("verdict", ["passed", "failed", "not-run"])
def test_a_smoke_report_comes_back_as_it_was(verdict: CheckVerdict) -> None:
    report = samples.smoke(IMAGE, verdict=verdict)
    draft = smoke_draft(report, name="demo")
    assert read_smoke(draft.content) == report
    assert smoke_draft(report, name="demo") == draft
    assert draft.summary == {"verdict": verdict, "backend": "cpu", "node-class": samples.NODE_CLASS}


def test_a_smoke_report_is_a_test_result_others_can_read() -> None:
    value = json.loads(smoke_draft(samples.smoke(IMAGE, verdict="failed"), name="demo").content)
    assert value["_type"] == "https://in-toto.io/Statement/v1"
    assert value["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert value["subject"] == [{"name": "demo", "digest": {"sha256": IMAGE.hex}}]
    predicate = value["predicate"]
    assert (predicate["result"], predicate["passedTests"], predicate["failedTests"]) == (
        "FAILED",
        ["import"],
        ["matmul"],
    )
    assert all("uri" in item for item in predicate["configuration"])  # ResourceDescriptor: uri, digest or content
    assert json.loads(smoke_draft(samples.smoke(IMAGE, verdict="not-run"), name="demo").content)["predicate"] == {
        **predicate,
        "result": "WARNED",
        "failedTests": [],
        "warnedTests": ["matmul"],
        "configuration": [
            predicate["configuration"][0],
            predicate["configuration"][1],
            {
                **predicate["configuration"][2],
                "annotations": {**predicate["configuration"][2]["annotations"], "verdict": "not-run"},
            },
        ],
    }


@pytest.mark.parametrize("level", ["ok", "warn", "carry", "block"])
def test_an_audit_report_comes_back_as_it_was(level: str) -> None:
    report = samples.audit(level)  # type: ignore[arg-type]
    draft = audit_draft(report, image=IMAGE, name="demo")
    assert read_audit(draft.content) == report
    assert audit_draft(report, image=IMAGE, name="demo") == draft


def test_a_promotion_record_comes_back_as_it_was() -> None:
    assert read_promotion(promotion_draft(record(), name="demo").content) == record()


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("_type"),
        lambda value: value.update(predicateType="urn:other"),
        lambda value: value.update(predicate=[]),
        lambda value: value.update(subject=[]),
        lambda value: value["predicate"].update(result="PASSED"),
        lambda value: value["predicate"].update(configuration=[]),
        lambda value: value["predicate"]["configuration"][0].pop("annotations"),
        lambda value: value["predicate"]["configuration"][1]["annotations"].update(verdict="fine"),
    ],
)
def test_a_report_that_was_tampered_with_is_not_read(change: object) -> None:
    value = json.loads(smoke_draft(samples.smoke(IMAGE, verdict="failed"), name="demo").content)
    assert callable(change)
    change(value)
    with pytest.raises(BadInput):
        read_smoke(json.dumps(value).encode())


def test_an_audit_that_lies_about_its_level_is_not_read() -> None:
    value = json.loads(audit_draft(samples.audit("block"), image=IMAGE, name="demo").content)
    value["predicate"]["level"] = "ok"
    with pytest.raises(BadInput, match="not that of its targets"):
        read_audit(json.dumps(value).encode())


def test_evidence_is_read_back_from_a_layout(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout, tag="1.0")
    drafts = (
        smoke_draft(samples.smoke(made.digest), name="demo"),
        audit_draft(samples.audit(), image=made.digest, name="demo"),
    )
    digests = attach(layout, made.descriptor, drafts)
    assert attach(layout, made.descriptor, drafts) == digests
    found = {piece.kind: piece for piece in evidence(layout, made.digest)}
    assert {piece.digest for piece in found.values()} == set(digests)
    assert found["smoke"].content == drafts[0].content
    assert found["smoke"].predicate_type == PredicateType.TEST_RESULT
    assert found["smoke"].summary == drafts[0].summary
    assert found["audit"].problem == ""
    only: tuple[EvidenceKind, ...] = ("audit",)
    assert [piece.kind for piece in evidence(layout, made.digest, kinds=only)] == ["audit"]
    listed = {piece.kind: piece for piece in listed_evidence(layout, made.digest)}
    assert listed["smoke"].summary == drafts[0].summary
    manifest = layout.manifest(digests[0])
    assert manifest is not None
    value = json.loads(manifest.raw)
    assert value["artifactType"] == "application/vnd.in-toto+json"
    assert value["annotations"]["in-toto.io/predicate-type"] == PredicateType.TEST_RESULT
    assert value["layers"][0]["annotations"]["org.opencontainers.image.title"] == "smoke.intoto.json"


def test_evidence_about_another_image_counts_for_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout, tag="1.0")
    attach(layout, made.descriptor, (smoke_draft(samples.smoke(IMAGE), name="demo"),))
    (piece,) = evidence(layout, made.digest)
    assert piece.kind == "smoke"
    assert piece.problem == f"the statement is not about {made.digest}"


@pytest.mark.parametrize(
    ("artifact_type", "content", "kind", "problem"),
    [
        (EvidenceType.IN_TOTO, b"{", "other", "not an in-toto statement"),
        (EvidenceType.CYCLONEDX, b"{}", "sbom", "not a CycloneDX document"),
        (EvidenceType.CYCLONEDX, b"[", "sbom", "not JSON"),
        ("application/vnd.dev.cosign.artifact.sig.v1+json", b"sig", "other", ""),
    ],
)
def test_what_others_attach_is_kept_apart(
    tmp_path: Path, artifact_type: str, content: bytes, kind: str, problem: str
) -> None:
    layout = Layout(tmp_path)
    made = image(layout, tag="1.0")
    layout.put_manifest(referrer(made, layout, artifact_type=artifact_type, body=content))
    (piece,) = evidence(layout, made.digest)
    assert (piece.kind, piece.artifact_type) == (kind, artifact_type)
    assert piece.problem.startswith(problem)
    assert bool(piece.problem) == bool(problem)


def test_an_artifact_of_several_layers_counts_for_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout)
    draft = Draft(kind="sbom", artifact_type=EvidenceType.CYCLONEDX, content=b'{"bomFormat":"CycloneDX"}', title="x")
    attach(layout, made.descriptor, (draft,))
    (entry,) = layout.referrers(made.digest)
    manifest = layout.manifest(entry.digest)
    assert manifest is not None
    value = json.loads(manifest.raw)
    value["layers"].append(Descriptor(media_type=MediaType.LAYER_TAR, digest=Digest.of(b"more"), size=4).to_json())
    layout.put_blob(Descriptor(media_type="x", digest=Digest.of(b"more"), size=4), BytesSource(b"more"))
    layout.put_manifest(type(manifest)(manifest.media_type, json.dumps(value).encode()))
    problems = sorted(piece.problem for piece in evidence(layout, made.digest))
    assert problems == ["", "it has 2 layers"]


def test_evidence_files_are_held_against_image_and_kind(tmp_path: Path) -> None:
    draft = smoke_draft(samples.smoke(IMAGE), name="demo")
    path = tmp_path / "smoke.json"
    path.write_bytes(draft.content)
    assert draft_from_file(path, "smoke", IMAGE) == draft
    with pytest.raises(BadInput, match="not the audit evidence"):
        draft_from_file(path, "audit", IMAGE)
    with pytest.raises(BadInput, match="not about"):
        draft_from_file(path, "smoke", Digest.of(b"another"))
    with pytest.raises(BadInput, match="not a CycloneDX document"):
        draft_from_file(path, "sbom", IMAGE)
    with pytest.raises(BadInput, match="cannot read"):
        draft_from_file(tmp_path / "none", "smoke", IMAGE)
    audit = audit_draft(samples.audit("carry"), image=IMAGE, name="demo")
    path.write_bytes(audit.content)
    assert draft_from_file(path, "audit", IMAGE) == audit
