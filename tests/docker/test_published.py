"""What the built-in engine pushed, pulled and run by Docker Engine, buildah and skopeo, in every packing."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.image.buildah import Buildah
from builder.image.docker_cli import Docker, DockerFailed
from builder.image.oci import assemble
from builder.image.packing import GZIP, Packing
from builder.image.values import ImagePlan
from builder.names import Digest, RegistryRef
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json, parse_manifest
from builder.registry.open import open_repository as opened_registry
from builder.registry.values import Manifest, MediaType, Repository
from builder.store import Store
from tests.docker.conftest import open_repository
from tests.registry.samples import image as tiny_image
from tests.services import program

SAID = b"hello from the image\n"
PACKINGS = {"gzip": GZIP, "zstd": Packing(compression="zstd"), "estargz": Packing(estargz=True)}

pytestmark = pytest.mark.registry


@pytest.fixture
def target(registry_host: str) -> tuple[Repository, RegistryRef]:
    """An empty repository of the real registry."""
    reference = RegistryRef(registry_host, f"published/{uuid.uuid4().hex[:12]}")
    return opened_registry(reference, environ={}, reporter=SilentReporter()), reference


def pushed(plan: ImagePlan, packing: Packing, target: tuple[Repository, RegistryRef], store: Store) -> str:
    """The plan's image in the registry, without an engine; its reference by digest."""
    repository, reference = target
    project = plan.project.with_layers(compression=packing.compression, estargz=packing.estargz)
    built = assemble(
        replace(plan, project=project),
        target=repository,
        tag="1.0",
        store=store,
        reporter=SilentReporter(),
        reference=reference,
        open_repository=open_repository,
    )
    return str(reference.with_digest(built.digest))


def pushed_index(plan: ImagePlan, target: tuple[Repository, RegistryRef], store: Store) -> str:
    """An index of this machine's image and one of another architecture, first; its reference by tag."""
    repository, reference = target
    own = Digest.parse(pushed(plan, GZIP, target, store).rpartition("@")[2])
    manifest = repository.manifest(own)
    assert manifest is not None
    here = json.loads(b"".join(repository.read_blob(Digest.parse(parse_manifest(manifest)["config"]["digest"]))))
    entries = [
        {**made.descriptor.to_json(), "platform": {"os": "linux", "architecture": architecture}}
        for made, architecture in (
            (tiny_image(repository, text="for another"), "s390x"),
            (manifest, here["architecture"]),
        )
    ]
    index = canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": entries})
    repository.put_manifest(Manifest(MediaType.INDEX, index), tag="all")
    return str(reference.with_tag("all"))


def in_docker(docker: Docker, name: str) -> bytes:
    """Pull and run, and forget."""
    docker.run(["pull", "--quiet", name], what="pull")
    try:
        return docker.run(["run", "--rm", "--network=none", name], what="run it")
    finally:
        docker.run(["rmi", "--force", name], what="forget it")


def in_buildah(buildah: Buildah, name: str, *more: str) -> bytes:
    """A container of the image, pulled where it is not there, and what its entrypoint says."""
    container = buildah.run(["from", "--quiet", "--tls-verify=false", *more, name], what="pull").decode().strip()
    entrypoint = json.loads(buildah.run(["inspect", container], what="look"))["OCIv1"]["config"]["Entrypoint"]
    return buildah.run(["run", container, "--", *entrypoint], what="run it")


@pytest.mark.docker
@pytest.mark.parametrize("kind", PACKINGS)
def test_docker_pulls_and_runs_it(
    plan: ImagePlan, docker: Docker, target: tuple[Repository, RegistryRef], store: Store, kind: str
) -> None:
    name = pushed(plan, PACKINGS[kind], target, store)
    if kind == "zstd" and not docker.versions.reads_zstd:
        with pytest.raises(DockerFailed, match="pull"):
            in_docker(docker, name)
        return
    assert in_docker(docker, name) == SAID


@pytest.mark.parametrize("kind", PACKINGS)
def test_buildah_pulls_and_runs_it(
    plan: ImagePlan, buildah: Buildah, target: tuple[Repository, RegistryRef], store: Store, kind: str
) -> None:
    assert in_buildah(buildah, pushed(plan, PACKINGS[kind], target, store)) == SAID


@pytest.mark.parametrize("kind", PACKINGS)
def test_what_skopeo_pulls_is_the_same_to_the_last_bit_and_runs(
    plan: ImagePlan,
    buildah: Buildah,
    target: tuple[Repository, RegistryRef],
    store: Store,
    tmp_path: Path,
    kind: str,
) -> None:
    """skopeo starts nothing itself: buildah runs what it wrote, a layout."""
    name = pushed(plan, PACKINGS[kind], target, store)
    copy = [
        program("skopeo"),
        "copy",
        "--quiet",
        "--src-tls-verify=false",
        f"docker://{name}",
        f"oci:{tmp_path}/copy:1",
    ]
    subprocess.run(copy, check=True)
    found = Layout(tmp_path / "copy").resolve("1")
    assert found is not None
    assert name.endswith(f"@{found.digest}")
    assert in_buildah(buildah, f"oci:{tmp_path}/copy:1") == SAID


@pytest.mark.docker
def test_each_takes_its_own_architecture_out_of_an_index(
    plan: ImagePlan,
    docker: Docker,
    buildah: Buildah,
    target: tuple[Repository, RegistryRef],
    store: Store,
    tmp_path: Path,
) -> None:
    name = pushed_index(plan, target, store)
    assert in_docker(docker, name) == SAID
    assert in_buildah(buildah, name) == SAID
    copy = [program("skopeo"), "copy", "--quiet", "--src-tls-verify=false"]
    subprocess.run([*copy, f"docker://{name}", f"oci:{tmp_path}/one:1"], check=True)
    assert in_buildah(buildah, f"oci:{tmp_path}/one:1") == SAID
    subprocess.run([*copy, "--all", f"docker://{name}", f"oci:{tmp_path}/all:1"], check=True)
    both = Layout(tmp_path / "all").resolve("1")
    index = target[0].resolve("all")
    assert both is not None
    assert index is not None
    assert both.digest == index.digest
