"""Library names among the string constants of an ELF file: which are opened, which are only said, which are made up.

A C compiler ends each constant with a NUL, so a constant that is nothing but a file name is a name to open. Rust and Go
write constants one behind the other: there a name counts where no word of a sentence stands on either side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from builder.audit.facts import DlopenName
from builder.audit.tables import Tables

__all__ = ["NameSigns", "native_names"]

_NAME = re.compile(r"(?:[^\s\"'<>|;]*/)?lib[\w.+-]*?\.so(?:\.[\w.%]*)?")
_WORD = re.compile(r"lib(?:(?!lib)[\w+-])+\.so(?:\.\d+)*")
_PART = re.compile(r"\.so(?:\.[\w.%]*)?|[^\s\"']*%[\d.*]*[sdiu][^\s\"']*\.so(?:\.[\w.%]*)?")
"""A piece of a name: the ending alone, or a pattern for printf."""
_BETWEEN = re.compile(r"[:;,]")
_TALK = " \"'`()<>=,;!?"
_SHOWN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class NameSigns:
    """What the strings of one file say about names."""

    opened: tuple[DlopenName, ...]
    """Vendor libraries, each a whole constant."""
    words: tuple[DlopenName, ...]
    """Vendor libraries mentioned in other text."""
    count: int
    """Whole names, any vendor's or none's."""
    parts: tuple[str, ...]
    """Pieces from which names are put together, the first few."""


def native_names(strings: Iterable[tuple[str, int]], tables: Tables, *, merged: bool) -> NameSigns:
    """`strings` are (text, offset) of runs of printable characters that hold `.so` or are the bare stem of a library;
    `merged` says that constants follow each other without an end (Rust, Go)."""
    count = 0
    opened: dict[str, DlopenName] = {}
    bare: dict[str, DlopenName] = {}
    words: dict[str, DlopenName] = {}
    parts: dict[str, None] = {}
    for text, offset in strings:
        if text in tables.libraries:
            bare.setdefault(text, DlopenName(name=text, offset=offset))
            continue
        if _PART.fullmatch(text) and not _is_known(text, tables):
            parts[text] = None
            continue
        pieces = _BETWEEN.split(text)
        if all(_NAME.fullmatch(piece) for piece in pieces if piece):
            place = offset
            for piece in pieces:
                count += bool(piece)
                if piece and _is_known(piece, tables):
                    opened.setdefault(piece, DlopenName(name=piece, offset=place))
                place += len(piece) + 1
            continue
        if merged:
            for match in _WORD.finditer(text):
                around = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
                if _is_known(match[0], tables) and not any(side and side in _TALK for side in around):
                    opened.setdefault(match[0], DlopenName(name=match[0], offset=offset + match.start()))
        for match in _WORD.finditer(text):
            if _is_known(match[0], tables) and match[0] not in opened:
                words.setdefault(match[0], DlopenName(name=match[0], offset=offset + match.start()))
    if parts:  # a stem alone is a word like any other, unless the file also holds an ending for it
        opened = {**bare, **opened}
    return NameSigns(
        opened=tuple(opened.values()),
        words=tuple(word for name, word in words.items() if name not in opened),
        count=count,
        parts=tuple(parts)[:_SHOWN],
    )


def _is_known(name: str, tables: Tables) -> bool:
    return tables.opened_library(name) is not None
