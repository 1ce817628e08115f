"""Licences of locked wheels, as their metadata states them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packaging.metadata import RawMetadata
from packaging.utils import parse_wheel_filename

from builder.release.values import Licence
from builder.wheels.archive import WheelArchive

__all__ = ["read_licences", "wheel_licence"]

_LONGEST_NAME = 100
"""Characters. Older wheels put the whole licence text into the License field; then only its first line names it."""


def read_licences(files: Mapping[str, Path]) -> dict[str, Licence]:
    """Normalised distribution name to licence, from wheel file names and paths; wheels that state none are left out."""
    found = {}
    for filename, path in sorted(files.items()):
        with WheelArchive.open(path, filename=filename) as wheel:
            licence = wheel_licence(wheel.metadata())
        if licence is not None:
            found[str(parse_wheel_filename(filename)[0])] = licence
    return found


def wheel_licence(metadata: RawMetadata) -> Licence | None:
    """License-Expression, else the License field and the classifiers (PEP 639, "Deprecate license classifiers")."""
    expression = metadata.get("license_expression")
    if expression:
        return Licence(expression=expression)
    names = []
    field = (metadata.get("license") or "").strip().splitlines()
    if field and field[0].strip() and field[0].strip().upper() != "UNKNOWN":
        names.append(field[0].strip()[:_LONGEST_NAME])
    for classifier in metadata.get("classifiers") or []:
        parts = classifier.split(" :: ")
        if parts[0] == "License" and len(parts) > 1 and parts[-1] not in ("OSI Approved", *names):
            names.append(parts[-1])
    return Licence(names=tuple(names)) if names else None
