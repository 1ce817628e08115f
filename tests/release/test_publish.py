from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from builder.errors import Refused
from builder.events import SilentReporter
from builder.names import Digest, Platform, RegistryRef
from builder.registry.client import Remote
from builder.registry.errors import MissingContent, TagMoved
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json, check_index
from builder.registry.values import Descriptor, Manifest, MediaType, Repository
from builder.release.evidence import evidence
from builder.release.publish import TagTaken, publish
from builder.release.sbom import sbom_draft
from builder.release.statements import audit_draft, smoke_draft
from builder.release.values import Draft, Published
from tests.registry.conftest import Counting
from tests.registry.samples import image, referrer
from tests.release import samples

SILENT = SilentReporter()


def drafts(made: Digest) -> tuple[Draft, ...]:
    return (
        sbom_draft(samples.lock(), image=made, name="demo", version="1.0", licences={}),
        audit_draft(samples.audit(), image=made, name="demo"),
        smoke_draft(samples.smoke(made), name="demo"),
    )


def _publish(source: Repository, digest: Digest, target: Repository, tag: str | None = "1.0-cpu") -> Published:
    return publish(source=source, digest=digest, target=target, tag=tag, drafts=drafts(digest), reporter=SILENT)


def test_image_evidence_and_tag_arrive(built: Layout, target: Repository) -> None:
    made = image(built, tag="latest")
    built.put_manifest(referrer(made, built, artifact_type="a/b", body=b"note"))
    done = _publish(built, made.digest, target)
    assert (done.digest, done.tag, done.adopted) == (made.digest, "1.0-cpu", False)
    assert target.manifest("1.0-cpu") == made
    assert target.tags() == ("1.0-cpu",)
    found = evidence(target, made.digest)
    assert sorted(piece.kind for piece in found) == ["audit", "other", "sbom", "smoke"]
    assert set(done.evidence) == {piece.digest for piece in found if piece.kind != "other"}
    assert all(piece.problem == "" for piece in found)


def test_publishing_again_adopts(built: Layout, target: Repository) -> None:
    made = image(built)
    first, again = _publish(built, made.digest, target), _publish(built, made.digest, target)
    assert again.adopted
    assert again.evidence == first.evidence
    assert (again.sent_blobs, again.sent_bytes) == (0, 0)


def test_new_evidence_joins_an_adopted_tag(built: Layout, target: Repository) -> None:
    made = image(built)
    publish(source=built, digest=made.digest, target=target, tag="1.0", reporter=SILENT)
    _publish(built, made.digest, target, tag="1.0")
    assert len(evidence(target, made.digest)) == 3


def test_a_version_tag_does_not_move(built: Layout, target: Repository) -> None:
    one, two = image(built, text="one"), image(built, text="two")
    _publish(built, one.digest, target)
    with pytest.raises(TagTaken, match="is taken") as caught:
        _publish(built, two.digest, target)
    assert (caught.value.exit_code, caught.value.kind) == (1, "tag-taken")
    assert target.manifest("1.0-cpu") == one
    assert target.manifest(two.digest) is None  # nothing was sent


def test_within_one_repository_only_the_tag_is_new(target: Repository) -> None:
    made = image(target)
    done = _publish(target, made.digest, target)
    assert done.sent_blobs == 0
    assert target.manifest("1.0-cpu") == made


def test_without_a_tag_the_digest_is_there(built: Layout, target: Repository) -> None:
    made = image(built)
    _publish(built, made.digest, target, tag=None)
    assert target.manifest(made.digest) == made
    assert target.tags() == ()


def test_an_image_that_is_not_there_is_said(built: Layout, target: Repository) -> None:
    with pytest.raises(MissingContent, match="has no manifest"):
        _publish(built, Digest.of(b"none"), target)


def test_somebody_else_takes_the_tag_meanwhile(built: Layout, tmp_path: Path) -> None:
    ours, theirs = image(built, text="ours"), image(built, text="theirs")

    class Raced(Layout):
        """A layout in which somebody tags their image just before we do."""

        def move_tag(self, tag: str, digest: Digest, *, expected: Digest | None) -> Descriptor:
            image(self, text="theirs", tag=tag)
            return super().move_tag(tag, digest, expected=expected)

    target = Raced(tmp_path / "raced")
    with pytest.raises(TagTaken, match="is taken"):
        _publish(built, ours.digest, target)
    assert target.manifest("1.0-cpu") == theirs
    assert _publish(built, theirs.digest, Raced(tmp_path / "same")).digest == theirs.digest
    assert issubclass(TagMoved, Refused)


@pytest.mark.registry
def test_requests_of_a_first_and_an_up_to_date_push(built: Layout, registry_host: str) -> None:
    """The exact requests: a second push of the same release asks three times and sends nothing."""
    made = image(built)
    counting = Counting()
    name = f"release/{uuid.uuid4().hex[:12]}"
    target = Remote.open(RegistryRef(registry_host, name), environ={}, reporter=SILENT, transport=counting)
    _publish(built, made.digest, target)
    first = [line.split()[0] for line in counting.lines]
    assert first.count("PUT") == 2 + 1 + 4 + 3 + 1 + 1  # blobs, image, evidence blobs, evidence, its list, the tag
    assert counting.lines[0] == f"HEAD {name}/manifests/1.0-cpu"
    looks = [f"HEAD {name}/manifests/1.0-cpu"] * 2  # right after, and when another writer would be done
    assert counting.lines[-3:] == [f"PUT {name}/manifests/1.0-cpu", *looks]
    counting.lines.clear()
    again = Remote.open(RegistryRef(registry_host, name), environ={}, reporter=SILENT, transport=counting)
    _publish(built, made.digest, again)
    assert counting.lines == [
        f"HEAD {name}/manifests/1.0-cpu",
        f"GET {name}/referrers/{made.digest}",
        f"GET {name}/manifests/sha256-{made.digest.hex}",
    ]
    target.close()
    again.close()


def _index(entries: list[Descriptor]) -> Manifest:
    listed = [entry.to_json() for entry in entries]
    return Manifest(
        MediaType.INDEX,
        canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": listed}),
    )


def _entry(made: Manifest, arch: str, os: str = "linux") -> Descriptor:
    return Descriptor(
        media_type=made.media_type,
        digest=made.digest,
        size=len(made.raw),
        platform={"os": os, "architecture": arch},
    )


def test_an_index_cannot_tell_backends_apart(built: Layout, target: Repository) -> None:
    """FR-27: two entries of one platform are refused, two architectures of one backend are not."""
    cuda, rocm = image(built, text="cuda"), image(built, text="rocm")
    lying = _index([_entry(cuda, "amd64"), _entry(rocm, "amd64")])
    built.put_manifest(lying)
    with pytest.raises(Refused, match="two images for linux/amd64"):
        publish(source=built, digest=lying.digest, target=target, tag="1.0", reporter=SILENT)
    assert target.tags() == ()
    honest = _index([_entry(cuda, "amd64"), _entry(rocm, "arm64")])
    built.put_manifest(honest)
    publish(source=built, digest=honest.digest, target=target, tag="1.0", reporter=SILENT)
    assert target.manifest("1.0") == honest
    assert target.manifest(rocm.digest) == rocm


def test_check_index_looks_at_images_only(built: Layout) -> None:
    one, two = image(built, text="one"), image(built, text="two")
    check_index([_entry(one, "unknown", "unknown"), _entry(two, "unknown", "unknown")])  # attestations
    check_index([_entry(one, "amd64"), _entry(one, "amd64")])  # one image listed twice
    check_index([one.descriptor, two.descriptor])
    assert str(Platform("x86_64")) == "linux/amd64"
