from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.names import Digest
from builder.registry.errors import DamagedLayout, MissingContent, TagMoved
from builder.registry.layout import Layout
from builder.registry.values import REF_NAME, BytesSource, Descriptor, FileSource, Manifest, MediaType
from builder.store import CorruptBlob, Store
from tests.registry.samples import image, referrer


def test_reads_as_empty_before_the_first_write(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "none")
    digest = Digest.of(b"x")
    assert layout.tags() == ()
    assert layout.resolve("1.0") is None
    assert layout.manifest(digest) is None
    assert not layout.has_blob(digest)
    assert layout.referrers(digest) == ()
    assert not layout.path.exists()


def test_image_comes_back_as_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout, tag="1.0")
    again = Layout(tmp_path)
    assert again.manifest("1.0") == made
    assert again.manifest(made.digest) == made
    assert again.tags() == ("1.0",)
    assert again.resolve("1.0") == made.descriptor
    config = json.loads(made.raw)["config"]
    assert json.loads(b"".join(again.read_blob(Digest.parse(config["digest"]))))["os"] == "linux"
    assert json.loads((tmp_path / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


def test_a_second_write_sends_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    blob = Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(b"data"), size=4)
    assert layout.put_blob(blob, BytesSource(b"data"))
    assert not layout.put_blob(blob, BytesSource(b"data"))


def test_wrong_bytes_leave_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    blob = Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(b"data"), size=4)
    with pytest.raises(CorruptBlob, match="damaged"):
        layout.put_blob(blob, BytesSource(b"date"))
    short = Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(b"data"), size=5)
    with pytest.raises(CorruptBlob, match="of 5 bytes"):
        layout.put_blob(short, BytesSource(b"data"))
    assert list((tmp_path / "blobs" / "sha256").iterdir()) == []


def test_store_files_are_linked_and_others_copied(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    digest, size = store.add_bytes([b"a wheel"])
    blob = Descriptor(media_type=MediaType.LAYER_GZIP, digest=digest, size=size)
    linked, copied = Layout(tmp_path / "linked"), Layout(tmp_path / "copied")
    assert linked.put_blob(blob, FileSource(store.path(digest), immutable=True))
    assert copied.put_blob(blob, FileSource(store.path(digest)))
    assert linked.blob_path(digest).samefile(store.path(digest))
    assert not copied.blob_path(digest).samefile(store.path(digest))
    assert copied.blob_path(digest).read_bytes() == b"a wheel"


def test_a_store_file_that_changed_without_changing_its_length_is_not_linked(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    digest, size = store.add_bytes([b"a layer"])
    blob = Descriptor(media_type=MediaType.LAYER_GZIP, digest=digest, size=size)
    store.path(digest).chmod(0o644)
    store.path(digest).write_bytes(b"a lAyer")
    layout = Layout(tmp_path / "layout")
    with pytest.raises(CorruptBlob, match=r"store's copy of .* was damaged") as caught:
        layout.put_blob(blob, FileSource(store.path(digest), immutable=True))
    assert "run again" in caught.value.fix
    assert not store.has(digest)
    assert list((tmp_path / "layout/blobs/sha256").iterdir()) == []


def test_what_a_store_just_took_in_is_known_to_be_sound(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    digest, _ = store.add_bytes([b"a layer"])
    assert store.fresh(digest)
    assert not Store(tmp_path / "store").fresh(digest)


def test_a_truncated_blob_is_written_again(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    blob = Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(b"data"), size=4)
    layout.put_blob(blob, BytesSource(b"data"))
    layout.blob_path(blob.digest).write_bytes(b"da")
    assert layout.put_blob(blob, BytesSource(b"data"))
    assert b"".join(layout.read_blob(blob.digest)) == b"data"


def test_damage_is_found_when_read(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout, tag="1.0")
    config = Digest.parse(json.loads(made.raw)["config"]["digest"])
    layout.blob_path(config).write_bytes(b"{}")
    with pytest.raises(CorruptBlob):
        list(layout.read_blob(config))
    layout.blob_path(made.digest).write_bytes(b"{}")
    with pytest.raises(CorruptBlob):
        Layout(tmp_path).manifest("1.0")
    layout.blob_path(made.digest).unlink()
    with pytest.raises(MissingContent, match=r"has the tag '1.0'"):
        layout.manifest("1.0")
    with pytest.raises(MissingContent):
        list(layout.read_blob(Digest.of(b"nothing")))


def test_a_manifest_waits_for_its_blobs(tmp_path: Path) -> None:
    made = image(Layout(tmp_path / "one"))
    other = Layout(tmp_path / "other")
    with pytest.raises(MissingContent, match="2 things"):
        other.put_manifest(made, tag="1.0")
    assert other.tags() == ()


def test_a_moved_tag_keeps_the_old_image_listed(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    old = image(layout, text="old", tag="1.0")
    new = image(layout, text="new", tag="1.0")
    image(layout, text="new", tag="2.0")
    assert layout.manifest("1.0") == new
    entries = json.loads((tmp_path / "index.json").read_text())["manifests"]
    assert sorted((entry["digest"], entry.get("annotations", {}).get(REF_NAME, "")) for entry in entries) == sorted(
        [(str(old.digest), ""), (str(new.digest), "1.0"), (str(new.digest), "2.0")]
    )


def test_tagging_replaces_the_untagged_entry(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout)
    layout.put_manifest(made, tag="1.0")
    layout.put_manifest(made)
    layout.put_manifest(made, tag="1.0")
    assert len(json.loads((tmp_path / "index.json").read_text())["manifests"]) == 1


def test_move_tag_compares_first(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one, two = image(layout, text="one"), image(layout, text="two")
    layout.move_tag("h100", one.digest, expected=None)
    with pytest.raises(TagMoved) as caught:
        layout.move_tag("h100", two.digest, expected=None)
    assert caught.value.found == one.digest
    layout.move_tag("h100", two.digest, expected=one.digest)
    assert layout.manifest("h100") == two
    with pytest.raises(MissingContent):
        layout.move_tag("h100", Digest.of(b"none"), expected=two.digest)


def test_referrers_carry_type_and_annotations(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    subject, other = image(layout, text="one", tag="1.0"), image(layout, text="two", tag="2.0")
    bom = referrer(subject, layout, artifact_type="application/vnd.cyclonedx+json", body=b"bom")
    report = referrer(subject, layout, artifact_type="application/vnd.in-toto+json", body=b"report")
    for manifest in (bom, report, bom):
        layout.put_manifest(manifest)
    found = layout.referrers(subject.digest)
    assert {entry.digest for entry in found} == {bom.digest, report.digest}
    (only,) = layout.referrers(subject.digest, artifact_type="application/vnd.cyclonedx+json")
    assert only.artifact_type == "application/vnd.cyclonedx+json"
    assert only.annotations == {"note": "bom"}
    assert layout.referrers(other.digest) == ()
    assert layout.tags() == ("1.0", "2.0")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("index.json", "{", "is not JSON"),
        ("index.json", "[]", "is not an image index"),
        ("index.json", '{"manifests": [{"digest": "md5:1"}]}', "cannot be read"),
        ("notes.txt", "mine", "is not an OCI layout"),
    ],
)
def test_a_folder_that_is_no_layout_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    if name == "index.json":
        (tmp_path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    with pytest.raises(DamagedLayout, match=said):
        Layout(tmp_path).tags()


def test_a_foreign_folder_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DamagedLayout, match=r"holds 'notes.txt'"):
        image(Layout(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def _tag_many(path: str, name: str) -> None:
    layout = Layout(Path(path))
    for number in range(25):
        image(layout, text=f"{name} {number}", tag=f"{name}-{number}")


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_tag_many, args=(str(tmp_path), name)) for name in ("left", "right")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    layout = Layout(tmp_path)
    assert layout.tags() == tuple(sorted(f"{name}-{number}" for name in ("left", "right") for number in range(25)))
    assert all(layout.manifest(tag) is not None for tag in layout.tags())


def test_what_other_tools_wrote_is_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout, tag="1.0")
    path = tmp_path / "index.json"
    document = json.loads(path.read_text())
    document["annotations"] = {"by": "somebody"}
    document["manifests"][0]["urls"] = ["https://example.org/m"]
    path.write_text(json.dumps(document))
    layout.put_manifest(made, tag="2.0")
    document = json.loads(path.read_text())
    assert document["annotations"] == {"by": "somebody"}
    assert document["manifests"][0]["urls"] == ["https://example.org/m"]


def test_manifest_without_media_type_is_recognised(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    image(layout)
    bare = Manifest(MediaType.INDEX, b'{"schemaVersion":2,"manifests":[]}')
    layout.put_manifest(bare)
    assert Layout(tmp_path).manifest(bare.digest) == bare


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_reads_the_layout(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    made = image(layout, tag="1.0")
    image(layout, text="other", tag="2.0")
    layout.put_manifest(referrer(made, layout, artifact_type="application/vnd.in-toto+json", body=b"r"))
    done = subprocess.run(
        ["skopeo", "inspect", "--raw", f"oci:{layout.path}:1.0"], capture_output=True, check=True, timeout=60
    )
    assert done.stdout == made.raw
    subprocess.run(
        ["skopeo", "copy", "-q", f"oci:{layout.path}:1.0", f"oci:{tmp_path / 'copy'}:1.0"], check=True, timeout=60
    )
    assert Layout(tmp_path / "copy").manifest("1.0") == made
