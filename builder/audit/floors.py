"""The oldest C and C++ libraries that a wheel's files load with, by the symbol versions they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from builder.audit.facts import ElfFacts

__all__ = ["FAMILIES", "symbol_floors", "version_key"]

FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI")
_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)*)")


def version_key(version: str) -> tuple[int, ...]:
    """`2.17` as numbers, for comparing."""
    return tuple(map(int, version.split(".")))


def symbol_floors(files: Iterable[ElfFacts]) -> dict[str, tuple[str, str]]:
    """Family (`GLIBC`, `GLIBCXX`, `CXXABI`) to the highest version asked for and the first file that asks for it."""
    found: dict[str, tuple[str, str]] = {}
    for elf in files:
        for names in elf.version_needs.values():
            for name in names:
                match = _VERSION.fullmatch(name)
                if match is None:
                    continue
                family, version = match[1], match[2]
                if family not in found or version_key(version) > version_key(found[family][0]):
                    found[family] = (version, elf.path)
    return {family: found[family] for family in FAMILIES if family in found}
