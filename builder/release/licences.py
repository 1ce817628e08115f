"""Licences of locked wheels, as their metadata states them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.metadata import RawMetadata

from builder.lock.values import LockedPackage
from builder.release.values import Licence
from builder.store import Store
from builder.wheels.archive import WheelArchive

__all__ = ["read_licences", "wheel_licence"]

_LONGEST_NAME = 100
"""Characters. Older wheels put the whole licence text into the License field; then only its first line names it."""


_KIND = "licence-1"
"""What the store calls what `wheel_licence` found; raised when the same metadata is read in another way."""


def read_licences(packages: Iterable[LockedPackage], files: Mapping[str, Path], store: Store) -> dict[str, Licence]:
    """Normalised distribution name to licence, from the locked wheels; those that state none are left out.

    `files` maps wheel file names to paths. A wheel is opened once in the life of a store.
    """
    found = {}
    for package in packages:
        kept = store.derived(_KIND, str(package.sha256))
        if kept is None:
            with WheelArchive.open(files[package.file], filename=package.file) as wheel:
                licence = wheel_licence(wheel.metadata()) or Licence()
            kept = {"expression": licence.expression, "names": licence.names}
            store.put_derived(_KIND, str(package.sha256), kept)
        licence = Licence(expression=kept["expression"], names=tuple(kept["names"]))
        if licence != Licence():
            found[package.name] = licence
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
