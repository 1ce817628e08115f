"""The lock: exactly which files become the image, and from what they were decided."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from builder.base.values import LockedBase
from builder.errors import BadInput
from builder.matrix.values import IndexPin
from builder.names import Arch, Digest

__all__ = ["BlockedPackage", "Lock", "LockedPackage", "parse_moment"]


def parse_moment(text: str) -> str:
    """A date or time in ISO 8601 as UTC to the second, `2026-11-30T12:00:00Z`; without a zone it is UTC already."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"not a time: {text!r}", why=str(error), fix="write it in ISO 8601, e.g. 2026-11-30 or 2026-11-30T12:00:00Z"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedPackage:
    """One wheel."""

    name: str
    """Normalised (PEP 503)."""
    version: str
    """PEP 440, local label included."""
    file: str
    """Wheel file name."""
    sha256: Digest
    """Digest of the wheel's bytes (never of its metadata file, FR-23)."""
    url: str
    """Where the file was offered: http(s) URL, or file: URL for a find-links folder; without credentials."""
    index: str
    """The simple index or find-links location it came from; without credentials."""
    size: int | None
    """Length in bytes, when the index says."""
    requires: tuple[str, ...]
    """Normalised names of the locked packages it needs here (markers evaluated), sorted."""
    uploaded: str | None = None
    """When the index got the file, in UTC to the second, ISO 8601; None when it does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedPackage:
    """A package of another backend in the graph: the lock is refused (the trap)."""

    package: str
    version: str
    backend: str
    """The backend it belongs to."""
    chain: tuple[str, ...]
    """Shortest way from a project requirement to it: names, requirement first."""
    why: str
    fix: str
    size: int | None = None
    """Length of its wheel in bytes, when known: what the mend saves to download."""
    installed: int | None = None
    """Bytes it would take in the image, when its server let us look."""
    source: str = ""
    """Where the fact behind `why` is written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Everything an image of one backend is made of; written as pylock.<backend>.toml (PEP 751)."""

    backend: str
    project: str
    python: str
    """`3.11`."""
    arch: Arch
    glibc: str
    """Wheels fit this glibc or older, e.g. `2.36`."""
    toolkit: str | None
    frameworks: Mapping[str, str]
    requirements: tuple[str, ...]
    """The roots, as locked."""
    packages: tuple[LockedPackage, ...]
    """Sorted by name."""
    base: LockedBase
    exclude_newer: str
    """UTC time, ISO 8601: files uploaded later were not considered."""
    inputs: Digest
    """Digest over everything the lock was decided from: requirements, stack, base, engine options."""
    engine: str
    """`uv 0.13.9` or `pip-tools 7.6.2`."""
    unknown_allowed: tuple[str, ...] = ()
    """Matrix questions that had no row and were let pass by --allow-unknown; copied to the image's labels."""
    constraints: tuple[str, ...] = ()
    """The stack's bounds (PEP 508), those that applied and those that did not."""
    overrides: tuple[str, ...] = ()
    """Requirements that replaced what packages ask for (PEP 508)."""
    indexes: tuple[IndexPin, ...] = ()
    """The stack's index pins."""
    undated: tuple[str, ...] = ()
    """Indexes that do not say when a file was uploaded, so `exclude_newer` could not bound them."""
    recorded: Digest | None = field(default=None, compare=False)
    """What the file that this was read from says of `content`; None when it was not read, or says nothing."""

    @property
    def content(self) -> Digest:
        """Digest over what was decided: every file, who needs it, and the packages of the base.

        Where a file is fetched from is left out: its hash holds wherever that is, and a mirror may be written in.
        """
        record = {
            "packages": [
                [item.name, item.version, item.file, str(item.sha256), item.uploaded, list(item.requires)]
                for item in self.packages
            ],
            "base": [[deb.name, deb.version, deb.architecture, str(deb.sha256)] for deb in self.base.packages],
        }
        return Digest.of(json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())

    def roots(self) -> tuple[str, ...]:
        """Normalised names of the requirements, in order, each once."""
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

        return tuple(dict.fromkeys(canonicalize_name(Requirement(line).name) for line in self.requirements))
