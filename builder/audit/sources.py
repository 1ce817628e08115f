"""What the targets of a sweep stand for: wheel after wheel, in the same order every time, never all at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import BuildTag, InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from builder.audit.shard import WHOLE, Shard
from builder.errors import BadInput, BuilderError, OutsideFailed, where_path
from builder.lock.simple import Link, Pages, is_sha256, listing
from builder.lock.target import accepts
from builder.names import Arch, Digest
from builder.wheels.settings import without_credentials
from builder.wheels.transport import IndexUnreachable

__all__ = ["Fit", "Source", "each_source", "target_lines"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """What the wheels of an index must fit to be audited."""

    python: str
    arch: Arch
    glibc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One thing to audit: exactly one of `path`, `url`, `requirement` and `fault` is set."""

    at: tuple[int, ...]
    """Place among all sources, whichever part they belong to; compares as a tuple."""
    target: str
    """As results name it: a path, a URL without credentials, a requirement."""
    stamp: str = ""
    """Changes when the file does: the index's hash, or length and time of a local file."""
    path: Path | None = None
    url: str = ""
    file: str = ""
    """Wheel file name, of a path or URL."""
    sha256: Digest | None = None
    """As the index says."""
    requirement: str = ""
    fault: BuilderError | None = None
    """Why it cannot even be listed: the page of one project of an index does not answer."""


def target_lines(path: Path) -> Iterator[str]:
    """The targets listed in a file, one a line; blank lines and lines that start with # are passed over."""
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if (text := line.strip()) and not text.startswith("#"):
                    yield text
    except UnicodeDecodeError as error:
        raise BadInput(f"cannot read {path}", why=str(error), where=where_path(path)) from error


def each_source(
    targets: Iterable[str],
    *,
    shard: Shard = WHOLE,
    fit: Fit,
    newest: bool = False,
    client: httpx.Client,
    offline: bool = False,
) -> Iterator[Source]:
    """The sources of one part: of files, folders and project pages by file name, of requirements and of the projects of
    an index by project name. Of an index, wheels that fit; with `newest`, of the newest version alone.

    Raises `BadInput` for what is no target, and the index room's errors.
    """
    for number, target in enumerate(targets):
        at = (number,)
        scheme = urlsplit(target).scheme
        if scheme in ("http", "https"):
            yield from _from_url(target, at, shard, fit, client, newest=newest, offline=offline)
        elif Path(target).is_dir():
            yield from _from_folder(Path(target), at, shard)
        elif target.endswith(".whl"):
            if not Path(target).is_file():
                raise BadInput(f"no such file: {target}", fix="check the path")
            if shard.holds(Path(target).name):
                yield _local(Path(target), at)
        else:
            try:
                name = canonicalize_name(Requirement(target).name)
            except InvalidRequirement as error:
                lock = target.endswith(".toml")
                raise BadInput(
                    f"not a target of a sweep: {target!r}",
                    why="a lock's wheels are judged together" if lock else str(error).splitlines()[0],
                    fix="audit the lock without --results"
                    if lock
                    else "name a wheel, a folder, the URL of an index or a wheel, or a requirement",
                ) from error
            if shard.holds(name):
                yield Source(at=at, target=target, requirement=target)


def _from_folder(folder: Path, at: tuple[int, ...], shard: Shard) -> Iterator[Source]:
    """Wheels of a folder and below, by name; links are followed for files alone."""
    for number, path in enumerate(_wheel_paths(folder)):
        if shard.holds(path.name):
            yield _local(path, (*at, number))


def _wheel_paths(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".whl"):
                yield Path(root) / name


def _local(path: Path, at: tuple[int, ...]) -> Source:
    status = path.stat()
    stamp = f"{status.st_size}-{status.st_mtime_ns}"
    return Source(at=at, target=str(path), stamp=stamp, path=path, file=path.name)


def _from_url(
    url: str, at: tuple[int, ...], shard: Shard, fit: Fit, client: httpx.Client, *, newest: bool, offline: bool
) -> Iterator[Source]:
    bare, _, fragment = url.partition("#")
    file = unquote(urlsplit(bare).path.rpartition("/")[2])
    if file.endswith(".whl"):
        if shard.holds(file):
            digest = fragment.removeprefix("sha256=")
            yield _remote(Link(file=file, url=bare, sha256=digest if is_sha256(digest) else None, dated=False), at)
        return
    if offline:
        raise OutsideFailed(
            f"cannot list {without_credentials(url)}", why="--offline keeps off the network", fix="run without it"
        )
    page = listing(client, bare)
    if page is None:
        raise BadInput(f"there is no index page {without_credentials(url)}", fix="check the URL")
    if page.projects:
        for number, name in enumerate(sorted(page.projects)):
            if shard.holds(name):
                try:
                    # Pages of its own each time: those of a whole index must not pile up.
                    links = Pages(client, offline=offline).project(bare, name)
                except IndexUnreachable as error:
                    yield Source(at=(*at, number), target=f"{without_credentials(bare)}{name}/", fault=error)
                    continue
                for place, link in enumerate(_chosen(links, fit, newest=newest)):
                    yield _remote(link, (*at, number, place))
        return
    for place, link in enumerate(_chosen(page.links, fit, newest=newest)):
        if shard.holds(link.file):
            yield _remote(link, (*at, place))


def _chosen(links: Iterable[Link], fit: Fit, *, newest: bool) -> list[Link]:
    """The links that fit, each file once, by version and name."""
    found: dict[tuple[Version, BuildTag, str], Link] = {}
    for link in links:
        try:
            _, version, build, _ = parse_wheel_filename(link.file)
        except InvalidWheelFilename:
            continue
        if accepts(link.file, python=fit.python, arch=fit.arch, glibc=fit.glibc):
            found.setdefault((version, build, link.file), link)
    if newest:
        stable = [version for version, _, _ in found if not version.is_prerelease]
        last = max(stable or [version for version, _, _ in found], default=None)
        found = {key: link for key, link in found.items() if key[0] == last}
    return [found[key] for key in sorted(found)]


def _remote(link: Link, at: tuple[int, ...]) -> Source:
    return Source(
        at=at,
        target=without_credentials(link.url),
        stamp=link.sha256 or "",
        url=link.url,
        file=link.file,
        sha256=Digest(link.sha256) if link.sha256 else None,
    )
