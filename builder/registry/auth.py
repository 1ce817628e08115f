"""Proving who asks: basic credentials or bearer tokens, as the registry's challenge says.

Sources: RFC 9110 11.6 (WWW-Authenticate), RFC 7617 (basic), distribution docs "Token Authentication" and "OAuth2".
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from builder.registry.docker_config import Login
from builder.registry.errors import RegistryDenied, RegistryRefused
from builder.registry.http import Body, Http, is_loopback, read_all, shown

__all__ = ["Authorizer", "Challenge", "Scopes", "parse_challenges"]

Scopes = frozenset[str]
"""What a request needs, each `repository:<name>:<actions>` (distribution docs, "Token Scope Documentation")."""

_PARAMETER = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME = re.compile(r"(?:^|,\s*)(Basic|Bearer)\b", re.IGNORECASE)
_DEFAULT_LIFE = 60.0
"""Seconds a token lives when its server does not say (distribution docs, `expires_in`)."""
_MARGIN = 5.0
"""Seconds before its end at which a token is no longer used."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in that a 401 offers."""

    scheme: str
    """`basic` or `bearer`."""
    parameters: dict[str, str]


def parse_challenges(values: Iterable[str]) -> tuple[Challenge, ...]:
    """The basic and bearer challenges of all WWW-Authenticate fields, in order; other schemes are left out."""
    found = []
    for value in values:
        starts = list(_SCHEME.finditer(value))
        for start, following in zip(starts, [*starts[1:], None], strict=False):
            text = value[start.end() : following.start() if following else len(value)]
            parameters = {
                match[1].lower(): re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
                for match in _PARAMETER.finditer(text)
            }
            found.append(Challenge(start[1].lower(), parameters))
    return tuple(found)


@dataclass(slots=True)
class _Token:
    value: str
    ends: float
    scopes: Scopes


class Authorizer:
    """Makes the Authorization field for one registry. Safe for many threads.

    `find` is called at most once, when the registry first asks who we are.
    """

    def __init__(
        self,
        *,
        host: str,
        http: Http,
        find: Callable[[], Login | None],
        plain_http: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._http = http
        self._find = find
        self._plain_http = plain_http
        self._clock = clock
        self._lock = threading.RLock()
        self._challenge: Challenge | None = None
        self._login: Login | None = None
        self._asked = False
        self._tokens: dict[Scopes, _Token] = {}

    def header(self, scopes: Scopes) -> str | None:
        """The field's value for a request with these scopes; None before the first challenge."""
        with self._lock:
            if self._challenge is None:
                return None
            if self._challenge.scheme == "basic":
                return self._basic()
            return f"Bearer {self._token(scopes).value}"

    def challenged(self, fields: Iterable[str], scopes: Scopes, *, used: str | None) -> bool:
        """Learn from a 401. True when another try makes sense: a way in was found, or an ended token is replaced."""
        with self._lock:
            offered = parse_challenges(fields)
            login = self._who()
            bearer = next((c for c in offered if c.scheme == "bearer"), None)
            basic = next((c for c in offered if c.scheme == "basic"), None) if login and login.password else None
            first = self._challenge is None
            self._challenge = bearer or basic or self._challenge
            if self._challenge is None:
                return False
            if self._challenge.scheme == "basic":
                return first or used is None
            for key in [key for key, token in self._tokens.items() if used == f"Bearer {token.value}"]:
                del self._tokens[key]
            return True

    def who(self) -> str:
        """Who we say we are, for messages; never a secret."""
        login = self._login
        if login is None:
            return f"no login for {self._host} was found" if self._asked else "nobody was asked for a login"
        return f"the login {login.username or 'token'!r} from {login.source} was used"

    def redact(self, text: str) -> str:
        """`text` without the secrets this object knows, should a registry have echoed one."""
        secrets = [token.value for token in self._tokens.values()]
        if self._login is not None:
            secrets += [self._login.password, self._login.identity_token, self._encoded(self._login)]
        for secret in filter(None, secrets):
            text = text.replace(secret, "…")
        return text

    def _who(self) -> Login | None:
        if not self._asked:
            self._login = self._find()
            self._asked = True
        return self._login

    @staticmethod
    def _encoded(login: Login) -> str:
        return base64.b64encode(f"{login.username}:{login.password}".encode()).decode()

    def _basic(self) -> str | None:
        return f"Basic {self._encoded(self._login)}" if self._login and self._login.password else None

    def _token(self, scopes: Scopes) -> _Token:
        now = self._clock()
        for token in self._tokens.values():
            if _covers(token.scopes, scopes) and token.ends > now:
                return token
        made = self._fetch(scopes)
        self._tokens[scopes] = made
        return made

    def _fetch(self, scopes: Scopes) -> _Token:
        challenge = self._challenge
        realm = challenge.parameters.get("realm", "") if challenge else ""
        service = challenge.parameters.get("service", "") if challenge else ""
        self._check_realm(realm)
        asked_at = self._clock()
        query = [("service", service)] if service else []
        login = self._who()
        headers = {"Accept": "application/json"}
        if login is not None and login.identity_token:
            form = [
                ("grant_type", "refresh_token"),
                ("refresh_token", login.identity_token),
                ("client_id", "builder"),
                ("scope", " ".join(sorted(scopes))),
                *query,
            ]
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            response = self._http.send("POST", realm, headers=headers, body=Body.of(urlencode(form).encode()))
        else:
            if (basic := self._basic()) is not None:
                headers["Authorization"] = basic
            query += [("scope", scope) for scope in sorted(scopes)]
            url = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(query)}"
            response = self._http.send("GET", url, headers=headers)
        status = response.status_code
        data = read_all(response)
        if status != 200:
            kind = RegistryDenied if status in (400, 401, 403) else RegistryRefused
            raise kind(
                f"{self._host} gives no token for {', '.join(sorted(scopes))}",
                why=f"its token server {shown(realm)} answered {status}; {self.who()}",
                fix=f"log in with an account that may do this: docker login {self._host}",
            )
        return self._parse(data, realm, scopes, asked_at)

    def _parse(self, data: bytes, realm: str, scopes: Scopes, asked_at: float) -> _Token:
        try:
            answer: Any = json.loads(data)
            value = answer.get("token") or answer.get("access_token")
            life = float(answer.get("expires_in") or _DEFAULT_LIFE)
        except (ValueError, TypeError, AttributeError):
            value, life = None, 0.0
        if not isinstance(value, str) or not value:
            raise RegistryRefused(
                f"the token server of {self._host} did not answer as agreed",
                why=f"{shown(realm)} sent no JSON object with a token",
            )
        return _Token(value, asked_at + max(life - _MARGIN, 1.0), scopes)

    def _check_realm(self, realm: str) -> None:
        """Credentials go to a token server over TLS only, or to loopback, or where plain http was asked for."""
        parts = urlsplit(realm)
        if parts.scheme == "https" and parts.hostname:
            return
        if parts.scheme == "http" and parts.hostname and (self._plain_http or is_loopback(parts.netloc)):
            return
        raise RegistryRefused(
            f"{self._host} names a token server that is not used",
            why=f"the realm {shown(realm)!r} is not an https URL",
            fix="tell whoever runs the registry; --plain-http allows it",
        )


def _covers(held: Scopes, wanted: Scopes) -> bool:
    """Whether a token for `held` is good for `wanted`: every wanted action of every repository is in it."""
    have = [scope.rpartition(":") for scope in held]
    for scope in wanted:
        resource, _, actions = scope.rpartition(":")
        needed = set(actions.split(","))
        if not any(resource == other and needed <= set(granted.split(",")) for other, _, granted in have):
            return False
    return True
