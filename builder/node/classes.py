"""Node classes by name, from matrices/nodeclasses, or from a class file of the user's own."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from builder import resources
from builder.errors import BadInput, Fault, Where, did_you_mean
from builder.matrix.canonical import canonical
from builder.matrix.load import load_table_file
from builder.matrix.tables import Row, parse_table
from builder.names import ARCHES
from builder.node.values import NodeClass

__all__ = ["check_node_classes", "class_file_text", "load_node_classes", "node_class"]


def load_node_classes(root: Path | None = None) -> tuple[NodeClass, ...]:
    """All known classes, by backend and name."""
    return _load(root or resources.matrices_dir())


@lru_cache(maxsize=8)
def _load(root: Path) -> tuple[NodeClass, ...]:
    found = [node for path in sorted((root / "nodeclasses").glob("*.toml")) for node in _of_file(path)]
    return tuple(sorted(found, key=lambda node: (node.backend, node.name)))


def _of_file(path: Path) -> list[NodeClass]:
    table = load_table_file(path)
    if table.kind.name != "nodeclass":
        raise BadInput(f"{path} holds no node classes", why=f"its kind is {table.kind.name}", fix='kind = "nodeclass"')
    return [_of_row(row) for row in table.rows]


_LOADER = re.compile(r"LD_|PATH$|PYTHON")
"""Variables that change which files are loaded: a proof reads those of the image."""


def _env(row: Row) -> tuple[str, ...]:
    """The environment of a class; `BadInput` for what is no variable, or would make a proof worthless."""
    items = row.texts("env") or ()
    for item in items:
        name, equals, _ = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise BadInput(f"env {item!r} of node class {row.text('name')}", why="not of the form NAME=VALUE")
        if _LOADER.match(name):
            raise BadInput(
                f"env {item!r} of node class {row.text('name')}",
                why=f"{name} decides which files a program loads, and a proof reads that from the image",
                fix="set it in the image: env of builder.toml",
            )
    return items


def _of_row(row: Row) -> NodeClass:
    arch = next(arch for arch in ARCHES if arch == row.text("arch"))
    return NodeClass(
        name=row.text("name") or "",
        backend=row.text("backend") or "",
        arch=arch,
        device=row.text("device"),
        device_arch=row.text("device_arch"),
        device_count=row.count("device_count"),
        device_memory_mib=row.count("device_memory_mib"),
        driver=row.text("driver"),
        firmware=row.text("firmware"),
        kernel=row.text("kernel"),
        os=row.text("os"),
        glibc=row.text("glibc"),
        cpu_level=row.text("cpu_level"),
        runtime=row.text("runtime"),
        cdi=row.texts("cdi") or (),
        env=_env(row),
        source=row.source.text,
    )


def node_class(name: str, root: Path | None = None) -> NodeClass:
    """The class of that name, or the one class of a file when `name` ends in .toml (what `node probe` prints).

    `BadInput` with the closest names when there is none.
    """
    if name.endswith(".toml"):
        found = _of_file(Path(name))
        if len(found) != 1:
            raise BadInput(f"{name} holds {len(found)} node classes", fix="a class file holds one")
        return found[0]
    known = {node.name: node for node in load_node_classes(root)}
    if name not in known:
        raise BadInput(f"unknown node class {name!r}", fix=did_you_mean(name, known))
    return known[name]


def check_node_classes(root: Path) -> tuple[Fault, ...]:
    """What the form of the files cannot tell: names are unique over all files, backends exist."""
    faults: list[Fault] = []
    backends = {marker.parent.name for marker in root.glob("*/backend.toml")}
    seen: dict[str, Where] = {}
    for path in sorted((root / "nodeclasses").glob("*.toml")):
        table, _ = parse_table(path.read_text(encoding="utf-8"), path)
        for row in table.rows if table else ():
            name, backend = row.text("name") or "", row.text("backend") or ""
            if name in seen:
                faults.append(Fault(what=f"node class {name!r} is also in {seen[name]}", where=row.where))
            seen[name] = row.where
            if backend not in backends:
                fix = did_you_mean(backend, backends)
                faults.append(Fault(what=f"unknown backend {backend!r}", where=row.where, fix=fix))
    return tuple(faults)


def class_file_text(node: NodeClass, *, checked: str) -> str:
    """A class file that describes one node; `node_class` reads it back. `checked` is an ISO date."""
    values = {
        "name": node.name,
        "backend": node.backend,
        "arch": node.arch,
        "device": node.device,
        "device_arch": node.device_arch,
        "device_count": node.device_count,
        "device_memory_mib": node.device_memory_mib,
        "driver": node.driver,
        "firmware": node.firmware,
        "kernel": node.kernel,
        "os": node.os,
        "glibc": node.glibc,
        "cpu_level": node.cpu_level,
        "runtime": node.runtime,
        "cdi": node.cdi or None,
        "env": node.env or None,
    }
    known = {key: value for key, value in values.items() if value is not None}
    columns = ", ".join(f'"{key}"' for key in known)
    cells = "\n".join(f"{key} = {_toml(value)}" for key, value in known.items())
    text = (
        f'kind = "nodeclass"\ntitle = "Node class {node.name}"\nkey = ["name"]\ncolumns = [{columns}]\n'
        f"[sources.origin]\ntext = {_toml(node.source or 'written by hand')}\nchecked = {checked}\n"
        f'[[rows]]\n{cells}\nsource = "origin"\nconfidence = "measured"\n'
    )
    table, faults = parse_table(text, Path(f"{node.name}.toml"))
    if table is None or faults:
        raise ValueError(f"a node class that cannot be written: {faults}")
    return canonical(table)


def _toml(value: str | int | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return str(value) if isinstance(value, int) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
