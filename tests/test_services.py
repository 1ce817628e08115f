"""The services that other tests rely on are the real ones and answer."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests import services


@pytest.mark.registry
def test_the_registry_answers_the_version_check(registry_host: str) -> None:
    with urllib.request.urlopen(f"http://{registry_host}/v2/") as response:
        assert response.headers["Docker-Distribution-Api-Version"] == "registry/2.0"


@pytest.mark.docker
def test_the_engine_names_its_version(docker_host: str) -> None:
    client = services.program("docker")
    asked = [client, "--host", docker_host, "version", "--format", "{{.Server.Os}}"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == "linux"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(services.Unavailable, match="no-such-registry is not installed"):
        services.program("no-such-registry")


def test_a_service_that_ends_at_once_shows_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        pytest.raises(services.Unavailable, match=r"did not start:\nno such thing"),
        services.running([sys.executable, "-c", "import sys; sys.exit('no such thing')"], log, lambda: False),
    ):
        pytest.fail("a process that had ended counted as running")
