"""The one text of a table, so that two people who add the same facts write the same file."""

from __future__ import annotations

import re
from collections.abc import Iterable

from builder.matrix.schema import Cell
from builder.matrix.tables import Row, Table, key_of
from builder.matrix.versions import is_version, sort_key

__all__ = ["canonical"]


def _row_order(table: Table, row: Row) -> tuple[tuple[object, ...], ...]:
    """Sort key of a row: its key cells, versions by version."""
    return tuple((1, *sort_key(text)) if is_version(text) else (0, text, "") for text in key_of(table, row))


def canonical(table: Table) -> str:
    """The one text of a table: header, sources by name, rows by key, columns in the declared order."""
    ids = {source: name for name, source in table.source_ids.items()}
    out = [f'kind = "{table.kind.name}"', f"title = {_quote(table.title)}", f"key = {_array(table.key)}"]
    typed = tuple(column for column in table.columns if column not in table.info)
    out.append(f"columns = {_array(typed)}")
    if table.info:
        out.append(f"info = {_array(table.info)}")
    if table.lead:
        out.append(f"lead = {_quote(table.lead)}")
    if table.role != "core":
        out.append(f"role = {_quote(table.role)}")
    if table.closed:
        out.append(f"closed = {_array(table.closed)}")
    for name, source in sorted(table.source_ids.items()):
        out += ["", f"[sources.{name}]", f"text = {_quote(source.text)}", f"checked = {source.checked.isoformat()}"]
    for row in sorted(table.rows, key=lambda row: _row_order(table, row)):
        out += ["", "[[rows]]"]
        out += [f"{column} = {_value(row.cells[column])}" for column in table.columns if column in row.cells]
        out.append(f"source = {_quote(ids[row.source])}")
        out.append(f"confidence = {_quote(row.confidence)}")
        if row.note:
            out.append(f"note = {_quote(row.note)}")
    return "\n".join(out) + "\n"


def _value(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, str):
        return _quote(cell)
    if isinstance(cell, tuple):
        return _array(cell)
    return "{ " + ", ".join(f"{_bare(name)} = {_quote(text)}" for name, text in cell.items()) + " }"


def _bare(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quote(name)


def _array(items: Iterable[str]) -> str:
    return "[" + ", ".join(_quote(item) for item in items) + "]"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
