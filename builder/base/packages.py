"""Debian's package index as values: versions in order, stanzas, and the closure of a few packages.

Sources: deb-version(7) for the order of versions, deb-control(5) for fields, Debian Policy 7.1 for relations.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from builder.errors import BadInput

__all__ = ["Index", "Stanza", "closure", "compare_versions", "fields"]


def compare_versions(a: str, b: str) -> int:
    """Negative, zero or positive as version `a` is older than, equal to or newer than `b`."""
    epoch_a, upstream_a, revision_a = _split(a)
    epoch_b, upstream_b, revision_b = _split(b)
    return (epoch_a - epoch_b) or _compare(upstream_a, upstream_b) or _compare(revision_a, revision_b)


def _split(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return int(epoch), upstream, revision


def _compare(a: str, b: str) -> int:
    while a or b:
        text_a, text_b = re.match(r"\D*", a), re.match(r"\D*", b)
        head_a, head_b = (text_a[0] if text_a else ""), (text_b[0] if text_b else "")
        for index in range(max(len(head_a), len(head_b))):
            difference = _weight(head_a, index) - _weight(head_b, index)
            if difference:
                return difference
        a, b = a[len(head_a) :], b[len(head_b) :]
        digits_a, digits_b = re.match(r"\d*", a), re.match(r"\d*", b)
        number_a, number_b = (digits_a[0] if digits_a else ""), (digits_b[0] if digits_b else "")
        difference = int(number_a or 0) - int(number_b or 0)
        if difference:
            return difference
        a, b = a[len(number_a) :], b[len(number_b) :]
    return 0


def _weight(text: str, index: int) -> int:
    """`~` sorts before the end, the end before letters, letters before everything else."""
    if index >= len(text):
        return 0
    char = text[index]
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256


def fields(text: str) -> dict[str, str]:
    """The fields of one stanza; continuation lines are kept with their line breaks, without the leading space."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line[:1] in (" ", "\t"):
            found[name] += "\n" + line[1:]
        elif ":" in line:
            name, _, value = line.partition(":")
            found[name] = value.strip()
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Stanza:
    """One package of an index."""

    name: str
    version: str
    fields: Mapping[str, str]
    origin: str
    """URL that `Filename` is relative to."""


def _older_or_newer(a: Stanza, b: Stanza) -> int:
    return compare_versions(a.version, b.version)


_NAME = re.compile(r"^Package: (\S+)$", re.MULTILINE)
_PROVIDES = re.compile(r"^Provides: (.+)$", re.MULTILINE)


class Index:
    """The newest version of every package of several indexes. Stanzas are parsed when asked for: there are 60 000."""

    def __init__(self) -> None:
        self._texts: dict[str, list[tuple[str, str]]] = {}
        self._providers: dict[str, set[str]] = {}

    def add(self, text: str, origin: str) -> None:
        """Add one Packages file."""
        for stanza in text.split("\n\n"):
            match = _NAME.search(stanza)
            if match is None:
                continue
            self._texts.setdefault(match[1], []).append((stanza, origin))
            provides = _PROVIDES.search(stanza)
            if provides:
                for relation in provides[1].split(","):
                    self._providers.setdefault(relation.split("(")[0].strip(), set()).add(match[1])

    def get(self, name: str) -> Stanza | None:
        """The newest version of a package."""
        found = [
            Stanza(name=name, version=parsed["Version"], fields=parsed, origin=origin)
            for text, origin in self._texts.get(name, ())
            for parsed in (fields(text),)
        ]
        return max(found, key=functools.cmp_to_key(_older_or_newer), default=None)

    def providers(self, name: str) -> tuple[str, ...]:
        """Packages that provide a virtual one, sorted."""
        return tuple(sorted(self._providers.get(name, ())))

    def names(self, pattern: str) -> tuple[str, ...]:
        """Names that match a regular expression, sorted."""
        return tuple(sorted(name for name in self._texts if re.fullmatch(pattern, name)))


def closure(index: Index, roots: Iterable[str], *, leave_out: Collection[str], where: str) -> tuple[Stanza, ...]:
    """The roots and everything they depend on (Pre-Depends and Depends), sorted by name.

    Of alternatives the first that is chosen already wins, else the first that exists. Names in `leave_out` count as
    satisfied: they serve only maintainer scripts, which are never run.
    """
    chosen: dict[str, Stanza] = {}
    queue = list(roots)
    while queue:
        name = queue.pop(0)
        if name in chosen:
            continue
        stanza = index.get(name)
        if stanza is None:
            raise BadInput(f"{where} has no package {name!r}", why="it is needed for the base image")
        chosen[name] = stanza
        for alternatives in _relations(stanza):
            pick = _pick(index, alternatives, chosen, leave_out)
            if pick is None:
                raise BadInput(
                    f"{where} is inconsistent", why=f"{name} needs {' or '.join(alternatives)}, which it lacks"
                )
            if pick not in leave_out:
                queue.append(pick)
    return tuple(chosen[name] for name in sorted(chosen))


def _relations(stanza: Stanza) -> Iterator[tuple[str, ...]]:
    for field in ("Pre-Depends", "Depends"):
        for clause in stanza.fields.get(field, "").replace("\n", " ").split(","):
            names = tuple(re.split(r"[\s(:]", part.strip(), maxsplit=1)[0] for part in clause.split("|"))
            if any(names):
                yield names


def _pick(
    index: Index, alternatives: tuple[str, ...], chosen: Mapping[str, Stanza], leave_out: Collection[str]
) -> str | None:
    for name in alternatives:
        if name in chosen or name in leave_out:
            return name
    for name in alternatives:
        if index.get(name) is not None:
            return name
        for provider in index.providers(name):
            return provider
    return None
