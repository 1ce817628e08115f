"""Loads matrices/: one backend when one is named, all of them for `matrix check`."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from builder import resources
from builder.errors import BadInput, Fault, Where, did_you_mean
from builder.matrix.backend_file import parse_backend_file, require_spec
from builder.matrix.canonical import canonical
from builder.matrix.compiled import Files, Shelf, open_shelf
from builder.matrix.tables import Row, Table, parse_table, require
from builder.matrix.values import BackendSpec
from builder.store import Store

__all__ = [
    "Backend",
    "Tables",
    "check_tables",
    "load_backend",
    "load_table_file",
    "load_tables",
    "rewrite_tables",
    "siblings",
]

_MARKERS = ("backend.toml", "platform.toml")
"""A folder with backend.toml is a backend images are built for; with platform.toml its facts are shown and explained,
and no image is made."""
_COMMON = "common"
_NODE_CLASSES = "nodeclasses"
_ENGINES = "engines"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Backend:
    """One backend: its backend.toml and its tables, those of matrices/common included.

    Compared by identity: it is loaded once, and what is derived from it is kept beside it.
    """

    spec: BackendSpec
    files: tuple[tuple[str, Path], ...]
    """Kind and path of each table, the backend's own first, by name. A table is read when a rule asks for its kind, so
    that the many facts nothing asks for cost nothing."""
    shelf: Shelf | None = None
    """Where its tables are kept since they were last read; without one each is read from its file."""

    @property
    def name(self) -> str:
        """`cuda`, `npu`, …"""
        return self.spec.name

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds there are tables of."""
        return _kinds(self.files)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in the order of `files`."""
        return tuple(_table(self, path) for _, path in self.files)

    def of_kind(self, kind: str) -> tuple[Table, ...]:
        """The tables of one kind; `BadInput` when one is faulty."""
        return _of_kind(self, kind)

    def rows(self, kind: str) -> tuple[Row, ...]:
        """All rows of one kind, in file order."""
        return _rows(self, kind)


@lru_cache(maxsize=64)
def _kinds(files: tuple[tuple[str, Path], ...]) -> frozenset[str]:
    return frozenset(kind for kind, _ in files)


@lru_cache(maxsize=512)
def _of_kind(backend: Backend, kind: str) -> tuple[Table, ...]:
    return tuple(_table(backend, path) for own, path in backend.files if own == kind)


def _table(backend: Backend, path: Path) -> Table:
    return (backend.shelf.table(path) if backend.shelf else None) or _load_table(path)


@lru_cache(maxsize=512)
def _rows(backend: Backend, kind: str) -> tuple[Row, ...]:
    return tuple(row for table in backend.of_kind(kind) for row in table.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """All backends under a folder; each is read when it is asked for, once for a process."""

    root: Path
    shelf: Shelf | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the backends, sorted."""
        if self.shelf is not None:
            return tuple(name for name in self.shelf.names if name != _COMMON)
        return tuple(sorted(marker.parent.name for marker in _markers(self.root)))

    def backend(self, name: str) -> Backend:
        """One backend; `BadInput` with the closest names when there is none."""
        return _load_backend(name, self.root, self.shelf)


def load_tables(root: Path | None = None, store: Store | None = None) -> Tables:
    """The tables under `root`, by default those of this installation.

    With a store they come from where they are kept by their content, and are kept there otherwise; all of them are
    read and checked then, and `BadInput` is raised for a faulty one.
    """
    folder = root or resources.matrices_dir()
    if store is None:
        return Tables(root=folder)
    return Tables(root=folder, shelf=open_shelf(folder, _listed(folder), store))


def load_backend(name: str, root: Path | None = None) -> Backend:
    """One backend, without reading the others; `BadInput` for an unknown name or a faulty backend.toml."""
    return _load_backend(name, root or resources.matrices_dir(), None)


@lru_cache(maxsize=64)
def _load_backend(name: str, root: Path, shelf: Shelf | None) -> Backend:
    if shelf is not None and name in shelf.names and (kept := shelf.spec(name)) is not None:
        return Backend(spec=kept, files=(*shelf.files(name), *shelf.files(_COMMON)), shelf=shelf)
    path = next((file for marker in _MARKERS if (file := root / name / marker).is_file()), None)
    if path is None or path.parent.parent != root:
        raise BadInput(f"unknown backend {name!r}", fix=_meant(name, root))
    spec = require_spec(*parse_backend_file(path.read_text(encoding="utf-8"), path), path)
    paths = (*_table_files(root / name), *_table_files(root / _COMMON))
    return Backend(spec=spec, files=tuple((_kind_of(file), file) for file in paths), shelf=shelf)


def _meant(name: str, root: Path) -> str:
    """The backends whose title has the name in it (`ascend` is npu), or those whose names are near."""
    titles = {
        marker.parent.name: str(tomllib.loads(marker.read_text(encoding="utf-8")).get("title", ""))
        for marker in _markers(root)
    }
    meant = [f"{own!r} ({title})" for own, title in titles.items() if name.casefold() in title.casefold().split()]
    return f"did you mean {' or '.join(sorted(meant))}?" if meant else did_you_mean(name, sorted(titles))


def siblings(backend: Backend) -> tuple[Backend, ...]:
    """The other backends beside one, by name."""
    own = next((path for _, path in backend.files if path.parent.name == backend.name), None)
    if own is None:
        return ()
    tables = Tables(root=own.parent.parent)
    return tuple(tables.backend(name) for name in tables.names if name != backend.name)


def _kind_of(path: Path) -> str:
    """The kind on the first line, where the canonical form has it; any other file is read to learn its own."""
    with path.open(encoding="utf-8") as file:
        match = re.fullmatch(r'kind = "([a-z-]+)"\n', file.readline())
    return match[1] if match else _load_table(path).kind.name


@lru_cache(maxsize=1024)
def _load_table(path: Path) -> Table:
    return require(*parse_table(path.read_text(encoding="utf-8"), path), path)


def _listed(root: Path) -> Files:
    """Folders of backends and platforms, and the common one, with the names of their files."""
    found: dict[str, tuple[str | None, tuple[str, ...]]] = {}
    for folder in sorted(os.listdir(root)):  # noqa: PTH208  names are all that is asked for
        try:
            names = sorted(name for name in os.listdir(f"{root}/{folder}") if name.endswith(".toml"))  # noqa: PTH208
        except NotADirectoryError:
            continue
        marker = next((name for name in _MARKERS if name in names), None)
        if marker is not None or folder == _COMMON:
            found[folder] = (marker, tuple(name for name in names if name not in _MARKERS))
    return found


def _table_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.toml") if path.name not in _MARKERS)


def _markers(root: Path) -> list[Path]:
    return sorted(path for name in _MARKERS for path in root.glob(f"*/{name}"))


def load_table_file(path: Path) -> Table:
    """One table file by its path; `BadInput` with everything wrong with it."""
    if not path.is_file():
        raise BadInput(f"{path} is not a file", fix="give the path of a table file")
    return _load_table(path)


def check_tables(root: Path) -> tuple[Fault, ...]:
    """Everything wrong in any file below `root`, canonical form included; reads each file afresh."""
    faults: list[Fault] = []
    for marker in _markers(root):
        spec, found = parse_backend_file(marker.read_text(encoding="utf-8"), marker)
        faults += found
        if spec is not None:
            faults += _check_cross(root, spec)
    for path in _all_tables(root):
        text = path.read_text(encoding="utf-8")
        table, found = parse_table(text, path)
        faults += found
        if table is not None and not found and canonical(table) != text:
            fix = "builder matrix check --write puts it into that form"
            faults.append(Fault(what="not in canonical form", where=Where(file=str(path)), fix=fix))
    return tuple(faults)


def rewrite_tables(root: Path) -> tuple[Path, ...]:
    """Put every faultless table below `root` into canonical form; returns the files that changed."""
    changed = []
    for path in _all_tables(root):
        text = path.read_text(encoding="utf-8")
        table, found = parse_table(text, path)
        if table is not None and not found and canonical(table) != text:
            path.write_text(canonical(table), encoding="utf-8")
            changed.append(path)
    return tuple(changed)


def _all_tables(root: Path) -> list[Path]:
    folders = [marker.parent for marker in _markers(root)]
    return [
        path
        for folder in sorted([*folders, root / _COMMON, root / _NODE_CLASSES, root / _ENGINES])
        for path in _table_files(folder)
    ]


def _check_cross(root: Path, spec: BackendSpec) -> list[Fault]:
    """What no single file can tell: sets name indexes and leads that backend.toml knows."""
    faults = []
    indexes = {index.name for index in spec.indexes}
    for path in _table_files(root / spec.name):
        table, _ = parse_table(path.read_text(encoding="utf-8"), path)
        if table is None or table.kind.name != "set":
            continue
        if table.lead is None:
            faults.append(Fault(what="a table of sets names no lead package", where=Where(file=str(path), key="lead")))
        elif table.role == "core" and table.lead not in spec.prefer:
            what = f"lead {table.lead!r} is not among prefer of backend.toml"
            faults.append(Fault(what=what, where=Where(file=str(path), key="lead")))
        for row in table.rows:
            index = row.text("index")
            if index is not None and index not in indexes:
                fix = did_you_mean(index, indexes)
                faults.append(Fault(what=f"backend.toml has no index {index!r}", where=row.where, fix=fix))
            if table.lead and table.lead not in row.packages():
                faults.append(Fault(what=f"a set without its lead {table.lead!r}", where=row.where))
    return faults
