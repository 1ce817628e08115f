"""What `builder lock` does: keep a fresh lock as it is, make a new one where it is stale, write it when it is clean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from builder.base.values import LockedBase
from builder.errors import BadInput, OutsideFailed, did_you_mean
from builder.events import Reporter
from builder.lock.engine import LockEngine
from builder.lock.files import lock_path, read_lock, render_requirements, requirements_path, write_lock
from builder.lock.fresh import engine_name, stale_reasons
from builder.lock.make import make_lock
from builder.lock.pip_tools import PipTools
from builder.lock.policy import PackagePolicy
from builder.lock.trap import blocked
from builder.lock.uv import Uv
from builder.lock.values import BlockedPackage, Lock
from builder.matrix.values import Stack
from builder.project.values import Project
from builder.store import Store, write_atomic
from builder.wheels.remote import unpacked_size
from builder.wheels.settings import IndexSettings
from builder.wheels.transport import open_client

__all__ = ["ENGINES", "LockOutcome", "check_lock", "choose_engine", "renew_lock"]

ENGINES: Mapping[str, Callable[[Mapping[str, str]], LockEngine]] = {"uv": Uv, "pip-tools": PipTools}
"""Engine name to what makes it from an environment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOutcome:
    """What came of a call."""

    lock: Lock
    path: Path
    blocked: tuple[BlockedPackage, ...] = ()
    """Another backend's packages; a new lock with any is not written."""
    stale: tuple[str, ...] = ()
    """Why the lock on disk is not what would be locked now; empty when it is fresh or was renewed."""
    written: bool = False

    @property
    def verdict(self) -> str:
        """`refused`, `stale`, `locked` (a new lock was written) or `fresh`."""
        if self.blocked:
            return "refused"
        if self.stale:
            return "stale"
        return "locked" if self.written else "fresh"


def choose_engine(name: str | None, *, folder: Path, backend: str, environ: Mapping[str, str]) -> LockEngine:
    """The engine asked for, else the one that made the lock at hand, else uv."""
    path = lock_path(folder, backend)
    if name is None:
        name = engine_name(read_lock(path)) if path.exists() else "uv"
    if name not in ENGINES:
        raise BadInput(f"unknown engine {name!r}", fix=did_you_mean(name, ENGINES))
    return ENGINES[name](environ)


def check_lock(
    project: Project,
    stack: Stack,
    *,
    base: str,
    policy: PackagePolicy,
    engine: str | None = None,
    exclude_newer: str | None = None,
) -> LockOutcome:
    """Hold the lock on disk against project, stack and base reference, without the network; nothing is written.

    Raises `BadInput` when there is no lock, or it cannot be read.
    """
    path = lock_path(project.root, stack.backend)
    lock = read_lock(path)
    reasons = stale_reasons(lock, project=project, stack=stack, base=base, engine=engine, exclude_newer=exclude_newer)
    return LockOutcome(lock=lock, path=path, blocked=blocked(lock, policy), stale=reasons)


def renew_lock(
    project: Project,
    stack: Stack,
    *,
    base: str,
    resolve_base: Callable[[], LockedBase],
    engine: LockEngine,
    policy: PackagePolicy,
    store: Store,
    settings: IndexSettings,
    environ: Mapping[str, str],
    now: str,
    exclude_newer: str | None,
    reporter: Reporter,
    offline: bool = False,
    upgrade: bool = False,
    unknown_allowed: tuple[str, ...] = (),
) -> LockOutcome:
    """A fresh lock for the project, on disk when no other backend's packages are in it.

    A lock that is fresh stays byte for byte. A stale one keeps its versions, and its base when the reference is the
    same, as far as they still fit; `upgrade` takes the newest. `now` (UTC, ISO 8601) bounds upload times unless
    `exclude_newer` does; `resolve_base` is called only when the base has to be looked up.
    """
    path = lock_path(project.root, stack.backend)
    old = read_lock(path) if path.exists() else None
    if old is not None and not upgrade:
        asked = engine.name
        stale = stale_reasons(old, project=project, stack=stack, base=base, engine=asked, exclude_newer=exclude_newer)
        if not stale and old.unknown_allowed == unknown_allowed:
            _restore_requirements(old, project.root)
            return LockOutcome(
                lock=old, path=path, blocked=_measured(blocked(old, policy), old, settings, environ, offline)
            )
        for reason in stale:
            reporter.detail(f"the lock is stale: {reason}")
    keep = old if not upgrade else None
    known = keep.base if keep is not None and keep.base.reference == base and keep.base.python == stack.python else None
    lock = make_lock(
        project,
        stack,
        known or resolve_base(),
        engine=engine,
        policy=policy,
        store=store,
        settings=settings,
        environ=environ,
        exclude_newer=exclude_newer or now,
        reporter=reporter,
        offline=offline,
        previous=keep,
        unknown_allowed=unknown_allowed,
    )
    found = blocked(lock, policy)
    if found:
        return LockOutcome(lock=lock, path=path, blocked=_measured(found, lock, settings, environ, offline))
    write_lock(lock, project.root)
    return LockOutcome(lock=lock, path=path, written=True)


def _restore_requirements(lock: Lock, folder: Path) -> None:
    """The requirements file follows from the lock; one that was lost or edited is written again."""
    path = requirements_path(folder, lock.backend)
    wanted = render_requirements(lock).encode()
    if not path.is_file() or path.read_bytes() != wanted:
        write_atomic(path, wanted)


def _measured(
    items: tuple[BlockedPackage, ...], lock: Lock, settings: IndexSettings, environ: Mapping[str, str], offline: bool
) -> tuple[BlockedPackage, ...]:
    """The same with the room each would take when installed, where its server says; offline only files on disk."""
    urls = {package.name: package.url for package in lock.packages}

    def measure(item: BlockedPackage) -> BlockedPackage:
        if offline and not urls[item.package].startswith("file:"):
            return item
        try:
            return replace(item, installed=unpacked_size(client, urls[item.package]))
        except OutsideFailed:
            # The refusal stands without it.
            return item

    if not items:
        return ()
    with open_client(settings, environ) as client, ThreadPoolExecutor(max_workers=8) as pool:
        return tuple(pool.map(measure, items))
