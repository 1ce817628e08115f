"""Looking at a pickle without unpickling it: which names it would import, and the texts at its beginning.

A pickle is a program: loading one runs what it says. Here its opcodes are read one by one and nothing is ever called.
Source: Python's pickletools (`opcodes`), PEP 3154.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from itertools import islice
from typing import IO, cast

from builder.cache.formats.stream import BlobStream
from builder.cache.formats.values import Blob, BrokenEngine

__all__ = ["Pickle", "read_pickle"]

_MAX_BYTES = 64 << 20
_MAX_OPCODES = 2_000_000
_MAX_TEXT = 512
_STRINGS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pickle:
    """What one pickle would do."""

    protocol: int
    imports: tuple[str, ...]
    """`module.name` of everything it would import, sorted."""
    texts: tuple[str, ...]
    """Its short texts, in order: keys of dictionaries, names, values."""
    end: int
    """Offset just behind its STOP."""
    complete: bool
    """False when it has more opcodes than are looked at."""


def read_pickle(blob: Blob, offset: int = 0) -> Pickle:
    """The pickle at `offset`; `BrokenEngine` when its opcodes make no sense or it has no end."""
    window = BlobStream(blob, offset, _MAX_BYTES)
    protocol = 0
    imports: set[str] = set()
    texts: list[str] = []
    recent: list[str] = []
    memo: dict[int, str] = {}
    complete = False
    try:
        for opcode, argument, _ in islice(pickletools.genops(cast("IO[bytes]", window)), _MAX_OPCODES):
            name = opcode.name
            if name == "PROTO":
                protocol = int(str(argument))
            elif name in _STRINGS and isinstance(argument, str):
                recent.append(argument)
                if len(argument) <= _MAX_TEXT:
                    texts.append(argument)
            elif name == "MEMOIZE":
                if recent:
                    memo[len(memo)] = recent[-1]
                else:
                    memo[len(memo)] = ""
            elif name in ("BINGET", "LONG_BINGET"):
                recent.append(memo.get(int(str(argument)), ""))
            elif name == "GLOBAL" and isinstance(argument, str):
                imports.add(argument.replace(" ", ".", 1))
            elif name == "STACK_GLOBAL" and len(recent) >= 2:
                imports.add(f"{recent[-2]}.{recent[-1]}")
            elif name == "STOP":
                complete = True
            del recent[:-2]
    except (ValueError, UnicodeDecodeError, OverflowError) as error:
        raise BrokenEngine(blob.name, f"the pickle in it makes no sense: {error}", offset=window.tell()) from None
    return Pickle(
        protocol=protocol,
        imports=tuple(sorted(imports)),
        texts=tuple(texts),
        end=window.tell(),
        complete=complete,
    )
