"""Whether one set of the tables answers the question of a solve: what is wanted, the toolkit, Python, machine, node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from builder.matrix.companions import companion
from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.devices import row_target
from builder.matrix.rules.driver import device_driver, driver_floor, driver_window, require_toolkit
from builder.matrix.rules.frameworks import python_fits
from builder.matrix.rules.members import meet
from builder.matrix.rules.runtime import hsa_override
from builder.matrix.sets import describe, set_tables, toolkit_agrees
from builder.matrix.tables import Row, Table
from builder.matrix.values import NodeFacts, RuleVerdict
from builder.matrix.versions import bound, is_exact, matches, sort_key
from builder.matrix.wants import Wants, cell_for, meets
from builder.names import GFX_OVERRIDE

__all__ = ["PYTHONS", "Goal", "Joined", "check", "join", "toolkit_of"]


PYTHONS = tuple(f"3.{minor}" for minor in range(30, 6, -1))
"""Pythons a stack may have, newest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """The question a solve answers."""

    backend: Backend
    python: str | None
    arch: str
    node: NodeFacts | None
    target: str | None
    """The node's own."""
    code_target: str | None
    """The target whose code is loaded there: the node's own, unless its operator overrides that."""
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
        agrees = toolkit_agrees(row, goal.toolkit)
        pinned = any(one.operator == "==" for one in goal.wants.get(table.lead or "", ()))  # whoever names both decides
        if agrees is None and not pinned and any(toolkit_agrees(other, goal.toolkit) for other in table.rows):
            why = f"no source says whether {title} {goal.toolkit} goes with {describe(row)}, and one does of others"
            fix = f"a set that is listed with {title} {goal.toolkit}, or --allow-unknown"
            return RuleVerdict(rule="toolkit", verdict="unknown", why=why, source=row.source.text, fix=fix)
        if agrees is not False:
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
    override = node.environment.get(GFX_OVERRIDE)
    question = Question(
        toolkit=toolkit,
        driver=node.driver,
        firmware=node.firmware,
        target=goal.target,
        machine=goal.arch,
        settings={"hsa-override-gfx-version": override} if override else {},
        override_of=node.name,
    )
    found: list[RuleVerdict | None] = []
    if "driver-floor" in goal.backend.kinds:
        found += [driver_floor(question, goal.backend), require_toolkit(question, goal.backend)]
    if "driver-window" in goal.backend.kinds:
        found.append(driver_window(question, goal.backend))
    found.append(device_driver(question, goal.backend))
    if goal.backend.spec.targets == "gfx":
        found.append(hsa_override(question, goal.backend))
    if goal.code_target is not None:
        found.append(row_target(goal.backend, row, goal.code_target, goal.arch))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Joined:
    """What stands beside a row in a stack."""

    rows: tuple[Row, ...]
    companions: Mapping[str, tuple[str, RuleVerdict]]
    """Packages that no set has: the cell, and what says that it goes with the rest."""
    misses: tuple[RuleVerdict, ...]
    """Of what is wanted, that which nothing fitting was found for."""


def join(goal: Goal, row: Row) -> Joined:
    """For each package that is wanted and not in this row, the newest row of its own table (or of its plug-in:
    vllm-ascend for vllm) that goes with this one, or the version that a table of releases or limits tells. A row that
    only names itself goes with nothing: it says nothing of what it needs."""
    joined: list[Row] = []
    companions: dict[str, tuple[str, RuleVerdict]] = {}
    misses: list[RuleVerdict] = []
    for name in goal.wants:
        if any(name in held.packages() for held in (row, *joined)):
            continue
        others = [
            (table.lead, one)
            for table in set_tables(goal.backend)
            if table.lead is not None and (table.lead == name or table.lead.startswith(f"{name}-"))
            for one in table.rows
            if name in one.packages()
        ]
        if not others:
            cell, told = companion(goal.backend, _beside(goal, (row, *joined)), name, goal.wants[name])
            if cell is None:
                misses.append(told)
            else:
                companions[name] = (cell, told)
            continue
        asked = [(lead, one) for lead, one in others if meets(one.packages()[name], goal.wants[name])]
        fitting = [(lead, one) for lead, one in asked if _together(goal, (row, *joined), one)]
        if fitting:
            joined.append(max(fitting, key=lambda item: sort_key(item[1].packages().get(item[0], "")))[1])
            continue
        sure = [(lead, one) for lead, one in asked if one.confidence != "uncertain"]
        _, nearest = max(sure or asked or others, key=lambda item: sort_key(item[1].packages().get(item[0], "")))
        misses.append(
            RuleVerdict(
                rule="companion",
                verdict="unsupported" if sure else "unknown",
                why=f"{describe(row)} does not go with {describe(nearest)}"
                if asked
                else f"no set has {name}{goal.wants[name]}; the newest known is {describe(nearest)}",
                source=nearest.source.text,
                fix=f"the versions {nearest.text('set')} names, or an image for each",
            )
        )
    return Joined(rows=tuple(joined), companions=companions, misses=tuple(misses))


def _beside(goal: Goal, rows: tuple[Row, ...]) -> Question:
    """A stack so far, as a question."""
    cells = {name: cell for row in rows for name, cell in row.packages().items() if is_exact(cell)}
    return Question(
        toolkit=rows[0].text("toolkit_release") or toolkit_of(goal, rows[0]),
        target=goal.target,
        machine=goal.arch,
        python=goal.python,
        packages=cells,
    )


def _together(goal: Goal, rows: tuple[Row, ...], other: Row) -> bool:
    """Whether a row can stand beside others in one image."""
    if other.confidence == "uncertain" and not goal.allow_unknown:
        return False
    shared = False
    for row in rows:
        for name, cell in other.packages().items():
            held = row.packages().get(name)
            if held is not None:
                shared = True
                if not (matches(held.partition("+")[0], (cell,)) if is_exact(held) else meet(held, cell)):
                    return False
        mine, theirs = row.text("toolkit"), other.text("toolkit")
        if theirs is not None and mine is not None:
            shared = True
            if not (matches(mine, (theirs,)) or toolkit_agrees(row, theirs) or toolkit_agrees(other, mine)):
                return False
    if any(name in goal.wants and not meets(cell, goal.wants[name]) for name, cell in other.packages().items()):
        return False
    if goal.python is not None:
        return shared and python_fits(other, goal.python) is not False
    return shared and any(all(python_fits(one, python) is not False for one in (*rows, other)) for python in PYTHONS)


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
