"""Engine kinds: which properties make an engine of each kind valid. Read from matrices/engines, one table a kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from builder import resources
from builder.cache.devices import DEVICE_VALUES
from builder.cache.forms import FORMS
from builder.cache.rules import RULES
from builder.cache.values import MODEL, Group, Hold
from builder.errors import BadInput, Fault, Where, did_you_mean
from builder.matrix.load import load_table_file
from builder.matrix.tables import Row, Table, parse_table

__all__ = ["EngineKind", "Property", "check_engine_tables", "engine_kind", "kind_names", "kind_of_table"]

_FOLDER = "engines"
_GROUPS: tuple[Group, ...] = ("model", "option", "builder", "device", "env", "format")
_HOLDS: tuple[Hold, ...] = ("hard", "soft", "forgotten")


@dataclass(frozen=True, kw_only=True, slots=True)
class Property:
    """One row: a thing that an engine's validity depends on."""

    name: str
    group: Group
    hold: Hold
    rule: str
    """Name of builder.cache.rules.RULES."""
    form: str
    """Name of builder.cache.forms.FORMS."""
    by: str | None
    """The property the rule looks at as well."""
    limits: tuple[str, ...]
    ignore: tuple[str, ...]
    """Flags that change no result and are left out of the value."""
    default: str | None
    """The value when none is stated; None: it is not known then."""
    node: str | None
    """Which value of a node class it is (builder.cache.devices); None when a node class does not tell."""
    why: str
    cost: str
    source: str

    @property
    def decides(self) -> bool:
        """Whether a difference can make an engine unusable."""
        return self.hold != "soft"

    @property
    def required(self) -> bool:
        """Whether an engine cannot be kept without it; what only the header of the artefact tells may be unreadable."""
        return self.decides and self.group != "format" and self.default is None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EngineKind:
    """One kind of engine. Compared by identity: each is loaded once."""

    name: str
    title: str
    properties: Mapping[str, Property]
    """By name, in the order of the table."""

    @property
    def environment(self) -> tuple[str, ...]:
        """Environment variables that count, and no other."""
        return tuple(one.name for one in self.properties.values() if one.group == "env")


def kind_names(root: Path | None = None) -> tuple[str, ...]:
    """All kinds, sorted."""
    return tuple(sorted(path.stem for path in _files(root or resources.matrices_dir())))


def engine_kind(name: str, root: Path | None = None) -> EngineKind:
    """One kind; `BadInput` with the closest names when there is none."""
    return _load(name, root or resources.matrices_dir())


@lru_cache(maxsize=64)
def _load(name: str, root: Path) -> EngineKind:
    path = root / _FOLDER / f"{name}.toml"
    if path not in _files(root):
        raise BadInput(f"unknown engine kind {name!r}", fix=did_you_mean(name, kind_names(root)))
    return kind_of_table(load_table_file(path))


def _files(root: Path) -> list[Path]:
    return sorted((root / _FOLDER).glob("*.toml"))


def kind_of_table(table: Table) -> EngineKind:
    """The kind that a table describes; `BadInput` when its words are not those of the rules."""
    faults = _faults(table)
    if faults:
        raise BadInput(f"{table.path} describes no engine kind", faults=tuple(faults), fix="builder matrix check")
    return EngineKind(
        name=table.name,
        title=table.title,
        properties=MappingProxyType({one.name: one for one in map(_property, table.rows)}),
    )


def _property(row: Row) -> Property:
    return Property(
        name=row.text("property") or "",
        group=next(group for group in _GROUPS if group == row.text("group")),
        hold=next(hold for hold in _HOLDS if hold == row.text("class")),
        rule=row.text("rule") or "",
        form=row.text("form") or "text",
        by=row.text("by"),
        limits=row.texts("limits") or (),
        ignore=row.texts("ignore") or (),
        default="" if row.text("group") == "env" else row.text("default"),
        node=row.text("node"),
        why=row.text("why") or "",
        cost=row.text("cost") or "",
        source=row.source.text,
    )


def check_engine_tables(root: Path) -> tuple[Fault, ...]:
    """What the form of the files cannot tell: the words are those the code knows, and the laws hold.

    Every kind has the model as a hard property; a rule that depends on another property names one of the same table;
    defaults are spelled as their form spells them; what may cost something says what.
    """
    faults: list[Fault] = []
    for path in _files(root):
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
    if (rule in ("version-compatible", "hardware-compatible", "device-listed")) != (by is not None):
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


NEVER = frozenset(
    {"HOME", "HOSTNAME", "USER", "LOGNAME", "PWD", "PATH", "TMPDIR", "XDG_CACHE_HOME", "MASTER_ADDR", "MASTER_PORT"}
)
"""Variables that say where and for whom, never what: no table may key them."""
