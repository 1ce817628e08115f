"""How fast the tables are read, asked and solved, and how that grows when they are ten times as large.

    python bench/matrix.py [--rounds N] [--write]

Processor time, so that a busy machine distorts it less; each figure is the best of the rounds. The larger tables are
made from the real ones: every set of a backend nine times more, under other versions. `--write` puts the figures into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

from packaging.version import Version
from report import conditions, write_section

from builder import resources
from builder.matrix import Backend, Tables, explain, load_tables, parse_question, solve
from builder.matrix.canonical import canonical
from builder.matrix.load import load_table_file
from builder.matrix.tables import Row, Table, parse_table, require
from builder.store import Store

LARGEST = "cuda"
QUESTION = {
    "toolkit": "12.8",
    "driver": "550.54.14",
    "torch": "2.9.1",
    "device": "H100",
    "python": "3.12",
    "os": "ubuntu 22.04",
}
TARGETS = {
    "all tables, cold": 150,
    "all tables, kept": 25,
    "one explain": 5,
    "one solve": 300,
}


def best(rounds: int, action: Callable[[], object]) -> float:
    """Milliseconds of processor time of the fastest round.

    What earlier rounds left behind is put out of the collector's sight: a new process has no such thing either.
    """
    seconds = []
    for _ in range(rounds):
        gc.collect()
        gc.freeze()
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds) * 1000


def read_all(root: Path) -> int:
    """Parse and check every table file; returns how many rows there are."""
    paths = [path for path in root.glob("*/*.toml") if path.name not in ("backend.toml", "platform.toml")]
    return sum(len(require(*parse_table(path.read_text(encoding="utf-8"), path), path).rows) for path in paths)


def read_kept(root: Path, store: Store) -> int:
    """Every table of every backend, from the store."""
    tables = load_tables(root, store)
    return sum(len(table.rows) for name in tables.names for table in tables.backend(name).tables)


def ask(backend: Backend) -> None:
    """One question that most rules speak to."""
    explain(backend, parse_question(QUESTION, backend))


def tenfold(root: Path, folder: Path) -> Path:
    """A copy of the tables in which each set of the largest backend stands ten times."""
    grown = folder / "matrices"
    shutil.copytree(root, grown)
    for path in sorted((grown / LARGEST).glob("*.toml")):
        if path.name == "backend.toml":
            continue
        table = load_table_file(path)
        if table.kind.name == "set":
            path.write_text(canonical(grow(table)), encoding="utf-8")
    return grown


def grow(table: Table) -> Table:
    """Nine more of each row, with the major version raised."""
    rows = [copied(row, number) for row in table.rows for number in range(10)]
    return dataclasses.replace(table, rows=tuple(rows))


def copied(row: Row, number: int) -> Row:
    """A row under versions nobody has; the first is the row itself."""
    if not number:
        return row
    packages = {name: raised(cell, number) for name, cell in row.packages().items()}
    cells = {**row.cells, "set": f"{row.text('set')}-x{number}", "packages": MappingProxyType(packages)}
    return dataclasses.replace(row, cells=MappingProxyType(cells))


def raised(cell: str, number: int) -> str:
    """`2.13.0+cu130` → `102.13.0+cu130`; bounds and patterns stay."""
    if not cell[0].isdigit() or "*" in cell:
        return cell
    version = Version(cell)
    release = ".".join(map(str, (version.major + 100 * number, *version.release[1:])))
    return release + (f"+{version.local}" if version.local else "")


def measure(root: Path, rounds: int, scratch: Path) -> dict[str, float]:
    """The figures of one set of tables."""
    store = Store(scratch)
    load_tables(root, store)
    backend = load_tables(root).backend(LARGEST)
    ask(backend)
    solve(Tables(root=root), backend=LARGEST)
    return {
        "all tables, cold": best(rounds, lambda: read_all(root)),
        "all tables, kept": best(rounds, lambda: read_kept(root, store)),
        "one explain": best(rounds, lambda: ask(backend)),
        "one solve": best(rounds, lambda: solve(Tables(root=root), backend=LARGEST)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    root = resources.matrices_dir()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = read_all(root)
        now = measure(root, options.rounds, folder / "store")
        grown_root = tenfold(root, folder)
        grown_rows = read_all(grown_root)
        grown = measure(grown_root, options.rounds, folder / "grown")
    sets = sum(len(table.rows) for table in load_tables(root).backend(LARGEST).of_kind("set"))
    sizes = f"{rows} rows in all, {sets} sets of {LARGEST}; the larger tables have {grown_rows} rows, {10 * sets} sets"
    lines = [
        f"{conditions()}; processor time, best of {options.rounds} rounds, load {load:.0f}; {sizes}.",
        "",
        "| what | ms | target | ms with ten times the sets |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {what} | {value:.1f} | ≤ {TARGETS[what]} | {grown[what]:.1f} |" for what, value in now.items()),
    ]
    print("\n".join(lines))
    if options.write:
        write_section("matrix", "\n".join(lines))


if __name__ == "__main__":
    main()
