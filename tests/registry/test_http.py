from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.names import RegistryRef
from builder.registry.auth import Authorizer
from builder.registry.client import Remote
from builder.registry.errors import RegistryRefused, RegistryUnreachable
from builder.registry.http import Http
from builder.registry.session import Session
from tests.registry.conftest import Opener
from tests.registry.little import Answer, Little, serve
from tests.registry.samples import image


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both


def test_tls_with_a_ca_of_ones_own(certificate: Path) -> None:
    with serve(certificate) as little:
        ref = RegistryRef(little.host, "app")
        trusting = Remote.open(
            ref, environ={"SSL_CERT_FILE": str(certificate)}, plain_http=False, reporter=SilentReporter()
        )
        made = image(trusting, tag="1.0")
        assert trusting.manifest("1.0") == made
        strict = Remote.open(ref, environ={}, plain_http=False, reporter=SilentReporter())
        with pytest.raises(RegistryUnreachable, match="SSL_CERT_FILE"):
            strict.tags()
        trusting.close()
        strict.close()


def test_a_redirect_to_plain_http_is_not_followed(certificate: Path) -> None:
    with serve(certificate) as little:
        remote = Remote.open(
            RegistryRef(little.host, "app"),
            environ={"SSL_CERT_FILE": str(certificate)},
            plain_http=False,
            reporter=SilentReporter(),
        )
        little.fault = lambda asked: Answer(307, {"Location": "http://127.0.0.1:9/elsewhere?sig=hush"})
        with pytest.raises(RegistryRefused, match="redirects to plain http") as caught:
            remote.tags()
        assert "hush" not in str(caught.value)
        remote.close()


def test_redirects_come_to_an_end(little_registry: Little, open_little: Opener) -> None:
    little_registry.fault = lambda asked: Answer(307, {"Location": "/v2/app/tags/list?n=1000"})
    with pytest.raises(RegistryRefused, match="307"):
        open_little().tags()
    assert len(little_registry.log) == 6


@pytest.mark.parametrize(
    ("host", "name", "url"),
    [
        ("docker.io", "python", "https://registry-1.docker.io/v2/library/python/tags/list"),
        ("docker.io", "team/app", "https://registry-1.docker.io/v2/team/app/tags/list"),
        ("r.example:5000", "app", "https://r.example:5000/v2/app/tags/list"),
    ],
)
def test_where_the_api_is(host: str, name: str, url: str) -> None:
    http = Http(environ={})
    authorizer = Authorizer(host=host, http=http, find=lambda: None, plain_http=False)
    session = Session(host=host, repository=name, http=http, authorizer=authorizer, plain_http=False)
    assert session.url("tags/list") == url
    assert str(session) == f"{host}/{name}"
    assert session.scopes("pull", "push", mount_from="base") == {
        f"repository:{url.split('/v2/')[1].removesuffix('/tags/list')}:pull,push",
        "repository:base:pull",
    }
    http.close()
