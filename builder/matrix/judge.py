"""Whether one set of the tables answers the question of a solve: what is wanted, the toolkit, Python, machine, node."""

from __future__ import annotations

from dataclasses import dataclass

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.devices import row_target
from builder.matrix.rules.driver import device_driver, driver_floor, driver_window, require_toolkit
from builder.matrix.rules.frameworks import python_fits
from builder.matrix.sets import describe, set_tables, toolkit_agrees
from builder.matrix.tables import Row, Table
from builder.matrix.values import NodeFacts, RuleVerdict
from builder.matrix.versions import bound, is_exact, matches, sort_key
from builder.matrix.wants import Wants, cell_for, meets

__all__ = ["Goal", "check", "join", "toolkit_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """The question a solve answers."""

    backend: Backend
    python: str | None
    arch: str
    node: NodeFacts | None
    target: str | None
    toolkit: str | None
    wants: Wants
    allow_unknown: bool


def check(goal: Goal, table: Table, row: Row) -> list[RuleVerdict]:
    """What the rules say about one row as a stack for the goal."""
    verdicts = [
        *_check_wants(goal, row),
        _check_toolkit(goal, table, row),
        _check_python(goal, row),
        _check_arch(goal, row),
        _check_evidence(row),
    ]
    if goal.node is not None:
        verdicts += _check_node(goal, row)
    return [verdict for verdict in verdicts if verdict is not None]


def _check_wants(goal: Goal, row: Row) -> list[RuleVerdict | None]:
    found: list[RuleVerdict | None] = []
    for name, bounds in goal.wants.items():
        if name not in row.packages():
            continue
        cell = cell_for(goal.backend, row, name, goal.arch)
        if not meets(cell, bounds, label=row.text("label")):
            found.append(
                RuleVerdict(
                    rule="want",
                    verdict="unsupported",
                    why=f"{name}{bounds} is asked for; this set has {name} {cell}",
                    source=row.source.text,
                    fix=f"ask for {name}{bound(cell)}",
                )
            )
    return found


def _check_toolkit(goal: Goal, table: Table, row: Row) -> RuleVerdict | None:
    title = goal.backend.spec.toolkit
    if title is None:
        return None
    if goal.toolkit is not None:
        if toolkit_agrees(row, goal.toolkit) is not False:
            return None
        return RuleVerdict(
            rule="toolkit",
            verdict="unsupported" if "toolkit" in table.closed else "unknown",
            why=f"{title} {goal.toolkit} is asked for; {describe(row)} is what the row says",
            source=row.source.text,
            fix=f"toolkit {row.text('toolkit')}",
        )
    if row.text("toolkit") is not None:
        return None
    return RuleVerdict(
        rule="toolkit",
        verdict="unknown",
        why=f"no source says which {title} goes with {describe(row)}" + (f" ({row.note})" if row.note else ""),
        source=row.source.text,
        fix="name the toolkit (toolkit = … of the backend), or --allow-unknown",
    )


def _check_python(goal: Goal, row: Row) -> RuleVerdict | None:
    if goal.python is None:
        return None
    fits = python_fits(row, goal.python)
    if fits:
        return None
    offered = ", ".join(row.texts("python") or (row.text("requires_python") or "not known",))
    return RuleVerdict(
        rule="framework-python",
        verdict="unknown" if fits is None else "unsupported",
        why=f"{describe(row)} has Python {offered}; {goal.python} is asked for",
        source=row.source.text,
        fix=f"a Python among {offered}" if fits is False else "--allow-unknown",
    )


def _check_arch(goal: Goal, row: Row) -> RuleVerdict | None:
    """No list of architectures is taken for x86_64 alone: every maker has wheels there, not every one elsewhere."""
    arches = row.texts("arch")
    if goal.arch in (arches or ("x86_64",)):
        return None
    unsure = arches is None or goal.arch in (row.texts("arch_unsure") or ())
    return RuleVerdict(
        rule="framework-machine",
        verdict="unknown" if unsure else "unsupported",
        why=f"{describe(row)}: " + (f"wheels for {', '.join(arches)} only" if arches else "architectures not listed"),
        source=row.source.text,
        fix="arch x86_64" if arches else "--allow-unknown",
    )


def _check_evidence(row: Row) -> RuleVerdict | None:
    if row.confidence != "uncertain":
        return None
    why = f"{describe(row)} is uncertain" + (f": {row.note}" if row.note else "")
    return RuleVerdict(
        rule="evidence", verdict="unknown", why=why, source=row.source.text, fix="another set, or --allow-unknown"
    )


def _check_node(goal: Goal, row: Row) -> list[RuleVerdict | None]:
    node = goal.node
    if node is None:
        return []
    toolkit = row.text("toolkit_release") or toolkit_of(goal, row)
    question = Question(
        toolkit=toolkit, driver=node.driver, firmware=node.firmware, target=goal.target, machine=goal.arch
    )
    found: list[RuleVerdict | None] = []
    if "driver-floor" in goal.backend.kinds:
        found += [driver_floor(question, goal.backend), require_toolkit(question, goal.backend)]
    if "driver-window" in goal.backend.kinds:
        found.append(driver_window(question, goal.backend))
    found.append(device_driver(question, goal.backend))
    if goal.target is not None:
        found.append(row_target(goal.backend, row, goal.target, goal.arch))
    return found


def join(goal: Goal, row: Row) -> tuple[tuple[Row, ...], list[RuleVerdict]]:
    """The newest companion row for each companion that is wanted and goes with this row; and what had none."""
    joined: list[Row] = []
    misses: list[RuleVerdict] = []
    for table in set_tables(goal.backend, "companion"):
        lead = table.lead or ""
        if lead not in goal.wants or lead in row.packages():
            continue
        asked = [other for other in table.rows if meets(other.packages()[lead], goal.wants[lead])]
        fitting = [other for other in asked if _together(goal, row, other)]
        if fitting:
            joined.append(max(fitting, key=lambda other: sort_key(other.packages()[lead])))
            continue
        nearest = max(asked or table.rows, key=lambda other: sort_key(other.packages()[lead]))
        misses.append(
            RuleVerdict(
                rule="companion",
                verdict="unsupported" if asked else "unknown",
                why=f"{describe(row)} does not go with {describe(nearest)}",
                source=nearest.source.text,
                fix=f"the versions {nearest.text('set')} names",
            )
        )
    return tuple(joined), misses


def _together(goal: Goal, row: Row, other: Row) -> bool:
    for name, cell in other.packages().items():
        held = row.packages().get(name)
        if held is not None and not (is_exact(held) and matches(held.partition("+")[0], (cell,))):
            return False
        if name in goal.wants and not meets(cell, goal.wants[name]):
            return False
    mine, theirs = row.text("toolkit"), other.text("toolkit")
    if theirs is not None and mine is not None and not (matches(mine, (theirs,)) or toolkit_agrees(row, theirs)):
        return False
    return goal.python is None or python_fits(other, goal.python) is not False


def toolkit_of(goal: Goal, row: Row) -> str | None:
    """The toolkit of a row: its cell; for a pattern the release asked for, or the newest release known that fits."""
    cell = row.text("toolkit")
    if cell is None or goal.backend.spec.toolkit is None:
        return goal.toolkit
    if is_exact(cell):
        return cell
    if goal.toolkit is not None and is_exact(goal.toolkit):
        return goal.toolkit
    known = {
        text for kind in ("set", "release") for other in goal.backend.rows(kind) if (text := other.text("toolkit"))
    }
    return max((text for text in known if is_exact(text) and matches(text, (cell,))), key=sort_key, default=None)
