"""`builder dockerfile` as a user runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from builder.image.docker_cli import Docker
from builder.image.values import ImagePlan
from builder.lock.files import write_lock
from tests.conftest import RunBuilder
from tests.docker import conftest as docker_fixtures
from tests.dockerfile import plans
from tests.schemas import document, error

environ = docker_fixtures.environ
base = docker_fixtures.base
plan = docker_fixtures.plan


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "builder.toml").write_text(
        'name = "demo"\nversion = "1.2.0"\npython = "3.11"\nrequirements = ["numpy"]\n'
        '[image]\nentrypoint = ["python", "-m", "demo"]\n'
    )
    write_lock(plans.make_plan("cpu").lock, folder)
    return folder


def test_text_and_document_are_the_same_dockerfile(run_builder: RunBuilder, project: Path) -> None:
    text = run_builder("dockerfile", "--backend", "cpu", cwd=project)
    assert text.returncode == 0, text.stderr
    found = document(run_builder("dockerfile", "--backend", "cpu", "--json", cwd=project), "dockerfile")
    assert found["dockerfile"] == text.stdout
    assert 'ENTRYPOINT ["python", "-m", "demo"]' in text.stdout
    paths = [file["path"] for file in found["context"]]
    assert paths == sorted(paths)
    assert {"install.py", "wheels.json"} < set(paths)


def test_a_stale_lock_is_said_to_be_stale(run_builder: RunBuilder, project: Path) -> None:
    done = run_builder("dockerfile", "--backend", "cpu", "--json", cwd=project)
    (reason, *_) = document(done, "dockerfile")["stale"]
    text = run_builder("dockerfile", "--backend", "cpu", cwd=project)
    assert f"pylock.cpu.toml is stale: {reason}" in text.stderr
    assert "renew it with builder lock --backend cpu" in text.stderr
    baked = document(run_builder("bake", "--to", "registry.example.org/demo", "--json", cwd=project), "bake")
    assert baked["stale"]["cpu"][0] == reason


def test_without_a_lock_the_mend_is_named(run_builder: RunBuilder, project: Path) -> None:
    found = error(run_builder("dockerfile", "--backend", "npu", "--json", cwd=project), 2)
    assert "builder lock" in found["fix"]


def test_the_lock_of_another_backend_is_not_taken(run_builder: RunBuilder, project: Path) -> None:
    (project / "pylock.cpu.toml").rename(project / "pylock.cuda.toml")
    found = error(run_builder("dockerfile", "--backend", "cuda", "--json", cwd=project), 2)
    assert (found["why"], "builder lock --backend cuda" in found["fix"]) == ("it says that it is for cpu", True)


@pytest.mark.docker
def test_what_is_written_builds_by_the_lines_it_names(
    run_builder: RunBuilder, plan: ImagePlan, environ: dict[str, str], tmp_path: Path
) -> None:
    """The folder is complete: its own commands load the base, build without a network, and the image runs."""
    found_clients = [Docker.find({**environ, "BUILDER_DOCKER": path}) for path in docker_fixtures.clients()]
    able = [client for client in found_clients if client.build_with != "classic"]
    if not able:
        pytest.skip("no docker client here has BuildKit, which the printed form is for")
    docker = able[0]
    root = plan.project.root
    (root / "builder.toml").write_text(
        'name = "demo"\nversion = "1.0"\npython = "3.11"\nrequirements = ["demo"]\n'
        '[image]\nentrypoint = ["demo"]\ncopy = ["app"]\n'
    )
    write_lock(plan.lock, root)
    folder = tmp_path / "out"
    result = run_builder("dockerfile", "--backend", "cpu", "--write", folder, "--json", cwd=root)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    docker.run(["load", "--input", str(folder / "base.tar")], what="load the base")
    path = f"{Path(docker.program).parent}:{docker.environ['PATH']}"
    subprocess.run(found["build"], shell=True, cwd=folder, env={**docker.environ, "PATH": path}, check=True)  # noqa: S602
    assert docker.run(["run", "--rm", "--network=none", "demo:cpu"], what="run") == b"hello from the image\n"


def test_a_folder_that_is_there_is_not_touched(run_builder: RunBuilder, project: Path) -> None:
    found = error(run_builder("dockerfile", "--backend", "cpu", "--write", ".", "--json", cwd=project), 2)
    assert "is there already" in found["what"]
    assert not (project / "Dockerfile").exists()
