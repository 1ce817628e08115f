from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import BadInput
from builder.events import SilentReporter
from builder.names import RegistryRef
from builder.registry.auth import parse_challenges
from builder.registry.client import Remote
from builder.registry.docker_config import CredentialHelperFailed, find_login
from builder.registry.errors import RegistryDenied
from builder.registry.http import is_loopback
from tests.registry.conftest import Opener
from tests.registry.little import Answer, Asked, Little


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (['Basic realm="a b"'], [("basic", {"realm": "a b"})]),
        (
            ['Bearer realm="https://auth.example/token",service=reg,scope="repository:a:pull,push"'],
            [("bearer", {"realm": "https://auth.example/token", "service": "reg", "scope": "repository:a:pull,push"})],
        ),
        (['bearer realm="x", Basic realm="y"'], [("bearer", {"realm": "x"}), ("basic", {"realm": "y"})]),
        (["Negotiate", 'Basic realm="q\\"uote"'], [("basic", {"realm": 'q"uote'})]),
        ([], []),
        (["Digest nonce=1"], []),
    ],
)
def test_challenges(fields: list[str], found: list[tuple[str, dict[str, str]]]) -> None:
    assert [(challenge.scheme, challenge.parameters) for challenge in parse_challenges(fields)] == found


@given(st.lists(st.text(max_size=60), max_size=3))
def test_any_challenge_is_survived(fields: list[str]) -> None:
    for challenge in parse_challenges(fields):
        assert challenge.scheme in ("basic", "bearer")


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.8.0.1", True),
        ("[::1]:5000", True),
        ("registry.localhost:5000", True),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("registry.example.org:443", False),
    ],
)
def test_loopback(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer


def _write(folder: Path, config: object) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return {"DOCKER_CONFIG": str(folder), "PATH": str(folder)}


def _auth(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("key", "host", "repository"),
    [
        ("r.example", "r.example", "app"),
        ("https://r.example", "r.example", "app"),
        ("https://r.example/v2/", "r.example", "app"),
        ("r.example/team", "r.example", "team/app"),
        ("https://index.docker.io/v1/", "docker.io", "library/python"),
    ],
)
def test_logins_are_found_by_any_key(tmp_path: Path, key: str, host: str, repository: str) -> None:
    environ = _write(tmp_path, {"auths": {key: _auth("ann:pw:with:colons"), "other.example": _auth("bob:x")}})
    login = find_login(host, repository, environ)
    assert login is not None
    assert (login.username, login.password) == ("ann", "pw:with:colons")
    assert "pw" not in repr(login)


def test_the_longest_key_wins(tmp_path: Path) -> None:
    environ = _write(tmp_path, {"auths": {"r.example": _auth("a:1"), "r.example/team": _auth("b:2")}})
    login = find_login("r.example", "team/app", environ)
    assert login is not None
    assert login.username == "b"


def test_nothing_there_means_anonymous(tmp_path: Path) -> None:
    assert find_login("r.example", "app", {}) is None
    assert find_login("r.example", "app", {"HOME": str(tmp_path)}) is None
    assert find_login("r.example", "app", _write(tmp_path, {"auths": {"r.example": {}}})) is None


def test_podmans_files_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / "auth.json").write_text(json.dumps({"auths": {"r.example": _auth("pod:man")}}))
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"auths": {"q.example": _auth("sko:peo")}}))
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "REGISTRY_AUTH_FILE": str(own), "HOME": str(tmp_path)}
    found = {host: find_login(host, "app", environ) for host in ("r.example", "q.example", "s.example")}
    assert {host: login and login.username for host, login in found.items()} == {
        "r.example": "pod",
        "q.example": "sko",
        "s.example": None,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot read"),
        ("[]", "not a JSON object"),
        ('{"auths": []}', None),
        ('{"auths": 3}', "not a table"),
        ('{"auths": {"r.example": {"auth": "%%"}}}', "cannot be read"),
        ('{"auths": {"r.example": {"auth": "YW5u"}}}', "cannot be read"),
    ],
)
def test_a_malformed_file_is_named(tmp_path: Path, text: str, said: str | None) -> None:
    (tmp_path / "config.json").write_text(text)
    environ = {"DOCKER_CONFIG": str(tmp_path)}
    if said is None:
        assert find_login("r.example", "app", environ) is None
        return
    with pytest.raises(BadInput, match=said) as caught:
        find_login("r.example", "app", environ)
    assert caught.value.where is not None
    assert str(tmp_path) in caught.value.where.file


def _helper(folder: Path, body: str) -> None:
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\nread -r server\n{body}\n")
    program.chmod(0o755)


def test_a_credential_helper_is_asked(tmp_path: Path) -> None:
    environ = _write(tmp_path, {"credHelpers": {"r.example": "test"}})
    _helper(
        tmp_path, """echo "{\\"ServerURL\\":\\"$server\\",\\"Username\\":\\"ann\\",\\"Secret\\":\\"for $server\\"}" """
    )
    login = find_login("r.example", "app", environ)
    assert login is not None
    assert (login.username, login.password) == ("ann", "for r.example")
    assert find_login("other.example", "app", environ) is None


def test_a_helper_may_give_an_identity_token(tmp_path: Path) -> None:
    environ = _write(tmp_path, {"credsStore": "test"})
    _helper(tmp_path, """echo '{"Username":"<token>","Secret":"refresh-me"}'""")
    login = find_login("r.example", "app", environ)
    assert login is not None
    assert (login.username, login.identity_token) == ("", "refresh-me")


def test_a_helper_without_credentials_means_anonymous(tmp_path: Path) -> None:
    environ = _write(tmp_path, {"credsStore": "test"})
    _helper(tmp_path, "echo 'credentials not found in native keychain'; exit 1")
    assert find_login("r.example", "app", environ) is None


@pytest.mark.parametrize(
    ("body", "said"), [("exit 3", "exited with 3"), ("echo nonsense", "Username and Secret"), (None, "names it for")]
)
def test_a_broken_helper_is_named(tmp_path: Path, body: str | None, said: str) -> None:
    environ = _write(tmp_path, {"credHelpers": {"r.example": "test"}})
    if body is not None:
        _helper(tmp_path, body)
    with pytest.raises(CredentialHelperFailed, match=said):
        find_login("r.example", "app", environ)


def test_an_identity_token_is_exchanged(little_registry: Little, open_little: Opener, tmp_path: Path) -> None:
    little_registry.scheme = "bearer"
    environ = _write(tmp_path, {"auths": {little_registry.host: {"identitytoken": "refresh-me"}}})

    def fault(asked: Asked) -> Answer | None:
        if asked.method == "POST" and asked.path == "/token":
            little_registry.tokens["made"] = {"repository:app:pull"}
            return Answer(200, {}, b'{"access_token": "made", "expires_in": 300}')
        return None

    little_registry.fault = fault
    assert open_little(environ=environ).tags() == ()
    (exchange,) = [asked for asked in little_registry.log if asked.path == "/token"]
    assert exchange.headers["content-type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"token": 3}', b'{"token": "x", "expires_in": "soon"}'])
def test_nonsense_from_a_token_server_is_refused(little_registry: Little, open_little: Opener, body: bytes) -> None:
    little_registry.scheme = "bearer"
    little_registry.fault = lambda asked: Answer(200, {}, body) if asked.path.startswith("/token") else None
    with pytest.raises(Exception, match="did not answer as agreed"):
        open_little().tags()


def test_a_registry_that_never_agrees_is_left(little_registry: Little, open_little: Opener) -> None:
    little_registry.scheme = "bearer"
    little_registry.fault = lambda asked: (
        Answer(200, {}, b'{"token": "never-good"}') if asked.path.startswith("/token") else None
    )
    with pytest.raises(RegistryDenied):
        open_little().tags()
    assert len(little_registry.log) < 8


def test_a_proxy_is_used_but_not_for_loopback(little_registry: Little) -> None:
    proxy = {"http_proxy": f"http://{little_registry.host}"}
    far = RegistryRef("registry.invalid:5000", "app")
    remote = Remote.open(far, environ=proxy, plain_http=True, reporter=SilentReporter(), sleep=lambda _: None)
    little_registry.fault = lambda asked: Answer(200, {}, b'{"tags": ["by-proxy"]}')
    assert remote.tags() == ("by-proxy",)
    assert little_registry.log[0].path == "http://registry.invalid:5000/v2/app/tags/list?n=1000"
    near = RegistryRef(little_registry.host, "app")
    broken = {"HTTP_PROXY": "http://127.0.0.1:9"}
    assert Remote.open(near, environ=broken, reporter=SilentReporter()).tags() == ("by-proxy",)
    spared = {**proxy, "NO_PROXY": "example.org,.invalid"}
    unproxied = Remote.open(far, environ=spared, plain_http=True, reporter=SilentReporter(), sleep=lambda _: None)
    with pytest.raises(Exception, match=r"no answer from registry\.invalid"):
        unproxied.tags()


def test_a_bad_proxy_setting_is_said_without_its_password(tmp_path: Path) -> None:
    environ = {"https_proxy": "gopher://ann:hush@proxy.example"}
    remote = Remote.open(RegistryRef("registry.invalid", "app"), environ=environ, reporter=SilentReporter())
    with pytest.raises(BadInput) as caught:
        remote.tags()
    assert "hush" not in str(caught.value)


def test_a_missing_ca_file_is_named(tmp_path: Path) -> None:
    environ = {"SSL_CERT_FILE": str(tmp_path / "none.pem")}
    with pytest.raises(BadInput, match=r"none\.pem"):
        Remote.open(RegistryRef("registry.invalid", "app"), environ=environ, reporter=SilentReporter()).tags()
