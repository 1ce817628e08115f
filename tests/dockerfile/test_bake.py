"""The bake file as an HCL reader sees it, and the matrix as GitHub would."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hcl2
import pytest

from builder.image.bake import BakeTarget, bake_hcl
from builder.lock.files import write_lock
from tests.conftest import RunBuilder
from tests.dockerfile.plans import make_plan
from tests.schemas import document, error

PROJECT = """\
name = "demo"
version = "1.2.0"
requirements = ["numpy"]

[image]
entrypoint = ["python", "-m", "demo"]
copy = ["demo"]

[backend.cuda]
node-classes = ["h100-sxm"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the locks of two backends."""
    folder = tmp_path / "project"
    (folder / "demo").mkdir(parents=True)
    (folder / "demo/__main__.py").write_text("print('demo')\n")
    (folder / "builder.toml").write_text(PROJECT)
    for backend in ("cpu", "cuda"):
        write_lock(make_plan(backend).lock, folder)
    return folder


def read_hcl(text: str) -> dict[str, Any]:
    """Targets by name, as python-hcl2 reads them."""
    parsed: dict[str, Any] = hcl2.loads(text)
    return {_bare(name): body for item in parsed["target"] for name, body in item.items()}


def _bare(value: str) -> str:
    return value.strip('"')


def test_each_locked_backend_is_a_target(run_builder: RunBuilder, project: Path) -> None:
    found = document(run_builder("bake", "--to", "registry.example.org/team/demo", "--json", cwd=project), "bake")
    targets = read_hcl(found["bake"])
    assert list(targets) == ["cpu", "cuda"]
    assert [_bare(tag) for tag in targets["cuda"]["tags"]] == ["registry.example.org/team/demo:1.2.0-cuda13.0"]
    assert [_bare(name) for name in targets["cpu"]["platforms"]] == ["linux/amd64"]
    assert _bare(targets["cpu"]["network"]) == "none"
    rows = {row["backend"]: row for row in found["matrix"]["include"]}
    assert (rows["cuda"]["toolkit"], rows["cuda"]["node_classes"]) == ("13.0", ["h100-sxm"])
    assert rows["cuda"]["ref"] == "registry.example.org/team/demo:1.2.0-cuda13.0"
    assert (project / rows["cpu"]["lock"]).is_file()
    assert run_builder("bake", "--to", "registry.example.org/team/demo", cwd=project).stdout == found["bake"]


def test_the_matrix_is_one_line_for_a_workflows_output(run_builder: RunBuilder, project: Path) -> None:
    text = run_builder("bake", "--matrix", "--backend", "cuda", cwd=project).stdout
    assert text.count("\n") == 1
    (row,) = json.loads(text)["include"]
    assert (row["backend"], row["ref"]) == ("cuda", "oci:dist/image:1.2.0-cuda13.0")
    targets = read_hcl(run_builder("bake", "--backend", "cuda", cwd=project).stdout)
    assert [_bare(tag) for tag in targets["cuda"]["tags"]] == ["demo:1.2.0-cuda13.0"]


def test_values_are_never_templates() -> None:
    target = BakeTarget(
        backend="cpu",
        arch="aarch64",
        toolkit=None,
        lock="pylock.cpu.toml",
        reference="oci:x:1",
        name="x:1",
        context='a b/${HOME}/%{ if x }"\\',
        node_classes=(),
    )
    text = bake_hcl([target])
    assert '"a b/$${HOME}/%%{ if x }\\"\\\\"' in text
    assert read_hcl(bake_hcl([replace(target, context="plain")]))["cpu"]["platforms"] is not None


def test_what_cannot_be_baked_says_why(run_builder: RunBuilder, project: Path) -> None:
    missing = error(run_builder("bake", "--backend", "rocm", "--json", cwd=project), 2)
    assert ("rocm" in missing["what"], "builder lock" in missing["fix"]) == (True, True)
    tagged = error(run_builder("bake", "--to", "registry.example.org/demo:1.0", "--json", cwd=project), 2)
    assert "names a tag" in tagged["what"]
    for lock in project.glob("pylock.*"):
        lock.unlink()
    assert "no backend" in error(run_builder("bake", "--json", cwd=project), 2)["what"]
