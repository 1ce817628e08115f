"""`builder copy` and `builder gc` as processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.names import RegistryRef
from builder.registry import Layout, open_repository
from builder.registry.manifests import canonical_json
from builder.registry.values import Manifest, MediaType
from builder.release.evidence import attach
from builder.release.records import promotion_draft
from builder.release.statements import audit_draft, smoke_draft
from builder.release.values import PromotionRecord
from tests.conftest import RunBuilder
from tests.registry.samples import image
from tests.release import samples
from tests.schemas import document, error


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "dist")


def with_evidence(layout: Layout, text: str, tag: str) -> Manifest:
    made = image(layout, text=text, tag=tag)
    drafts = [
        audit_draft(samples.audit(), image=made.digest, name="demo"),
        smoke_draft(samples.smoke(made.digest), name="demo"),
    ]
    attach(layout, made.descriptor, drafts)
    return made


@pytest.mark.registry
def test_an_image_goes_round_with_its_evidence(
    run_builder: RunBuilder, layout: Layout, registry_host: str, repository_name: str, tmp_path: Path
) -> None:
    made = with_evidence(layout, "one", "1.0")
    first, second = f"{registry_host}/{repository_name}", f"{registry_host}/{repository_name}/other"
    sent = document(run_builder("copy", "oci:dist:1.0", first, "--json"), "copy")
    assert (sent["verdict"], sent["ref"], sent["digest"]) == ("copied", f"{first}:1.0", str(made.digest))
    assert sorted(piece["kind"] for piece in sent["evidence"]) == ["audit", "smoke"]
    across = document(run_builder("copy", f"{first}:1.0", f"{second}:2.0", "--json"), "copy")
    assert (across["digest"], across["tags"], across["sent_blobs"]) == (str(made.digest), ["2.0"], 0)
    back = document(run_builder("copy", f"{second}@{made.digest}", "oci:back", "--json"), "copy")
    assert (back["tags"], len(back["evidence"])) == ([], 2)
    returned = Layout(tmp_path / "back")
    assert returned.manifest(made.digest) == made
    assert {entry.digest for entry in returned.referrers(made.digest)} == {
        entry.digest for entry in layout.referrers(made.digest)
    }
    again = document(run_builder("copy", "oci:dist:1.0", first, "--json"), "copy")
    assert (again["verdict"], again["sent_blobs"]) == ("present", 0)
    bare = document(run_builder("copy", f"{first}:1.0", "oci:bare", "--no-referrers", "--json"), "copy")
    assert bare["evidence"] == []


@pytest.mark.registry
def test_an_index_is_copied_with_all_its_images(
    run_builder: RunBuilder, layout: Layout, registry_host: str, repository_name: str
) -> None:
    children = [with_evidence(layout, text, text) for text in ("amd64", "arm64")]
    entries = [
        {**child.descriptor.to_json(), "platform": {"os": "linux", "architecture": arch}}
        for child, arch in zip(children, ("amd64", "arm64"), strict=True)
    ]
    index = canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": entries})
    layout.put_manifest(Manifest(MediaType.INDEX, index), tag="multi")
    place = f"{registry_host}/{repository_name}"
    document(run_builder("copy", "oci:dist:multi", place, "--json"), "copy")
    target = open_repository(RegistryRef(registry_host, repository_name), environ={}, reporter=SilentReporter())
    for child in children:
        assert target.manifest(child.digest) == child
        assert len(target.referrers(child.digest)) == 2


def test_a_tag_moves_only_when_that_is_asked_for(run_builder: RunBuilder, layout: Layout) -> None:
    image(layout, text="one", tag="one")
    two = image(layout, text="two", tag="two")
    assert run_builder("copy", "oci:dist:one", "oci:out:1").returncode == 0
    done = run_builder("copy", "oci:dist:two", "oci:out:1", "--json")
    found = document(done, "copy")
    assert (done.returncode, found["verdict"], found["kind"]) == (1, "refused", "tag-taken")
    moved = document(run_builder("copy", "oci:dist:two", "oci:out:1", "--move-tag", "--json"), "copy")
    assert (moved["digest"], moved["tags"]) == (str(two.digest), ["1"])


@pytest.mark.parametrize("more", [[], ["--move-tag"]])
def test_the_tag_of_a_node_class_is_not_copied(run_builder: RunBuilder, layout: Layout, more: list[str]) -> None:
    image(layout, text="one", tag="one")
    made = with_evidence(layout, "two", "two")
    for name in (samples.NODE_CLASS, "pool-of-our-own"):
        record = PromotionRecord(
            image=made.digest,
            node_class=name,
            action="promote",
            sequence=1,
            history=(),
            replaced=None,
            evidence=(),
            when="2026-02-01T00:00:00Z",
        )
        attach(layout, made.descriptor, (promotion_draft(record, name="demo"),))
        layout.move_tag(name, made.digest, expected=None)
        for words in ([f"oci:dist:{name}", "oci:out"], ["oci:dist:one", f"oci:dist:{name}"]):
            said = error(run_builder("copy", *words, *more, "--json"), 1)
            assert "moves only by promotion" in said["why"]
            assert f"--node-class {name}" in said["fix"]
    assert layout.resolve(samples.NODE_CLASS) == layout.resolve("two")
    assert document(run_builder("copy", f"oci:dist:{samples.NODE_CLASS}", "oci:out:2", "--json"), "copy")["evidence"]


def test_what_is_not_there_is_not_copied(run_builder: RunBuilder, layout: Layout) -> None:
    made = image(layout, tag="one")
    assert "there is no image" in error(run_builder("copy", "oci:dist:onw", "oci:out", "--json"), 2)["what"]
    other = f"oci:out@{made.digest}".replace("sha256:", "sha256:" + "0" * 4)[: len(f"oci:out@{made.digest}")]
    assert "another image" in error(run_builder("copy", "oci:dist:one", other, "--json"), 2)["what"]


def test_gc_of_a_layout_says_what_goes_and_then_it_is_gone(
    run_builder: RunBuilder, layout: Layout, tmp_path: Path
) -> None:
    old = with_evidence(layout, "old", "1.0")
    new = with_evidence(layout, "new", "1.0")
    young = document(run_builder("gc", "oci:dist", "--json"), "gc")
    assert young["places"] == [{"place": "oci:dist", "removed": []}]
    would = document(run_builder("gc", "oci:dist", "--min-age", "0", "--dry-run", "--json"), "gc")
    assert would["dry_run"]
    assert Layout(tmp_path / "dist").manifest(old.digest) == old
    gone = document(run_builder("gc", "oci:dist", "--min-age", "0", "--json"), "gc")
    assert gone["places"] == would["places"]
    assert gone["freed"] > 0
    assert Layout(tmp_path / "dist").manifest(old.digest) is None
    listed = document(run_builder("images", "oci:dist", "--json"), "images")
    assert [row["digest"] for row in listed["images"]] == [str(new.digest)]
    assert len(listed["images"][0]["evidence"]) == 2


def test_gc_of_what_is_no_layout_is_bad_input(run_builder: RunBuilder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    for name in ("absent", "other"):
        assert "no layout" in error(run_builder("gc", f"oci:{name}", "--min-age", "0", "--json"), 2)["what"]
    assert (tmp_path / "other" / "file").is_file()


def test_gc_of_the_store(run_builder: RunBuilder, tmp_path: Path) -> None:
    left = tmp_path / "store/tmp/half.whl.part"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    assert document(run_builder("gc", "--json"), "gc")["freed"] == 0
    text = run_builder("gc", "--min-age", "0")
    assert "left by an interrupted command" in text.stdout
    assert not left.exists()


@pytest.mark.registry
def test_a_registry_is_cleared_by_number_and_when_told_twice(
    run_builder: RunBuilder, layout: Layout, registry_host: str, repository_name: str
) -> None:
    place = f"{registry_host}/{repository_name}"
    assert "--keep" in error(run_builder("gc", place, "--json"), 2)["fix"]
    for number in (1, 2, 10):
        with_evidence(layout, f"version {number}", f"1.{number}")
        document(run_builder("copy", f"oci:dist:1.{number}", place, "--json"), "copy")
    would = document(run_builder("gc", place, "--keep", "2", "--json"), "gc")
    assert would["dry_run"]
    text = run_builder("gc", place, "--keep", "2").stdout
    assert f"would be removed from {place}" in text
    gone = document(run_builder("gc", place, "--keep", "2", "--delete", "--json"), "gc")
    assert (gone["dry_run"], gone["places"]) == (False, would["places"])
    assert "(1.1)" in gone["places"][0]["removed"][0]["why"]
    listed = document(run_builder("images", place, "--json"), "images")
    assert sorted(row["tags"][0] for row in listed["images"]) == ["1.10", "1.2"]
    assert all(len(row["evidence"]) == 2 for row in listed["images"])
