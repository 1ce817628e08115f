"""`builder node`: node classes, and this machine as one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from builder.cli.console import Console, shared_options

if TYPE_CHECKING:
    from builder.node import NodeClass

__all__ = ["command"]


@click.group("node")
def command() -> None:
    """Node classes: probe this machine, list and show the known ones."""


@command.command("probe")
@shared_options
@click.option("--backend", default=None, help="What to look for [default: cuda where nvidia-smi is, else cpu].")
def _probe(console: Console, backend: str | None) -> int:
    """Describe this machine as a node class.

    Prints a class file: saved as NAME.toml, it is what --node-class NAME.toml takes. Environment variables
    BUILDER_NODE_DRIVER, BUILDER_NODE_DEVICE, … (one a field) win over what is found.
    """
    import datetime as dt

    from builder.node import probe
    from builder.node.classes import class_file_text

    node = probe(backend)
    today = dt.datetime.now(dt.UTC).date().isoformat()
    console.document(_document("probe", node), lambda: class_file_text(node, checked=today))
    return 0


@command.command("list")
@shared_options
@click.option("--backend", default=None, help="Backend [default: all].")
def _list(console: Console, backend: str | None) -> int:
    """List the known node classes."""
    from builder.cli.tabular import columns
    from builder.names import parse_backend
    from builder.node import load_node_classes

    if backend is not None:
        parse_backend(backend)
    nodes = [node for node in load_node_classes() if backend in (None, node.backend)]
    document = {"schema": "builder/node-list/1", "verdict": "ok", "nodes": [asdict(node) for node in nodes]}
    header = ("name", "backend", "arch", "device", "device_arch", "cpu_level")
    rows = [[str(getattr(node, key) or "") for key in header] for node in nodes]
    console.document(document, lambda: columns(header, rows))
    return 0


@command.command("show")
@shared_options
@click.argument("name")
def _show(console: Console, name: str) -> int:
    """Show one node class, by name or class file."""
    from builder.node import node_class

    node = node_class(name)
    cells = asdict(node)
    width = max(map(len, cells))
    text = "\n".join(f"{key.ljust(width)}  {_shown(value)}" for key, value in cells.items())
    console.document(_document("show", node), lambda: text)
    return 0


@command.command("labels")
@shared_options
@click.argument("name")
def _labels(console: Console, name: str) -> int:
    """Print the Kubernetes labels that select the nodes of a class."""
    from builder.node import labels, node_class

    node = node_class(name)
    found = labels(node)
    document = {**_document("labels", node), "labels": found}
    console.document(document, lambda: "\n".join(f"{key}={value}" for key, value in found.items()))
    return 0


def _document(name: str, node: NodeClass) -> dict[str, Any]:
    return {"schema": f"builder/node-{name}/1", "verdict": "ok", "node": asdict(node)}


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "not known"
    return "not known" if value is None else str(value)
