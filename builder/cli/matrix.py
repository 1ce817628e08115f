"""`builder matrix`: the compatibility tables, checked, shown, asked and solved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.console import Console, shared_options
from builder.names import GFX_OVERRIDE

if TYPE_CHECKING:
    from builder.matrix.load import Backend, Tables
    from builder.matrix.question import Question
    from builder.matrix.tables import Row, Table
    from builder.matrix.values import Explanation, RuleVerdict, Solution
    from builder.node import NodeClass

__all__ = ["command"]

_OVERRIDE = GFX_OVERRIDE.lower().replace("_", "-")
_EXIT = {"supported": 0, "unsupported": 1, "unknown": 4}

_backend = click.option("--backend", required=True, help="Backend, e.g. cuda.")
_tables = click.option(
    "--tables",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    help="Folder of tables [default: those of this installation].",
)


@click.group("matrix")
def command() -> None:
    """Compatibility tables: check, list, show, explain, solve."""


def _load(root: Path | None) -> Tables:
    import os

    from builder.matrix import load_tables
    from builder.store import default_store

    return load_tables(root, default_store(os.environ))


@command.command("check")
@shared_options
@_tables
@click.option("--write", is_flag=True, help="Put faultless tables into canonical form.")
def _check(console: Console, tables: Path | None, write: bool) -> int:
    """Lint all tables: schema, laws, sources, canonical form, node classes, engine kinds."""
    from builder import resources
    from builder.cache.check import check_engine_tables
    from builder.matrix.load import check_tables, rewrite_tables
    from builder.node.classes import check_node_classes

    root = tables or resources.matrices_dir()
    if write:
        for path in rewrite_tables(root):
            console.note(f"rewrote {path}")
    faults = (*check_tables(root), *check_node_classes(root), *check_engine_tables(root))
    problems = [
        {
            "file": fault.where.file if fault.where else "",
            "row": (fault.where.key or "") if fault.where else "",
            "line": fault.where.line if fault.where else None,
            "what": fault.what,
            "fix": fault.fix,
        }
        for fault in faults
    ]
    verdict = "failed" if problems else "ok"
    document = {"schema": "builder/matrix-check/1", "verdict": verdict, "problems": problems}
    console.document(document, lambda: "\n".join(map(str, faults)) or f"{console.verdict('ok')}: {root}")
    return 1 if problems else 0


@command.command("list")
@shared_options
@_tables
@click.option("--backend", default=None, help="Backend [default: all].")
def _list(console: Console, tables: Path | None, backend: str | None) -> int:
    """List the tables with the number of their rows and their sources."""
    from builder.cli.tabular import columns

    loaded = _load(tables)
    chosen = [loaded.backend(backend)] if backend else [loaded.backend(name) for name in loaded.names]
    rows = [
        {
            "backend": one.name,
            "table": table.name,
            "kind": table.kind.name,
            "title": table.title,
            "rows": len(table.rows),
            "sources": sorted({row.source.text for row in table.rows}),
        }
        for one in chosen
        for table in one.tables
    ]
    document = {"schema": "builder/matrix-list/1", "verdict": "ok", "rows": rows}
    keys = ("backend", "table", "kind", "rows", "title")
    console.document(document, lambda: columns(keys, [[str(row[key]) for key in keys] for row in rows]))
    return 0


@command.command("show")
@shared_options
@_tables
@_backend
@click.option("--table", "name", default=None, help="One table [default: all].")
def _show(console: Console, tables: Path | None, backend: str, name: str | None) -> int:
    """Show the rows, each with its source."""
    from builder.errors import BadInput, did_you_mean

    loaded = _load(tables).backend(backend)
    names = [table.name for table in loaded.tables]
    if name is not None and name not in names:
        raise BadInput(f"backend {backend} has no table {name!r}", fix=did_you_mean(name, names))
    chosen = [table for table in loaded.tables if name in (None, table.name)]
    rows = [_row_document(table, row) for table in chosen for row in table.rows]
    document = {"schema": "builder/matrix-show/1", "verdict": "ok", "backend": backend, "rows": rows}
    console.document(document, lambda: "\n".join(_table_text(table) for table in chosen))
    return 0


def _row_document(table: Table, row: Row) -> dict[str, Any]:
    cells = {key: _plain(value) for key, value in row.cells.items()}
    return {
        "table": table.name,
        "kind": table.kind.name,
        "cells": cells,
        "source": row.source.text,
        "checked": row.source.checked.isoformat(),
        "confidence": row.confidence,
        "note": row.note,
    }


def _plain(value: object) -> object:
    if isinstance(value, (str, bool, int)):
        return value
    return list(value) if isinstance(value, tuple) else dict(value)  # type: ignore[call-overload]


def _table_text(table: Table) -> str:
    from builder.cli.tabular import columns

    sources = list(dict.fromkeys(row.source for row in table.rows))
    lines = [
        [*(_cell_text(row.cells.get(column)) for column in table.columns), f"[{sources.index(row.source) + 1}]"]
        for row in table.rows
    ]
    notes = "\n".join(f"  [{n}] {source.text} (checked {source.checked})" for n, source in enumerate(sources, 1))
    return f"{table.name}: {table.title}\n{columns((*table.columns, 'source'), lines)}\n{notes}\n"


def _cell_text(value: object) -> str:
    from builder.matrix.versions import bound

    if value is None:
        return "?"
    if isinstance(value, tuple):
        return " ".join(value) or "none"
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (bool, int)) else " ".join(f"{k}{bound(v)}" for k, v in dict(value).items())  # type: ignore[call-overload]


@command.command("explain")
@shared_options
@_tables
@_backend
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="One part of the combination; repeatable.")
@click.option("--node-class", default=None, help="Take the machine's parts from a node class.")
@click.option(
    "--variants",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=None,
    help="A variant.json (PEP 817, draft): say which builds fit, as notes.",
)
def _explain(
    console: Console,
    tables: Path | None,
    backend: str,
    settings: tuple[str, ...],
    node_class: str | None,
    variants: Path | None,
) -> int:
    """Say whether a combination is supported.

    Keys: toolkit, driver, firmware, device, arch (a device target, or x86_64 or aarch64), machine (x86_64 or aarch64),
    os, kernel, python, libc, and any framework by its distribution name; further what was read from an image, an
    artefact or a log: image, wheel, feature, brand, nvidia-require-cuda, neff-target, neff-features and the like. Parts
    that are not named are not judged.
    """
    from dataclasses import replace

    from builder.matrix import explain, parse_question

    loaded = _load(tables).backend(backend)
    node = _node(node_class, tables, backend) if node_class else None
    of_node = _node_parts(node) if node else {}
    parts = {**of_node, **_settings(settings)}
    question = parse_question(parts, loaded)
    if node and _OVERRIDE in of_node and question.settings[_OVERRIDE] == of_node[_OVERRIDE]:
        question = replace(question, override_of=node.name)
    answer = explain(loaded, question)
    notes = [*answer.notes, *(_variant_notes(variants, question, loaded) if variants else ())]
    document = {
        "schema": "builder/matrix-explain/1",
        "verdict": answer.verdict,
        "backend": backend,
        "set": parts,
        "rules": [_rule_document(rule) for rule in answer.rules],
        "needs": list(answer.needs),
        "notes": notes,
    }
    console.document(document, lambda: _explain_text(console, answer, notes))
    return _EXIT[answer.verdict]


def _settings(settings: tuple[str, ...]) -> dict[str, str]:
    from builder.errors import BadInput

    parts: dict[str, str] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        key, value = key.strip(), value.lstrip("=").strip()
        if not equals or not key:
            raise BadInput(f"--set {text!r}", why="not of the form KEY=VALUE", fix="e.g. --set toolkit=12.8")
        if key in parts:
            raise BadInput(f"--set {key} is given twice", fix="keep one")
        parts[key] = value
    return parts


def _node(name: str, tables: Path | None, backend: str) -> NodeClass:
    from builder.errors import BadInput
    from builder.node import node_class

    node = node_class(name, tables)
    if node.backend != backend:
        raise BadInput(
            f"node class {name} is of backend {node.backend}, not {backend}", fix=f"--backend {node.backend}"
        )
    return node


def _node_parts(node: NodeClass) -> dict[str, str]:
    parts = {
        "driver": node.driver,
        "firmware": node.firmware,
        "device": None if node.device_arch else node.device,
        "arch": node.device_arch,
        "machine": node.arch,
        _OVERRIDE: node.environment.get(GFX_OVERRIDE),
    }
    return {key: value for key, value in parts.items() if value is not None}


def _rule_document(rule: RuleVerdict) -> dict[str, str]:
    return {"rule": rule.rule, "verdict": rule.verdict, "why": rule.why, "source": rule.source, "fix": rule.fix}


def _variant_notes(path: Path, question: Question, backend: Backend) -> tuple[str, ...]:
    from builder.matrix.explain import with_target
    from builder.matrix.variants import explain_variants, parse_variants

    variants = parse_variants(path.read_text(encoding="utf-8"))
    return explain_variants(variants, with_target(backend, question), backend)


def _explain_text(console: Console, answer: Explanation, notes: list[str]) -> str:
    lines = [console.verdict(answer.verdict)]
    for rule in answer.rules:
        lines.append(f"  {console.verdict(rule.verdict)}  {rule.rule}: {rule.why}")
        lines.append(f"      source: {rule.source}")
        if rule.fix:
            lines.append(f"      fix:    {rule.fix}")
    if not answer.rules:
        lines.append("  no rule has anything to say about so little")
    lines += [f"  {text}" for text in (*notes, *answer.needs)]
    return "\n".join(lines)


@command.command("solve")
@shared_options
@_tables
@_backend
@click.option("--node-class", default=None, help="The machine it must run on.")
@click.option("--want", multiple=True, metavar="REQ", help="A requirement to satisfy, e.g. 'torch>=2.9'; repeatable.")
@click.option("--python", default=None, help="Python of the image, e.g. 3.12.")
@click.option("--arch", default="x86_64", show_default=True, help="Machine architecture.")
@click.option("--toolkit", default=None, help="Toolkit release to use.")
@click.option("--allow-unknown", is_flag=True, help="Let sets pass that no source decides.")
def _solve(
    console: Console,
    tables: Path | None,
    backend: str,
    node_class: str | None,
    want: tuple[str, ...],
    python: str | None,
    arch: str,
    toolkit: str | None,
    allow_unknown: bool,
) -> int:
    """List the coherent stacks, newest first, and why others were refused."""
    from packaging.requirements import InvalidRequirement, Requirement

    from builder.errors import BadInput
    from builder.matrix import parse_question, solve
    from builder.names import parse_arch
    from builder.node import node_class as node_class_named

    machine = parse_arch(arch)
    wants = []
    for text in want:
        try:
            wants.append(Requirement(text))
        except InvalidRequirement as error:
            raise BadInput(f"--want {text!r} is no requirement", why=str(error), fix="e.g. 'torch>=2.9'") from error
    loaded = _load(tables)
    named = {key: value for key, value in (("python", python), ("toolkit", toolkit)) if value is not None}
    asked = parse_question(named, loaded.backend(backend))
    solution = solve(
        loaded,
        backend=backend,
        python=asked.python,
        arch=machine,
        node_class=node_class_named(node_class, tables) if node_class else None,
        toolkit=asked.toolkit,
        want=wants,
        allow_unknown=allow_unknown,
    )
    verdict = _solution_verdict(solution)
    document = {
        "schema": "builder/matrix-solve/1",
        "verdict": verdict,
        "backend": backend,
        "stacks": [
            {
                "toolkit": stack.toolkit,
                "frameworks": dict(stack.frameworks),
                "python": stack.python,
                "base": stack.base,
                "archs": list(stack.archs),
                "constraints": list(stack.constraints),
                "indexes": [{"index": pin.index, "packages": list(pin.packages)} for pin in stack.indexes],
                "why": [{"cell": why.cell, "why": why.why, "source": why.source} for why in stack.why],
                "unknown": list(stack.unknown),
            }
            for stack in solution.stacks
        ],
        "refused": [
            {
                "set": refusal.name,
                "verdict": refusal.verdict,
                "rules": [_rule_document(rule) for rule in refusal.rules],
            }
            for refusal in solution.refused
        ],
        "not_judged": list(solution.not_judged),
    }
    console.document(document, lambda: _solve_text(console, loaded.backend(backend), solution))
    return _EXIT[verdict]


@command.command("refresh")
@shared_options
@_tables
@click.argument("generator")
@click.option("--from", "place", required=True, metavar="FILE|URL", help="The maker's source.")
@click.option("--origin", default=None, help="What to write as the source of new rows [default: the name of --from].")
@click.option("--checked", default=None, metavar="YYYY-MM-DD", help="Date of the check [default: today].")
@click.option("--write", is_flag=True, help="Take the changes into the table.")
def _refresh(
    console: Console,
    tables: Path | None,
    generator: str,
    place: str,
    origin: str | None,
    checked: str | None,
    write: bool,
) -> int:
    """Compare a maker's source with its table, and take in what is new.

    GENERATOR is one of torch-cuda, torch-rocm, rocm-members, cann-images, neuron-sdk, torch-xla, jax-tpu,
    torch-npu-wheels. Rows the source no longer has stay: what was true of a release stays true. A source too short to
    be true is refused.
    """
    import datetime as dt

    from builder import resources
    from builder.errors import BadInput, did_you_mean
    from builder.matrix.load import load_table_file
    from builder.matrix.refresh import GENERATORS, drift, read_source

    chosen = next((one for one in GENERATORS if one.name == generator), None)
    if chosen is None:
        names = [one.name for one in GENERATORS]
        raise BadInput(f"unknown generator {generator!r}", fix=did_you_mean(generator, names))
    try:
        date = dt.date.fromisoformat(checked) if checked else dt.datetime.now(dt.UTC).date()
    except ValueError as error:
        raise BadInput(f"--checked {checked}: not a date", fix="YYYY-MM-DD") from error
    table = load_table_file((tables or resources.matrices_dir()) / f"{chosen.table}.toml")
    text = read_source(place, offline=console.offline)
    found = drift(chosen, text, table, origin=origin or Path(place).name, checked=date)
    written = write and bool(found.changes)
    if written:
        table.path.write_text(found.text, encoding="utf-8")
    document = {
        "schema": "builder/matrix-refresh/1",
        "verdict": "changed" if found.changes else "ok",
        "generator": found.generator,
        "table": found.table,
        "changes": [
            {"key": list(one.key), "column": one.column, "old": one.old, "new": one.new} for one in found.changes
        ],
        "unseen": [list(key) for key in found.unseen],
        "written": written,
    }
    lines = [*map(str, found.changes), f"{found.table}: {len(found.changes)} changes"]
    console.document(document, lambda: "\n".join(lines))
    return 0


def _solution_verdict(solution: Solution) -> str:
    """Unknown only when letting unknown pass would give a stack."""
    if solution.stacks:
        return "supported"
    return "unknown" if any(refusal.verdict == "unknown" for refusal in solution.refused) else "unsupported"


def _solve_text(console: Console, backend: Backend, solution: Solution) -> str:
    lines = []
    for number, stack in enumerate(solution.stacks[:10]):
        frameworks = ", ".join(f"{name} {version}" for name, version in stack.frameworks.items())
        toolkit = f"{backend.spec.toolkit} {stack.toolkit or 'not known'}; " if backend.spec.toolkit else ""
        lines.append(f"{frameworks}; {toolkit}Python {stack.python}" + (f"; base {stack.base}" if stack.base else ""))
        if number == 0:
            lines += [f"    {why.cell}: {why.why} ({why.source})" for why in stack.why]
    if len(solution.stacks) > 10:
        lines.append(f"… {len(solution.stacks) - 10} older ones (--json lists all)")
    if not solution.stacks:
        lines.append(f"{console.verdict(_solution_verdict(solution))}: no stack fits")
    for refusal in solution.refused:
        lines.append(f"refused: {refusal.name} ({console.verdict(refusal.verdict)})")
        for rule in refusal.rules:
            lines.append(f"    {rule.rule}: {rule.why}" + (f"; fix: {rule.fix}" if rule.fix else ""))
    if solution.not_judged:
        lines.append(
            f"not judged: {', '.join(solution.not_judged)} (no table of {backend.name} says what goes with it)"
        )
    return "\n".join(lines)
