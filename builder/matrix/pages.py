"""Pages people read: the tables of a backend as Markdown, each cell linked to its source."""

from __future__ import annotations

import re
from collections.abc import Mapping

from builder.matrix.load import Backend, Tables
from builder.matrix.schema import Cell
from builder.matrix.tables import Row, Source, Table

__all__ = ["backend_page", "engines_page", "index_page"]

_HEAD = "<!-- Made from matrices/ by `python -m tests.renew`; a test keeps it equal. -->\n"


def backend_page(backend: Backend) -> str:
    """All tables of a backend, the common ones left out, with the sources of each at its end."""
    own = [table for table in backend.tables if table.path.parent.name == backend.name]
    return _page(f"{backend.spec.title} (`{backend.name}`)", own)


def index_page(tables: Tables, common: tuple[Table, ...]) -> str:
    """The backends with their tables, and the tables every backend reads."""
    lines = [_HEAD, "# Compatibility tables\n", "| backend | title | tables | rows |", "| --- | --- | --- | --- |"]
    for name in tables.names:
        backend = tables.backend(name)
        own = [table for table in backend.tables if table.path.parent.name == name]
        rows = sum(len(table.rows) for table in own)
        lines.append(f"| [{name}]({name}.md) | {_text(backend.spec.title)} | {len(own)} | {rows} |")
    lines.append("\nEvery cell leads to its source. A cell that is left out is not known; it never means no.")
    return "\n".join(lines) + "\n\n" + "\n\n".join(_table(table) for table in common) + "\n"


def engines_page(tables: tuple[Table, ...]) -> str:
    """What makes engines of each kind valid: the tables of matrices/engines."""
    return _page("Engine kinds", list(tables))


def _page(title: str, tables: list[Table]) -> str:
    return f"{_HEAD}\n# {title}\n\n" + "\n\n".join(_table(table) for table in tables) + "\n"


def _table(table: Table) -> str:
    sources = list(dict.fromkeys(row.source for row in table.rows))
    names = {source: f"{table.name}-{number}" for number, source in enumerate(sources, 1)}
    columns = [column for column in table.columns if any(column in row.cells for row in table.rows)]
    noted = any(row.note for row in table.rows)
    header = [*(column.replace("_", " ") for column in columns), "confidence", *(["note"] if noted else [])]
    lines = [
        f"## {table.name}: {_text(table.title)}\n",
        f"| {' | '.join(header)} |",
        f"| {' | '.join('---' for _ in header)} |",
        *(_row(row, columns, names[row.source], noted=noted) for row in table.rows),
        "",
        *(_source(source, name) for source, name in names.items()),
    ]
    return "\n".join(lines)


def _row(row: Row, columns: list[str], source: str, *, noted: bool) -> str:
    cells = [f"[{_cell(row.cells[column])}](#{source})" if column in row.cells else "" for column in columns]
    return f"| {' | '.join([*cells, row.confidence, *([_text(row.note)] if noted else [])])} |"


def _source(source: Source, name: str) -> str:
    return f'- <a id="{name}"></a>{_text(source.text)} (checked {source.checked.isoformat()})'


def _cell(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, tuple):
        return _text(", ".join(cell))
    if isinstance(cell, Mapping):
        return _text("; ".join(f"{name} {text}" for name, text in cell.items()))
    return _text(str(cell))


def _text(text: str) -> str:
    """Text that Markdown shows as it is, within a cell and a link."""
    return re.sub(r"([\\`*_\[\]<>|~])", r"\\\1", text).replace("\\](", "\\]&#40;")
