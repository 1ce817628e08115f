"""Stack and project in, lock out: which bounds bind, what the resolver finds, and a digest for every file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from builder.base.values import LockedBase
from builder.errors import BadInput
from builder.events import Reporter
from builder.lock.engine import LockEngine, Request, Resolved
from builder.lock.fresh import inputs_digest
from builder.lock.pins import unlabelled_pins
from builder.lock.policy import PackagePolicy
from builder.lock.search import Search
from builder.lock.simple import Pages
from builder.lock.values import Lock, LockedPackage
from builder.matrix.values import Stack
from builder.names import Digest
from builder.project.values import Project
from builder.store import Store
from builder.wheels.fetch import receive
from builder.wheels.settings import IndexSettings, without_credentials
from builder.wheels.transport import IndexUnreachable, open_client

__all__ = ["make_lock"]


def make_lock(
    project: Project,
    stack: Stack,
    base: LockedBase,
    *,
    engine: LockEngine,
    policy: PackagePolicy,
    store: Store,
    settings: IndexSettings,
    environ: Mapping[str, str],
    exclude_newer: str,
    reporter: Reporter,
    offline: bool = False,
    previous: Lock | None = None,
    unknown_allowed: tuple[str, ...] = (),
) -> Lock:
    """Decide the lock of one backend. Nothing is written but hashed files into the store.

    `exclude_newer` is a UTC time (`2026-11-30T00:00:00Z`); `previous` keeps its versions where they still fit. The
    result may hold another backend's packages: `builder.lock.trap.blocked` tells.

    Raises `CannotResolve`, `NoSuchPackage`, `OnlySources`, `MissingIndex`, `IndexUnreachable`, `WrongHost`.
    """
    requirements = project.requirements_for(stack.backend)
    overrides = project.options(stack.backend).overrides
    if not requirements:
        raise BadInput(
            f"nothing to lock for {stack.backend}",
            why="the project has no requirements for this backend",
            fix="name them under requirements in the project file",
        )
    for line, bound in unlabelled_pins(requirements, stack.constraints):
        reporter.note(f"{line!r} names no build; the stack takes {bound!r}. Write the label to make that visible.")
    with open_client(settings, environ) as client:
        search = Search(
            requirements=requirements,
            stack=stack,
            policy=policy,
            engine=engine,
            pages=Pages(client, offline=offline),
            reporter=reporter,
            request=Request(
                requirements=requirements,
                overrides=overrides,
                preferences=tuple(f"{item.name}=={item.version}" for item in (previous.packages if previous else ())),
                python=stack.python,
                arch=project.arch,
                glibc=base.glibc,
                exclude_newer=exclude_newer,
                settings=settings,
                offline=offline,
            ),
        )
        resolution, undated = search.run()
        files = tuple(
            _with_digest(package, client, store, reporter) for package in map(search.with_index, resolution.packages)
        )
    return Lock(
        backend=stack.backend,
        project=project.name,
        python=stack.python,
        arch=project.arch,
        glibc=base.glibc,
        toolkit=stack.toolkit,
        frameworks=dict(stack.frameworks),
        requirements=requirements,
        packages=_edges(files),
        base=base,
        exclude_newer=exclude_newer,
        inputs=inputs_digest(
            backend=stack.backend,
            python=stack.python,
            arch=project.arch,
            requirements=requirements,
            overrides=overrides,
            toolkit=stack.toolkit,
            frameworks=stack.frameworks,
            constraints=stack.constraints,
            indexes=stack.indexes,
            base=base,
            engine=engine.name,
        ),
        engine=f"{engine.name} {engine.version()}",
        unknown_allowed=unknown_allowed,
        constraints=stack.constraints,
        overrides=overrides,
        indexes=stack.indexes,
        undated=tuple(sorted(without_credentials(url) for url in undated)),
    )


def _with_digest(package: Resolved, client: httpx.Client, store: Store, reporter: Reporter) -> Resolved:
    """The package with the digest of its bytes: from the index when it gives one, else by reading the file (FR-23)."""
    url = urlsplit(package.url)
    if url.scheme == "file":
        path = Path(unquote(url.path))
        try:
            size = path.stat().st_size
            digest = package.sha256 or Digest.of_file(path).hex
        except OSError as error:
            raise IndexUnreachable(f"cannot read {path}", why=error.strerror or str(error)) from error
        return replace(package, sha256=digest, size=size)
    if package.sha256 is not None:
        return package
    reporter.detail(f"{package.name}: its index gives no digest for the file, so it is fetched and hashed")
    with reporter.task(f"hashing {package.name}", total=package.size) as advance:
        found = receive(client, package.url, store, digest=None, advance=advance)
    return replace(package, sha256=found.hex, size=store.path(found).stat().st_size)


def _edges(files: tuple[Resolved, ...]) -> tuple[LockedPackage, ...]:
    requires: dict[str, set[str]] = {package.name: set() for package in files}
    for package in files:
        for parent in package.parents:
            if parent in requires:
                requires[parent].add(package.name)
    return tuple(
        LockedPackage(
            name=package.name,
            version=package.version,
            file=unquote(urlsplit(package.url).path.rpartition("/")[2]),
            sha256=Digest.parse(f"sha256:{package.sha256}"),
            uploaded=package.uploaded,
            url=package.url,
            index=package.index,
            size=package.size,
            requires=tuple(sorted(requires[package.name])),
        )
        for package in sorted(files, key=lambda package: package.name)
    )
