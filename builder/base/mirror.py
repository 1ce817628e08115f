"""Fetching from a Debian mirror: signed release files, package indexes by hash, packages. Speaks HTTP by httpx."""

from __future__ import annotations

import hashlib
import lzma
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from pysequoia import Cert

from builder.base.openpgp import verified
from builder.base.packages import fields
from builder.base.values import DebPackage
from builder.errors import BadInput, OutsideFailed, Where
from builder.events import Advance, Reporter
from builder.names import Digest
from builder.store import Store, disk_errors

__all__ = [
    "DEFAULT_MIRROR",
    "SNAPSHOT_MIRROR",
    "Release",
    "fetch_index",
    "fetch_packages",
    "fetch_release",
    "http_client",
]

DEFAULT_MIRROR = "https://deb.debian.org"
SNAPSHOT_MIRROR = "https://snapshot.debian.org/archive"

_RELEASE_LIMIT = 4 << 20
_INDEX_LIMIT = 64 << 20
_TEXT_LIMIT = 1 << 30
_PIECE = 1 << 20
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRIES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """A verified release file of one suite."""

    origin: str
    """URL of the archive, what `Filename` of its packages is relative to."""
    suite: str
    """Folder below dists/."""
    indexes: Mapping[str, tuple[Digest, int]]
    """Path below dists/<suite>/ to digest and size in bytes."""


TRUST_FIX = "if a proxy of yours signs what it passes on, name a file with its CA by SSL_CERT_FILE"
"""The mend where a certificate is not known."""


def http_client() -> httpx.Client:
    """The client all fetches of one command share."""
    try:
        verify = httpx.create_ssl_context()
    except OSError as error:
        raise BadInput(
            "no certificates to know the Debian mirror by",
            why=f"SSL_CERT_FILE or SSL_CERT_DIR names what cannot be read: {error.strerror or error}",
            fix="unset them, or name a file of certificates",
        ) from error
    return httpx.Client(
        verify=verify,
        follow_redirects=True,
        timeout=httpx.Timeout(60, connect=15),
        limits=httpx.Limits(max_connections=8),
    )


def fetch_release(
    client: httpx.Client, origin: str, suite: str, codename: str, keys: tuple[Cert, ...], *, now: datetime | None
) -> Release:
    """Fetch and verify dists/<suite>/InRelease.

    `codename` is what the file must call itself, so that no other suite's release can stand in. `now` is None for an
    archive of the past, whose `Valid-Until` is over by design.
    """
    url = f"{origin}/dists/{suite}/InRelease"
    text = verified(_get(client, url, limit=_RELEASE_LIMIT), keys, url=url)
    found = fields(text)
    where = Where(file=url)
    if found.get("Codename") != codename:
        raise OutsideFailed(
            "the mirror sent another suite",
            why=f"asked for {codename}, its release file is of {found.get('Codename', 'no codename')}",
            where=where,
        )
    if now is not None and "Valid-Until" in found:
        until = parsedate_to_datetime(found["Valid-Until"]).replace(tzinfo=UTC)
        if until < now:
            raise OutsideFailed(
                "the mirror is out of date",
                why=f"its release file was valid until {found['Valid-Until']}",
                fix="use another mirror (BUILDER_DEBIAN_MIRROR), check this machine's clock, or pin a snapshot",
                where=where,
            )
    rows = (line.split() for line in found.get("SHA256", "").splitlines())
    indexes = {row[2]: (Digest(row[0]), int(row[1])) for row in rows if len(row) == 3 and len(row[0]) == 64}
    return Release(origin=origin, suite=suite, indexes=indexes)


def fetch_index(client: httpx.Client, release: Release, arch: str, store: Store) -> Iterator[str]:
    """The stanzas of main/binary-<arch>/Packages, some at a time, fetched by hash and kept in the store.

    The whole text has 50 MB, several times that once it is decoded and split.
    """
    path = f"main/binary-{arch}/Packages.xz"
    found = release.indexes.get(path)
    where = Where(file=f"{release.origin}/dists/{release.suite}/{path}")
    if found is None:
        raise OutsideFailed(
            f"{release.suite} has no packages for {arch}", why=f"its release file lists no {path}", where=where
        )
    digest, size = found
    if not store.has(digest):
        url = f"{release.origin}/dists/{release.suite}/main/binary-{arch}/by-hash/SHA256/{digest.hex}"
        _download(client, url, digest, min(size, _INDEX_LIMIT), store, lambda _amount: None)
    rest = b""
    left = _TEXT_LIMIT
    try:
        with store.open(digest) as file, lzma.open(file) as text:
            while left and (piece := text.read(min(_PIECE, left))):
                left -= len(piece)
                whole, _, rest = (rest + piece).rpartition(b"\n\n")
                yield whole.decode()
    except (lzma.LZMAError, EOFError) as error:
        raise OutsideFailed("the package index is damaged", why=str(error), where=where) from error
    yield rest.decode()


def fetch_packages(
    packages: tuple[DebPackage, ...], store: Store, reporter: Reporter, *, offline: bool, parallel: int = 8
) -> None:
    """Bring every package into the store, verified by digest; what is there is not fetched again."""
    missing = [package for package in packages if not store.has(package.sha256)]
    if not missing:
        return
    if offline:
        raise OutsideFailed(
            f"{len(missing)} Debian packages are not in the store",
            why=f"offline, and {missing[0].name} {missing[0].version} was never fetched",
            fix="run once without --offline",
        )
    total = sum(package.size for package in missing)
    with reporter.task("Debian packages", total=total) as advance, http_client() as client, _pool(parallel) as pool:
        jobs = [pool.submit(_download, client, item.url, item.sha256, item.size, store, advance) for item in missing]
        for job in jobs:
            job.result()


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that gives up queued work when one job fails or the user interrupts."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="debian")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _download(client: httpx.Client, url: str, digest: Digest, size: int, store: Store, advance: Advance) -> None:
    for attempt in range(_TRIES):
        hasher = hashlib.sha256()
        received = 0
        try:
            with store.partial() as path:
                with disk_errors(path), path.open("wb") as file, client.stream("GET", url) as response:
                    _check(response, url)
                    for chunk in response.iter_bytes():
                        received += len(chunk)
                        if received > size:
                            break
                        hasher.update(chunk)
                        file.write(chunk)
                        advance(len(chunk))
                if received != size or hasher.hexdigest() != digest.hex:
                    raise OutsideFailed(
                        "the mirror sent another file than its signed index names",
                        why=f"expected {size} bytes, {digest}; got {received} bytes, sha256:{hasher.hexdigest()}",
                        fix="try again, or use another mirror (BUILDER_DEBIAN_MIRROR)",
                        where=Where(file=url),
                    )
                store.adopt(path, digest, verified=True)
                return
        except (_TemporaryError, httpx.RequestError) as error:
            advance(-received)
            _pause(attempt, error, url)


def _get(client: httpx.Client, url: str, *, limit: int) -> bytes:
    for attempt in range(_TRIES):
        try:
            with client.stream("GET", url) as response:
                _check(response, url)
                data = bytearray()
                for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > limit:
                        raise OutsideFailed(
                            "the mirror's answer is too long", why=f"over {limit} bytes", where=Where(file=url)
                        )
                return bytes(data)
        except (_TemporaryError, httpx.RequestError) as error:
            _pause(attempt, error, url)
    raise AssertionError("unreachable: the last pause raises")


class _TemporaryError(Exception):
    """A status code that may go away."""


def _check(response: httpx.Response, url: str) -> None:
    if response.status_code in _TEMPORARY:
        raise _TemporaryError(f"HTTP {response.status_code}")
    if response.status_code == 404 and re.search(r"\.deb$", url):
        raise OutsideFailed(
            "the mirror no longer has a locked package",
            why="HTTP 404; mirrors keep only the newest version of a package",
            fix="make a new lock, or pin the base to a day: debian:<suite>@YYYYMMDDTHHMMSSZ",
            where=Where(file=url),
        )
    if not response.is_success:
        raise OutsideFailed("the Debian mirror refused", why=f"HTTP {response.status_code}", where=Where(file=url))


def _pause(attempt: int, error: Exception, url: str) -> None:
    if attempt == _TRIES - 1:
        fix = "check the network and proxy, or name another mirror by BUILDER_DEBIAN_MIRROR"
        raise OutsideFailed(
            "the Debian mirror cannot be reached",
            why=f"{error or type(error).__name__}, {_TRIES} tries",
            fix=TRUST_FIX if "CERTIFICATE_VERIFY_FAILED" in str(error) else fix,
            where=Where(file=url),
        ) from error
    time.sleep(0.25 * 2**attempt)
