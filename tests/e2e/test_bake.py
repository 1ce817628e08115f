"""`builder bake --write`, with real wheels and a real base."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunBuilder
from tests.e2e.index import Index
from tests.schemas import document, error


@pytest.mark.network
def test_each_target_has_its_whole_context(run_builder: RunBuilder, project: Path, index: Index) -> None:
    file = index.add("e2e_plain", "1.0")
    assert run_builder("lock", "--backend", "cpu", env=index.environment(), cwd=project).returncode == 0
    done = run_builder("bake", "--write", "out", "--json", env=index.environment(), cwd=project)
    found = document(done, "bake")
    out = project / "out"
    assert (out / "docker-bake.hcl").read_text() == found["bake"]
    assert (out / "cpu" / "wheels" / file).read_bytes() == index.wheels[file]
    assert "FROM " in (out / "cpu" / "Dockerfile").read_text()
    assert (out / "cpu" / "base.tar").stat().st_size > 10_000_000
    again = error(run_builder("bake", "--write", "out", "--json", env=index.environment(), cwd=project), 2)
    assert "is there already" in again["what"]
