"""Versions as makers print them, compared by PEP 440 wherever that is what the makers follow.

`Version` of packaging reads all of ours: 550.54.14 (NVIDIA), 8.3.RC1 (CANN), 30.20.1 (amdgpu), 2.31.7.0 (Neuron),
2.12.0.post3 and 2.13.0+cu130 (wheels). Local labels with letters compare as text there, so that rocm10 sorts before
rocm7 (PEP 440, "Local version identifiers"): labels are never used for order here, only the toolkit column is.
"""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

__all__ = ["bound", "is_exact", "is_version", "matches", "parse", "sort_key", "specifier", "within"]

_LOWEST = Version("0.dev0")


def _respin(text: str) -> str:
    """As PEP 440 spells a candidate made again (`25.0.rc1.1`, `6.3.RC3.1`) or still to come (`8.2.RC1.alpha003`)."""
    text = re.sub(r"(?i)(rc\d+)\.alpha(\d+)", r"\1.dev\2", text)
    return re.sub(r"(?i)(rc\d+)\.(\d+)(?![\d.])", r"\1.post\2", text)


@lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """The version a maker's text stands for, or None when it is none."""
    try:
        return Version(_respin(text.strip().lstrip("vR>=")))
    except InvalidVersion:
        return None


def is_version(text: str) -> bool:
    """Whether `text` is one exact version."""
    return re.match(r"[0-9vR]", text) is not None and parse(text) is not None


def is_exact(cell: str) -> bool:
    """Whether a package cell names one version: neither a specifier (`>=2.11,<3`) nor a prefix (`2.13.*`)."""
    return bool(cell) and cell[0].isdigit() and not cell.endswith("*")


@lru_cache(maxsize=4096)
def specifier(cell: str) -> SpecifierSet | None:
    """A cell as bounds: `2.13.0` and `2.13.*` are read as `==`, bounds stay as they are; None when malformed."""
    text = _respin(cell if re.match(r"[<>=!~]", cell) else f"=={cell}")
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


@lru_cache(maxsize=16384)
def within(version: str, cell: str) -> bool:
    """Whether an exact version satisfies a cell; pre-releases count, they are what some makers ship (8.3.RC1).

    `==X` matches `X+label`, not the reverse (PEP 440, "Version matching"). What is no version at all
    equals only itself.
    """
    found, bounds = parse(version), specifier(cell)
    if found is None or bounds is None:
        return version.casefold() == cell.casefold()
    return bounds.contains(found, prereleases=True)


def matches(version: str, cells: tuple[str, ...]) -> bool:
    """Whether any of the cells holds `version`."""
    return any(within(version, cell) for cell in cells)


def sort_key(text: str) -> tuple[Version, str]:
    """Orders cells by version, oldest first; a pattern sorts with what it starts with, anything else lowest."""
    bare = re.sub(r"(\.?\*|\.X)$", "", text.split(",")[0].lstrip("<>=!~ "))
    return (parse(bare) or _LOWEST, text)


def bound(cell: str) -> str:
    """A cell as it follows a name in a requirement: `2.13.0` → `==2.13.0`, `>=0.0.50` as it is."""
    return cell if cell.startswith(("<", ">", "=", "!", "~")) else f"=={cell}"
