"""The built-in base `debian:<suite>[@snapshot]`: a minimal Python base locked from Debian's signed package index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from builder.base.mirror import DEFAULT_MIRROR, SNAPSHOT_MIRROR, fetch_index, fetch_release, http_client
from builder.base.openpgp import trusted_keys
from builder.base.packages import Index, Stanza, closure
from builder.base.values import BASE_LAYOUT, DebPackage, LockedBase
from builder.errors import BadInput, OutsideFailed, did_you_mean
from builder.events import Reporter
from builder.names import Arch, Digest, Platform
from builder.store import Store

__all__ = ["LEAVE_OUT", "SUITES", "DebianRef", "lock_debian", "locked_from_index", "parse_debian"]

SUITES: Mapping[str, str] = {"bookworm": "3.11", "trixie": "3.13"}
"""Suite to the one Python minor version it has (packages.debian.org, `python3`)."""

LEAVE_OUT = frozenset({"awk", "debconf", "debconf-2.0", "debianutils", "dpkg"})
"""Dependencies that serve maintainer scripts alone, which are never run here."""


@dataclass(frozen=True, slots=True)
class DebianRef:
    """`debian:<suite>` or `debian:<suite>@YYYYMMDDTHHMMSSZ` (a state of the archive kept by snapshot.debian.org)."""

    suite: str
    snapshot: str | None = None

    def __str__(self) -> str:
        return f"debian:{self.suite}" + (f"@{self.snapshot}" if self.snapshot else "")


def parse_debian(reference: str) -> DebianRef | None:
    """The parsed reference; None when it is no `debian:` reference, `BadInput` when it is a wrong one."""
    if not reference.startswith("debian:"):
        return None
    suite, at, snapshot = reference.removeprefix("debian:").partition("@")
    if suite not in SUITES:
        raise BadInput(
            f"unknown Debian suite {suite!r}",
            why="the built-in base is made from known suites only",
            fix=did_you_mean(suite, SUITES),
        )
    if at and re.fullmatch(r"\d{8}T\d{6}Z", snapshot) is None:
        raise BadInput(
            f"not a snapshot time: {snapshot!r}",
            why="a snapshot is named YYYYMMDDTHHMMSSZ, in UTC",
            fix=f"for example debian:{suite}@20260711T120000Z",
        )
    return DebianRef(suite, snapshot or None)


def lock_debian(
    ref: DebianRef,
    *,
    python: str,
    arch: Arch,
    store: Store,
    reporter: Reporter,
    offline: bool,
    environ: Mapping[str, str],
) -> LockedBase:
    """Lock the base from the mirror's signed indexes; offline, what was locked last with this store is used."""
    _check_python(ref, python)
    mirror = _mirror(environ)
    key = f"{ref} {python} {arch} {mirror} {BASE_LAYOUT}"
    if offline or ref.snapshot:
        kept = store.derived("base-lock", key)
        if kept is not None:
            return LockedBase.from_json(kept)
        if offline:
            raise OutsideFailed(
                f"base {ref} is not known yet",
                why="offline, and it was never locked with this store",
                fix="run once without --offline",
            )
    keys = trusted_keys(environ)
    root = mirror or (SNAPSHOT_MIRROR if ref.snapshot else DEFAULT_MIRROR)
    tail = f"/{ref.snapshot}" if ref.snapshot else ""
    sources = (
        (f"{root}/debian{tail}", ref.suite, ref.suite),
        (f"{root}/debian{tail}", f"{ref.suite}-updates", f"{ref.suite}-updates"),
        (f"{root}/debian-security{tail}", f"{ref.suite}-security", f"{ref.suite}-security"),
    )
    now = None if ref.snapshot else datetime.now(UTC)
    index = Index()
    with http_client() as client, reporter.task(f"index of {ref}", total=len(sources), unit="files") as advance:
        for origin, suite, codename in sources:
            release = fetch_release(client, origin, suite, codename, keys, now=now)
            for stanzas in fetch_index(client, release, Platform(arch).oci_arch, store):
                index.add(stanzas, origin)
            advance(1)
    locked = locked_from_index(index, ref, python=python)
    store.put_derived("base-lock", key, locked.to_json())
    return locked


def locked_from_index(index: Index, ref: DebianRef, *, python: str) -> LockedBase:
    """Choose the packages. Pure."""
    roots = ["base-files", "base-passwd", "ca-certificates", "dash", "libc-bin", "libgomp1", "libstdc++6", "netbase"]
    roots += [f"python{python}", "tzdata", "zlib1g"]
    chosen = closure(index, roots, leave_out=LEAVE_OUT, where=str(ref))
    packages = tuple(_locked(stanza) for stanza in chosen)
    libc = next((stanza for stanza in chosen if stanza.name == "libc6"), None)
    if libc is None:
        raise BadInput(f"{ref} is inconsistent", why="nothing in the base depends on libc6")
    glibc = re.match(r"\d+\.\d+", libc.version.rpartition(":")[2])
    if glibc is None:
        raise BadInput(f"{ref} is inconsistent", why=f"libc6 has version {libc.version!r}")
    identity = "\n".join([f"layout {BASE_LAYOUT}", f"python {python}", *sorted(str(item.sha256) for item in packages)])
    return LockedBase(
        reference=str(ref),
        digest=Digest.of(identity.encode()),
        python=python,
        python_path=f"/usr/bin/python{python}",
        glibc=glibc[0],
        packages=packages,
    )


def _mirror(environ: Mapping[str, str]) -> str:
    """The mirror the user names, without a trailing slash; empty for Debian's own."""
    mirror = environ.get("BUILDER_DEBIAN_MIRROR", "").rstrip("/")
    if mirror:
        try:
            url = httpx.URL(mirror)
        except httpx.InvalidURL as error:
            raise BadInput(f"BUILDER_DEBIAN_MIRROR is not a URL: {mirror!r}", why=str(error)) from error
        if url.scheme not in ("http", "https") or not url.host:
            raise BadInput(
                f"BUILDER_DEBIAN_MIRROR is not a URL: {mirror!r}",
                why="it starts with http:// or https:// and names a host",
                fix="for example https://deb.debian.org",
            )
    return mirror


def _check_python(ref: DebianRef, python: str) -> None:
    if SUITES[ref.suite] != python:
        having = [suite for suite, version in SUITES.items() if version == python]
        known = ", ".join(f"debian:{suite} has Python {version}" for suite, version in SUITES.items())
        raise BadInput(
            f"{ref} has no Python {python}",
            why=f"a Debian suite has one Python: {known}",
            fix=f'use base = "debian:{having[0]}"' if having else "ask for one of these, or name an OCI base image",
        )


def _locked(stanza: Stanza) -> DebPackage:
    get = stanza.fields
    try:
        return DebPackage(
            name=stanza.name,
            version=stanza.version,
            architecture=get["Architecture"],
            sha256=Digest.parse(f"sha256:{get['SHA256']}"),
            size=int(get["Size"]),
            url=f"{stanza.origin}/{get['Filename']}",
        )
    except (KeyError, ValueError) as error:
        raise OutsideFailed(f"the index entry of {stanza.name} is incomplete", why=str(error)) from error
