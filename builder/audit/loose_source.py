"""String literals of a Python source that cannot be parsed here: written for an older or a newer Python, or damaged.

A few lines of a lexer are enough to keep comments and docstrings out, and to see which call a literal stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["loose_strings"]

_TOKEN = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
  | (?:\b[rRbBuUfFtT]{1,2})?(?:
        (?P<three>\"{3}|'{3})(?P<long>(?:\\.|(?!(?P=three)).){0,65536}?)(?P=three)
      | (?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote))[^\\\n])*)(?P=quote)
    )
  | (?P<word>\w+)
  | (?P<sign>[^\s\w])
  | (?P<line>\n)
    """,
    re.VERBOSE | re.DOTALL,
)
_LONGEST = 400


def loose_strings(source: bytes) -> Iterator[tuple[str, int, str]]:
    """Each literal that is no statement of its own, with its line and the function whose argument it is, if any."""
    text = source.decode("utf-8", "replace")
    before: list[str] = ["\n"]
    line = 1
    for match in _TOKEN.finditer(text):
        here, line = line, line + match[0].count("\n")
        if match["comment"] is not None:
            continue
        literal = match["text"] if match["three"] is None else match["long"]
        if literal is not None:
            if before[-1] not in ("\n", ":", ";") and len(literal) <= _LONGEST:
                yield literal, here, before[-2] if before[-1] == "(" and len(before) > 1 else ""
            before.append("literal")
        elif match["line"] is None or before[-1] not in "([{,=":  # a line goes on inside brackets
            before.append(match[0])
        del before[:-2]
