"""The docker engine against the built-in one, on a real Docker Engine with every client of the machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from builder.errors import Refused
from builder.events import SilentReporter
from builder.image.base_layers import base_image
from builder.image.docker import assemble_docker
from builder.image.docker_cli import Docker, DockerFailed
from builder.image.oci import assemble
from builder.image.values import ImagePlan
from builder.pipeline.base_python import UnpackedBase
from builder.registry.layout import Layout
from builder.smoke.builtin import BuiltinRunner
from builder.smoke.rootfs import open_layer, unpack_layer
from builder.smoke.values import RunnableImage
from builder.store import Store
from tests.docker.conftest import open_repository
from tests.image.plans import make_plan
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


def test_bytecode_is_the_same_whoever_compiles_it(
    plan: ImagePlan, docker: Docker, store: Store, tmp_path: Path
) -> None:
    """The engine's build and the built-in one run the base's Python both."""
    sources = b"def f(x):\n    return x in {'q', 'w', 'e', 'r'}\n"
    wheels = [build_wheel(tmp_path, "sets", files={"sets.py": sources, "broken.py": b"1 +\n"})]
    wheels += [path for path in plan.wheelhouse.files.values() if path.name.startswith("demo")]
    project = plan.project.with_layers(bytecode=True)
    compiling = make_plan(project, plan.lock.base, wheels, arch=plan.lock.arch, runtime=plan.runtime)
    layout = Layout(tmp_path / "layout")
    theirs = build(compiling, docker, store, layout)
    base = partial(base_image, plan.lock.base, plan.lock.arch, store, SilentReporter(), open_repository=open_repository)
    runner = BuiltinRunner(scratch=store.root / "tmp", reporter=SilentReporter())
    with UnpackedBase(compiling.lock, base, runner) as python:
        assemble(
            compiling,
            target=layout,
            tag="oci",
            store=store,
            reporter=SilentReporter(),
            open_repository=open_repository,
            python=python,
        )
    made, expected = tree(theirs, tmp_path / "theirs"), tree(opened(layout, "oci"), tmp_path / "ours")
    assert {path: told for path, told in made.items() if "opt/venv" in path} == {
        path: told for path, told in expected.items() if "opt/venv" in path
    }
    compiled = {
        Path(path).name.split(".")[0] for path in expected if path.startswith("opt/venv") and path.endswith(".pyc")
    }
    assert compiled == {"sets", "__init__"}


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
