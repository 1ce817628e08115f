"""The docker engine against the built-in one, on a real Docker Engine with every client of the machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.errors import Refused
from builder.events import SilentReporter
from builder.image.docker import assemble_docker
from builder.image.docker_cli import Docker, DockerFailed
from builder.image.oci import assemble
from builder.image.values import ImagePlan
from builder.registry.layout import Layout
from builder.smoke.rootfs import open_layer, unpack_layer
from builder.smoke.values import RunnableImage
from builder.store import Store
from tests.docker.conftest import open_repository
from tests.image.wheels import build_wheel
from tests.smoke.images import opened

pytestmark = pytest.mark.docker


def build(plan: ImagePlan, docker: Docker, store: Store, layout: Layout, tag: str = "docker") -> RunnableImage:
    made = assemble_docker(
        plan,
        docker=docker,
        target=layout,
        tag=tag,
        store=store,
        reporter=SilentReporter(),
        open_repository=open_repository,
    )
    image = opened(layout, tag)
    assert image.digest == made.digest
    return image


def tree(image: RunnableImage, root: Path) -> dict[str, tuple[str, int, str]]:
    """Path to kind, mode and content of everything in the image."""
    root.mkdir()
    for layer in image.layers:
        with open_layer(image.repository, layer, lambda _, /: None) as stream:
            unpack_layer(stream, root)
    found = {}
    for path in root.rglob("*"):
        status = path.lstat()
        if path.is_symlink():
            told = ("link", 0, str(path.readlink()))
        elif path.is_dir():
            told = ("folder", status.st_mode & 0o7777, "")
        else:
            told = ("file", status.st_mode & 0o7777, hashlib.sha256(path.read_bytes()).hexdigest())
        found[str(path.relative_to(root))] = told
    return found


def settings(image: RunnableImage) -> dict[str, Any]:
    return {key: value for key, value in image.config["config"].items() if value}


@pytest.mark.parametrize("buildkit", ["1", "0"])
def test_both_engines_make_the_same_image(
    client: str, buildkit: str, plan: ImagePlan, environ: dict[str, str], store: Store, tmp_path: Path
) -> None:
    docker = Docker.find({**environ, "BUILDER_DOCKER": client, "DOCKER_BUILDKIT": buildkit})
    layout = Layout(tmp_path / "layout")
    theirs = build(plan, docker, store, layout)
    assemble(plan, target=layout, tag="oci", store=store, reporter=SilentReporter(), open_repository=open_repository)
    ours = opened(layout, "oci")
    assert theirs.layers[0].digest == ours.layers[0].digest, "the base is the same blob"

    made, expected = tree(theirs, tmp_path / "theirs"), tree(ours, tmp_path / "ours")
    assert expected["tmp"] == ("folder", 0o1777, "")
    assert any(path.endswith("site-packages/demo/data.bin") for path in made)
    # Mount points that an engine makes while it runs a step are all it may add.
    assert {path for path in made if path not in expected} <= {"dev", "proc", "sys", "etc/resolv.conf", "etc/hosts"}
    assert {path: told for path, told in made.items() if path in expected} == expected

    labels = {**settings(ours)["Labels"]}
    assert settings(theirs) == {**settings(ours), "Labels": labels}
    assert theirs.argv == ("demo",)
    assert theirs.user == "10001:10001"
    assert theirs.env["PATH"] == "/opt/venv/bin:/base/bin"
    assert theirs.env["PRICE"] == '$5 and "more" \\n'


def test_the_same_plan_gives_the_same_digest_again(
    plan: ImagePlan, docker: Docker, store: Store, tmp_path: Path
) -> None:
    first = build(plan, docker, store, Layout(tmp_path / "one"))
    docker.run(["builder", "prune", "--all", "--force"], what="forget what was built")
    docker.run(["image", "rm", "demo:cpu"], what="forget the image")
    second = build(plan, docker, store, Layout(tmp_path / "two"))
    assert first.digest == second.digest
    created = {entry["created"] for entry in second.config["history"]}
    assert created == {plan.created}


def test_the_image_in_the_engine_runs(plan: ImagePlan, docker: Docker, store: Store, tmp_path: Path) -> None:
    build(plan, docker, store, Layout(tmp_path / "layout"))
    said = docker.run(["run", "--rm", "--network=none", "demo:cpu"], what="run it")
    assert said == b"hello from the image\n"


def test_what_is_handed_over_loads_again(plan: ImagePlan, docker: Docker, store: Store, tmp_path: Path) -> None:
    """The normalised layers are a valid image: the engine takes them back and checks every diff id."""
    from builder.smoke.docker import DockerRunner
    from builder.smoke.run import run_command

    image = build(plan, docker, store, Layout(tmp_path / "layout"))
    runner = DockerRunner(docker=docker, reporter=SilentReporter())
    assert run_command(image, ("demo",), runner=runner, timeout=60).stdout == b"hello from the image\n"


def test_a_wheel_changed_behind_the_lock_is_refused(
    plan: ImagePlan, docker: Docker, store: Store, tmp_path: Path
) -> None:
    name, path = next(iter(plan.wheelhouse.files.items()))
    changed = tmp_path / "changed.whl"
    changed.write_bytes(path.read_bytes() + b"x")
    tampered = replace(plan, wheelhouse=replace(plan.wheelhouse, files={**plan.wheelhouse.files, name: changed}))
    with pytest.raises(DockerFailed, match="the lock says"):
        build(tampered, docker, store, Layout(tmp_path / "layout"))
    assert Layout(tmp_path / "layout").tags() == ()


def test_two_owners_of_one_path_are_refused_as_by_the_other_engine(
    plan: ImagePlan, docker: Docker, store: Store, tmp_path: Path
) -> None:
    from tests.image.plans import make_plan

    wheels = [build_wheel(tmp_path, name, files={"shared.py": name.encode()}) for name in ("one", "two")]
    with pytest.raises(Refused, match=r"shared\.py|own the same paths"):
        build(make_plan(plan.project, plan.lock.base, wheels), docker, store, Layout(tmp_path / "layout"))


def test_no_client_and_no_engine_are_told_apart(docker_host: str, tmp_path: Path) -> None:
    import os

    with pytest.raises(DockerFailed, match="no docker client"):
        Docker.find({"PATH": str(tmp_path)})
    with pytest.raises(DockerFailed, match="no Docker Engine") as caught:
        Docker.find({"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert "--engine oci" in caught.value.fix
    assert caught.value.exit_code == 3


def test_settings_are_json_of_the_specification(plan: ImagePlan, docker: Docker, store: Store, tmp_path: Path) -> None:
    image = build(plan, docker, store, Layout(tmp_path / "layout"))
    text = json.dumps(image.config)
    assert "docker_version" not in text
    assert "container" not in image.config
    assert image.config["rootfs"]["diff_ids"] == [str(digest) for digest in image.diff_ids]
    assert len(image.layers) == len(image.diff_ids) == len(image.config["history"])
