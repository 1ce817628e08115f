"""The seam to a resolver: what it is asked, what it answers, and how it says no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from builder.errors import BadInput, Refused
from builder.names import Arch
from builder.wheels.settings import IndexSettings

__all__ = [
    "CannotResolve",
    "LockEngine",
    "NoSuchPackage",
    "OnlySources",
    "Pinned",
    "Request",
    "Resolution",
    "Resolved",
    "WrongHost",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """Where one package must come from."""

    location: str
    """Simple index, or find-links folder or page."""
    flat: bool = False
    """Whether the location is a find-links one."""
    dated: bool = False
    """Whether it says when files were uploaded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One question to a resolver: wheels for this target, from these places."""

    requirements: tuple[str, ...]
    """Roots (PEP 508)."""
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    """`name==version` of an older lock: kept where they still fit."""
    pinned: Mapping[str, Pinned] = field(default_factory=dict)
    """Normalised name to the one place it may come from."""
    python: str
    arch: Arch
    glibc: str
    exclude_newer: str
    undated: frozenset[str] = frozenset()
    """Indexes of `settings` that do not say when files were uploaded."""
    settings: IndexSettings
    offline: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """One chosen wheel."""

    name: str
    version: str
    url: str
    sha256: str | None
    """Hex digest of the wheel's bytes as the index gives it; None when it gives none."""
    size: int | None
    index: str
    """Where it came from, without credentials; empty when the resolver does not say."""
    parents: tuple[str, ...]
    """Normalised names of the packages that asked for it, sorted; a root may have none."""
    uploaded: str | None = None
    """When the index got the file, in UTC to the second, ISO 8601; None when it does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """The whole graph, sorted by name."""

    packages: tuple[Resolved, ...]
    undated: frozenset[str] = frozenset()
    """Indexes whose files the resolver could not hold against `exclude_newer`, besides those of the request."""


class CannotResolve(Refused):
    """No set of wheels satisfies the requirements; `said` is the resolver's own explanation."""

    kind = "cannot-resolve"

    def __init__(self, what: str, *, why: str = "", fix: str = "", said: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.said = said or why


class OnlySources(CannotResolve):
    """A package is published as source only; images are made of wheels alone."""

    kind = "only-sources"


class NoSuchPackage(BadInput):
    """A requirement names a package that no index has."""

    kind = "no-such-package"

    def __init__(self, what: str, *, why: str = "", fix: str = "", said: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.said = said or why


class WrongHost(Refused):
    """This engine cannot answer for that target."""

    kind = "wrong-host"


class LockEngine(Protocol):
    """Resolves one request. Called a few times per lock, from one thread; must not write outside a temporary folder."""

    name: str
    """`uv` or `pip-tools`."""

    def version(self) -> str:
        """Version of the resolver."""

    def resolve(self, request: Request) -> Resolution:
        """The graph; raises `CannotResolve`, `NoSuchPackage`, `WrongHost` or `IndexUnreachable`."""
