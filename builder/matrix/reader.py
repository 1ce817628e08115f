"""Reads the text of a table: the canonical form line by line, anything else by the library's parser.

The canonical form (builder/matrix/canonical.py) has one value a line and no comments, so that a line-wise reader is an
order of magnitude faster than a TOML parser. It answers only for what it knows for certain; whatever looks different
goes to `tomllib`, and both give the same.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import tomllib
from typing import Any

__all__ = ["read_toml"]

_STRANGE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]|\\[^\"\\nt]")
"""Control characters, and escapes that the canonical form does not write."""
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"\[sources\.([A-Za-z0-9_-]+)\]")
_STRING = r'"(?:[^"\\]|\\.)*"'
_STRINGS = re.compile(rf"\[(?:{_STRING}(?:, {_STRING})*)?\]")
_PAIR = re.compile(rf"([A-Za-z0-9_-]+) = ({_STRING})")
_INLINE = re.compile(rf"\{{ [A-Za-z0-9_-]+ = {_STRING}(?:, [A-Za-z0-9_-]+ = {_STRING})* \}}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class _Other(Exception):
    """The text is not in the form this reader knows."""


def read_toml(text: str) -> dict[str, Any]:
    """The data of a TOML text; `tomllib.TOMLDecodeError` when it is none."""
    try:
        return _canonical(text)
    except _Other:
        return tomllib.loads(text)


def _canonical(text: str) -> dict[str, Any]:
    if _STRANGE.search(text):
        raise _Other
    data: dict[str, Any] = {}
    current = data
    rows: list[dict[str, Any]] = []
    sources: dict[str, Any] = {}
    for line in text.split("\n"):
        if not line:
            continue
        if line[0] == "[":
            current = {}
            if line == "[[rows]]":
                rows.append(current)
                continue
            match = _TABLE.fullmatch(line)
            if match is None or match[1] in sources or rows:
                raise _Other
            sources[match[1]] = current
            continue
        key, equals, value = line.partition(" = ")
        if not equals or key in current or not _KEY.fullmatch(key):
            raise _Other
        current[key] = _value(value)
    if data.keys() & {"rows", "sources"}:
        raise _Other
    if sources:
        data["sources"] = sources
    if rows:
        data["rows"] = rows
    return data


def _value(text: str) -> Any:
    match text[:1]:
        case '"':
            inner = text[1:-1]
            if text[-1] == '"' and len(text) > 1 and '"' not in inner and "\\" not in inner:
                return inner
            if re.fullmatch(_STRING, text):
                return json.loads(text)
        case "[":
            if _STRINGS.fullmatch(text):
                return json.loads(text)
        case "{":
            if _INLINE.fullmatch(text):
                pairs = _PAIR.findall(text)
                found = {key: json.loads(value) for key, value in pairs}
                if len(found) == len(pairs):
                    return found
        case _:
            if text in ("true", "false"):
                return text == "true"
            if re.fullmatch(r"0|[1-9]\d*", text):
                return int(text)
            if _DATE.fullmatch(text):
                try:
                    return dt.date.fromisoformat(text)
                except ValueError as error:
                    raise _Other from error
    raise _Other
