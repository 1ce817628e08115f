"""Reading TOML tables strictly: typed values out, every fault collected with the line it stands on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.errors import BadInput, Fault, Where, did_you_mean

__all__ = ["Faults", "Table", "parse_toml"]

Key = tuple[str, ...]


@dataclass(slots=True)
class Faults:
    """Collects what is wrong with one file."""

    file: str
    lines: Mapping[Key, int]
    found: list[Fault] = field(default_factory=list)

    def add(self, key: Key, what: str, fix: str = "") -> None:
        """One fault at a key path; its line is that of the nearest enclosing key that the file writes."""
        line = None
        for length in range(len(key), 0, -1):
            line = self.lines.get(key[:length])
            if line is not None:
                break
        self.found.append(Fault(what=what, where=Where(file=self.file, line=line, key=".".join(key) or None), fix=fix))


@dataclass(slots=True)
class Table:
    """One TOML table being read. Each getter marks its key as known; `finish` reports the rest."""

    data: Mapping[str, Any]
    key: Key
    faults: Faults
    known: set[str] = field(default_factory=set)

    def text(self, name: str, *, check: Callable[[str], str | None] | None = None) -> str | None:
        """A non-empty string, or None when absent. `check` returns what is wrong with it, or None."""
        value = self._get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.fault(name, f"{name} must be a non-empty string, not {_kind(value)}")
            return None
        if check is not None and (wrong := check(value)):
            self.fault(name, wrong)
            return None
        return value

    def texts(self, name: str, *, check: Callable[[str], str | None] | None = None) -> tuple[str, ...]:
        """An array of strings, in file order; empty when absent."""
        value = self._get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fault(name, f"{name} must be an array of strings, not {_kind(value)}")
            return ()
        good = []
        for item in value:
            if check is not None and (wrong := check(item)):
                self.fault(name, wrong)
            else:
                good.append(item)
        return tuple(good)

    def number(self, name: str, default: float) -> float:
        """A positive number."""
        value = self._get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self.fault(name, f"{name} must be a number above 0, not {value!r}")
            return default
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false when absent."""
        value = self._get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.fault(name, f"{name} must be true or false, not {value!r}")
        return False

    def items(self, name: str) -> tuple[Any, ...]:
        """An array of anything; the caller checks the items."""
        value = self._get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fault(name, f"{name} must be an array, not {_kind(value)}")
            return ()
        return tuple(value)

    def strings(self, name: str) -> dict[str, str]:
        """A table of strings, in file order (environment, labels)."""
        table = self.table(name)
        good: dict[str, str] = {}
        for key, value in table.data.items():
            if isinstance(value, bool):
                table.fault(key, f"{key} must be a string, not {value!r}", 'write "true" or "false", or "1"')
            elif not isinstance(value, str | int | float):
                table.fault(key, f"{key} must be a string, not {_kind(value)}")
            else:
                good[key] = str(value)
        return good

    def table(self, name: str) -> Table:
        """A sub-table; empty when absent."""
        value = self._get(name)
        if value is not None and not isinstance(value, dict):
            self.fault(name, f"{name} must be a table, not {_kind(value)}")
            value = None
        return Table(value or {}, (*self.key, name), self.faults)

    def fault(self, name: str, what: str, fix: str = "") -> None:
        """Report what is wrong with one key."""
        self.faults.add((*self.key, name), what, fix)

    def finish(self) -> None:
        """Report every key that nobody asked for."""
        for name in self.data:
            if name not in self.known:
                self.fault(name, f"unknown key {name!r}", did_you_mean(name, self.known))

    def _get(self, name: str) -> Any:
        self.known.add(name)
        return self.data.get(name)


def parse_toml(path: Path) -> tuple[dict[str, Any], dict[Key, int]]:
    """The file's data, and for each key path the 1-based line that writes it. `BadInput` when it is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"no such file: {path}", fix="`builder init` writes a first builder.toml") from error
    except IsADirectoryError as error:
        raise BadInput(f"{path} is a folder, not a project file") from error
    except PermissionError as error:
        raise BadInput(f"cannot read {path}", why="permission denied", fix="make the file readable") from error
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not TOML", why=f"not UTF-8 at byte {error.start}", where=Where(file=str(path))
        ) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        where = Where(file=str(path), line=int(match[1]) if match else None)
        raise BadInput(
            f"{path.name} is not TOML", why=str(error), fix="mend the syntax at that line", where=where
        ) from error
    return data, _lines(text)


_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_PATH = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_PATH})\s*\]\]?")
_ASSIGN = re.compile(rf"\s*({_PATH})\s*=")


def _lines(text: str) -> dict[Key, int]:
    """Key paths to lines, for messages only: a key inside an inline table has its table's line."""
    found: dict[Key, int] = {}
    prefix: Key = ()
    depth = 0
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if closing is None and depth == 0:
            if match := _HEADER.match(line):
                prefix = _split(match[1])
                found.setdefault(prefix, number)
                continue
            if match := _ASSIGN.match(line):
                found.setdefault((*prefix, *_split(match[1])), number)
                line = line[match.end() :]
        depth, closing = _scan(line, depth, closing)
    return found


def _split(path: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, path))


def _scan(line: str, depth: int, closing: str | None) -> tuple[int, str | None]:
    """Follow brackets and multi-line strings through one line (TOML 1.0, "String", "Array")."""
    position = 0
    while position < len(line):
        if closing is not None:
            end = line.find(closing, position)
            if end < 0:
                return depth, closing
            position = end + len(closing)
            closing = None
            continue
        if line.startswith(('"""', "'''"), position):
            closing = line[position : position + 3]
            position += 3
            continue
        character = line[position]
        if character == "#":
            break
        if character in "\"'":
            match = re.compile(_PART).match(line, position)
            position = match.end() if match else len(line)
            continue
        depth += (character in "[{") - (character in "]}")
        position += 1
    return depth, closing


def _kind(value: object) -> str:
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "an array", dict: "a table"}
    if value == "":
        return "an empty string"
    return names.get(type(value), type(value).__name__)
