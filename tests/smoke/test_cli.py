"""`builder smoke` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.node import probe
from builder.node.classes import class_file_text
from tests.conftest import RunBuilder
from tests.image.wheels import build_wheel
from tests.schemas import document, error
from tests.smoke.conftest import MakeImage


@pytest.fixture
def image(make_image: MakeImage, tmp_path: Path) -> str:
    wheel = build_wheel(tmp_path, "demo", files={"demo.py": b""})
    make_image(wheels=[wheel], warmup=["python", "-c", "import demo"])
    return f"oci:{tmp_path / 'layout'}:test"


def test_a_pass_is_exit_0_and_a_valid_document(run_builder: RunBuilder, image: str) -> None:
    result = run_builder("smoke", image, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    found = document(result, "smoke")
    assert found["verdict"] == "passed"
    assert found["image"]["ref"] == image
    assert [check["name"] for check in found["checks"]] == ["device", "memory", "imports", "warmup"]
    assert found["left_out"] == [
        {"name": "matmul", "why": "the lock holds none of torch, jax, onnxruntime, openvino, numpy"}
    ]


def test_the_text_says_the_same(run_builder: RunBuilder, image: str) -> None:
    result = run_builder("smoke", image.rpartition(":")[0])
    assert result.returncode == 0, result.stderr
    assert "passed   warmup" in result.stdout
    assert "left out matmul" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("passed sha256:")
    assert "passed   imports" in result.stderr


def test_a_failed_check_is_exit_1(run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "demo", files={"demo.py": b"import nothing_there"})
    make_image(wheels=[wheel])
    result = run_builder("smoke", f"oci:{tmp_path / 'layout'}:test", "--json")
    assert result.returncode == 1
    assert document(result, "smoke")["verdict"] == "failed"


def test_an_absent_device_is_exit_4(run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "torch_neuronx", files={"torch_neuronx.py": b""})
    make_image(wheels=[wheel], packages={"torch-neuronx": "1.0"}, backend="neuron")
    result = run_builder("smoke", f"oci:{tmp_path / 'layout'}:test", "--json")
    assert result.returncode == 4
    found = document(result, "smoke")
    verdicts = {check["name"]: check["verdict"] for check in found["checks"]}
    assert verdicts["imports"] == "passed"
    assert verdicts["device"] == verdicts["matmul-torch-neuronx"] == "not-run"


def test_this_machines_own_class_is_recorded(run_builder: RunBuilder, image: str, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(class_file_text(probe("cpu"), checked="2026-01-01"))
    result = run_builder("smoke", image, "--node-class", own, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    found = document(result, "smoke")
    assert found["node_class"] == probe("cpu").name
    assert found["checks"][0]["name"] == "node-class"


def test_a_pass_here_is_no_evidence_for_another_class(run_builder: RunBuilder, image: str) -> None:
    """FR-32: what passed on one CPU level says nothing about another."""
    result = run_builder("smoke", image, "--node-class", "cpu-x86-64-v1", "--json")
    assert result.returncode == 4
    found = document(result, "smoke")
    assert found["verdict"] == "not-run"
    assert "this machine is not cpu-x86-64-v1" in found["checks"][0]["detail"]
    assert {check["verdict"] for check in found["checks"][1:]} == {"passed"}


def test_a_class_of_another_backend_is_refused(run_builder: RunBuilder, image: str) -> None:
    classes = json.loads(run_builder("node", "list", "--json").stdout)["nodes"]
    cuda = next(node["name"] for node in classes if node["backend"] == "cuda")
    found = error(run_builder("smoke", image, "--node-class", cuda, "--json"), 2)
    assert "backend cpu" in found["why"]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("oci:absent", "names no image"),
        ("oci:absent:tag", "there is no image"),
        ("registry.example.org/app", "names no image"),
        ("no reference", "not an image reference"),
    ],
)
def test_images_that_cannot_be_meant(run_builder: RunBuilder, reference: str, words: str) -> None:
    assert words in error(run_builder("smoke", reference, "--json"), 2)["what"]


def test_a_wrong_tag_gets_the_closest(run_builder: RunBuilder, image: str) -> None:
    assert "did you mean 'test'" in error(run_builder("smoke", f"{image[:-4]}tset", "--json"), 2)["fix"]


def test_without_an_engine_the_docker_runner_says_how_to_go_on(
    run_builder: RunBuilder, image: str, tmp_path: Path
) -> None:
    environ = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    found = error(run_builder("smoke", image, "--runner", "docker", "--json", env=environ), 3)
    assert "--runner builtin" in found["fix"]


@pytest.mark.docker
def test_the_docker_runner_gives_the_same_checks(run_builder: RunBuilder, image: str, docker_host: str) -> None:
    result = run_builder("smoke", image, "--runner", "docker", "--json", env={"DOCKER_HOST": docker_host})
    assert result.returncode == 0, result.stdout + result.stderr
    assert document(result, "smoke")["runner"] == "docker"
