"""Takes generated rows into a table: new rows are added, cells that differ are changed, nothing is dropped."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from types import MappingProxyType

from builder.matrix.canonical import canonical
from builder.matrix.refresh.values import Change, Drift, Generator, TooShort
from builder.matrix.schema import Cell
from builder.matrix.tables import Row, Source, Table, key_of, parse_table, require

__all__ = ["drift"]


def drift(generator: Generator, text: str, table: Table, *, origin: str, checked: dt.date) -> Drift:
    """What a source says that a table does not; `TooShort` when it says less than can be true.

    `origin` is where the text was read (a file name or URL, with its revision), and becomes the source of what is new.
    """
    generated = generator.rows(text)
    if len(generated) < generator.minimum:
        raise TooShort(
            f"{generator.name}: {len(generated)} rows from {origin}",
            why=f"the source has {generator.minimum} rows at the least: it was cut off, or its form has changed",
            fix="look at the source; mend the generator when its form has changed",
        )
    source = Source(text=f"{generator.title}, {origin}", checked=checked)
    have = {key_of(table, row): row for row in table.rows}
    rows = dict(have)
    changes: list[Change] = []
    for cells in generated:
        fresh = Row(
            cells=MappingProxyType(dict(cells)),
            source=source,
            confidence="primary",
            file=str(table.path),
            line=None,
            number=len(rows),
        )
        key = key_of(table, fresh)
        old = have.get(key)
        if old is None:
            rows[key] = fresh
            changes.append(Change(key=key, column="", old="", new=_plain_row(cells, table)))
            continue
        different = [
            column
            for column in generator.columns
            if column in cells and column not in table.key and cells[column] != old.cells.get(column)
        ]
        if different:
            merged = {**old.cells, **{column: cells[column] for column in different}}
            rows[key] = dataclasses.replace(old, cells=MappingProxyType(merged), source=source)
            changes += [
                Change(key=key, column=column, old=_plain(old.cells.get(column)), new=_plain(cells[column]))
                for column in different
            ]
    seen = {key_of(table, _keyed(cells, table)) for cells in generated}
    return Drift(
        generator=generator.name,
        table=generator.table,
        changes=tuple(sorted(changes, key=lambda change: (change.key, change.column))),
        unseen=tuple(sorted(set(have) - seen)),
        text=_text(table, tuple(rows.values())),
    )


def _keyed(cells: Mapping[str, Cell], table: Table) -> Row:
    return dataclasses.replace(table.rows[0], cells=cells)


def _text(table: Table, rows: tuple[Row, ...]) -> str:
    """Canonical text; sources no row uses any more are left out, new ones get a name of their words."""
    used = {row.source for row in rows}
    ids = {name: source for name, source in table.source_ids.items() if source in used}
    for source in sorted(used - set(ids.values()), key=lambda one: one.text):
        base = "-".join(re.findall(r"[a-z0-9]+", source.text.lower())[:5]) or "source"
        name, number = base, 2
        while name in ids:
            name, number = f"{base}-{number}", number + 1
        ids[name] = source
    text = canonical(dataclasses.replace(table, rows=rows, source_ids=MappingProxyType(ids)))
    require(*parse_table(text, table.path), table.path)
    return text


def _plain_row(cells: Mapping[str, Cell], table: Table) -> str:
    return "; ".join(f"{column} {_plain(value)}" for column, value in cells.items() if column not in table.key)


def _plain(cell: Cell | None) -> str:
    if cell is None:
        return "(none)"
    if isinstance(cell, tuple):
        return ", ".join(cell)
    if isinstance(cell, Mapping):
        return ", ".join(f"{name} {text}" for name, text in cell.items())
    return str(cell)
