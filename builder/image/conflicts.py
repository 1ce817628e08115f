"""Two wheels that bring the same path: harmless copies, leftovers where the last one stays, and code that clashes.

FR-04: of two distributions that own one module the last writer wins, and the other breaks when it is imported.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from builder.errors import Refused
from builder.image import install
from builder.image.install import Placed, Venv
from builder.image.splice import WheelFile, placed_files
from builder.store import Store
from builder.wheels.archive import WheelArchive

__all__ = ["shadowed_paths"]

_LEFTOVERS = frozenset({"test", "tests", "doc", "docs", "example", "examples", "benchmarks"})
"""Top-level folders that projects ship by mistake; nobody imports them from an installed environment."""


def shadowed_paths(wheels: Sequence[WheelFile], venv: Venv, store: Store) -> Mapping[str, frozenset[str]]:
    """By wheel file, the paths that a wheel installed later brings too (and which stay the later one's).

    `Refused` when different code would land on one path.
    """
    key = f"1 {venv.python} {install.LAYOUT} " + " ".join(str(wheel.sha256) for wheel in wheels)
    kept = store.derived("shadowed", key)
    if kept is not None:
        return {file: frozenset(paths) for file, paths in kept.items()}
    owners: dict[str, tuple[str, int, int]] = {}
    shadowed: dict[str, set[str]] = {}
    clashes: list[tuple[str, str, str]] = []
    for wheel in wheels:
        with WheelArchive.open(wheel.path, filename=wheel.file) as archive:
            sums = {member.name: (member.crc32, member.size) for member in archive.members}
            for item in placed_files(archive, venv):
                crc, size = _sum(item, sums)
                other = owners.get(item.path)
                if other is not None:
                    shadowed.setdefault(other[0], set()).add(item.path)
                    if other[1:] != (crc, size) and _is_code(item.path, venv):
                        clashes.append((item.path, other[0], wheel.file))
                owners[item.path] = (wheel.file, crc, size)
    if clashes:
        path, first, second = clashes[0]
        raise Refused(
            f"{len(clashes)} files would be overwritten: {first} and {second} own the same paths",
            why=f"both install {path}, with different content; whichever comes last breaks the other",
            fix="leave one of the two out, or replace it by an override",
        )
    store.put_derived("shadowed", key, {file: sorted(paths) for file, paths in shadowed.items()})
    return {file: frozenset(paths) for file, paths in shadowed.items()}


def _sum(item: Placed, sums: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    if item.member is not None:
        return sums[item.member]
    content = item.content or b""
    return zlib.crc32(content), len(content)


def _is_code(path: str, venv: Venv) -> bool:
    inside = path.removeprefix(venv.site_packages + "/")
    if inside == path or inside.split("/", 1)[0] in _LEFTOVERS:
        return False
    name = inside.rpartition("/")[2]
    return name.endswith((".py", ".pyi", ".pth")) or ".so" in name
