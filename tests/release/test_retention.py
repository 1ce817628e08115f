"""Retention: versions go, what nodes run or ran stays, evidence goes and stays with its image."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from builder.names import Digest
from builder.registry.layout import Layout
from builder.registry.values import Manifest
from builder.release.evidence import attach, evidence
from builder.release.promote import promote, rollback
from builder.release.retention import clear_layout
from builder.release.statements import audit_draft, smoke_draft
from tests.registry.samples import image
from tests.release import samples

LATER = time.time() + 7 * 86400
DAY = 86400.0


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def version(layout: Layout, number: int) -> Manifest:
    created = f"2026-01-{number:02}T00:00:00Z"
    made = image(
        layout,
        text=f"version {number}",
        tag=f"1.{number}",
        annotations={"org.opencontainers.image.created": created},
    )
    drafts = [
        audit_draft(samples.audit(), image=made.digest, name="demo"),
        smoke_draft(samples.smoke(made.digest), name="demo"),
    ]
    attach(layout, made.descriptor, drafts)
    return made


def kinds(layout: Layout, digest: Digest) -> list[str]:
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
