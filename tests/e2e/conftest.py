from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.index import Index, serve


@pytest.fixture
def index() -> Iterator[Index]:
    """An index of the test's own."""
    with serve() as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small service on one pure wheel, `e2e-plain`, for the built-in Debian base."""
    folder = tmp_path / "project"
    (folder / "app").mkdir(parents=True)
    (folder / "app/__main__.py").write_text("import e2e_plain\n\nprint(e2e_plain.__version__)\n")
    (folder / "builder.toml").write_text(
        """\
name = "svc"
version = "1.0"
requirements = ["e2e-plain"]
base = "debian:bookworm"

[image]
entrypoint = ["python", "-m", "app"]
copy = ["app"]

[warmup]
command = ["python", "-m", "app"]
"""
    )
    return folder
