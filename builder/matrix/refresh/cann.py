"""Ascend/cann-container-image build_cann_arg.json: the arguments each CANN image is built with, and its tags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from builder.errors import BadInput
from builder.matrix.schema import Cell

__all__ = ["image_rows"]

_TAG = re.compile(
    r"(?P<toolkit>[0-9][0-9a-z.]*)-(?P<chip>[0-9a-z]+)-(?P<os>[a-z]+[0-9.]+)-py(?P<python>[0-9.]+)(?:-devel)?"
)
_REFERENCE = "quay.io/ascend/cann:{toolkit}-{chip}-{os}-py{python}"


def image_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """Images by CANN release and chip, with all their systems and Pythons."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            "the image arguments are not JSON", why=str(error), fix="is it build_cann_arg.json, whole?"
        ) from error
    entries = data.get("cann") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise BadInput("the image arguments have no list 'cann'", fix="is it build_cann_arg.json?")
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for entry in entries:
        try:
            tags = [str(tag) for tag in entry["tags"]]
        except (KeyError, TypeError) as error:
            raise BadInput(
                f"an image without {error}",
                why="every entry lists the tags it is published under",
                fix="is it build_cann_arg.json? mend the generator when its form has changed",
            ) from error
        for tag in tags:
            match = _TAG.fullmatch(tag)
            if match is None:
                raise BadInput(
                    f"image tag {tag!r}", why="expected CANN-CHIP-SYSTEM-pyPYTHON", fix="mend the form of tags"
                )
            key = (match["toolkit"], match["chip"])
            found.setdefault(key, {}).setdefault(match["os"], set()).add(match["python"])
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
