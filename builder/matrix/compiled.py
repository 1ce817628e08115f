"""Tables as they were when last read: kept in the store, found by the content they were made from.

The key covers every table file and the modules that read them, so that neither an edited table nor a newer version of
this program can meet what another one wrote. What is kept was valid; it is not checked again.

It is kept in Python's own marshal form, a folder at a time, behind a digest: texts that stand in many rows are there
once, tuples come back as tuples, and a folder nobody asks for is not unpacked (docs/decisions, "kept tables").
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import marshal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from builder.matrix.backend_file import parse_backend_data, parse_backend_file, read_backend_data
from builder.matrix.schema import KINDS
from builder.matrix.tables import Row, Source, Table, parse_table, require
from builder.matrix.values import BackendSpec
from builder.store import NoRoom, Store

__all__ = ["Files", "Shelf", "open_shelf"]

_KIND = "tables"
_READERS = (
    *("backend_file.py", "compiled.py", "grammar.py", "reader.py", "schema.py", "tables.py", "values.py"),
    "versions.py",
)
_DIGEST = hashlib.sha256().digest_size

Files = Mapping[str, tuple[str | None, tuple[str, ...]]]
"""Folder to its marker file (backend.toml or platform.toml; None for common) and its table files, sorted names."""


class Shelf:
    """Tables by path, each made from what is kept when it is first asked for."""

    def __init__(self, kept: Mapping[str, bytes], root: Path) -> None:
        self._kept, self.root = kept, root
        self._open: dict[str, Mapping[str, Any]] = {}
        self._files: dict[str, tuple[tuple[str, Path], ...]] = {}
        self._tables: dict[Path, Table] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Folders it holds, sorted."""
        return tuple(sorted(self._kept))

    def files(self, folder: str) -> tuple[tuple[str, Path], ...]:
        """Kind and path of each table of a folder, by name."""
        found = self._files.get(folder)
        if found is None:
            own = self.root / folder
            found = tuple((raw["kind"], own / name) for name, raw in self._folder(folder)["tables"].items())
            self._files[folder] = found
        return found

    def spec(self, folder: str) -> BackendSpec | None:
        """What the marker of a folder says; None where it was faulty or there is none."""
        kept = self._folder(folder)["backend"]
        if kept is None:
            return None
        marker, data = kept
        return parse_backend_data(data, self.root / folder / marker)[0]

    def table(self, path: Path) -> Table | None:
        """The table of a file; None for a file the shelf was not made from."""
        found = self._tables.get(path)
        if found is not None:
            return found
        parent = path.parent
        if parent.parent != self.root or parent.name not in self._kept:
            return None
        raw = self._folder(parent.name)["tables"].get(path.name)
        return self._tables.setdefault(path, _table(raw, path)) if raw is not None else None

    def _folder(self, name: str) -> Mapping[str, Any]:
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = marshal.loads(self._kept[name])  # noqa: S302  our own, behind its digest
        return found


def open_shelf(root: Path, files: Files, store: Store) -> Shelf:
    """The tables of these files below `root`, from the store where they are kept, else read, checked and kept.

    `BadInput` with everything wrong with the first faulty one. A store that cannot be written keeps nothing.
    """
    contents = {
        folder: {name: _read(f"{root}/{folder}/{name}") for name in (*((marker,) if marker else ()), *names)}
        for folder, (marker, names) in files.items()
    }
    key = _key(contents)
    kept = _unpacked(store.derived_bytes(_KIND, key))
    if kept is not None:
        return Shelf(kept, root)
    fresh = {folder: _packed(root / folder, files[folder][0], contents[folder]) for folder in files}
    with contextlib.suppress(NoRoom):  # nothing is lost but the time of the next reading
        body = marshal.dumps(fresh)
        store.put_derived_bytes(_KIND, key, hashlib.sha256(body).digest() + body)
    return Shelf(fresh, root)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  a Path of each of so many files takes its time
        return file.read()


def _key(contents: Mapping[str, Mapping[str, bytes]]) -> str:
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {marshal.version}".encode())
    own = Path(__file__).parent
    for name in _READERS:
        digest.update(_read(f"{own}/{name}"))
    for folder in sorted(contents):
        for name, data in contents[folder].items():
            digest.update(f"\0{folder}/{name} {len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()


def _unpacked(kept: bytes | None) -> Mapping[str, bytes] | None:
    """What the store had, when it is whole; a damaged file counts as absent."""
    if kept is None or hashlib.sha256(memoryview(kept)[_DIGEST:]).digest() != kept[:_DIGEST]:
        return None
    found: Mapping[str, bytes] = marshal.loads(memoryview(kept)[_DIGEST:])  # noqa: S302  as above
    return found


def _packed(folder: Path, marker: str | None, contents: Mapping[str, bytes]) -> bytes:
    """One folder's marker and tables; `BadInput` for a faulty table."""
    tables = {
        name: _raw(require(*parse_table(data.decode("utf-8"), folder / name), folder / name))
        for name, data in contents.items()
        if name != marker
    }
    backend = None
    if marker is not None:
        text = contents[marker].decode("utf-8")
        spec, _ = parse_backend_file(text, folder / marker)
        backend = (marker, _plain(read_backend_data(text))) if spec is not None else None
    return marshal.dumps(_shared({"backend": backend, "tables": tables}))


def _plain(value: Any) -> Any:
    """TOML's values as marshal knows them; dates as ISO text."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case dt.date():
            return value.isoformat()
        case _:
            return value


def _shared(value: Any) -> Any:
    """The same value with equal texts being one object, which marshal writes once."""
    match value:
        case str():
            return sys.intern(value)
        case Mapping():
            return {_shared(key): _shared(item) for key, item in value.items()}
        case tuple():
            return tuple(_shared(item) for item in value)
        case list():
            return [_shared(item) for item in value]
        case _:
            return value


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
        "sources": {name: (source.text, source.checked.isoformat()) for name, source in table.source_ids.items()},
        "mappings": tuple(
            sorted({name for row in table.rows for name, cell in row.cells.items() if isinstance(cell, Mapping)})
        ),
        "rows": tuple((dict(row.cells), ids[row.source], row.confidence, row.note, row.line) for row in table.rows),
    }


def _table(raw: Mapping[str, Any], path: Path) -> Table:
    sources = {
        name: Source(text=text, checked=dt.date.fromisoformat(checked))
        for name, (text, checked) in raw["sources"].items()
    }
    file, mappings = str(path), raw["mappings"]
    rows = []
    for number, (cells, source, confidence, note, line) in enumerate(raw["rows"]):
        for name in mappings:
            if name in cells:
                cells[name] = MappingProxyType(cells[name])
        rows.append(
            Row(
                cells=MappingProxyType(cells),
                source=sources[source],
                confidence=confidence,
                note=note,
                file=file,
                line=line,
                number=number,
            )
        )
    return Table(
        path=path,
        name=path.stem,
        kind=KINDS[raw["kind"]],
        title=raw["title"],
        key=raw["key"],
        columns=raw["columns"],
        info=raw["info"],
        lead=raw["lead"],
        role=raw["role"],
        closed=raw["closed"],
        rows=tuple(rows),
        source_ids=MappingProxyType(sources),
    )
