from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from builder.events import SilentReporter
from builder.names import RegistryRef
from builder.registry.client import Remote
from tests import services
from tests.registry import little

BCRYPT = "$2b$04$b.iTXnzJwkGOzR7anSf38./aF60rshfcq955l61NfY60Bb0YRWfH2"
"""Of `s3cret`; the registry takes no other form."""


class Counting(httpx.BaseTransport):
    """Notes each request on its way."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()
        self.lines: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.lines.append(f"{request.method} {request.url.raw_path.decode().removeprefix('/v2/')}")
        return self.inner.handle_request(request)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def repository_name() -> str:
    """A repository nobody else uses."""
    return f"test/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def remote(registry_host: str, repository_name: str) -> Iterator[Remote]:
    """An empty repository of the real registry."""
    opened = Remote.open(RegistryRef(registry_host, repository_name), environ={}, reporter=SilentReporter())
    yield opened
    opened.close()


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def little_registry() -> Iterator[little.Little]:
    with little.serve() as running:
        yield running


class Named(httpx.BaseTransport):
    """Signs each request with a name, so that a server can tell writers apart."""

    def __init__(self, name: str) -> None:
        self.inner = httpx.HTTPTransport()
        self.name = name

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["User-Agent"] = self.name
        return self.inner.handle_request(request)

    def close(self) -> None:
        self.inner.close()


class Opener:
    """Opens repositories of one registry without waiting between tries, and closes them at the end."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.waits: list[float] = []
        self.opened: list[Remote] = []

    def __call__(self, name: str = "app", **options: Any) -> Remote:
        options = {"environ": {}, "sleep": self.waits.append, **options}
        remote = Remote.open(RegistryRef(self.host, name), reporter=SilentReporter(), **options)
        self.opened.append(remote)
        return remote


@pytest.fixture
def open_little(little_registry: little.Little) -> Iterator[Opener]:
    opener = Opener(little_registry.host)
    yield opener
    for remote in opener.opened:
        remote.close()


@pytest.fixture(scope="session")
def guarded_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real registry that wants the user `ann` with the password `s3cret` (htpasswd)."""
    folder = tmp_path_factory.mktemp("guarded")
    try:
        binary = services.program("docker-registry")
        port = services.free_port()
        config = folder / "config.yml"
        users = folder / "htpasswd"
        users.write_text(f"ann:{BCRYPT}\n")
        text = services.registry_config(folder / "storage", port)
        config.write_text(f"{text}auth:\n  htpasswd:\n    realm: test\n    path: {users}\n")
        host = f"127.0.0.1:{port}"
        with services.running([binary, "serve", str(config)], folder / "log", lambda: _answers(host)):
            yield host
    except services.Unavailable as reason:
        pytest.skip(str(reason))


def _answers(host: str) -> bool:
    try:
        return httpx.get(f"http://{host}/v2/", trust_env=False).status_code == 401
    except httpx.TransportError:
        return False
