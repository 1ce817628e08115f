"""HTTP as package indexes need it: credentials, certificates, and retries for what is known to pass."""

from __future__ import annotations

import netrc
import ssl
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TypeVar

import httpx

from builder.errors import BadInput, OutsideFailed, Where
from builder.wheels.settings import IndexSettings, without_credentials

__all__ = ["TEMPORARY", "IndexUnreachable", "get", "open_client", "retrying", "status_fault", "transport_fault"]

TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that may be gone a moment later (RFC 9110, section 15; RFC 6585, section 4; RFC 8470, section 5.2)."""

_TRIES = 4
_LONGEST_PAUSE = 20.0

T = TypeVar("T")


class IndexUnreachable(OutsideFailed):
    """An index or a file host does not answer, or answers with an error."""

    kind = "index-unreachable"


class Temporary(Exception):
    """An answer worth another try; `pause` is what the server asked for, in seconds.

    `progress` says that something was gained, so that a long download over a bad line may go on as long as it moves.
    """

    def __init__(self, fault: IndexUnreachable, pause: float | None = None, *, progress: bool = False) -> None:
        super().__init__(fault.what)
        self.fault = fault
        self.pause = pause
        self.progress = progress


class _IndexAuth(httpx.Auth):
    """Credentials by origin: from the configured index URLs, else from the user's netrc, as pip does."""

    def __init__(self, known: Mapping[tuple[str, str], tuple[str, str]], logins: netrc.netrc | None) -> None:
        self._known = known
        self._logins = logins

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        url = request.url
        login = self._known.get((url.scheme, url.netloc.decode().rpartition("@")[2]))
        if login is None and self._logins is not None and (entry := self._logins.authenticators(url.host)):
            login = (entry[0], entry[2] or "")
        if login is not None and "Authorization" not in request.headers:
            yield from httpx.BasicAuth(*login).auth_flow(request)
        else:
            yield request


def open_client(settings: IndexSettings, environ: Mapping[str, str]) -> httpx.Client:
    """A client for indexes and file hosts; use as a context manager. Proxies come from the environment."""
    return httpx.Client(
        auth=_IndexAuth(settings.credentials(), _logins(environ)),
        verify=_certificates(settings),
        mounts={f"https://{host}": httpx.HTTPTransport(verify=False) for host in settings.trusted_hosts},
        follow_redirects=True,
        timeout=httpx.Timeout(30.0, connect=10.0),
        limits=httpx.Limits(max_connections=32),
    )


def _certificates(settings: IndexSettings) -> ssl.SSLContext:
    try:
        context = (
            ssl.create_default_context(cafile=settings.cert)
            if settings.cert is not None
            else httpx.create_ssl_context()
        )
        if settings.client_cert is not None:
            context.load_cert_chain(settings.client_cert)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(
            "cannot read the certificates named by pip's configuration",
            why=str(error),
            where=Where(file=settings.client_cert or settings.cert or ""),
        ) from error
    return context


def _logins(environ: Mapping[str, str]) -> netrc.netrc | None:
    path = environ.get("NETRC") or (f"{environ['HOME']}/.netrc" if environ.get("HOME") else "")
    if not path or not Path(path).is_file():
        return None
    try:
        return netrc.netrc(path)
    except (netrc.NetrcParseError, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}", why=str(error), where=Where(file=path)) from error


def transport_fault(url: str, error: httpx.HTTPError) -> IndexUnreachable:
    """The fault of a request that got no whole answer."""
    fix = "check the network, the proxy variables and the index settings of pip or uv"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        fix = "if a proxy of yours signs what it passes on, name its CA by SSL_CERT_FILE or pip's cert setting"
    return IndexUnreachable(f"cannot reach {without_credentials(url)}", why=str(error) or type(error).__name__, fix=fix)


def status_fault(response: httpx.Response) -> IndexUnreachable:
    """The fault of an answer with an error status."""
    url = without_credentials(str(response.request.url))
    fix = ""
    if response.status_code in (401, 403):
        fix = "give credentials for this host in ~/.netrc or in the index URL of pip's or uv's configuration"
    elif response.status_code in (404, 410):
        fix = "the file is gone from its index: make a new lock"
    return IndexUnreachable(
        f"{url} was refused", why=f"HTTP status {response.status_code} {response.reason_phrase}".strip(), fix=fix
    )


def check_status(response: httpx.Response) -> None:
    """Return for a success; raise `Temporary` or `IndexUnreachable` for the rest."""
    if response.is_success:
        return
    fault = status_fault(response)
    if response.status_code in TEMPORARY:
        asked = response.headers.get("Retry-After", "")
        raise Temporary(fault, float(asked) if asked.isdigit() else None)
    raise fault


def retrying(attempt: Callable[[], T], *, sleep: Callable[[float], object] = time.sleep) -> T:
    """The result of `attempt`, tried again while it raises `Temporary`, at most 4 times in a row without progress."""
    failed = 0
    while True:
        try:
            return attempt()
        except Temporary as again:
            failed = 0 if again.progress else failed + 1
            if failed == _TRIES:
                raise again.fault from again
            pause = 0.2 * 2**failed if again.pause is None else again.pause
            sleep(min(pause, _LONGEST_PAUSE))


def get(client: httpx.Client, url: str, *, accept: str, limit: int = 64 << 20) -> httpx.Response | None:
    """A small page, whole; None when the server says there is no such page.

    `limit` bounds the body, in bytes after decompression; index pages of the largest projects are a few MiB.
    """

    def attempt() -> httpx.Response | None:
        try:
            with client.stream("GET", url, headers={"Accept": accept}) as response:
                if response.status_code in (404, 410):
                    return None
                check_status(response)
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > limit:
                        raise IndexUnreachable(
                            f"{without_credentials(url)} is not an index page", why=f"it is longer than {limit} bytes"
                        )
                return httpx.Response(
                    response.status_code,
                    headers={"Content-Type": response.headers.get("Content-Type", "")},
                    content=bytes(body),
                    request=response.request,
                )
        except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
            # Nothing answers at that address; waiting a few seconds only delays saying so.
            raise transport_fault(url, error) from error
        except httpx.TransportError as error:
            raise Temporary(transport_fault(url, error)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise IndexUnreachable(f"cannot read {without_credentials(url)}", why=str(error)) from error

    return retrying(attempt)
