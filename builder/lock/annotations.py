"""Reads what uv and pip-compile write: requirements with `# via` and `# from` annotations, one package after another.

Both tools print the same layout under `--annotation-style split` (pip-tools documentation, "pip-compile"; uv
documentation, "pip compile"). The edges come from here and not from the wheels' metadata, because the resolver has
already read the metadata, evaluated markers and extras for the target, and applied overrides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.utils import canonicalize_name

__all__ = ["Annotated", "read_annotated"]

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*(?P<version>[^\s;\\]+)")
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[^\]]*\])?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotated:
    """One pinned package of the output."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """Hex sha256 of every file of this version."""
    parents: tuple[str, ...]
    """Normalised names that asked for it, sorted; requirement and constraint files are left out."""
    index: str | None
    """The `# from` annotation, where the tool writes one."""


def read_annotated(text: str) -> tuple[Annotated, ...]:
    """The pins of an annotated requirements file, in its order."""
    found: list[Annotated] = []
    head: re.Match[str] | None = None
    hashes: list[str] = []
    parents: list[str] = []
    index: str | None = None
    in_via = False

    def finish() -> None:
        if head is not None:
            found.append(
                Annotated(
                    name=canonicalize_name(head["name"]),
                    version=head["version"],
                    hashes=tuple(hashes),
                    parents=tuple(sorted(set(parents))),
                    index=index,
                )
            )

    for line in text.splitlines():
        stripped = line.strip()
        if line[:1].isalnum() and (match := _PIN.match(line)):
            finish()
            head, hashes, parents, index, in_via = match, [], [], None, False
        hashes += _HASH.findall(line)
        if not stripped.startswith("#") or head is None:
            continue
        comment = stripped[1:].strip()
        if comment.startswith("from "):
            index, in_via = comment[5:].strip(), False
        elif comment == "via" or comment.startswith("via "):
            in_via = True
            parents += _parent(comment[3:].strip())
        elif in_via:
            parents += _parent(comment)
    finish()
    return tuple(found)


def _parent(text: str) -> list[str]:
    """The package a `via` line names; none for a file (`-r in.txt`, `-c in.txt`, `app (pyproject.toml)`)."""
    if _PACKAGE.fullmatch(text):
        return [canonicalize_name(text.partition("[")[0])]
    return []
