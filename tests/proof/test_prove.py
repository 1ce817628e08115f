"""The whole proof, through the command line, on images in a layout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.names import parse_ref
from builder.registry import copy, open_repository
from tests.conftest import RunBuilder
from tests.proof.test_demands import fatbin
from tests.proof.trees import SITE, SUFFIX, VENV, Tree, put_image, tar_of
from tests.schemas import document, error

PATH = {"PATH": f"{VENV}/bin:/usr/bin"}


@pytest.fixture
def app(tree: Tree) -> Tree:
    """A package whose module needs a library that another layer may bring."""
    tree.python()
    tree.library(f"{SITE}/pkg.libs/libfoo.so.1")
    tree.module("pkg/_core", needs=["libfoo.so.1"], flags=["-Wl,-rpath,$ORIGIN/../pkg.libs"])
    tree.write(f"{SITE}/pkg/__init__.py", "from . import _core\n")
    tree.distribution("pkg", "pkg/__init__.py", f"pkg/_core{SUFFIX}", "pkg.libs/libfoo.so.1")
    return tree


def image(tree: Tree, folder: Path, *, env: Mapping[str, str] | None = None, argv: Sequence[str] = ("python",)) -> str:
    put_image(folder, [tar_of(tree.root)], env={**PATH, **(env or {})}, entrypoint=argv)
    return f"oci:{folder}:t"


def class_file(folder: Path, **facts: str) -> Path:
    values = {"name": "mine", "backend": "cpu", "arch": "x86_64", "source": "origin", "confidence": "measured", **facts}
    cells = "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
    columns = json.dumps([key for key in values if key not in ("source", "confidence")])
    path = folder / "mine.toml"
    path.write_text(
        f'kind = "nodeclass"\ntitle = "One"\nkey = ["name"]\ncolumns = {columns}\n\n'
        f'[sources.origin]\ntext = "by hand"\nchecked = 2026-11-30\n\n[[rows]]\n{cells}\n'
    )
    return path


def test_proven(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    reference = image(app, tmp_path / "l")
    result = run_builder("prove", reference, "--node-class", "cpu-x86-64-v3", "--json")
    assert result.returncode == 0, result.stderr
    found = document(result, "prove")
    assert (found["verdict"], found["reasons"], found["modules"]) == ("proven", [], 1)
    assert found["image"]["ref"] == reference
    # the same again, from what was remembered, to the byte
    assert run_builder("prove", reference, "--node-class", "cpu-x86-64-v3", "--json").stdout == result.stdout


@pytest.mark.registry
def test_an_image_in_a_registry(app: Tree, run_builder: RunBuilder, tmp_path: Path, registry_host: str) -> None:
    layout, digest = put_image(tmp_path / "l", [tar_of(app.root)], env=PATH, entrypoint=["python"])
    reference = parse_ref(f"{registry_host}/proof/app@{digest}")
    remote = open_repository(reference, environ={}, reporter=SilentReporter())
    copy(layout, remote, digest, reporter=SilentReporter())
    result = run_builder("prove", str(reference), "--node-class", "cpu-x86-64-v3", "--json")
    assert result.returncode == 0, result.stderr
    assert document(result, "prove")["image"] == {"ref": str(reference), "digest": str(digest)}


def test_refused_with_the_evidence(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    app.path(f"{SITE}/pkg.libs/libfoo.so.1").rename(app.path(f"{SITE}/pkg.libs/libfoo-1234abcd.so.1"))
    result = run_builder("prove", image(app, tmp_path / "l"), "--node-class", "cpu-x86-64-v3", "--json")
    assert result.returncode == 1
    found = document(result, "prove")
    (fault,) = found["unresolved"]
    assert (fault["needed"], fault["weight"]) == ("libfoo.so.1", "required")
    assert fault["nearest"] == f"{SITE}/pkg.libs/libfoo-1234abcd.so.1"
    assert fault["searched"][0].startswith(f"{SITE}/pkg/../pkg.libs (RUNPATH of ")
    assert len(found["reasons"]) == 1
    text = run_builder("prove", image(app, tmp_path / "l"), "--node-class", "cpu-x86-64-v3").stdout
    assert text.startswith("refused: ")
    assert "needs libfoo.so.1: not in any of" in text


def test_unknown_when_the_class_does_not_say(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    app.module("pkg/_core", needs=["libfoo.so.1"], flags=["-Wl,-rpath,$ORIGIN/../pkg.libs", "-Wl,-z,x86-64-v3"])
    reference = image(app, tmp_path / "l")
    node = class_file(tmp_path)
    result = run_builder("prove", reference, "--node-class", node, "--json")
    assert result.returncode == 4
    found = document(result, "prove")
    assert found["verdict"] == "unknown"
    (need,) = found["cpu"]
    assert need["why"].startswith("needs x86-64-v3; the node class does not say its cpu_level")
    refused = document(run_builder("prove", reference, "--node-class", "cpu-x86-64-v2", "--json"), "prove")
    assert refused["verdict"] == "refused"


def test_fr_08_through_the_command_line(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    path = f"{SITE}/pkg/_core{SUFFIX}"
    code = fatbin(*(("sm", number, "") for number in (50, 60, 70, 75, 80, 86, 90)))
    app.write(path, app.path(path).read_bytes() + code)
    reference = image(app, tmp_path / "l", env={"CUDA_VERSION": "12.4.1"})
    answers = {}
    for name, target in (("rtx5090", "sm_120"), ("l4", "sm_89")):
        node = class_file(tmp_path, backend="cuda", device_arch=target, driver="570.124.06", name=name)
        found = document(run_builder("prove", reference, "--node-class", node, "--json"), "prove")
        (covered,) = found["device_code"]
        answers[name] = (found["verdict"], covered["by"], found["driver"]["verdict"], found["driver"]["toolkit"])
    assert answers["l4"] == ("proven", ["sm_86"], "proven", "12.4.1")
    assert answers["rtx5090"][:2] == ("refused", [])


def test_an_image_for_another_architecture(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    put_image(tmp_path / "l", [tar_of(app.root)], env=PATH, architecture="arm64")
    result = run_builder("prove", f"oci:{tmp_path}/l:t", "--node-class", "cpu-x86-64-v3", "--json")
    assert error(result, 1)["what"] == "the image is for arm64, node class cpu-x86-64-v3 is x86_64"


def test_an_image_for_another_backend(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    put_image(tmp_path / "l", [tar_of(app.root)], env=PATH, labels={"dev.builder.backend": "rocm"})
    result = run_builder("prove", f"oci:{tmp_path}/l:t", "--node-class", "cpu-x86-64-v3", "--json")
    assert error(result, 1)["what"] == "the image is for rocm, node class cpu-x86-64-v3 is cpu"


def test_an_image_without_anything_to_start(tree: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    result = run_builder("prove", image(tree, tmp_path / "l", argv=()), "--node-class", "cpu-x86-64-v3", "--json")
    assert result.returncode == 4
    assert document(result, "prove")["reasons"] == ["the image names no program to start and has no Python on its PATH"]


def test_an_image_without_glibc(tree: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    shutil.rmtree(tree.path("/lib"))
    tree.program("/app/p", flags=["-static"])
    result = run_builder(
        "prove", image(tree, tmp_path / "l", argv=("/app/p",)), "--node-class", "cpu-x86-64-v3", "--json"
    )
    assert result.returncode == 4
    assert "there is no glibc in the image" in document(result, "prove")["reasons"][0]


def test_allowed_faults_are_in_the_proof(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    app.path(f"{SITE}/pkg.libs/libfoo.so.1").unlink()
    arguments = ("prove", image(app, tmp_path / "l"), "--node-class", "cpu-x86-64-v3", "--allow", "pkg/*", "--json")
    result = run_builder(*arguments)
    assert result.returncode == 0
    assert "allowed by 'pkg/*'" in document(result, "prove")["unresolved"][0]["why"]


def test_environment_that_is_added(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    app.path(f"{SITE}/pkg.libs").rename(app.path("/opt/toolkit"))
    arguments = ("prove", image(app, tmp_path / "l"), "--node-class", "cpu-x86-64-v3")
    assert run_builder(*arguments).returncode == 1
    assert run_builder(*arguments, "--env", "LD_LIBRARY_PATH=/opt/toolkit").returncode == 0
    assert error(run_builder(*arguments, "--env", "LD_LIBRARY_PATH", "--json"), 2)["fix"] == "write NAME=VALUE"


def test_fr_09_an_override_in_the_image_is_refused(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    node = class_file(tmp_path, backend="rocm", device_arch="gfx1100")
    result = run_builder(
        "prove", image(app, tmp_path / "l", env={"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}), "--node-class", node, "--json"
    )
    assert result.returncode == 1
    (reason,) = [text for text in json.loads(result.stdout)["reasons"] if "HSA_OVERRIDE" in text]
    assert "for whatever device it meets: take it out of the image" in reason


def test_fr_07_a_driver_library_in_the_image(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    app.library("/usr/local/cuda/compat/libcuda.so.1")
    app.module("pkg/_core", needs=["libcuda.so.1"])
    env = {"LD_LIBRARY_PATH": "/usr/local/cuda/compat", "CUDA_VERSION": "12.8"}
    node = class_file(tmp_path, backend="cuda", device_arch="sm_86", driver="570.211.01")
    arguments = ("prove", image(app, tmp_path / "l", env=env), "--node-class", node, "--json")
    result = run_builder(*arguments)
    assert result.returncode == 4
    found = document(result, "prove")
    assert [item["inside"] for item in found["host"]] == ["/usr/local/cuda/compat/libcuda.so.1"]
    assert "forward compatibility is for data-centre devices only" in found["reasons"][0]
    assert run_builder(*arguments, "--allow", "/usr/local/cuda/compat/*").returncode == 0
    # without it on the path the node's own is taken
    app.path("/usr/local/cuda/compat/libcuda.so.1").unlink()
    result = run_builder("prove", image(app, tmp_path / "m", env=env), "--node-class", node, "--json")
    assert (result.returncode, document(result, "prove")["host"][0]["inside"]) == (0, None)


def test_a_reference_without_a_tag(app: Tree, run_builder: RunBuilder, tmp_path: Path) -> None:
    image(app, tmp_path / "l")
    arguments = ("--node-class", "cpu-x86-64-v3", "--json")
    assert run_builder("prove", f"oci:{tmp_path}/l", *arguments).returncode == 0
    put_image(tmp_path / "l", [tar_of(app.root)], env=PATH, tag="other")
    found = error(run_builder("prove", f"oci:{tmp_path}/l", *arguments), 2)
    assert found["why"] == "its tags are other, t"


@pytest.mark.parametrize("name", ["cpu-x86-64-v33", "nothing.toml"])
def test_a_class_that_does_not_exist(app: Tree, run_builder: RunBuilder, tmp_path: Path, name: str) -> None:
    error(run_builder("prove", image(app, tmp_path / "l"), "--node-class", name, "--json"), 2)


def test_an_image_that_does_not_exist(run_builder: RunBuilder, tmp_path: Path) -> None:
    found = error(run_builder("prove", f"oci:{tmp_path}/l:t", "--node-class", "cpu-x86-64-v3", "--json"), 2)
    assert found["what"].startswith("there is no image oci:")
