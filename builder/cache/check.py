"""The laws of the tables of engine kinds, for `builder matrix check`."""

from __future__ import annotations

from pathlib import Path

from builder.cache.devices import DEVICE_VALUES
from builder.cache.forms import FORMS
from builder.cache.kinds import FOLDER
from builder.cache.rules import NEEDS_BY, RULES
from builder.cache.values import MODEL
from builder.errors import Fault, Where, did_you_mean
from builder.matrix.tables import Row, Table, parse_table

__all__ = ["check_engine_tables"]

NEVER = frozenset(
    {"HOME", "HOSTNAME", "USER", "LOGNAME", "PWD", "PATH", "TMPDIR", "XDG_CACHE_HOME", "MASTER_ADDR", "MASTER_PORT"}
)
"""Variables that say where and for whom, never what: no table may key them."""


def check_engine_tables(root: Path) -> tuple[Fault, ...]:
    """What the form of the files cannot tell: the words are those the code knows, and the laws hold.

    Every kind has the model as a hard property; a rule that depends on another property names one of the same table;
    defaults are spelled as their form spells them; what may cost something says what.
    """
    faults: list[Fault] = []
    for path in sorted((root / FOLDER).glob("*.toml")):
        table, found = parse_table(path.read_text(encoding="utf-8"), path)
        if table is not None and not found:
            faults += _faults(table)
    return tuple(faults)


def _faults(table: Table) -> list[Fault]:
    if table.kind.name != "engine-key":
        return [
            Fault(what=f"its kind is {table.kind.name}", where=Where(file=str(table.path)), fix='kind = "engine-key"')
        ]
    names = {row.text("property") for row in table.rows}
    faults = [fault for row in table.rows for fault in _row_faults(row, names)]
    models = [row for row in table.rows if row.text("group") == "model"]
    if [(row.text("property"), row.text("class"), row.text("form")) for row in models] != [(MODEL, "hard", "digest")]:
        what = "an engine kind has one row of group model: property model, class hard, form digest"
        faults.append(Fault(what=what, where=Where(file=str(table.path), key="rows")))
    return faults


def _row_faults(row: Row, names: set[str | None]) -> list[Fault]:
    def fault(what: str, fix: str = "") -> None:
        faults.append(Fault(what=what, where=row.where, fix=fix))

    faults: list[Fault] = []
    rule, form, node, by, default = (row.text(one) for one in ("rule", "form", "node", "by", "default"))
    for word, known, called in (
        (rule, RULES, "rule"),
        (form or "text", FORMS, "form"),
        (node, DEVICE_VALUES, "node value"),
    ):
        if word is not None and word not in known:
            fault(f"unknown {called} {word!r}", did_you_mean(word, known))
    if by is not None and by not in names:
        fault(f"depends on {by!r}, which is no property of this kind")
    if (rule in NEEDS_BY) != (by is not None):
        fault(f"rule {rule} {'names' if by else 'lacks'} the property it depends on", "by = …")
    if default is not None and (form or "text") in FORMS:
        try:
            spelled = FORMS[form or "text"](default)
        except ValueError as error:
            fault(f"default {default!r} is not of form {form}: {error}")
        else:
            if spelled != default:
                fault(f"default {default!r} is spelled {spelled!r}")
    if row.text("class") == "soft" and row.text("cost") is None:
        fault("a soft property does not say what a difference costs", "cost = …")
    if row.text("group") == "env" and (default is not None or row.text("property") in NEVER):
        fault(
            "an environment variable that is not set is empty; names of hosts, users, paths and ports are never keyed"
        )
    return faults
