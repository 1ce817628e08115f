from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.names import RegistryRef
from builder.registry.client import Remote
from builder.registry.layout import Layout
from builder.registry.values import Repository


@pytest.fixture(params=["layout", pytest.param("registry", marks=pytest.mark.registry)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    """An empty place to publish to: every rule holds for a layout and for the real registry."""
    if request.param == "layout":
        return Layout(tmp_path / "target")
    host = request.getfixturevalue("registry_host")
    return Remote.open(RegistryRef(host, f"release/{uuid.uuid4().hex[:12]}"), environ={}, reporter=SilentReporter())


@pytest.fixture
def repository_name() -> str:
    """A repository nobody else uses."""
    return f"release/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def built(tmp_path: Path) -> Layout:
    """Where a build leaves its images."""
    return Layout(tmp_path / "built")
