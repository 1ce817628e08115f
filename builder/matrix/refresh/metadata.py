"""Core metadata of a release (METADATA of its wheel, or an index's JSON of it): what goes with torch_xla, with jax."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import HeaderParser

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.errors import BadInput
from builder.matrix.schema import Cell

__all__ = ["jax_tpu_rows", "torch_xla_rows"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Metadata:
    version: str
    requires_python: str | None
    requires: tuple[Requirement, ...]

    def of_extra(self, name: str) -> dict[str, Requirement]:
        """Requirements of one extra, by package."""
        return {found.name: found for found in self.requires if f'"{name}"' in str(found.marker or "")}


def torch_xla_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """The set of one torch_xla release: torch of the same minor by convention, libtpu of its extra `tpu`."""
    found = _read(text, "torch-xla")
    packages = {"torch-xla": found.version, "torch": f"{'.'.join(found.version.split('.')[:2])}.*"}
    for name, requirement in found.of_extra("tpu").items():
        if name in ("libtpu", "libtpu-nightly") and (exact := _exact(requirement)):
            packages[name] = exact
    cells: dict[str, Cell] = {
        "set": f"torch-xla-{found.version}",
        "packages": packages,
        "index": "pytorch",
        "variant": "cpu",
    }
    pallas = found.of_extra("pallas").get("jax")
    if pallas is not None and (exact := _exact(pallas)):
        cells["jax_for_pallas"] = exact
    return (cells,)


def jax_tpu_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """The set of one jax release: its jaxlib, and the libtpu of its extra `tpu`; none where it names no libtpu."""
    found = _read(text, "jax")
    libtpu = found.of_extra("tpu").get("libtpu")
    jaxlib = next((one for one in found.requires if one.name == "jaxlib" and one.marker is None), None)
    if libtpu is None or jaxlib is None:
        return ()
    packages = {"jax": found.version, "libtpu": _exact(libtpu), "jaxlib": _exact(jaxlib)}
    cells: dict[str, Cell] = {
        "set": f"jax-{found.version}",
        "packages": {name: cell for name, cell in packages.items() if cell},
    }
    if found.requires_python is not None:
        cells["requires_python"] = found.requires_python
    return (cells,)


def _exact(requirement: Requirement) -> str:
    """The version (or prefix) that is asked for with `==`, or between equal bounds; empty when it is no one version."""
    exact = next((item.version for item in requirement.specifier if item.operator == "=="), "")
    lowest = {item.version for item in requirement.specifier if item.operator == ">="}
    highest = {item.version for item in requirement.specifier if item.operator == "<="}
    return exact or next(iter(lowest & highest), "")


def _read(text: str, package: str) -> _Metadata:
    """METADATA (core metadata 2.1, headers), or the JSON that package indexes give of a project's newest release."""
    if text.lstrip().startswith("{"):
        name, version, python, lines = _from_json(text)
    else:
        message = HeaderParser().parsestr(text)
        name, version, python = message.get("Name"), message.get("Version"), message.get("Requires-Python")
        lines = message.get_all("Requires-Dist", [])
    if not name or not version or canonicalize_name(name) != package:
        raise BadInput(
            f"not the METADATA of {package}", why=f"Name {name}, Version {version}", fix="METADATA of its wheel"
        )
    requires = []
    for line in lines:
        try:
            requires.append(Requirement(line))
        except InvalidRequirement as error:
            raise BadInput(f"Requires-Dist {line!r}", why=str(error), fix="the whole METADATA") from error
    return _Metadata(version=version, requires_python=python, requires=tuple(requires))


def _from_json(text: str) -> tuple[str | None, str | None, str | None, list[str]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput("the metadata is not JSON", why=str(error), fix="give METADATA, or an index's JSON") from error
    info = data.get("info") if isinstance(data, dict) else None
    if not isinstance(info, dict):
        raise BadInput("the metadata has no 'info'", fix="the JSON of a project, e.g. https://pypi.org/pypi/NAME/json")
    lines = info.get("requires_dist") or []
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadInput("requires_dist is not a list of texts", fix="the JSON of a project, unchanged")
    return _text(info, "name"), _text(info, "version"), _text(info, "requires_python"), lines


def _text(info: Mapping[str, object], key: str) -> str | None:
    value = info.get(key)
    return value if isinstance(value, str) else None
