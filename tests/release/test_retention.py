"""Retention: versions go, what nodes run or ran stays, evidence goes and stays with its image."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import Refused
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.registry.client import Remote
from builder.registry.errors import DeletionNotAllowed
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json, is_referrers_tag
from builder.registry.values import Manifest, MediaType, Repository
from builder.release.evidence import attach, evidence
from builder.release.promote import promote, rollback
from builder.release.retention import clear_layout, clear_registry
from builder.release.statements import audit_draft, smoke_draft
from tests.registry.little import Answer, Asked, Little, error, serve
from tests.registry.samples import image
from tests.release import samples

LATER = time.time() + 7 * 86400
DAY = 86400.0


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def version(layout: Repository, number: int, backend: str = "cpu") -> Manifest:
    created = f"2026-01-{number:02}T00:00:00Z"
    made = image(
        layout,
        text=f"version {number} {backend}",
        tag=f"1.{number}{'' if backend == 'cpu' else f'-{backend}'}",
        annotations={"org.opencontainers.image.created": created, "dev.builder.backend": backend},
    )
    drafts = [
        audit_draft(samples.audit(), image=made.digest, name="demo"),
        smoke_draft(samples.smoke(made.digest), name="demo"),
    ]
    attach(layout, made.descriptor, drafts)
    return made


def kinds(layout: Repository, digest: Digest) -> list[str]:
    return sorted(piece.kind for piece in evidence(layout, digest) if not piece.problem)


def test_the_newest_versions_stay_with_their_evidence(layout: Layout) -> None:
    made = [version(layout, number) for number in (3, 1, 2)]
    clear_layout(layout, keep=None, min_age=DAY, now=LATER)
    assert layout.tags() == ("1.1", "1.2", "1.3")
    gone = clear_layout(layout, keep=2, min_age=DAY, now=LATER)
    assert layout.tags() == ("1.2", "1.3")
    assert gone[0].name == str(made[1].digest)
    assert not layout.has_blob(made[1].digest)
    for kept in (made[0], made[2]):
        assert kinds(layout, kept.digest) == ["audit", "smoke"]


def test_what_a_node_class_runs_or_ran_stays(layout: Layout) -> None:
    made = [version(layout, number) for number in (1, 2, 3, 4)]
    for number in (1, 2):
        promote(
            layout,
            made[number - 1].digest,
            samples.NODE_CLASS,
            required=("smoke", "audit"),
            when=f"2026-02-0{number}T00:00:00Z",
        )
    clear_layout(layout, keep=1, min_age=DAY, now=LATER)
    assert layout.tags() == ("1.1", "1.2", "1.4", samples.NODE_CLASS)
    assert "promotion" in kinds(layout, made[0].digest)
    back = rollback(layout, samples.NODE_CLASS, when="2026-02-03T00:00:00Z")
    assert back.digest == made[0].digest


def test_the_number_is_of_each_backend(layout: Layout) -> None:
    for number in (1, 2, 3):
        version(layout, number)
    version(layout, 1, "cuda")
    clear_layout(layout, keep=2, min_age=DAY, now=LATER)
    assert layout.tags() == ("1.1-cuda", "1.2", "1.3")


def test_of_one_date_the_higher_version_is_the_newer(layout: Layout) -> None:
    for tag in ("1.9.0", "1.10.0", "1.2.0"):
        image(layout, text=tag, tag=tag)
    clear_layout(layout, keep=1, min_age=DAY, now=LATER)
    assert layout.tags() == ("1.10.0",)


# In registries


@pytest.fixture
def remote(registry_host: str) -> Iterator[Remote]:
    reference = RegistryRef(registry_host, f"retention/{uuid.uuid4().hex[:12]}")
    opened = Remote.open(reference, environ={}, reporter=SilentReporter())
    yield opened
    opened.close()


@pytest.fixture
def little() -> Iterator[Little]:
    with serve() as running:
        yield running


def open_little(little: Little) -> Remote:
    return Remote.open(RegistryRef(little.host, "app"), environ={}, reporter=SilentReporter(), sleep=lambda _: None)


def clear(remote: Remote, keep: int, *, dry_run: bool = False) -> list[str]:
    removed = clear_registry(remote, keep=keep, reporter=SilentReporter(), dry_run=dry_run)
    return [item.name for item in removed]


@pytest.mark.registry
def test_a_registry_loses_old_versions_with_their_evidence_and_nothing_else(remote: Remote) -> None:
    made = [version(remote, number) for number in (1, 2, 3)]
    attached = remote.referrers(made[0].digest)
    assert clear(remote, 2, dry_run=True) == [str(made[0].digest)]
    assert len(remote.tags()) == 3
    assert clear(remote, 2) == [str(made[0].digest)]
    assert remote.tags() == ("1.2", "1.3")
    assert remote.manifest(made[0].digest) is None
    assert [remote.manifest(entry.digest) for entry in attached] == [None, None]
    assert remote.resolve(f"sha256-{made[0].digest.hex}") is None
    for kept in made[1:]:
        assert kinds(remote, kept.digest) == ["audit", "smoke"]
    assert clear(remote, 2) == []


@pytest.mark.registry
def test_what_nodes_ran_stays_in_a_registry_and_can_be_gone_back_to(remote: Remote) -> None:
    made = [version(remote, number) for number in (1, 2, 3)]
    for number in (1, 2):
        promote(
            remote,
            made[number - 1].digest,
            samples.NODE_CLASS,
            required=("smoke", "audit"),
            when=f"2026-02-0{number}T00:00:00Z",
        )
    assert clear(remote, 1) == []
    back = rollback(remote, samples.NODE_CLASS, when="2026-02-03T00:00:00Z")
    assert back.digest == made[0].digest
    assert clear(remote, 1) == []


@pytest.mark.registry
def test_an_index_goes_with_its_images_and_one_that_stays_holds_them(remote: Remote) -> None:
    def index(tag: str, created: str, *children: Manifest) -> Manifest:
        entries = [
            {**child.descriptor.to_json(), "platform": {"os": "linux", "architecture": arch}}
            for child, arch in zip(children, ("amd64", "arm64"), strict=True)
        ]
        value = {
            "schemaVersion": 2,
            "mediaType": MediaType.INDEX,
            "manifests": entries,
            "annotations": {"org.opencontainers.image.created": created},
        }
        made = Manifest(MediaType.INDEX, canonical_json(value))
        remote.put_manifest(made, tag=tag)
        return made

    shared, first, second = (image(remote, text=text) for text in ("shared", "first", "second"))
    old = index("1", "2026-01-01T00:00:00Z", shared, first)
    index("2", "2026-01-02T00:00:00Z", shared, second)
    assert clear(remote, 1) == [str(old.digest)]
    assert remote.manifest(first.digest) is None
    assert remote.manifest(shared.digest) == shared
    assert remote.manifest(second.digest) == second


@pytest.mark.parametrize("code", ["UNSUPPORTED", "DENIED"])
def test_a_registry_that_does_not_delete_is_told_apart(little: Little, code: str) -> None:
    remote = open_little(little)
    for number in (1, 2):
        version(remote, number)
    little.fault = lambda asked: error(405, code) if asked.method == "DELETE" else None
    with pytest.raises(DeletionNotAllowed) as caught:
        clear(remote, 1)
    assert "storage.delete.enabled" in caught.value.fix
    assert remote.tags() == ("1.1", "1.2")
    remote.close()


def test_a_promotion_that_comes_meanwhile_stops_the_deleting(little: Little) -> None:
    remote, other = open_little(little), open_little(little)
    made = [version(remote, number) for number in (1, 2)]
    looked: list[str] = []

    def promoted_meanwhile(asked: Asked) -> Answer | None:
        if asked.path.endswith("/manifests/1.1") and asked.method == "HEAD":
            looked.append(asked.path)
            if len(looked) == 2:  # the second look, right before the image would go
                little.fault = lambda asked: None
                when = "2026-02-01T00:00:00Z"
                promote(other, made[0].digest, samples.NODE_CLASS, required=("smoke", "audit"), when=when)
        return None

    little.fault = promoted_meanwhile
    with pytest.raises(Refused, match="nothing more is deleted") as caught:
        clear(remote, 1)
    assert "promoted meanwhile" in caught.value.why
    assert remote.manifest(made[0].digest) == made[0]
    remote.close()
    other.close()


def test_clearing_that_was_cut_is_finished_by_the_next(little: Little) -> None:
    little.referrers_endpoint = False
    remote = open_little(little)
    made = [version(remote, number) for number in (1, 2)]
    deletes: list[str] = []

    def fail_after_two(asked: Asked) -> Answer | None:
        if asked.method == "DELETE":
            deletes.append(asked.path)
            if len(deletes) == 2:
                return error(500, "UNKNOWN")
        return None

    little.fault = fail_after_two
    with pytest.raises(Exception, match="refused a request"):
        clear(remote, 1)
    assert remote.manifest(made[0].digest) is None
    assert kinds(remote, made[1].digest) == ["audit", "smoke"]
    little.fault = lambda asked: None
    assert clear(remote, 1, dry_run=True) == clear(remote, 1) == [f"sha256-{made[0].digest.hex}"]
    assert clear(remote, 1) == []
    left = {reference for _, reference in little.manifests if is_referrers_tag(reference)}
    assert left == {f"sha256-{made[1].digest.hex}"}
    remote.close()
