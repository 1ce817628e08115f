from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import BadInput, Refused
from builder.names import Digest
from builder.proof.values import Answer
from builder.registry.errors import MissingContent, TagMoved
from builder.registry.layout import Layout
from builder.registry.manifests import referrers_tag
from builder.registry.values import Descriptor, Manifest, Repository
from builder.release.evidence import attach, evidence
from builder.release.history import latest_record
from builder.release.pick import images, pick
from builder.release.promote import Older, promote, rollback
from builder.release.sbom import sbom_draft
from builder.release.statements import audit_draft, proof_draft, smoke_draft
from builder.release.values import Draft, PromotionRefused
from tests.registry.samples import image
from tests.release import samples

CLASS = samples.NODE_CLASS
WHEN = "2026-10-02T10:00:00Z"


def release(repository: Repository, text: str, *, created: str | None = None, tag: str | None = None) -> Manifest:
    """An image with an audit report, passed checks and a proof of the class."""
    annotations = {"org.opencontainers.image.created": created} if created else {}
    made = image(repository, text=text, annotations=annotations, tag=tag)
    attach(repository, made.descriptor, (audit_draft(samples.audit(), image=made.digest, name="demo"),))
    attach(repository, made.descriptor, (smoke_draft(samples.smoke(made.digest), name="demo"),))
    attach(repository, made.descriptor, (proof_draft(samples.proof(made.digest), name="demo"),))
    return made


def test_granted_with_evidence(target: Repository) -> None:
    made = release(target, "one")
    done = promote(target, made.digest, CLASS, when=WHEN)
    assert done.moved
    assert (done.digest, done.previous) == (made.digest, None)
    assert target.manifest(CLASS) == made
    record = latest_record(target, made.digest, CLASS)
    assert record is not None
    assert (record.sequence, record.history, record.replaced, record.when) == (1, (), None, WHEN)
    kinds = {piece.digest: piece.kind for piece in evidence(target, made.digest)}
    assert {kinds[digest] for digest in record.evidence} == {"smoke", "audit", "proof"}
    assert done.record in kinds


def test_refused_without_evidence_and_told_what_is_missing(target: Repository) -> None:
    made = image(target)
    with pytest.raises(PromotionRefused) as caught:
        promote(target, made.digest, CLASS, when=WHEN)
    assert [item.need for item in caught.value.missing] == ["smoke", "audit", "proof"]
    assert f"no smoke report of class {CLASS} is attached" in caught.value.why
    assert caught.value.exit_code == 1
    assert target.resolve(CLASS) is None
    assert evidence(target, made.digest) == ()


def _drafts(made: Manifest, *smokes: Draft, audit: Draft | None = None) -> tuple[Draft, ...]:
    proof = proof_draft(samples.proof(made.digest), name="demo")
    return (audit or audit_draft(samples.audit(), image=made.digest, name="demo"), proof, *smokes)


def test_a_proof_for_another_class_or_a_refusal_does_not_count(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout)
    audit = audit_draft(samples.audit(), image=made.digest, name="demo")
    elsewhere = proof_draft(samples.proof(made.digest, node_class="cpu-x86-64-v4"), name="demo")
    attach(layout, made.descriptor, (audit, smoke_draft(samples.smoke(made.digest), name="demo"), elsewhere))
    with pytest.raises(PromotionRefused) as caught:
        promote(layout, made.digest, CLASS, when=WHEN)
    assert [item.need for item in caught.value.missing] == ["proof"]
    assert f"builder prove --node-class {CLASS} --attach" in caught.value.fix
    sound = proof_draft(samples.proof(made.digest), name="demo")
    refused = samples.proof(made.digest, answer="refused", reasons=("libhccl.so is nowhere",))
    attach(layout, made.descriptor, (sound, proof_draft(refused, name="demo")))
    with pytest.raises(PromotionRefused, match=r"libhccl\.so is nowhere"):
        promote(layout, made.digest, CLASS, when=WHEN)


@pytest.mark.parametrize("answer", ["unknown", "proven"])
def test_only_a_proof_proves(tmp_path: Path, answer: Answer) -> None:
    layout = Layout(tmp_path)
    made = image(layout)
    proof = proof_draft(samples.proof(made.digest, answer=answer), name="demo")
    audit = audit_draft(samples.audit(), image=made.digest, name="demo")
    attach(layout, made.descriptor, (audit, smoke_draft(samples.smoke(made.digest), name="demo"), proof))
    if answer == "proven":
        assert promote(layout, made.digest, CLASS, when=WHEN).moved
    else:
        with pytest.raises(PromotionRefused, match="is unknown"):
            promote(layout, made.digest, CLASS, when=WHEN)


def test_a_pass_on_another_class_does_not_carry_over(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout)
    other = smoke_draft(samples.smoke(made.digest, node_class="cpu-x86-64-v4"), name="demo")
    nowhere = smoke_draft(samples.smoke(made.digest, node_class=None), name="demo")
    attach(layout, made.descriptor, _drafts(made, other, nowhere))
    with pytest.raises(PromotionRefused, match="there are reports of cpu-x86-64-v4") as caught:
        promote(layout, made.digest, CLASS, when=WHEN)
    assert "did you mean 'cpu-x86-64-v4'" in str(caught.value)
    assert [item.need for item in caught.value.missing] == ["smoke"]


def test_a_pass_of_another_image_does_not_carry_over(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout)
    foreign = smoke_draft(samples.smoke(Digest.of(b"other image")), name="demo")
    attach(layout, made.descriptor, _drafts(made, foreign))
    with pytest.raises(PromotionRefused, match="the statement is not about"):
        promote(layout, made.digest, CLASS, when=WHEN)


@pytest.mark.parametrize("verdict", ["failed", "not-run"])
def test_the_latest_report_decides(tmp_path: Path, verdict: str) -> None:
    layout = Layout(tmp_path)
    made = image(layout)
    early = smoke_draft(samples.smoke(made.digest, started="2026-10-01T08:00:00Z"), name="demo")
    late = samples.smoke(made.digest, verdict=verdict, started="2026-10-01T09:00:00Z")  # type: ignore[arg-type]
    attach(layout, made.descriptor, _drafts(made, early, smoke_draft(late, name="demo")))
    with pytest.raises(PromotionRefused, match=f"is {verdict}: matmul"):
        promote(layout, made.digest, CLASS, when=WHEN)
    mended = smoke_draft(samples.smoke(made.digest, started="2026-10-01T10:00:00Z"), name="demo")
    attach(layout, made.descriptor, (mended,))
    assert promote(layout, made.digest, CLASS, when=WHEN).moved


def test_an_audit_that_blocks_outweighs_one_that_does_not(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = release(layout, "one")
    blocking = audit_draft(samples.audit("block"), image=made.digest, name="demo")
    attach(layout, made.descriptor, (blocking,))
    with pytest.raises(PromotionRefused, match=r"blocks: ext-1-py3-none-any\.whl"):
        promote(layout, made.digest, CLASS, when=WHEN)


def test_what_is_required_can_be_chosen(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = release(layout, "one")
    with pytest.raises(PromotionRefused, match="no SBOM is attached"):
        promote(layout, made.digest, CLASS, when=WHEN, required=("smoke", "audit", "sbom"))
    bom = sbom_draft(samples.lock(), image=made.digest, name="demo", version="1", licences={})
    attach(layout, made.descriptor, (bom,))
    assert promote(layout, made.digest, CLASS, when=WHEN, required=("smoke", "audit", "sbom")).moved
    with pytest.raises(BadInput, match="unknown requirement 'smok'") as caught:
        promote(layout, made.digest, CLASS, when=WHEN, required=("smok",))
    assert caught.value.fix == "did you mean 'smoke'?"


def test_a_missing_image_and_a_bad_class_are_said(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(MissingContent):
        promote(layout, Digest.of(b"none"), CLASS, when=WHEN)
    with pytest.raises(BadInput, match="not a tag"):
        promote(layout, Digest.of(b"none"), "not a tag", when=WHEN)
    with pytest.raises(BadInput, match="lists of referrers"):
        promote(layout, Digest.of(b"none"), referrers_tag(Digest.of(b"x")), when=WHEN)


def test_promoting_what_runs_changes_nothing(target: Repository) -> None:
    made = release(target, "one")
    promote(target, made.digest, CLASS, when=WHEN)
    before = evidence(target, made.digest)
    again = promote(target, made.digest, CLASS, when="2026-10-03T10:00:00Z")
    assert not again.moved
    assert evidence(target, made.digest) == before


def test_the_way_back_is_walked_step_by_step(target: Repository) -> None:
    one, two, three = (release(target, text) for text in ("one", "two", "three"))
    for made in (one, two, three):
        promote(target, made.digest, CLASS, when=WHEN)
    assert rollback(target, CLASS, when=WHEN).digest == two.digest
    assert target.manifest(CLASS) == two
    back = rollback(target, CLASS, when=WHEN)
    assert (back.digest, back.previous) == (one.digest, two.digest)
    assert target.manifest(CLASS) == one
    with pytest.raises(Refused, match="is the first image promoted to it"):
        rollback(target, CLASS, when=WHEN)
    promote(target, three.digest, CLASS, when=WHEN)
    assert rollback(target, CLASS, when=WHEN).digest == one.digest


def test_the_way_back_survives_an_image_promoted_twice(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one, two, three = (release(layout, text) for text in ("one", "two", "three"))
    for made in (one, two, three):
        promote(layout, made.digest, CLASS, when=WHEN)
    promote(layout, two.digest, CLASS, when=WHEN, allow_older=True)
    walked = [rollback(layout, CLASS, when=WHEN).digest for _ in range(3)]
    assert walked == [three.digest, two.digest, one.digest]
    with pytest.raises(Refused, match="first image"):
        rollback(layout, CLASS, when=WHEN)


def test_classes_have_separate_ways(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one, two = release(layout, "one"), release(layout, "two")
    for made in (one, two):
        other = smoke_draft(samples.smoke(made.digest, node_class="cpu-x86-64-v4"), name="demo")
        proof = proof_draft(samples.proof(made.digest, node_class="cpu-x86-64-v4"), name="demo")
        attach(layout, made.descriptor, (other, proof))
    promote(layout, one.digest, CLASS, when=WHEN)
    promote(layout, two.digest, "cpu-x86-64-v4", when=WHEN)
    with pytest.raises(Refused, match="first image"):
        rollback(layout, "cpu-x86-64-v4", when=WHEN)
    assert pick(layout, CLASS).digest == one.digest
    assert pick(layout, "cpu-x86-64-v4").digest == two.digest


def test_nothing_to_roll_back(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout, tag="1.0")
    with pytest.raises(Refused, match=r"known tags: 1\.0"):
        rollback(layout, CLASS, when=WHEN)
    layout.put_manifest(made, tag=CLASS)
    with pytest.raises(Refused, match="which no promotion put there"):
        rollback(layout, CLASS, when=WHEN)


def test_an_image_before_that_is_gone_is_said(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one, two = release(layout, "one"), release(layout, "two")
    promote(layout, one.digest, CLASS, when=WHEN)
    promote(layout, two.digest, CLASS, when=WHEN)
    layout.blob_path(one.digest).unlink()
    with pytest.raises(Refused, match="was deleted"):
        rollback(Layout(tmp_path), CLASS, when=WHEN)


def test_a_late_build_does_not_overwrite_a_newer_one(target: Repository) -> None:
    """FR-28: the older candidate is refused, by its time and by having been replaced before."""
    old = release(target, "old", created="2026-10-01T00:00:00Z")
    new = release(target, "new", created="2026-10-02T02:00:00+02:00")
    promote(target, new.digest, CLASS, when=WHEN)
    with pytest.raises(Older, match="2026-10-01T00:00:00") as caught:
        promote(target, old.digest, CLASS, when=WHEN)
    assert caught.value.exit_code == 1
    assert target.manifest(CLASS) == new
    assert promote(target, old.digest, CLASS, when=WHEN, allow_older=True).previous == new.digest
    with pytest.raises(Older, match="promoted before and replaced since"):
        promote(target, new.digest, CLASS, when=WHEN)


def test_the_digest_expected_to_be_replaced_is_held_to(target: Repository) -> None:
    """FR-28: a promoter that decided on an older view is stopped."""
    one, two, three = (release(target, text) for text in ("one", "two", "three"))
    promote(target, one.digest, CLASS, when=WHEN)
    promote(target, two.digest, CLASS, when=WHEN, expected=one.digest)
    with pytest.raises(TagMoved) as caught:
        promote(target, three.digest, CLASS, when=WHEN, expected=one.digest)
    assert caught.value.found == two.digest
    with pytest.raises(TagMoved):
        rollback(target, CLASS, when=WHEN, expected=one.digest)
    assert target.manifest(CLASS) == two


def test_a_tag_that_moves_in_between_is_left(tmp_path: Path) -> None:
    """FR-28: another promoter is faster; a record of ours remains, and the way back is still the right one."""

    class Raced(Layout):
        def move_tag(self, tag: str, digest: Digest, *, expected: Digest | None) -> Descriptor:
            promote(Layout(self.path), theirs.digest, tag, when=WHEN)
            return super().move_tag(tag, digest, expected=expected)

    layout = Layout(tmp_path)
    one, ours, theirs = (release(layout, text) for text in ("one", "ours", "theirs"))
    promote(layout, one.digest, CLASS, when=WHEN)
    with pytest.raises(TagMoved):
        promote(Raced(tmp_path), ours.digest, CLASS, when=WHEN)
    assert layout.manifest(CLASS) == theirs
    promote(layout, ours.digest, CLASS, when="2026-10-02T11:00:00Z")
    walked = [rollback(layout, CLASS, when=WHEN).digest for _ in range(2)]
    assert walked == [theirs.digest, one.digest]


def test_a_tag_moved_by_hand_is_not_picked(target: Repository) -> None:
    made = release(target, "one")
    with pytest.raises(Refused, match="no image for node class"):
        pick(target, CLASS)
    target.put_manifest(made, tag=CLASS)
    with pytest.raises(Refused, match="no promotion put it there"):
        pick(target, CLASS)
    other = release(target, "other")
    promote(target, other.digest, CLASS, when=WHEN)
    picked = pick(target, CLASS)
    assert (picked.digest, picked.since) == (other.digest, WHEN)


def test_images_lists_tags_and_evidence(target: Repository) -> None:
    one = release(target, "one", tag="1.0-cpu")
    image(target, text="bare", tag="0.9-cpu")
    promote(target, one.digest, CLASS, when=WHEN)
    rows = {row.digest: row for row in images(target)}
    assert rows[one.digest].tags == ("1.0-cpu", CLASS)
    assert [piece.kind for piece in rows[one.digest].evidence] == ["audit", "promotion", "proof", "smoke"]
    assert rows[one.digest].evidence[3].summary == {"backend": "cpu", "node-class": CLASS, "verdict": "passed"}
    assert len(rows) == 2
