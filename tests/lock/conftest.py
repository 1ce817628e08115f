"""A project, a stack and a base for locks, and indexes on loopback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from builder.base.values import LockedBase
from builder.events import SilentReporter
from builder.lock.engine import LockEngine
from builder.lock.make import make_lock
from builder.lock.policy import PackagePolicy, load_package_policy
from builder.lock.uv import Uv
from builder.lock.values import Lock
from builder.matrix.values import IndexPin, RunLine, Runtime, Stack
from builder.names import Arch, Digest
from builder.project.values import BackendOptions, ImageOptions, Project
from builder.store import Store
from builder.wheels.settings import IndexSettings
from tests.lock.indexes import Index, serving

NOW = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="session")
def policy() -> PackagePolicy:
    """The table as shipped."""
    return load_package_policy()


@pytest.fixture
def default() -> Iterator[Index]:
    """The index that stands for the default one."""
    with serving(Index()) as served:
        yield served


@pytest.fixture
def vendor() -> Iterator[Index]:
    """A framework's own index: no upload times, as most of them."""
    with serving(Index(html=True)) as served:
        yield served


def base(glibc: str = "2.36", python: str = "3.11") -> LockedBase:
    """A base that nobody opens."""
    return LockedBase(
        reference="debian:bookworm",
        digest=Digest.of(b"base"),
        python=python,
        python_path=f"/usr/bin/python{python}",
        glibc=glibc,
    )


def stack(
    backend: str,
    *constraints: str,
    pins: tuple[IndexPin, ...] = (),
    python: str = "3.11",
    frameworks: dict[str, str] | None = None,
) -> Stack:
    """A stack with these bounds and index pins."""
    return Stack(
        backend=backend,
        toolkit=None,
        python=python,
        frameworks=frameworks or {},
        constraints=constraints,
        indexes=pins,
        base=None,
        archs=(),
        runtime=Runtime(env={}, run=RunLine()),
        why=(),
    )


def project(
    path: Path, *requirements: str, arch: Arch = "x86_64", backends: dict[str, BackendOptions] | None = None
) -> Project:
    """A project with these requirements."""
    return Project(
        path=path / "builder.toml",
        name="app",
        version="1.0",
        python="3.11",
        arch=arch,
        requirements=requirements,
        image=ImageOptions(env={}, labels={}),
        backends=backends or {},
    )


@dataclass
class Notes(SilentReporter):
    """Keeps what a user would see."""

    lines: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep."""
        self.lines.append(text)


@dataclass
class Locker:
    """Makes locks against the indexes of one test."""

    folder: Path
    store: Store
    policy: PackagePolicy
    settings: IndexSettings
    environ: dict[str, str]
    notes: Notes = field(default_factory=Notes)
    engine: Callable[[dict[str, str]], LockEngine] = Uv

    def lock(
        self,
        stack: Stack,
        *requirements: str,
        arch: Arch = "x86_64",
        glibc: str = "2.36",
        previous: Lock | None = None,
        backends: dict[str, BackendOptions] | None = None,
        exclude_newer: str = NOW,
        offline: bool = False,
    ) -> Lock:
        """The lock of a project with these requirements."""
        return make_lock(
            project(self.folder, *requirements, arch=arch, backends=backends),
            stack,
            base(glibc, stack.python),
            engine=self.engine(self.environ),
            policy=self.policy,
            store=self.store,
            settings=self.settings,
            environ=self.environ,
            exclude_newer=exclude_newer,
            reporter=self.notes,
            offline=offline,
            previous=previous,
        )

    def with_settings(self, **changes: object) -> Locker:
        """The same with other index settings."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        return self


@pytest.fixture
def locker(tmp_path: Path, store: Store, policy: PackagePolicy, default: Index) -> Locker:
    """A locker that knows the default index alone."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        "XDG_CONFIG_DIRS": str(tmp_path / "etc"),
    }
    return Locker(tmp_path, store, policy, IndexSettings(index_url=default.url), environ)
