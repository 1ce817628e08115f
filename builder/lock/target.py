"""The wheels a target accepts: tags of one CPython on one architecture with one glibc (PEP 425, PEP 600)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.errors import BadInput
from builder.names import Arch

__all__ = ["accepts", "best_wheel", "target_tags"]

_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_OLDEST: dict[Arch, int] = {"x86_64": 5, "aarch64": 17}
"""The first glibc minor version with a manylinux tag (PEP 513, PEP 571, PEP 599)."""


def _numbers(text: str, what: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise BadInput(f"not a {what} version: {text!r}", why="expected two numbers, e.g. 3.11 or 2.36")
    return int(parts[0]), int(parts[1])


def _platforms(arch: Arch, glibc: str) -> Iterator[str]:
    major, minor = _numbers(glibc, "glibc")
    for step in range(minor, _OLDEST[arch] - 1, -1):
        yield f"manylinux_{major}_{step}_{arch}"
        if (major, step) in _LEGACY:
            yield f"{_LEGACY[major, step]}_{arch}"
    yield f"linux_{arch}"


@cache
def target_tags(python: str, arch: Arch, glibc: str) -> tuple[Tag, ...]:
    """All tags, best first."""
    version = _numbers(python, "Python")
    platforms = list(_platforms(arch, glibc))
    return (
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=f"cp{version[0]}{version[1]}", platforms=platforms),
    )


def _rank(file: str, ranks: dict[Tag, int]) -> int | None:
    try:
        tags = parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return None
    return min((ranks[tag] for tag in tags if tag in ranks), default=None)


def accepts(file: str, *, python: str, arch: Arch, glibc: str) -> bool:
    """Whether a wheel of this file name can be installed on the target."""
    return best_wheel((file,), python=python, arch=arch, glibc=glibc) is not None


def best_wheel(files: Iterable[str], *, python: str, arch: Arch, glibc: str) -> str | None:
    """The file an installer would take: best tag first, then the highest build number, then the name."""
    ranks = {tag: rank for rank, tag in reversed(list(enumerate(target_tags(python, arch, glibc))))}
    ranked = []
    for file in files:
        rank = _rank(file, ranks)
        if rank is not None:
            build = parse_wheel_filename(file)[2]
            ranked.append((rank, -(build[0] if build else 0), file))
    return min(ranked)[2] if ranked else None
