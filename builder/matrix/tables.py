"""A table file: parsed, and checked against its kind and the laws."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from builder.errors import BadInput, Fault, Where, did_you_mean
from builder.matrix.grammar import fault_of
from builder.matrix.reader import read_toml
from builder.matrix.schema import CONFIDENCES, KINDS, Cell, ColumnType, Confidence, Kind
from builder.matrix.versions import is_version, parse, specifier

__all__ = ["Row", "Source", "Table", "key_of", "parse_table", "require"]

_HEADER = ("kind", "title", "key", "columns", "info", "lead", "role", "closed", "sources", "rows")
_ROW = ("source", "confidence", "note")


_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where facts are written, and when somebody last looked."""

    text: str
    checked: dt.date


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One fact. An absent cell is not known; it is never "no"."""

    cells: Mapping[str, Cell]
    source: Source
    confidence: Confidence
    note: str = ""
    file: str
    line: int | None
    """Where the row starts, counted from 1."""
    number: int
    """Its place among the rows of the file, counted from 0."""

    @property
    def where(self) -> Where:
        """The row in its file."""
        return Where(file=self.file, line=self.line, key=f"rows[{self.number}]")

    def text(self, column: str) -> str | None:
        """A text cell, or None when not known."""
        value = self.cells.get(column)
        return value if isinstance(value, str) else None

    def texts(self, column: str) -> tuple[str, ...] | None:
        """A list cell, or None when not known."""
        value = self.cells.get(column)
        return value if isinstance(value, tuple) else None

    def count(self, column: str) -> int | None:
        """A whole number, or None when not known."""
        value = self.cells.get(column)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, column: str) -> bool:
        """A flag; absent is false."""
        return self.cells.get(column) is True

    def mapping(self, column: str) -> Mapping[str, str]:
        """A cell of names and texts; empty when not known."""
        value = self.cells.get(column)
        return value if isinstance(value, MappingProxyType) else _NOTHING

    def packages(self) -> Mapping[str, str]:
        """The `packages` cell: distribution name to version cell."""
        return self.mapping("packages")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One file of matrices/."""

    path: Path
    name: str
    """File name without `.toml`."""
    kind: Kind
    title: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """Typed columns of the kind, then the informational ones."""
    info: tuple[str, ...]
    lead: str | None
    """Sets: the package whose version names a row."""
    role: str
    """Sets: `core` rows make stacks, `companion` rows join one when their lead is asked for."""
    closed: tuple[str, ...]
    """Sets: cells (`toolkit` or a package) for which the rows of one lead version are all there is."""
    rows: tuple[Row, ...]
    source_ids: Mapping[str, Source]


class _Faults:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[Fault] = []

    def add(self, what: str, where: str, fix: str = "", line: int | None = None) -> None:
        self.found.append(Fault(what=what, where=Where(file=str(self.path), line=line, key=where or None), fix=fix))


def parse_table(text: str, path: Path) -> tuple[Table | None, tuple[Fault, ...]]:
    """The table of a file's text, and everything wrong with it; None when the form itself cannot be read."""
    faults = _Faults(path)
    try:
        data = read_toml(text)
    except tomllib.TOMLDecodeError as error:
        faults.add(f"not TOML: {error}", "")
        return None, tuple(faults.found)
    for key in data:
        if key not in _HEADER:
            faults.add(f"unknown key {key!r}", key, did_you_mean(key, _HEADER))
    kind = KINDS.get(str(data.get("kind")))
    if kind is None:
        faults.add(f"unknown kind {data.get('kind')!r}", "kind", did_you_mean(str(data.get("kind")), KINDS))
        return None, tuple(faults.found)
    names = _texts(data, "columns", faults)
    info = _texts(data, "info", faults)
    for column in names:
        if kind.columns and column not in kind.columns:
            fix = did_you_mean(column, kind.columns) + " Columns no rule reads are listed under info"
            faults.add(f"unknown column {column!r} in a table of kind {kind.name}", "columns", fix)
    for column in sorted({*names} & {*info}):
        faults.add(f"column {column!r} is declared twice", "info")
    columns = names + info
    keys = _texts(data, "key", faults)
    for column in (*keys, *kind.required):
        if column not in columns:
            faults.add(f"no column {column!r}", "columns", f"a table of kind {kind.name} needs it")
    sources = dict(_sources(data.get("sources", {}), faults))
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.strip() == "[[rows]]"]
    rows = []
    for number, raw in enumerate(_list_of_tables(data.get("rows", []), faults)):
        line = lines[number] if number < len(lines) else None
        row = _row(raw, kind, columns, keys, sources, line, number, faults)
        if row is not None:
            rows.append(row)
    if not data.get("rows"):
        faults.add("the table has no rows", "rows")
    used = {row.get("source") for row in data.get("rows", []) if isinstance(row, dict)}
    for unused in sorted(set(sources) - {str(name) for name in used}):
        faults.add(f"source {unused!r} is not used by any row", f"sources.{unused}")
    table = Table(
        path=path,
        name=path.stem,
        kind=kind,
        title=str(data.get("title", "")),
        key=keys,
        columns=columns,
        info=info,
        lead=str(data["lead"]) if "lead" in data else None,
        role=str(data.get("role", "core")),
        closed=_texts(data, "closed", faults),
        rows=tuple(rows),
        source_ids=MappingProxyType(sources),
    )
    _laws(table, faults)
    return table, tuple(faults.found)


def _texts(data: Mapping[str, Any], key: str, faults: _Faults) -> tuple[str, ...]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        faults.add(f"{key} is not a list of texts", key)
        return ()
    return tuple(value)


def _list_of_tables(value: Any, faults: _Faults) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        faults.add("rows is not an array of tables", "rows", "write each row under [[rows]]")
        return []
    return value


def _sources(value: Any, faults: _Faults) -> Iterator[tuple[str, Source]]:
    for name, entry in (value if isinstance(value, dict) else {}).items():
        where = f"sources.{name}"
        if not isinstance(entry, dict) or set(entry) - {"text", "checked"}:
            faults.add("a source holds text and checked, nothing else", where)
            continue
        text, checked = entry.get("text"), entry.get("checked")
        if not isinstance(text, str) or not text.strip():
            faults.add("a source without text", where, "say where the fact is written")
        elif not isinstance(checked, dt.date):
            faults.add("a source without the date it was checked", where, "add checked = YYYY-MM-DD")
        else:
            yield name, Source(text=text, checked=checked)


def _row(
    raw: dict[str, Any],
    kind: Kind,
    columns: tuple[str, ...],
    keys: tuple[str, ...],
    sources: Mapping[str, Source],
    line: int | None,
    number: int,
    faults: _Faults,
) -> Row | None:
    where = f"rows[{number}]"
    before = len(faults.found)
    cells: dict[str, Cell] = {}
    for key, value in raw.items():
        if key in _ROW:
            continue
        if key not in columns:
            faults.add(f"unknown key {key!r}", f"{where}.{key}", did_you_mean(key, (*columns, *_ROW)), line)
            continue
        cell, problem = _cell(value, kind.columns.get(key))
        if problem:
            faults.add(problem, f"{where}.{key}", line=line)
        elif cell is not None:
            cells[key] = cell
        allowed = kind.words.get(key)
        if allowed and isinstance(value, str) and value not in allowed:
            faults.add(f"{value!r} is no {key}", f"{where}.{key}", did_you_mean(value, allowed), line)
    for key in kind.required if kind.partial_key else dict.fromkeys((*keys, *kind.required)):
        if key not in raw:
            faults.add(f"no {key!r}", where, line=line)
    source = sources.get(str(raw.get("source")))
    if source is None:
        fix = did_you_mean(str(raw["source"]), sources) if "source" in raw else "every row says where it is written"
        faults.add("a row without a known source", f"{where}.source", fix, line)
    confidence = next((word for word in CONFIDENCES if word == raw.get("confidence")), None)
    if confidence is None:
        faults.add("a row without confidence", f"{where}.confidence", f"one of {', '.join(CONFIDENCES)}", line)
    if source is None or confidence is None or len(faults.found) > before:
        return None
    return Row(
        cells=MappingProxyType(cells),
        source=source,
        confidence=confidence,
        note=str(raw.get("note", "")),
        file=str(faults.path),
        line=line,
        number=number,
    )


def _cell(value: Any, type_: ColumnType | None) -> tuple[Cell | None, str]:
    """The typed cell and what is wrong with it; columns without a type take any simple value."""
    match value:
        case str() if not value.strip():
            return None, "an empty text: leave the cell out when the value is not known"
        case str():
            if type_ == "version" and not is_version(value):
                return None, f"{value!r} is not a version"
            return (value, "") if type_ in (None, "text", "version") else (None, f"expected {type_}")
        case bool():
            return (value, "") if type_ in (None, "flag") else (None, f"expected {type_}")
        case int():
            return (value, "") if type_ in (None, "count") else (None, f"expected {type_}")
        case list() if all(isinstance(item, str) and item for item in value):
            if type_ == "specifiers" and (bad := [item for item in value if specifier(item) is None]):
                return None, f"{bad[0]!r} is not a version bound"
            ok = type_ in (None, "texts", "specifiers")
            return (tuple(value), "") if ok else (None, f"expected {type_}")
        case dict() if type_ == "conditions" and all(isinstance(item, str) for item in value.values()):
            problems = [problem for key, item in value.items() if (problem := fault_of(key, item))]
            return (None, problems[0]) if problems else (MappingProxyType(value), "")
        case dict() if all(isinstance(item, str) for item in value.values()):
            if bad_cells := [item for item in value.values() if specifier(item) is None]:
                return None, f"{bad_cells[0]!r} is not a version or bound"
            return (MappingProxyType(value), "") if type_ in (None, "packages") else (None, f"expected {type_}")
        case _:
            return None, f"a cell of type {type(value).__name__}"


def _laws(table: Table, faults: _Faults) -> None:
    """Keys are unique; bounds that must not overlap do not; a column has one type throughout."""
    seen = Counter(key_of(table, row) for row in table.rows)
    for key, count in seen.items():
        if count > 1 and table.key:
            faults.add(f"{count} rows have the key {' / '.join(key)}", "rows", "keep one, or widen the key")
    for column in table.info:
        types = {type(row.cells[column]).__name__ for row in table.rows if column in row.cells}
        if len(types) > 1:
            faults.add(f"column {column!r} mixes types: {', '.join(sorted(types))}", "rows")
    for cells in _contradictions(table):
        faults.add(
            f"two rows contradict each other: {cells}", "rows", "keep the one whose source is right, or say when"
        )
    if table.kind.name == "limit":
        for row in table.rows:
            if bool(row.mapping("allow")) == bool(row.text("verdict")):
                what = "a limit has either allow or a verdict"
                faults.add(what, row.where.key or "", "allow = { … } or verdict = …", row.where.line)
    if table.kind.ranges:
        for first, second in _overlaps(table, table.kind.ranges):
            faults.add(f"{table.kind.ranges} of two rows overlap: {first} and {second}", "rows")


def _contradictions(table: Table) -> Iterator[str]:
    """Conditions under which one row says supported and another unsupported.

    Of lists every pair counts: a toolkit and a driver that one row puts together, another must not keep apart. Bounds
    are held as they are written: a narrower bound is an exception, and no contradiction.
    """
    verdicts: dict[str, str] = {}
    for row in table.rows:
        verdict = row.text("verdict")
        if verdict not in ("supported", "unsupported"):
            continue
        named = ("subject",) if table.kind.name == "driver-window" else ("rule", "when")
        alone = [f"{column} {_plain(row.cells[column])}" for column in named if column in row.cells]
        lists = [[f"{column} {cell}" for cell in row.texts(column) or ()] for column in ("toolkit", "driver")]
        for pair in itertools.product(*(cells for cells in lists if cells)):
            text = "; ".join((*alone, *pair))
            if verdicts.setdefault(text, verdict) != verdict:
                yield text


def _overlaps(table: Table, column: str) -> Iterator[tuple[str, str]]:
    texts = [text for row in table.rows if (text := row.text(column))]
    for number, first in enumerate(texts):
        for second in texts[number + 1 :]:
            (low_a, high_a), (low_b, high_b) = _interval(first), _interval(second)
            if low_a < high_b and low_b < high_a:
                yield first, second


def _interval(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`>=525,<580` as half-open bounds of release tuples."""
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = (1 << 30,)
    for operator, version in re.findall(r"(>=|<)\s*([0-9.]+)", text):
        found = parse(version)
        if found is not None and operator == ">=":
            low = found.release
        elif found is not None:
            high = found.release
    return low, high


def key_of(table: Table, row: Row) -> tuple[str, ...]:
    """The key cells of a row, as text."""
    return tuple(_plain(row.cells.get(column, "")) for column in table.key)


def _plain(cell: Cell) -> str:
    if isinstance(cell, tuple):
        return " ".join(cell)
    if isinstance(cell, Mapping):
        return " ".join(f"{name}=={version}" for name, version in cell.items())
    return str(cell)


def require(table: Table | None, faults: tuple[Fault, ...], path: Path) -> Table:
    """The table, or one `BadInput` with all faults."""
    if table is None or faults:
        raise BadInput(f"{path} is not a table", faults=faults, where=Where(file=str(path)), fix="builder matrix check")
    return table
