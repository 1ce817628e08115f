"""One HTTP exchange with a registry, its token server or its storage: retries, redirects, proxies, errors by kind.

The only module that lets httpx work; every error of httpx leaves it as one of `builder.registry.errors`.
"""

from __future__ import annotations

import email.utils
import ipaddress
import random
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import httpx

from builder import __version__
from builder.errors import BadInput
from builder.registry.errors import RegistryBusy, RegistryRefused, RegistryUnreachable

__all__ = ["ATTEMPTS", "Body", "Http", "backoff", "is_loopback", "origin", "read_all", "shown"]

TEMPORARY = frozenset([429, 502, 503, 504])
"""Codes that are tried again: too many requests, and a proxy or registry that is not ready."""

REDIRECTS = frozenset([301, 302, 303, 307, 308])
ATTEMPTS = 5
LONGEST_WAIT = 60.0
"""Seconds. A registry that asks for more is reported as busy instead."""
_BODY_LIMIT = 16 << 20
"""Bytes of a JSON answer or manifest that are read at most."""
_SHOWN_PARAMETERS = frozenset(["service", "scope", "digest", "mount", "from", "n", "last", "artifactType"])
"""Query parameters that may appear in messages; the values of all others may be secrets."""


@dataclass(frozen=True, slots=True)
class Body:
    """A request body that can be sent again."""

    size: int
    """Bytes, sent as Content-Length."""
    open: Callable[[], Iterator[bytes]]

    @classmethod
    def of(cls, data: bytes) -> Body:
        """A body in memory."""
        return cls(len(data), lambda: iter((data,)))


def is_loopback(host: str) -> bool:
    """Whether `host[:port]` can only be this machine: localhost, 127.0.0.0/8 or ::1."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what a credential is bound to."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port


def shown(url: str) -> str:
    """A URL fit for messages: without user, and with the values of query parameters only where they are harmless."""
    parts = urlsplit(url)
    query = [f"{key}={value if key in _SHOWN_PARAMETERS else '…'}" for key, value in parse_qsl(parts.query)]
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" + (f"?{'&'.join(query)}" if query else "")


def read_all(response: httpx.Response, *, limit: int = _BODY_LIMIT) -> bytes:
    """The whole body of a small answer, and the end of the exchange; `RegistryRefused` above `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in response.iter_bytes():
            size += len(piece)
            if size > limit:
                raise RegistryRefused(
                    f"the answer to {response.request.method} {shown(str(response.url))} is too long",
                    why=f"more than {limit} bytes",
                )
            pieces.append(piece)
    except httpx.HTTPError as error:
        raise _unreachable(response.request, error) from error
    finally:
        response.close()
    return b"".join(pieces)


def backoff(attempt: int) -> float:
    """Seconds to wait before try `attempt` + 1 (0-based): doubling from half a second, with jitter."""
    return min(LONGEST_WAIT, 0.5 * 2.0**attempt) * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load


class Http:
    """Sends requests; safe for many threads."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self._answered: set[str] = set()
        self._client = httpx.Client(
            transport=transport or _Routed(environ),
            timeout=httpx.Timeout(connect=15.0, read=180.0, write=180.0, pool=None),
            headers={"User-Agent": f"builder/{__version__}", "Accept-Encoding": "identity"},
            trust_env=False,
        )

    def wait(self, seconds: float) -> None:
        """Sleep."""
        self._sleep(seconds)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Body | None = None,
        attempts: int = ATTEMPTS,
        redirects: int = 5,
        also_temporary: frozenset[int] = frozenset(),
    ) -> httpx.Response:
        """The answer, unread (close it); temporary codes and cut connections are tried `attempts` times in all.

        Codes in `also_temporary` are tried again too, and given back when they stay.
        `RegistryUnreachable` when nothing answers, `RegistryBusy` when the last answer was still a temporary code.
        Redirects of GET and HEAD are followed; credentials stay with the origin they were meant for.
        """
        for attempt in range(attempts):
            try:
                response = self._once(method, url, headers, body)
            except RegistryUnreachable:
                known = urlsplit(url).netloc in self._answered
                if not known or attempt + 1 == attempts:
                    raise
                self._sleep(backoff(attempt))
                continue
            self._answered.add(urlsplit(url).netloc)
            if response.status_code in also_temporary and attempt + 1 < attempts:
                response.close()
                self._sleep(backoff(attempt))
                continue
            if response.status_code in TEMPORARY:
                wait = _asked_wait(response)
                if attempt + 1 == attempts or (wait or 0.0) > LONGEST_WAIT:
                    raise _busy(response, wait)
                self._sleep(backoff(attempt) if wait is None else wait)
                continue
            if response.status_code in REDIRECTS and method in ("GET", "HEAD") and redirects:
                target = _target(response)
                if origin(target) != origin(url):
                    headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
                return self.send(
                    method,
                    target,
                    headers=headers,
                    attempts=attempts,
                    redirects=redirects - 1,
                    also_temporary=also_temporary,
                )
            return response
        raise AssertionError("attempts must be positive")

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: Body | None) -> httpx.Response:
        sent = dict(headers)
        if body is not None:
            sent["Content-Length"] = str(body.size)
        try:
            request = self._client.build_request(
                method, url, headers=sent, content=None if body is None else body.open()
            )
            return self._client.send(request, stream=True)
        except httpx.TransportError as error:
            raise _unreachable(error.request, error) from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise RegistryRefused(f"{method} {shown(url)} makes no sense", why=str(error)) from error


def _target(response: httpx.Response) -> str:
    target = str(response.url.join(response.headers.get("Location", "")))
    response.close()
    if response.url.scheme == "https" and urlsplit(target).scheme != "https":
        raise RegistryRefused(
            f"{shown(str(response.url))} redirects to plain http",
            why=f"the target is {shown(target)}",
            fix="tell whoever runs the registry; nothing is sent without TLS",
        )
    return target


def _unreachable(request: httpx.Request, error: Exception) -> RegistryUnreachable:
    host = request.url.netloc.decode()
    why = str(error) or type(error).__name__
    fix = "check the host name, the network and the proxy settings"
    if "CERTIFICATE_VERIFY_FAILED" in why:
        fix = "add the registry's CA to the file SSL_CERT_FILE names"
    elif "WRONG_VERSION_NUMBER" in why or "record layer failure" in why:
        fix = "the registry speaks plain http: use --plain-http if that is meant"
    return RegistryUnreachable(
        f"no answer from {host}", why=f"{request.method} {shown(str(request.url))}: {why}", fix=fix
    )


def _busy(response: httpx.Response, wait: float | None) -> RegistryBusy:
    response.close()
    code = response.status_code
    why = f"{response.request.method} {shown(str(response.url))} was answered {code} {response.reason_phrase}"
    if wait is not None:
        why += f", asking to wait {wait:.0f} s"
    fix = "try again later" + ("; logging in often raises the limit" if code == 429 else "")
    return RegistryBusy(f"{response.url.netloc.decode()} is busy", why=why, fix=fix)


def _asked_wait(response: httpx.Response) -> float | None:
    """Seconds the answer asks to wait: Retry-After in either form (RFC 9110, 10.2.3), or a hint in the body."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdigit():
        response.close()
        return float(value)
    if value:
        try:
            moment = email.utils.parsedate_to_datetime(value).timestamp()
        except ValueError:
            pass
        else:
            response.close()
            return max(0.0, moment - time.time())
    try:
        text = read_all(response, limit=64 << 10).decode(errors="replace")
    except (RegistryRefused, RegistryUnreachable):
        return None
    found = re.search(r"retry[- _]?after\W{0,4}([0-9]+(?:\.[0-9]+)?)\s*(µs|us|ms|s|m)?", text, re.IGNORECASE)
    if found is None:
        return None
    unit = {"µs": 1e-6, "us": 1e-6, "ms": 1e-3, "m": 60.0}.get(found[2] or "s", 1.0)
    return float(found[1]) * unit


class _Routed(httpx.BaseTransport):
    """Sends each request directly or through the proxy that the environment names for its host.

    Loopback is never proxied. Variables as everywhere: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, either case.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._lock = threading.Lock()
        self._made: dict[tuple[str, bool], httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        proxy = self._proxy(request.url)
        tls = request.url.scheme == "https" or proxy.startswith("https:")
        return self._transport(proxy, tls=tls).handle_request(request)

    def close(self) -> None:
        for transport in self._made.values():
            transport.close()

    def _proxy(self, url: httpx.URL) -> str:
        host = url.netloc.decode().rpartition("@")[2]
        if is_loopback(host):
            return ""
        named = {name: self._setting(name) for name in (f"{url.scheme}_proxy", "all_proxy", "no_proxy")}
        proxy = named[f"{url.scheme}_proxy"] or named["all_proxy"]
        if not proxy or urllib.request.proxy_bypass_environment(host, {"no": named["no_proxy"]}):  # type: ignore[attr-defined]
            return ""
        return proxy if "://" in proxy else f"http://{proxy}"

    def _setting(self, name: str) -> str:
        return self._environ.get(name) or self._environ.get(name.upper()) or ""

    def _transport(self, proxy: str, *, tls: bool) -> httpx.HTTPTransport:
        with self._lock:
            if (proxy, tls) not in self._made:
                limits = httpx.Limits(max_connections=16, max_keepalive_connections=16, keepalive_expiry=30.0)
                try:
                    self._made[proxy, tls] = httpx.HTTPTransport(
                        verify=self._certificates() if tls else False,  # nothing to verify, and reading CAs takes time
                        limits=limits,
                        proxy=httpx.Proxy(proxy) if proxy else None,
                    )
                except (ValueError, httpx.InvalidURL) as error:
                    raise BadInput("the proxy setting cannot be used", why=str(error).replace(proxy, "…")) from error
            return self._made[proxy, tls]

    def _certificates(self) -> ssl.SSLContext:
        cafile = self._environ.get("SSL_CERT_FILE")
        try:
            return ssl.create_default_context(cafile=cafile) if cafile else httpx.create_ssl_context()
        except (OSError, ssl.SSLError) as error:
            raise BadInput(
                f"SSL_CERT_FILE {cafile} holds no certificates" if cafile else "there are no certificates to trust",
                why=str(error),
                fix="unset it, or name a file of certificates",
            ) from error
