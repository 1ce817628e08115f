"""Every example locks, is audited and renders; its page says nothing that is not so."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from builder import resources
from builder.matrix import load_backend
from builder.project import load_project
from tests.conftest import RunBuilder
from tests.schemas import document, error

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
BACKENDS = {folder.name: folder.name.partition("-")[0] for folder in sorted(EXAMPLES.iterdir()) if folder.is_dir()}
ON_DEFAULT_INDEX = [name for name, backend in BACKENDS.items() if backend not in ("neuron", "hpu")]
SMALL = ["cpu-inference", "npu-text", "xpu-openvino"]
"""Examples whose wheels come to less than half a gigabyte."""


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the example that the test is called with, away from the repository."""
    name: str = request.param
    ignored = shutil.ignore_patterns("dist", "__pycache__", "pylock.*", "requirements.*.txt")
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=ignored))


def test_there_is_one_example_for_each_backend() -> None:
    """But for those whose base image no source names: an example could only invent one."""
    nameless = {
        name
        for name in resources.backends()
        if (backend := load_backend(name)).spec.vendor_base and not backend.rows("base")
    }
    assert sorted(BACKENDS.values()) == sorted(set(resources.backends()) - nameless)


@pytest.mark.parametrize("name", BACKENDS)
def test_an_example_is_complete(name: str) -> None:
    project = load_project(EXAMPLES / name / "builder.toml")
    assert project.name == name
    assert list(project.backends) == [BACKENDS[name]]
    assert project.warmup is not None
    assert project.warmup.command[-1] == "--once"
    assert (EXAMPLES / name / "README.md").read_text().startswith(f"# {name}: ")


@pytest.mark.network
@pytest.mark.parametrize("example", ON_DEFAULT_INDEX, indirect=True)
def test_an_example_locks_stays_fresh_and_renders(run_builder: RunBuilder, example: Path) -> None:
    backend = BACKENDS[example.name]
    locked = run_builder("lock", "--backend", backend, "--json", cwd=example)
    assert locked.returncode == 0, locked.stdout + locked.stderr
    found = document(locked, "lock")
    assert all(len(package["sha256"].removeprefix("sha256:")) == 64 for package in found["packages"])
    assert found["blocked"] == []
    checked = run_builder("lock", "--backend", backend, "--check", "--offline", cwd=example)
    assert checked.returncode == 0, checked.stderr

    rendered = run_builder("dockerfile", "--backend", backend, cwd=example)
    assert rendered.returncode == 0, rendered.stderr
    lint = [str(Path(sys.executable).parent / "hadolint"), "-"]
    linted = subprocess.run(lint, input=rendered.stdout, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


def _audit(run_builder: RunBuilder, example: Path) -> dict[str, Any]:
    backend = BACKENDS[example.name]
    locked = run_builder("lock", "--backend", backend, cwd=example)
    assert locked.returncode == 0, locked.stderr
    audited = run_builder("audit", f"pylock.{backend}.toml", "--backend", backend, "--json", cwd=example, timeout=1800)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    return document(audited, "audit")


@pytest.mark.network
@pytest.mark.parametrize("example", SMALL, indirect=True)
def test_a_small_example_passes_its_audit(run_builder: RunBuilder, example: Path) -> None:
    found = _audit(run_builder, example)
    assert {target["level"] for target in found["targets"]} <= {"ok", "warn", "carry"}


@pytest.mark.network
@pytest.mark.big
@pytest.mark.parametrize("example", [name for name in ON_DEFAULT_INDEX if name not in SMALL], indirect=True)
def test_a_big_example_passes_its_audit(run_builder: RunBuilder, example: Path) -> None:
    found = _audit(run_builder, example)
    assert {target["level"] for target in found["targets"]} <= {"ok", "warn", "carry"}


@pytest.mark.network
@pytest.mark.parametrize("example", ["npu-text"], indirect=True)
def test_without_its_line_the_npu_example_is_refused_with_the_chain_and_the_mend(
    run_builder: RunBuilder, example: Path
) -> None:
    project = example / "builder.toml"
    project.write_text(project.read_text().replace('"torch-npu==2.13.0", "torch==2.13.0+cpu"', '"torch-npu==2.13.0"'))
    result = run_builder("lock", "--backend", "npu", "--json", cwd=example)
    assert result.returncode == 1, result.stdout + result.stderr
    found = document(result, "lock")
    nvidia = [blocked for blocked in found["blocked"] if blocked["package"].startswith(("nvidia-", "cuda-"))]
    assert len(nvidia) == 18
    assert {blocked["package"] for blocked in found["blocked"]} > {"torch", "triton"}
    assert all(blocked["chain"][:2] == ["torch-npu", "torch"] for blocked in nvidia)
    assert any("torch==2.13.0+cpu" in blocked["fix"] for blocked in found["blocked"])
    assert not (example / "pylock.npu.toml").exists()


@pytest.mark.network
@pytest.mark.parametrize("example", ["npu-text"], indirect=True)
def test_with_its_line_the_npu_example_builds_and_stays_a_candidate(run_builder: RunBuilder, example: Path) -> None:
    """There is no NPU here: the checks do not run, and the answer says so."""
    result = run_builder("build", "--backend", "npu", "--to", "oci:out:1", "--json", cwd=example)
    assert result.returncode == 4, result.stdout + result.stderr
    found = document(result, "build")
    steps = {step["name"]: step["verdict"] for step in found["steps"]}
    assert found["verdict"] == "candidate"
    assert (steps["lock"], steps["audit"], steps["image"], steps["smoke"]) == ("locked", "ok", "built", "not-run")
    lock = tomllib.loads((example / "pylock.npu.toml").read_text())
    versions = {package["name"]: package["version"] for package in lock["packages"]}
    assert len(versions) == 13
    assert (versions["torch"], versions["torch-npu"]) == ("2.13.0+cpu", "2.13.0")
    assert not [name for name in versions if name.startswith(("nvidia", "cuda", "triton"))]


@pytest.mark.network
@pytest.mark.parametrize("example", ["neuron-text"], indirect=True)
def test_the_neuron_example_is_locked_from_the_vendors_index_or_not_at_all(
    run_builder: RunBuilder, example: Path
) -> None:
    result = run_builder("lock", "--backend", "neuron", "--json", cwd=example)
    if result.returncode == 0:
        packages = {package["name"]: package["index"] for package in document(result, "lock")["packages"]}
        assert "neuron" in packages["torch-neuronx"]
        return
    found = error(result, 3)
    assert "neuron" in found["why"] + found["what"]
    assert not (example / "pylock.neuron.toml").exists()
