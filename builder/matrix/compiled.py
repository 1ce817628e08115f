"""Tables as they were when last read: kept in the store, found by the content they were made from.

The key covers every table file and the modules that read them, so that neither an edited table nor a newer version of
this program can meet what another one wrote. What is kept was valid; it is not checked again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from builder.errors import Where
from builder.matrix.schema import KINDS, Cell
from builder.matrix.tables import Row, Source, Table, parse_table, require
from builder.store import NoRoom, Store

__all__ = ["Shelf", "open_shelf"]

_KIND = "tables"
_READERS = ("compiled.py", "grammar.py", "reader.py", "schema.py", "tables.py", "versions.py")


class Shelf:
    """Tables by path, each made from what is kept when it is first asked for."""

    def __init__(self, kept: Mapping[str, Any], root: Path) -> None:
        self._kept, self._root = kept, root
        self._tables: dict[Path, Table] = {}

    def table(self, path: Path) -> Table | None:
        """The table of a file; None for a file the shelf was not made from."""
        found = self._tables.get(path)
        if found is not None:
            return found
        raw = self._raw(path)
        return self._tables.setdefault(path, _table(raw, path)) if raw is not None else None

    def kind(self, path: Path) -> str | None:
        """The kind of a file's table; None for a file the shelf was not made from."""
        raw = self._raw(path)
        return raw["kind"] if raw is not None else None

    def _raw(self, path: Path) -> Mapping[str, Any] | None:
        raw: Mapping[str, Any] | None = self._kept.get(f"{path.parent.name}/{path.name}")
        return raw if raw is not None and path.parent.parent == self._root else None


def open_shelf(root: Path, paths: tuple[Path, ...], store: Store) -> Shelf:
    """The tables of these files below `root`, from the store where they are kept, else read, checked and kept.

    `BadInput` with everything wrong with the first faulty one. A store that cannot be written keeps nothing.
    """
    contents = {path: path.read_bytes() for path in paths}
    key = _key(root, contents)
    kept = store.derived(_KIND, key)
    if isinstance(kept, dict):
        return Shelf(kept, root)
    tables = {path: require(*parse_table(data.decode("utf-8"), path), path) for path, data in contents.items()}
    fresh = {path.relative_to(root).as_posix(): _raw(table) for path, table in tables.items()}
    with contextlib.suppress(NoRoom):  # nothing is lost but the time of the next reading
        store.put_derived(_KIND, key, fresh)
    return Shelf(fresh, root)


def _key(root: Path, contents: Mapping[Path, bytes]) -> str:
    digest = hashlib.sha256()
    for name in _READERS:
        digest.update(hashlib.sha256((Path(__file__).parent / name).read_bytes()).digest())
    for path in sorted(contents):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(contents[path]).digest())
    return digest.hexdigest()


def _raw(table: Table) -> dict[str, Any]:
    ids = {source: name for name, source in table.source_ids.items()}
    return {
        "kind": table.kind.name,
        "title": table.title,
        "key": table.key,
        "columns": table.columns,
        "info": table.info,
        "lead": table.lead,
        "role": table.role,
        "closed": table.closed,
        "sources": {name: [source.text, source.checked.isoformat()] for name, source in table.source_ids.items()},
        "rows": [
            [
                {name: _plain(cell) for name, cell in row.cells.items()},
                ids[row.source],
                row.confidence,
                row.note,
                row.where.line,
            ]
            for row in table.rows
        ],
    }


def _table(raw: Mapping[str, Any], path: Path) -> Table:
    sources = {
        name: Source(text=text, checked=dt.date.fromisoformat(checked))
        for name, (text, checked) in raw["sources"].items()
    }
    file = str(path)
    rows = tuple(
        Row(
            cells=MappingProxyType(_cells(cells)),
            source=sources[source],
            confidence=confidence,
            note=note,
            where=Where(file=file, line=line, key=f"rows[{number}]"),
        )
        for number, (cells, source, confidence, note, line) in enumerate(raw["rows"])
    )
    return Table(
        path=path,
        name=path.stem,
        kind=KINDS[raw["kind"]],
        title=raw["title"],
        key=tuple(raw["key"]),
        columns=tuple(raw["columns"]),
        info=tuple(raw["info"]),
        lead=raw["lead"],
        role=raw["role"],
        closed=tuple(raw["closed"]),
        rows=rows,
        source_ids=MappingProxyType(sources),
    )


def _plain(cell: Cell) -> Any:
    """A cell as JSON; a mapping as pairs, for the store sorts keys and the order of packages is theirs."""
    return {"pairs": list(cell.items())} if isinstance(cell, Mapping) else cell


def _cells(cells: dict[str, Any]) -> dict[str, Cell]:
    """The cells of a row, most of which are texts and stay what they are."""
    for name, value in cells.items():
        if type(value) is list:
            cells[name] = tuple(value)
        elif type(value) is dict:
            cells[name] = MappingProxyType(dict(value["pairs"]))
    return cells
