"""Versions that a table of sets does not list, while another table speaks of them under that very number.

A limit, the metadata of another package or the set of a third one can name a version for which the package's own
table has no row: TensorRT stands only in limits, `jax 0.4.29` only in what torch-xla asks for, a post-release of
torch-npu only in the set of a vllm-ascend. Such a version is known, and what those tables say of it decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from builder.matrix.conditions import holds
from builder.matrix.grammar import KEYS, alternatives
from builder.matrix.load import Backend
from builder.matrix.question import Question, family_name
from builder.matrix.sets import agrees, set_tables, toolkit_agrees
from builder.matrix.tables import Row, Table

__all__ = ["spoken_of", "vouched"]


_PARTS = ("cudnn", "nccl", "triton")


def vouched(question: Question, backend: Backend, *, apart: Table | None = None) -> dict[str, Row]:
    """Packages as asked that another table knows and accepts, with the row that does; `apart` is the one that asks.

    Where a toolkit is named, only what speaks of toolkits vouches: wheels for a Python say nothing of a toolkit.
    """
    found: dict[str, Row] = {}
    for name, row in (
        *_by_limits(question, backend),
        *_by_pins(question, backend),
        *_by_sets(question, backend, apart),
    ):
        found.setdefault(name, row)
    return found


def _named(text: str) -> bool:
    """Whether a condition names versions rather than "anything from here on", which would know releases to come."""
    return all(
        part.startswith(("==", "~=")) or part[0].isdigit() or ("<" in part and ">" in part)
        for part in alternatives(text)
        if not part.startswith("not ")
    )


def _by_limits(question: Question, backend: Backend) -> Iterator[tuple[str, Row]]:
    for row in backend.rows("limit"):
        when, allow = row.mapping("when"), row.mapping("allow")
        if row.text("verdict") == "unsupported" or row.confidence == "uncertain":
            continue
        if question.toolkit is not None and not {"toolkit", "driver"} & {*when, *allow}:
            continue
        if not all(holds(question, key, text) for key, text in when.items()):
            continue
        answers = {key: holds(question, key, text) for key, text in allow.items()}
        if False in answers.values() or (allow and not any(answers.values())):
            continue
        yield from _subjects(question, when, row)
        yield from _subjects(question, {key: text for key, text in allow.items() if answers[key]}, row)


def _subjects(question: Question, conditions: Mapping[str, str], row: Row) -> Iterator[tuple[str, Row]]:
    for key, text in conditions.items():
        if key not in KEYS and _named(text):
            yield from ((name, row) for name in question.packages if key in (name, family_name(name)))


def _by_pins(question: Question, backend: Backend) -> Iterator[tuple[str, Row]]:
    for row in backend.rows("pins"):
        subject = row.text("package") or ""
        if subject not in question.packages or not holds(question, subject, row.text("version") or ""):
            continue
        for name, cell in row.mapping("requires").items():
            if name in question.packages and _named(cell) and holds(question, name, cell):
                yield name, row


def _by_sets(question: Question, backend: Backend, apart: Table | None) -> Iterator[tuple[str, Row]]:
    """Rows of other tables that are the question: their lead is asked for, and nothing asked says otherwise."""
    for table in set_tables(backend):
        if table is apart or table.lead is None or table.lead not in question.packages:
            continue
        for row in table.rows:
            members = [name for name in question.packages if name in row.packages()]
            if (
                table.lead in members
                and row.confidence != "uncertain"
                and all(agrees(backend, row, name, question.packages[name]) for name in members)
                and (question.toolkit is None or toolkit_agrees(row, question.toolkit))
            ):
                yield from ((name, row) for name in members if name != table.lead)


def spoken_of(question: Question, backend: Backend, rows: Collection[Row]) -> frozenset[str]:
    """Packages some rule says something of: those of sets, limits, metadata, releases and builds that apply."""
    leads = {table.lead for table in set_tables(backend)}
    led = any(name in leads for name in question.packages)
    found = leads | {name for row in rows for name in row.packages()}
    for table in set_tables(backend):
        if table.lead is not None and table.lead in question.packages:
            own = [row for row in table.rows if agrees(backend, row, table.lead, question.packages[table.lead])]
            found |= {name for row in own or table.rows for name in row.packages()}
    if any(row.text(part) for row in rows for part in _PARTS):
        found |= {name for name in question.packages if family_name(name) in _PARTS}
    for row in backend.rows("limit"):
        when, allow = row.mapping("when"), row.mapping("allow")
        if all(holds(question, key, text) for key, text in when.items()) and (
            row.text("verdict") or any(holds(question, key, text) is not None for key, text in allow.items())
        ):
            found |= {*when, *allow}
    for row in backend.rows("pins"):
        subject = row.text("package") or ""
        if subject in question.packages or (question.toolkit is not None and subject.endswith("-toolkit")):
            found |= {subject, *row.mapping("requires")}
    for table in backend.of_kind("release"):
        found |= {name for row in table.rows for name in row.mapping("members")}
    found |= {row.text("package") for row in backend.rows("forward-compat")} | {"cuda-compat"}
    return frozenset(
        name
        for name in question.packages
        if name in found or family_name(name) in found or (not led and _in_sets(name, backend))
    )


def _in_sets(name: str, backend: Backend) -> bool:
    """Whether a set names a package that leads none: asked alone, the rule on sets answers for it."""
    return any(name in row.packages() for table in set_tables(backend) for row in table.rows)
