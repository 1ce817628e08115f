"""Logins as docker, podman, skopeo and buildah keep them: config.json, auth.json and credential helpers.

Sources: docker/cli docs, "docker login" (auths, credHelpers, credsStore, DOCKER_CONFIG); containers-auth.json(5)
(REGISTRY_AUTH_FILE, keys with a path); docker-credential-helpers README (the `get` protocol).
"""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.errors import BadInput, OutsideFailed, where_path

__all__ = ["CredentialHelperFailed", "Login", "find_login", "login_hosts"]

_DOCKER_HUB_KEY = "https://index.docker.io/v1/"
"""Under which docker keeps the login of docker.io."""

_NO_CREDENTIALS = "credentials not found"
"""What a helper prints when it has none (docker-credential-helpers, credentials/error.go)."""


class CredentialHelperFailed(OutsideFailed):
    """A program docker-credential-… is missing or did not answer as agreed."""

    kind = "credential-helper-failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """What a registry is told about who asks."""

    username: str
    password: str = field(repr=False, default="")
    identity_token: str = field(repr=False, default="")
    """OAuth2 refresh token; used instead of the password when not empty."""
    source: str
    """The file or program it came from, for messages."""


def find_login(host: str, repository: str, environ: Mapping[str, str]) -> Login | None:
    """The login for a repository, most specific first; None means anonymous. `BadInput` for a malformed file."""
    for path in _files(environ):
        if not path.is_file():
            continue
        config = _read(path)
        helper = _table(config, "credHelpers", path).get(host) or config.get("credsStore")
        if isinstance(helper, str) and helper:
            login = _ask_helper(helper, host, environ)
            if login is not None:
                return login
        auths = _table(config, "auths", path)
        for key in _keys(host, repository):
            entry = auths.get(key)
            if isinstance(entry, dict) and entry:
                login = _parse_entry(entry, path, key)
                if login is not None:
                    return login
    return None


def login_hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Hosts that the files name, sorted; those that only a credential store knows are not among them."""
    found: set[str] = set()
    for path in _files(environ):
        if path.is_file():
            config = _read(path)
            keys = (*_table(config, "auths", path), *_table(config, "credHelpers", path))
            found |= {"docker.io" if key == _DOCKER_HUB_KEY else _host(key) for key in keys}
    return tuple(sorted(found))


def _host(key: str) -> str:
    return key.rpartition("://")[2].partition("/")[0]


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("REGISTRY_AUTH_FILE"):
        yield Path(environ["REGISTRY_AUTH_FILE"])
    if environ.get("DOCKER_CONFIG"):
        yield Path(environ["DOCKER_CONFIG"]) / "config.json"
    elif environ.get("HOME"):
        yield Path(environ["HOME"]) / ".docker" / "config.json"
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"]) / "containers" / "auth.json"


def _keys(host: str, repository: str) -> Iterator[str]:
    """Keys under which a login may stand: host/path from long to short (podman), the host, its URLs (docker)."""
    parts = repository.split("/")
    for length in range(len(parts), 0, -1):
        yield f"{host}/{'/'.join(parts[:length])}"
    yield host
    if host == "docker.io":
        yield _DOCKER_HUB_KEY
    for scheme in ("https", "http"):
        for tail in ("", "/", "/v1/", "/v2/"):
            yield f"{scheme}://{host}{tail}"


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read the registry logins in {path}",
            why=str(error),
            fix="mend the file, or log in again",
            where=where_path(path),
        ) from error
    if not isinstance(config, dict):
        raise BadInput(f"{path} is not a JSON object", fix="mend the file, or log in again", where=where_path(path))
    return config


def _table(config: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = config.get(key) or {}
    if not isinstance(value, dict):
        raise BadInput(f"{key} in {path} is not a table", fix="mend the file", where=where_path(path, key=key))
    return value


def _parse_entry(entry: Mapping[str, Any], path: Path, key: str) -> Login | None:
    username, password = entry.get("username") or "", entry.get("password") or ""
    if entry.get("auth"):
        try:
            username, colon, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        except (binascii.Error, ValueError, TypeError):
            colon = ""
        if not colon:
            raise BadInput(
                f"the login for {key} in {path} cannot be read",
                why="`auth` is not base64 of user:password",
                fix=f"log in again: docker login {key}",
                where=where_path(path, key=f"auths.{key}"),
            )
    token = entry.get("identitytoken") or ""
    if not username and not token:
        return None
    return Login(username=username, password=password.rstrip("\0"), identity_token=token, source=str(path))


def _ask_helper(name: str, host: str, environ: Mapping[str, str]) -> Login | None:
    program = f"docker-credential-{name}"
    server = _DOCKER_HUB_KEY if host == "docker.io" else host
    try:
        done = subprocess.run(
            [program, "get"],
            input=server,
            capture_output=True,
            text=True,
            env=dict(environ),
            timeout=60,
            check=False,
        )
    except FileNotFoundError as error:
        raise CredentialHelperFailed(
            f"the credential helper {program} is not installed",
            why=f"the docker configuration names it for {host}",
            fix="install it, or take it out of credHelpers/credsStore",
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CredentialHelperFailed(
            f"{program} did not answer", why=type(error).__name__, fix=f"try: echo {server} | {program} get"
        ) from error
    if done.returncode != 0:
        if _NO_CREDENTIALS in done.stdout + done.stderr:
            return None
        raise CredentialHelperFailed(
            f"{program} has no login for {host}",
            why=(done.stderr or done.stdout).strip()[:300] or f"it exited with {done.returncode}",
            fix=f"try: echo {server} | {program} get",
        )
    try:
        answer = json.loads(done.stdout)
        username, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError) as error:
        raise CredentialHelperFailed(
            f"{program} did not answer as agreed",
            why="its output is no JSON object with Username and Secret",
            fix=f"try: echo {server} | {program} get",
        ) from error
    if username == "<token>":
        return Login(username="", identity_token=secret, source=program)
    return Login(username=username, password=secret, source=program)
