"""Find and fetch the wheel that a requirement such as `catboost==1.2.8` means for a target, from the user's indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from builder.audit.values import TargetAudit
from builder.errors import BadInput, OutsideFailed
from builder.events import Reporter
from builder.lock.simple import Link, Pages
from builder.lock.target import accepts, best_wheel
from builder.names import Arch, Digest
from builder.store import Store
from builder.wheels.fetch import receive
from builder.wheels.settings import IndexSettings, read_index_settings
from builder.wheels.transport import open_client

__all__ = ["FoundWheel", "NoWheel", "fetch_requirement", "find_wheel"]


class NoWheel(BadInput):
    """No index offers a wheel that fits the requirement and the target."""

    kind = "no-wheel"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundWheel:
    """One wheel in the store."""

    file: str
    digest: Digest
    path: Path


def fetch_requirement(
    text: str,
    store: Store,
    *,
    python: str,
    arch: Arch,
    glibc: str,
    reporter: Reporter,
    environ: Mapping[str, str],
    offline: bool = False,
    enough: Callable[[httpx.Client, str, str, Digest], TargetAudit | None] | None = None,
) -> FoundWheel | TargetAudit:
    """The newest fitting wheel, pre-releases only when nothing else fits; its dependencies are not fetched.

    `enough` is asked before a download with client, URL, file name and digest: its audit is returned instead of a wheel
    when it has one.

    Raises `BadInput` for what is no requirement, `NoWheel`, and the index room's errors when an index fails.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise BadInput(f"not a requirement: {text!r}", why=str(error).splitlines()[0]) from error
    settings = read_index_settings(environ)
    with open_client(settings, environ) as client:
        link = find_wheel(
            requirement, client, settings=settings, python=python, arch=arch, glibc=glibc, offline=offline
        )
        known = Digest(link.sha256) if link.sha256 else None
        if known is not None and store.has(known):
            return FoundWheel(file=link.file, digest=known, path=store.path(known))
        if offline:
            raise OutsideFailed(
                f"{link.file} is not in the store", why="--offline uses the store alone", fix="run once without it"
            )
        if enough is not None and known is not None and link.url.startswith("http"):
            audit = enough(client, link.url, link.file, known)
            if audit is not None:
                return audit
        with reporter.task(f"fetching {link.file}") as advance:
            digest = receive(client, link.url, store, digest=known, advance=advance)
    return FoundWheel(file=link.file, digest=digest, path=store.path(digest))


def find_wheel(
    requirement: Requirement,
    client: httpx.Client,
    *,
    settings: IndexSettings,
    python: str,
    arch: Arch,
    glibc: str,
    offline: bool = False,
) -> Link:
    """The wheel that the user's indexes offer for a requirement: the newest that fits; `NoWheel` when none does."""
    pages = Pages(client, offline=offline)
    links: list[Link] = []
    for location in settings.find_links:
        links += pages.location(location)
    for index in settings.indexes:
        links += pages.project(index, requirement.name)
    return _choose(requirement, links, python=python, arch=arch, glibc=glibc)


def _choose(requirement: Requirement, links: Iterable[Link], *, python: str, arch: Arch, glibc: str) -> Link:
    """The link an installer would take; `NoWheel` says what was offered instead."""
    wanted = canonicalize_name(requirement.name)
    pinned = any(item.operator in ("==", "===") and "*" not in item.version for item in requirement.specifier)
    by_version: dict[Version, dict[str, Link]] = {}
    offered = 0
    for link in links:
        try:
            name, version, _, _ = parse_wheel_filename(link.file)
        except InvalidWheelFilename:
            continue
        if name == wanted and (pinned or not link.yanked):
            offered += 1
            if accepts(link.file, python=python, arch=arch, glibc=glibc):
                by_version.setdefault(version, {}).setdefault(link.file, link)
    fitting = sorted(requirement.specifier.filter(by_version)) or sorted(
        requirement.specifier.filter(by_version, prereleases=True)
    )
    if not fitting:
        target = f"CPython {python} on {arch} with glibc {glibc}"
        newest = ", ".join(str(version) for version in sorted(by_version)[-3:])
        raise NoWheel(
            f"no wheel for {requirement} on {target}",
            why=f"{offered} wheels of {wanted} are offered, {len(by_version)} versions fit the target"
            + (f", the newest {newest}" if newest else ""),
            fix="choose another version, or --python and --arch of the image"
            if offered
            else "check the spelling, or add the index that has it to pip's or uv's configuration",
        )
    files = by_version[fitting[-1]]
    best = best_wheel(files, python=python, arch=arch, glibc=glibc)
    return files[best or next(iter(files))]
