"""The Python distributions in a base's layers: their metadata, and which interpreter imports them."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name

from builder.base.values import BaseDistribution

__all__ = ["METADATA", "PYVENV", "Distributions"]

METADATA = re.compile(
    r"(?P<site>(?:[^/]+/)*(?:site|dist)-packages)/[^/]+(?:\.dist-info/METADATA|\.egg-info(?:/PKG-INFO)?)"
)
"""Where installers write it: a wheel's .dist-info, an older .egg-info as a folder or, in Debian's packages, a file."""
PYVENV = re.compile(r"(?P<prefix>(?:[^/]+/)*[^/]+)/pyvenv\.cfg")
_LIMIT = 4 << 20
"""Bytes read of one metadata file; requirements stand in its head."""
_MINOR = re.compile(r"(?:^|/)(?P<prefix>.*?)/?lib(?:64)?/python(?P<minor>3(?:\.\d+)?)/(?:site|dist)-packages$")
_SHARES = re.compile(rb"^include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)


@dataclass(slots=True)
class Distributions:
    """Collects while layers are read, top one first."""

    metadata: dict[str, bytes] = field(default_factory=dict)
    """Path in the image to the file's bytes."""
    shared: set[str] = field(default_factory=set)
    """Virtual environments that see the system's packages too."""

    def note(self, layer: tarfile.TarFile, member: tarfile.TarInfo, path: str, texts: dict[str, bytes]) -> None:
        """Look at one visible member. `texts` holds the metadata met in this layer, for hard links to it.

        Installers that keep a cache link files from there, so the bytes may stand under another name.
        """
        if path.endswith((".dist-info/METADATA", "/PKG-INFO", ".egg-info")):
            wanted = METADATA.fullmatch(path) is not None
            if member.isreg():
                file = layer.extractfile(member)
                texts[path] = file.read(_LIMIT) if file is not None else b""
            source = member.linkname.removeprefix("./").strip("/") if member.islnk() else path
            if wanted and (text := texts.get(source)) is not None:
                self.metadata[path] = text
        elif member.isreg() and (found := PYVENV.fullmatch(path)) is not None:
            file = layer.extractfile(member)
            if file is not None and _SHARES.search(file.read(_LIMIT)):
                self.shared.add(found["prefix"])

    def found(self, pythons: Mapping[str, str]) -> tuple[BaseDistribution, ...]:
        """The distributions, sorted by folder and name. `pythons`: path of an interpreter to its minor version."""
        rows = []
        for path, text in self.metadata.items():
            fields = parse_email(text)[0]
            name = fields.get("name")
            place = METADATA.fullmatch(path)
            if not name or place is None:
                continue
            site = place["site"]
            rows.append(
                BaseDistribution(
                    name=canonicalize_name(name),
                    version=fields.get("version", ""),
                    requires=tuple(fields.get("requires_dist", ())),
                    site=f"/{site}",
                    python=_minor(site, pythons),
                    shares_system=any(site.startswith(f"{prefix}/") for prefix in self.shared),
                )
            )
        return tuple(sorted(rows, key=lambda row: (row.site, row.name, row.version)))


def _minor(site: str, pythons: Mapping[str, str]) -> str | None:
    """From the path; Debian's `python3` folder belongs to whatever python3 the system has."""
    found = _MINOR.search(site)
    if found is None:
        return None
    if found["minor"] != "3":
        return found["minor"]
    system = {minor for path, minor in pythons.items() if path.startswith("/usr/bin/")}
    return system.pop() if len(system) == 1 else None
