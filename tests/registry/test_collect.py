"""Clearing a layout takes what nothing needs, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from builder.names import Digest
from builder.registry.collect import ListedImage, collect_layout
from builder.registry.errors import MissingContent
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType
from tests.registry.samples import image, put, referrer

LATER = time.time() + 7 * 86400
DAY = 86400.0


def untagged(images: Sequence[ListedImage]) -> Mapping[Digest, str]:
    return {item.digest: "no tag" for item in images if item.old and not item.tags}


def blobs(layout: Layout) -> set[str]:
    return {path.name for path in (layout.path / "blobs/sha256").iterdir()}


def needed(layout: Layout, *manifests: Manifest) -> set[str]:
    found = set()
    for manifest in manifests:
        value = json.loads(manifest.raw)
        pointed = [value["config"], *value["layers"]]
        found |= {manifest.digest.hex, *(Digest.parse(item["digest"]).hex for item in pointed)}
    return found


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def test_a_replaced_image_goes_with_what_was_attached_to_it(layout: Layout) -> None:
    old = image(layout, text="old", tag="1.0")
    about_old = referrer(old, layout, artifact_type="text/plain", body=b"about the old one")
    about_about = referrer(about_old, layout, artifact_type="text/plain", body=b"about that")
    layout.put_referrers([about_old])
    layout.put_referrers([about_about])
    new = image(layout, text="new", tag="1.0")
    about_new = referrer(new, layout, artifact_type="text/plain", body=b"about the new one")
    layout.put_referrers([about_new])
    planned = collect_layout(layout, untagged, min_age=DAY, now=LATER, dry_run=True)
    assert layout.manifest(old.digest) == old
    assert collect_layout(layout, untagged, min_age=DAY, now=LATER) == planned
    assert planned[0].name == str(old.digest)
    assert blobs(layout) == needed(layout, new, about_new)
    assert layout.resolve("1.0") == new.descriptor
    assert [entry.digest for entry in layout.referrers(new.digest)] == [about_new.digest]
    assert layout.referrers(old.digest) == ()
    assert collect_layout(layout, untagged, min_age=DAY, now=LATER) == ()


def test_what_is_young_stays(layout: Layout) -> None:
    image(layout, text="old", tag="1.0")
    image(layout, text="new", tag="1.0")
    (layout.path / "blobs/sha256/.partial-x").write_bytes(b"half")
    before = blobs(layout)
    assert collect_layout(layout, untagged, min_age=DAY, now=time.time()) == ()
    assert blobs(layout) == before
    collect_layout(layout, untagged, min_age=DAY, now=LATER)
    assert ".partial-x" not in blobs(layout)


def test_an_image_of_an_index_that_stays_is_needed(layout: Layout) -> None:
    child = image(layout, text="child")
    about = referrer(child, layout, artifact_type="text/plain", body=b"about the child")
    layout.put_referrers([about])
    entry = {**child.descriptor.to_json(), "platform": {"os": "linux", "architecture": "amd64"}}
    index = canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": [entry]})
    layout.put_manifest(Manifest(MediaType.INDEX, index), tag="multi")
    collect_layout(layout, untagged, min_age=DAY, now=LATER)
    assert layout.manifest(child.digest) == child
    assert needed(layout, child, about) <= blobs(layout)
    assert [item.digest for item in layout.referrers(child.digest)] == [about.digest]


def test_evidence_that_came_before_its_image_stays(layout: Layout, tmp_path: Path) -> None:
    elsewhere = Layout(tmp_path / "elsewhere")
    about = referrer(image(elsewhere, text="x"), layout, artifact_type="text/plain", body=b"early")
    layout.put_referrers([about])
    assert collect_layout(layout, untagged, min_age=DAY, now=LATER) == ()
    assert needed(layout, about) == blobs(layout)


def test_a_blob_that_a_build_found_there_is_young_again(layout: Layout) -> None:
    data = b"a layer of long ago"
    blob = put(layout, data, MediaType.LAYER_GZIP)
    path = layout.blob_path(blob.digest)
    before = path.stat().st_ctime_ns
    assert not layout.put_blob(blob, BytesSource(data))
    assert path.stat().st_ctime_ns > before


def test_a_manifest_whose_blob_was_cleared_away_is_not_listed(layout: Layout) -> None:
    made = image(layout, tag="1.0")
    gone = Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(b"gone"), size=4)
    value = json.loads(made.raw)
    value["layers"].append(gone.to_json())
    with pytest.raises(MissingContent, match="is not put into"):
        layout.put_manifest(Manifest(MediaType.MANIFEST, canonical_json(value)), tag="2.0")
    assert layout.tags() == ("1.0",)


def test_no_layout_no_change(tmp_path: Path) -> None:
    assert collect_layout(Layout(tmp_path / "none"), untagged, min_age=0, now=LATER) == ()
    assert not (tmp_path / "none").exists()
