"""The main job on real input: from the example's project file to an image that engines run and registries hold."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunBuilder
from tests.schemas import document
from tests.services import free_port, program

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "cpu-inference"


def copy_of_example(folder: Path) -> Path:
    """The example as a fresh clone would have it."""
    ignored = shutil.ignore_patterns("dist", "__pycache__", "pylock.*", "requirements.*.txt")
    return Path(shutil.copytree(EXAMPLE, folder, ignore=ignored))


def build(run_builder: RunBuilder, project: Path, to: str, *options: str) -> dict[str, Any]:
    """Build the example; its JSON document."""
    result = run_builder("build", "--backend", "cpu", "--to", to, "--json", *options, cwd=project)
    assert result.returncode == 0, result.stdout + result.stderr
    return document(result, "build")


@contextmanager
def running(docker_host: str, image: str) -> Iterator[str]:
    """A container of the image on the host's network; gives the service's URL once it is healthy."""
    docker = [program("docker"), "--host", docker_host]
    port = free_port()
    command = [*docker, "run", "--detach", "--rm", "--network", "host", image, "--port", str(port)]
    container = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"{url}/healthz", trust_env=False).json() == {"status": "ok"}
                break
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    logs = subprocess.run([*docker, "logs", container], capture_output=True, text=True, check=False)
                    raise AssertionError(logs.stderr) from None
                time.sleep(0.2)
        yield url
    finally:
        subprocess.run([*docker, "rm", "--force", container], capture_output=True, check=False)


def reads_digits(url: str) -> None:
    """Ask the service what it must know."""
    samples = json.loads((EXAMPLE / "digits/samples.json").read_text())
    answer = httpx.post(f"{url}/read", json={"images": [sample["image"] for sample in samples]}, trust_env=False)
    assert [guess["digit"] for guess in answer.json()["guesses"]] == [sample["digit"] for sample in samples]
    wrong = httpx.post(f"{url}/read", json={"images": [[1, 2, 3]]}, trust_env=False)
    assert (wrong.status_code, "64 numbers" in wrong.json()["error"]) == (400, True)


@pytest.mark.network
def test_the_example_becomes_a_layout_whose_checks_pass(run_builder: RunBuilder, tmp_path: Path) -> None:
    project = copy_of_example(tmp_path / "here")
    found = build(run_builder, project, "oci:dist/image:demo")
    steps = {step["name"]: step["verdict"] for step in found["steps"]}
    assert list(steps)[:3] == ["lock", "audit", "image"]
    assert "failed" not in steps.values()
    assert found["run"].startswith("skopeo copy oci:dist/image:demo docker-daemon:cpu-inference:demo && docker run")
    inspected = subprocess.run(
        [program("skopeo"), "inspect", "--format", "{{.Digest}}", f"oci:{project / 'dist/image'}:demo"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert inspected.stdout.strip() == found["image"]["digest"]

    smoked = document(run_builder("smoke", "oci:dist/image:demo", "--json", cwd=project), "smoke")
    assert smoked["verdict"] == "passed"
    (warmup,) = [check for check in smoked["checks"] if check["name"] == "warmup"]
    assert warmup["verdict"] == "passed"


@pytest.mark.network
def test_the_same_project_in_another_folder_is_the_same_image(run_builder: RunBuilder, tmp_path: Path) -> None:
    first = copy_of_example(tmp_path / "one")
    one = build(run_builder, first, "oci:out:1", "--no-smoke")
    second = copy_of_example(tmp_path / "deep" / "er" / "two")
    for lock in first.glob("*.cpu.*"):
        shutil.copy(lock, second)
    (second / "digits/model.py").touch()
    two = build(run_builder, second, "oci:out:1", "--no-smoke", "--offline")
    assert two["image"]["digest"] == one["image"]["digest"]


@pytest.mark.network
@pytest.mark.docker
@pytest.mark.registry
def test_a_docker_engine_runs_what_the_built_in_engine_pushed(
    run_builder: RunBuilder, tmp_path: Path, docker_host: str, registry_host: str
) -> None:
    project = copy_of_example(tmp_path / "here")
    found = build(run_builder, project, f"{registry_host}/e2e/cpu-inference:pushed")
    assert found["run"].endswith(f" {registry_host}/e2e/cpu-inference:pushed")
    image = f"{registry_host}/e2e/cpu-inference@{found['image']['digest']}"
    subprocess.run(
        [program("docker"), "--host", docker_host, "pull", "--quiet", image], capture_output=True, check=True
    )
    with running(docker_host, image) as url:
        reads_digits(url)


@pytest.mark.network
@pytest.mark.docker
@pytest.mark.registry
def test_the_docker_engine_builds_the_same_service(
    run_builder: RunBuilder, tmp_path: Path, docker_host: str, registry_host: str
) -> None:
    project = copy_of_example(tmp_path / "here")
    to = f"{registry_host}/e2e/cpu-inference:by-docker"
    result = run_builder(
        *("build", "--backend", "cpu", "--engine", "docker", "--to", to, "--json"),
        cwd=project,
        env={"DOCKER_HOST": docker_host},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    digest = document(result, "build")["image"]["digest"]
    subprocess.run([program("docker"), "--host", docker_host, "pull", "--quiet", to], capture_output=True, check=True)
    with running(docker_host, f"{registry_host}/e2e/cpu-inference@{digest}") as url:
        reads_digits(url)


@pytest.mark.network
@pytest.mark.registry
def test_a_class_tag_moves_only_with_evidence(run_builder: RunBuilder, tmp_path: Path, registry_host: str) -> None:
    project = copy_of_example(tmp_path / "here")
    repository = f"{registry_host}/e2e/promoted"
    (tmp_path / "this.toml").write_text(run_builder("node", "probe", "--backend", "cpu").stdout)
    this = document(run_builder("node", "probe", "--backend", "cpu", "--json"), "node-probe")["node"]["name"]
    other = "cpu-armv8.0-a" if this != "cpu-armv8.0-a" else "cpu-x86-64-v2"

    unproven = build(run_builder, project, f"{repository}:unproven", "--no-smoke")
    reference = f"{repository}@{unproven['image']['digest']}"
    refused = run_builder("promote", reference, "--node-class", this, "--json")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert run_builder("pick", repository, "--node-class", this).returncode == 1

    built = build(run_builder, project, f"{repository}:proven", "--node-class", str(tmp_path / "this.toml"))
    steps = {step["name"]: step["verdict"] for step in built["steps"]}
    assert (steps["proof"], steps["smoke"]) == ("proven", "passed")
    reference = f"{repository}@{built['image']['digest']}"
    refused = run_builder("promote", reference, "--node-class", other, "--json")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    missing = document(refused, "promote")
    assert "proof" in missing["why"]
    assert "smoke" in missing["why"]
    granted = run_builder("promote", reference, "--node-class", this, "--json")
    assert granted.returncode == 0, granted.stdout + granted.stderr
    picked = run_builder("pick", repository, "--node-class", this, "--json")
    assert document(picked, "pick")["digest"] == built["image"]["digest"]
    nothing = run_builder("pick", repository, "--node-class", other, "--json")
    assert (nothing.returncode, document(nothing, "pick")["digest"]) == (1, None)
