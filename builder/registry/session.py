"""Requests to one repository of a registry, authorised, with unexpected answers turned into errors by kind."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx

from builder.registry.auth import Authorizer, Scopes
from builder.registry.errors import RegistryDenied, RegistryRefused
from builder.registry.http import ATTEMPTS, Body, Http, origin, read_all, shown

__all__ = ["Session"]

_API_HOSTS = {"docker.io": "registry-1.docker.io"}
"""Registries whose API answers under another name than their images carry."""


class Session:
    """Speaks the distribution API for one repository (distribution-spec, "Endpoints"). Safe for many threads."""

    def __init__(self, *, host: str, repository: str, http: Http, authorizer: Authorizer, plain_http: bool) -> None:
        self.host = host
        self.repository = repository
        self.http = http
        self._authorizer = authorizer
        self._root = f"{'http' if plain_http else 'https'}://{_API_HOSTS.get(host, host)}/v2/"
        self._name = f"library/{repository}" if host == "docker.io" and "/" not in repository else repository

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"

    def scopes(self, *actions: str, mount_from: str | None = None) -> Scopes:
        """Scopes for actions on this repository, and reading of the one that a blob is mounted from."""
        found = {f"repository:{self._name}:{','.join(actions)}"}
        if mount_from is not None:
            found.add(f"repository:{mount_from}:pull")
        return frozenset(found)

    def url(self, path: str) -> str:
        """URL below this repository, e.g. `manifests/1.0`."""
        return f"{self._root}{self._name}/{path}"

    def location(self, response: httpx.Response) -> str:
        """The absolute URL of a Location field; kept on https when the registry is (a proxy may not know it is)."""
        value = response.headers.get("Location")
        if not value:
            raise RegistryRefused(
                f"{self} did not say where to go on",
                why=f"the answer to {response.request.method} {shown(str(response.url))} has no Location",
            )
        target = urlsplit(urljoin(str(response.url), value))
        ours = urlsplit(self._root)
        if ours.scheme == "https" and target.scheme == "http":
            if target.hostname != ours.hostname:
                raise RegistryRefused(f"{self} sends uploads over plain http", why=f"to {shown(urlunsplit(target))}")
            target = target._replace(scheme="https", netloc=ours.netloc)
        return str(urlunsplit(target))

    def call(
        self,
        method: str,
        url: str,
        *,
        scopes: Scopes,
        ok: Collection[int],
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        attempts: int = ATTEMPTS,
        follow: bool = True,
        also_temporary: frozenset[int] = frozenset(),
    ) -> httpx.Response:
        """The answer when its code is in `ok` (unread: close it); `RegistryDenied` or `RegistryRefused` otherwise.

        A 401 is answered with credentials or a new token, twice at most; that is no failed attempt.
        """
        ours = origin(url) == origin(self._root)
        for last in (False, False, True):
            authorization = self._authorizer.header(scopes) if ours else None
            sent = dict(headers or {})
            if authorization is not None:
                sent["Authorization"] = authorization
            response = self.http.send(
                method,
                url,
                headers=sent,
                body=body,
                attempts=attempts,
                redirects=5 if follow else 0,
                also_temporary=also_temporary,
            )
            if response.status_code != 401 or 401 in ok or last or not ours:
                break
            fields = response.headers.get_list("WWW-Authenticate")
            if not self._authorizer.challenged(fields, scopes, used=authorization):
                break
            read_all(response)
        if response.status_code in ok:
            return response
        raise self._error(response, method, url)

    def done(self, response: httpx.Response) -> httpx.Response:
        """Read an answer to its end, so that its connection can be used again."""
        read_all(response)
        return response

    def _error(self, response: httpx.Response, method: str, url: str) -> RegistryDenied | RegistryRefused:
        codes, text = _message(read_all(response, limit=1 << 20))
        said = self._authorizer.redact(text)
        status = response.status_code
        why = f"{method} {shown(url)} was answered {status} {response.reason_phrase}"
        if said:
            why += f": {said}"
        if status in (401, 403):
            verb = "read from" if method in ("GET", "HEAD") else "write to"
            return RegistryDenied(
                f"not allowed to {verb} {self}",
                why=f"{why}; {self._authorizer.who()}",
                fix=f"log in with an account that may do this: docker login {self.host}",
            )
        fix = "look at the registry's own log"
        if status == 413:
            fix = "the registry or a proxy before it limits sizes: raise the limit, or make smaller layers"
        elif status in (500, 507):
            fix = "the registry failed inside (its disk may be full): look at its own log"
        return RegistryRefused(f"{self} refused a request", why=why, fix=fix, status=status, codes=codes)


def _message(data: bytes) -> tuple[tuple[str, ...], str]:
    """Codes, and what the registry says went wrong in one line of at most 300 characters.

    Source: distribution-spec, "Error Codes".
    """
    codes: tuple[str, ...] = ()
    try:
        errors = json.loads(data)["errors"]
        codes = tuple(str(error.get("code", "")) for error in errors)
        text = "; ".join(
            " ".join(str(part) for part in (error.get("code"), error.get("message"), error.get("detail")) if part)
            for error in errors
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        text = data.decode(errors="replace")
    return codes, " ".join(text.split())[:300]
