"""A base image as the lock records it: enough to get exactly the same bytes again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from builder.names import Digest

__all__ = ["BASE_LAYOUT", "BaseDistribution", "DebPackage", "LockedBase", "TreeEntry"]

BASE_LAYOUT = "2"
"""Version of the rules by which packages become the base's tree (debian_tree.py); part of its digest."""


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
class BaseDistribution:
    """A Python distribution that a base image brings along."""

    name: str
    """Normalised (PEP 503)."""
    version: str
    requires: tuple[str, ...]
    """Requires-Dist lines, as written."""
    site: str
    """Absolute path of the folder it is importable from, e.g. /opt/conda/lib/python3.12/site-packages."""
    python: str | None
    """Minor version of the interpreter that imports from `site`; None where the path does not say."""
    shares_system: bool = False
    """Whether `site` belongs to a virtual environment that also sees the packages of the system's Python."""


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

    def to_json(self) -> dict[str, Any]:
        """As JSON for the store; `from_json` reads it back."""
        return {
            "reference": self.reference,
            "digest": str(self.digest),
            "python": self.python,
            "python_path": self.python_path,
            "glibc": self.glibc,
            "packages": [
                [item.name, item.version, item.architecture, str(item.sha256), item.size, item.url]
                for item in self.packages
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LockedBase:
        """Read what `to_json` wrote."""
        return cls(
            reference=value["reference"],
            digest=Digest.parse(value["digest"]),
            python=value["python"],
            python_path=value["python_path"],
            glibc=value["glibc"],
            packages=tuple(
                DebPackage(
                    name=name, version=version, architecture=arch, sha256=Digest.parse(sha256), size=size, url=url
                )
                for name, version, arch, sha256, size, url in value["packages"]
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEntry:
    """One entry of a file tree that becomes a layer. Modification times are the layer's business: all alike."""

    path: str
    """Relative to the image's root, `/`-separated, without a trailing slash."""
    kind: Literal["file", "directory", "symlink"]
    mode: int
    uid: int = 0
    gid: int = 0
    link: str = ""
    """Target of a symbolic link, as written."""
    data: bytes = b""
