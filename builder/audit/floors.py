"""The oldest libraries of a system that a wheel's files load with, by the symbol versions they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from builder.audit.facts import ElfFacts

__all__ = ["FAMILIES", "symbol_floors", "version_key"]

FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC", "ZLIB", "LIBATOMIC")
"""Families of symbol versions that the manylinux policies know."""
_VERSION = re.compile(rf"({'|'.join(FAMILIES)})_(\d+(?:\.\d+)*)")
_MARKS = {"GLIBC_ABI_DT_RELR": ("GLIBC", "2.36")}
"""Versions that a linker asks for although no symbol has them: packed relative relocations (glibc 2.36 NEWS)."""


def version_key(version: str) -> tuple[int, ...]:
    """`2.17` as numbers, for comparing."""
    return tuple(map(int, version.split(".")))


def symbol_floors(files: Iterable[ElfFacts]) -> dict[str, tuple[str, str]]:
    """Family (`GLIBC`, `GLIBCXX`, …) to the highest version asked for and the first file that asks for it."""
    found: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    for elf in files:
        for names in elf.version_needs.values():
            for name in names:
                if name in seen:
                    continue
                seen.add(name)
                match = _VERSION.fullmatch(name)
                if match is None and name not in _MARKS:
                    continue
                family, version = (match[1], match[2]) if match else _MARKS[name]
                if family not in found or version_key(version) > version_key(found[family][0]):
                    found[family] = (version, elf.path)
    return {family: found[family] for family in FAMILIES if family in found}
