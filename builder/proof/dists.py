"""Which installed Python distribution owns a file, and which others it asks for (PEP 376 RECORD, core metadata)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.proof.rootfs import RootFs

__all__ = ["Distribution", "Distributions"]

_DIST_INFO = re.compile(r"(.*)/([^/]+)\.dist-info/METADATA")


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """One installed distribution."""

    name: str
    """Normalised (PEP 503)."""
    version: str
    site: str
    """Folder it is installed in."""
    requires: frozenset[str]
    """Normalised names from Requires-Dist, whatever their markers and extras: who may have been imported before."""


class Distributions:
    """All distributions of one tree."""

    def __init__(self, root: RootFs) -> None:
        self._root = root
        self.by_name: dict[str, Distribution] = {}
        self.files: dict[str, list[str]] = {}
        """Libraries, programs and Python files of each distribution, as its RECORD lists them."""
        self._owners: dict[str, str] = {}
        for path, _ in root.files():
            match = _DIST_INFO.fullmatch(path)
            if match:
                self._add(match[1], posixpath.dirname(path))

    def _add(self, site: str, folder: str) -> None:
        fields = _fields(self._root.text(f"{folder}/METADATA") or b"")
        names = [value for key, value in fields if key == "Name"]
        if not names:
            return
        name = canonicalize_name(names[0])
        self.by_name[name] = Distribution(
            name=name,
            site=site,
            version=next((value for key, value in fields if key == "Version"), ""),
            requires=frozenset(_names(value for key, value in fields if key == "Requires-Dist")),
        )
        for line in (self._root.text(f"{folder}/RECORD") or b"").decode(errors="replace").splitlines():
            path = posixpath.normpath(posixpath.join(site, line.strip('"')))
            self._owners[path] = name
            self.files.setdefault(name, []).append(path)

    def owner(self, path: str) -> Distribution | None:
        """The distribution whose RECORD lists the file."""
        name = self._owners.get(path)
        return self.by_name.get(name) if name else None

    @cached_property
    def loading(self) -> dict[str, tuple[tuple[str, frozenset[str]], ...]]:
        """By distribution, its Python files that load libraries themselves, with the library names written in them."""
        found: dict[str, list[tuple[str, frozenset[str]]]] = {}
        for path, file in self._root.files():
            if file.loads is not None:
                owner = self.owner(path)
                if owner is not None:
                    found.setdefault(owner.name, []).append((path, frozenset(file.loads)))
        return {name: tuple(files) for name, files in found.items()}

    def needs(self, name: str, other: str) -> bool:
        """Whether `name` asks for `other`, directly or through what it asks for."""
        seen = {name}
        waiting = [name]
        while waiting:
            known = self.by_name.get(waiting.pop())
            for step in known.requires if known else ():
                if step == other:
                    return True
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return False


def _fields(metadata: bytes) -> list[tuple[str, str]]:
    lines = (line.split(":", 1) for line in metadata.decode(errors="replace").splitlines() if ":" in line)
    return [(key, value.strip()) for key, value in lines]


def _names(requirements: Iterator[str]) -> Iterator[str]:
    for text in requirements:
        try:
            yield canonicalize_name(Requirement(text).name)
        except InvalidRequirement:
            match = re.match(r"[A-Za-z0-9._-]+", text)  # old metadata: the name still stands first
            if match:
                yield canonicalize_name(match[0])
