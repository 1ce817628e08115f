"""The catalogue says what an index cannot: which image is for which backend (FR-27)."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from builder.errors import BuilderError
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.registry.client import Remote
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json
from builder.registry.values import Descriptor, Manifest, MediaType, Repository
from builder.release.catalogue import CATALOGUE, TAG, read_repository, write_catalogue
from builder.release.pick import images
from builder.release.promote import promote
from builder.release.retention import clear_layout
from tests.conftest import RunBuilder
from tests.registry.samples import image
from tests.release import samples
from tests.release.test_retention import DAY, LATER, version
from tests.schemas import document, error, schema


def named(repository: Repository, backend: str, toolkit: str | None = None) -> Manifest:
    labels = {
        "dev.builder.backend": backend,
        "dev.builder.python": "3.11",
        "org.opencontainers.image.version": "1.2.0",
        **({"dev.builder.toolkit": toolkit} if toolkit else {}),
    }
    return image(repository, text=backend, tag=f"1.2.0-{backend}{toolkit or ''}", annotations=labels)


def content(repository: Repository) -> dict[str, object]:
    """What a client pulls under the tag."""
    manifest = repository.manifest(TAG)
    assert manifest is not None
    value = json.loads(manifest.raw)
    assert value["artifactType"] == CATALOGUE
    (layer,) = value["layers"]
    found: dict[str, object] = json.loads(b"".join(repository.read_blob(Digest.parse(layer["digest"]))))
    return found


def test_each_backend_is_told_apart_and_the_catalogue_can_be_pulled(target: Repository) -> None:
    from jsonschema import Draft202012Validator

    cuda, rocm = named(target, "cuda", "13.0"), named(target, "rocm", "7.2")
    written = write_catalogue(target)
    assert [(entry.backend, entry.toolkit, entry.tags, entry.digest) for entry in written.entries] == [
        ("cuda", "13.0", ("1.2.0-cuda13.0",), cuda.digest),
        ("rocm", "7.2", ("1.2.0-rocm7.2",), rocm.digest),
    ]
    found = content(target)
    Draft202012Validator(schema("catalogue")).validate(found)
    assert found["images"] == [entry.to_json() for entry in written.entries]


def test_the_same_images_give_the_same_bytes_and_a_new_one_another(target: Repository) -> None:
    named(target, "cpu")
    first = write_catalogue(target)
    assert (first.moved, write_catalogue(target).moved) == (True, False)
    named(target, "cuda", "13.0")
    second = write_catalogue(target)
    assert second.moved
    assert second.digest != first.digest
    assert len(second.entries) == 2  # the catalogue does not list itself


def test_node_classes_are_those_that_a_promotion_pointed_there(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = version(layout, 1)
    layout.move_tag("by-hand", made.digest, expected=None)
    when = "2026-02-01T00:00:00Z"
    promote(layout, made.digest, samples.NODE_CLASS, required=("smoke", "audit"), when=when)
    (entry,) = read_repository(layout)
    assert (entry.node_classes, entry.tags) == ((samples.NODE_CLASS,), ("1.1", "by-hand"))


def test_an_index_is_one_entry_with_its_platforms(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    children = [
        image(layout, text=arch, annotations={"dev.builder.backend": "cuda", "dev.builder.toolkit": "13.0"})
        for arch in ("amd64", "arm64")
    ]
    entries = [
        {**child.descriptor.to_json(), "platform": {"os": "linux", "architecture": arch}}
        for child, arch in zip(children, ("amd64", "arm64"), strict=True)
    ]
    index = {"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": entries}
    layout.put_manifest(Manifest(MediaType.INDEX, canonical_json(index)), tag="1.2.0-cuda13.0")
    (entry,) = read_repository(layout)
    assert (entry.backend, entry.toolkit, entry.platforms) == ("cuda", "13.0", ("linux/amd64", "linux/arm64"))


def test_it_is_no_image_for_others(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = version(layout, 1)
    write_catalogue(layout)
    assert [row.digest for row in images(layout)] == [made.digest]
    clear_layout(layout, keep=1, min_age=DAY, now=LATER)
    assert layout.tags() == ("1.1", TAG)
    assert content(layout)["images"]


def test_a_writer_that_was_overtaken_reads_again(tmp_path: Path) -> None:
    class Raced(Layout):
        overtaken = False

        def move_tag(self, tag: str, digest: Digest, *, expected: Digest | None) -> Descriptor:
            if not self.overtaken:
                self.overtaken = True
                named(Layout(self.path), "rocm", "7.2")
                write_catalogue(Layout(self.path))
            return super().move_tag(tag, digest, expected=expected)

    named(Layout(tmp_path), "cuda", "13.0")
    written = write_catalogue(Raced(tmp_path))
    assert [entry.backend for entry in written.entries] == ["cuda", "rocm"]
    assert content(Layout(tmp_path))["images"] == [entry.to_json() for entry in written.entries]


@pytest.mark.registry
def test_two_writers_on_a_registry_leave_one_true_catalogue(registry_host: str, repository_name: str) -> None:
    reference = RegistryRef(registry_host, repository_name)
    start = threading.Barrier(2)
    failures: list[BuilderError] = []

    def publish(backend: str) -> None:
        own = Remote.open(reference, environ={}, reporter=SilentReporter())
        named(own, backend)
        start.wait()
        try:
            write_catalogue(own)
        except BuilderError as error:
            failures.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=publish, args=(backend,)) for backend in ("cpu", "npu")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    remote = Remote.open(reference, environ={}, reporter=SilentReporter())
    assert content(remote)["images"] == [entry.to_json() for entry in read_repository(remote)]
    assert len(read_repository(remote)) == 2
    remote.close()


def test_the_command(run_builder: RunBuilder, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "dist")
    named(layout, "cuda", "13.0")
    listed = document(run_builder("catalogue", "oci:dist", "--json"), "catalogue")
    assert (listed["verdict"], listed["digest"]) == ("listed", None)
    written = document(run_builder("catalogue", "oci:dist", "--write", "--json"), "catalogue")
    assert (written["verdict"], written["ref"]) == ("written", "oci:dist:catalogue")
    assert written["images"] == listed["images"]
    text = run_builder("catalogue", "oci:dist", "--write").stdout
    assert "1.2.0-cuda13.0" in text
    assert f"unchanged oci:dist:catalogue@{written['digest']}" in text
    layout.move_tag(TAG, named(layout, "rocm").digest, expected=Digest.parse(written["digest"]))
    assert "expected nothing" in error(run_builder("catalogue", "oci:dist", "--write", "--json"), 1)["why"]
