"""Ascend/cann-container-image arg.json: the arguments each CANN image is built with."""

from __future__ import annotations

import json
from collections.abc import Mapping

from builder.errors import BadInput
from builder.matrix.schema import Cell

__all__ = ["image_rows"]

_REFERENCE = "quay.io/ascend/cann:{toolkit}-{chip}-{os}-py{python}"


def image_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """Images by CANN release and chip, with all their systems and Pythons."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput("the image arguments are not JSON", why=str(error)) from error
    entries = data.get("cann") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise BadInput("the image arguments have no list 'cann'", fix="is it build_arg/arg.json?")
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for entry in entries:
        try:
            key = (str(entry["cann_version"]), str(entry["cann_chip"]).lower())
            system = f"{entry['os_name']}{entry['os_version']}".lower()
            python = str(entry["py_version"])
        except (KeyError, TypeError) as error:
            why = "cann_version, cann_chip, os_name, os_version, py_version"
            raise BadInput(f"an image without {error}", why=why) from error
        found.setdefault(key, {}).setdefault(system, set()).add(python)
    return tuple(
        {
            "reference": _REFERENCE,
            "toolkit": toolkit,
            "chip": chip,
            "os": systems,
            "python": pythons,
        }
        for (toolkit, chip), by_system in sorted(found.items())
        for pythons, systems in _alike(by_system)
    )


def _alike(by_system: Mapping[str, set[str]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pythons with the systems that have just these, Ubuntu first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for system in sorted(by_system, reverse=True):
        pythons = tuple(sorted(by_system[system], key=lambda text: tuple(map(int, text.split(".")))))
        groups.setdefault(pythons, []).append(system)
    return [(pythons, tuple(systems)) for pythons, systems in sorted(groups.items())]
