"""Fixtures every room's tests share: a store, the command line in a clean environment, and real services."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from builder.store import Store
from tests import services

KEPT_PREFIXES = ("LC_", "PIP_", "UV_", "SSL_", "BUILDER_TEST_", "COVERAGE_", "OPENBLAS_")
"""Environment a child process keeps: how indexes are reached and trusted, and how tests are run."""
KEPT = frozenset(
    [
        *("PATH", "LANG", "TERM", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NIX_SSL_CERT_FILE"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    ]
)
INDEX_CONFIGURATION = ("pip/pip.conf", "uv/uv.toml")
"""Files below the user's configuration folder that name indexes, mirrors and find-links folders."""


def clean_environment(home: Path, store: Path) -> dict[str, str]:
    """The environment of a user just created, who reaches the same indexes as the one running the tests."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    configured = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for name in INDEX_CONFIGURATION:
        source, target = configured / name, home / ".config" / name
        if source.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return {
        **kept,
        "HOME": str(home),
        "BUILDER_STORE": str(store),
        "DOCKER_CONFIG": str(home / ".docker"),
        "NO_COLOR": "1",
    }


class RunBuilder(Protocol):
    """Runs `builder ARGS…` as a process of its own and waits for it."""

    def __call__(
        self,
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 600,
    ) -> subprocess.CompletedProcess[str]:
        """`env` is added to the clean environment; `cwd` defaults to the test's temporary folder."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that lasts the whole session, so that tests marked `network` download each file once.

    BUILDER_TEST_STORE keeps it from one session to the next.
    """
    chosen = os.environ.get("BUILDER_TEST_STORE")
    return Store(Path(chosen)) if chosen else Store(tmp_path_factory.mktemp("shared-store"))


@pytest.fixture
def builder_environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Environment of a child process: an empty home, and the shared store for tests marked `network`."""
    home = tmp_path / "home"
    home.mkdir()
    if request.node.get_closest_marker("network") is not None:
        root = request.getfixturevalue("shared_store").root
    else:
        root = tmp_path / "store"
    return clean_environment(home, root)


@pytest.fixture
def run_builder(builder_environment: dict[str, str], tmp_path: Path) -> RunBuilder:
    """The command line, run as a user would."""

    def run(
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 600,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "builder", *map(str, args)],
            env={**builder_environment, **(env or {})},
            cwd=cwd or tmp_path,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )

    return run


def _service(variable: str, start: AbstractContextManager[str]) -> Iterator[str]:
    """The address in `variable`, else a service started for this session; skips with the reason when there is none."""
    address = os.environ.get(variable)
    if address:
        yield address
        return
    try:
        running = start.__enter__()
    except services.Unavailable as reason:
        if os.environ.get(services.REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{variable} is not set and {reason}", pytrace=False)
        pytest.skip(f"{variable} is not set and {reason}")
    try:
        yield running
    finally:
        start.__exit__(None, None, None)


@pytest.fixture(scope="session")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`127.0.0.1:PORT` of a real distribution registry, plain HTTP; the session shares it, so use your own names."""
    yield from _service(services.REGISTRY_VARIABLE, services.registry(tmp_path_factory.mktemp("registry")))


@pytest.fixture(scope="session")
def docker_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real Docker Engine (`unix://…`), for DOCKER_HOST."""
    yield from _service(services.DOCKER_VARIABLE, services.engine(tmp_path_factory.mktemp("docker")))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with one MiB of room. Needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "builder-test", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
