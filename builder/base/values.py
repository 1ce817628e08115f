"""A base image as the lock records it: enough to get exactly the same bytes again."""

from __future__ import annotations

from dataclasses import dataclass

from builder.names import Digest

__all__ = ["DebPackage", "LockedBase"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DebPackage:
    """One Debian package of the built-in base."""

    name: str
    version: str
    architecture: str
    sha256: Digest
    size: int
    """Length of the .deb in bytes."""
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedBase:
    """A base pinned by content."""

    reference: str
    """As the project or the matrix wrote it, e.g. `debian:bookworm` or `registry/cann:9.1.0-910b-ubuntu22.04`."""
    digest: Digest
    """OCI: the manifest's digest. Debian: digest over the sorted package digests and the layout version, from which
    the layer is made byte for byte."""
    python: str
    """Minor version of the interpreter in the base, e.g. `3.11`."""
    python_path: str
    """Absolute path of that interpreter, e.g. /usr/bin/python3.11."""
    glibc: str
    """glibc version of the base, e.g. `2.36`; what manylinux tags are held against."""
    packages: tuple[DebPackage, ...] = ()
    """Only for the built-in Debian base, sorted by name."""
