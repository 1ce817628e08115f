"""The coherent stacks for a backend, newest first, each with the reason of every cell; and why the others are not.

A row of a core table of sets is a candidate. It becomes a stack when every rule on it says supported, or when what is
not known may be let pass. Nothing is invented: a cell no source gives stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.errors import BadInput
from builder.matrix.bases import choose_base
from builder.matrix.companions import companion_packages
from builder.matrix.judge import PYTHONS, Goal, Joined, check, join, toolkit_of
from builder.matrix.load import Backend, Tables
from builder.matrix.products import device_row
from builder.matrix.question import known_packages
from builder.matrix.rules.frameworks import python_fits
from builder.matrix.sets import set_tables, targets_of
from builder.matrix.tables import Row, Table
from builder.matrix.targets import normalise_target
from builder.matrix.values import (
    IndexPin,
    NodeFacts,
    Reason,
    Refusal,
    RuleVerdict,
    Solution,
    Stack,
    Verdict,
    worst,
)
from builder.matrix.versions import bound, is_exact, sort_key
from builder.matrix.wants import cell_for, needs_label, parse_wants

__all__ = ["solve"]

_STATUS = {"stable": 0, None: 1, "experimental": 2, "extra": 3, "beta": 4, "preview": 4, "candidate": 5}
_NEAREST = 12
"""How many refused sets are worth telling."""


def solve(
    tables: Tables,
    *,
    backend: str,
    python: str | None = None,
    arch: str = "x86_64",
    node_class: NodeFacts | None = None,
    toolkit: str | None = None,
    want: Sequence[Requirement] = (),
    allow_unknown: bool = False,
    companions: bool = True,
) -> Solution:
    """All coherent stacks, newest first, and the refused sets, nearest miss first.

    `want` restricts the stacks to those whose packages satisfy it; names the tables do not know restrict nothing, and
    are told. `companions` are packages that only the lists of a release name (onnxruntime of a ROCm release): without
    them those restrict nothing either, as in a lock, where a plain build beside the framework is the project's choice.
    `toolkit` asks for one release and stands in for a cell no source gives. What is unknown refuses a set unless
    `allow_unknown`. The node's architecture wins over `arch`. `BadInput` for a question that cannot be.
    """
    known = tables.backend(backend)
    if node_class is not None and node_class.backend != backend:
        raise BadInput(
            f"node class {node_class.name} is of backend {node_class.backend}, not {backend}",
            fix=f"--backend {node_class.backend}, or another node class",
        )
    if toolkit is not None and known.spec.toolkit is None:
        raise BadInput(f"backend {backend} has no toolkit", fix="leave the toolkit out")
    machine = node_class.arch if node_class is not None else arch
    target = _node_target(known, node_class)
    judged = known_packages(known) | (companion_packages(known) if companions else frozenset())
    goal = Goal(
        backend=known,
        python=python,
        arch=machine,
        node=node_class,
        target=target,
        code_target=_code_target(known, node_class, target),
        toolkit=toolkit,
        wants=parse_wants(want, python=python, arch=machine, known=judged),
        allow_unknown=allow_unknown,
    )
    stacks: list[tuple[tuple[bool, bool], Stack]] = []
    refused: list[Refusal] = []
    for table, row in _candidates(goal):
        joined = join(goal, row)
        verdicts = [*joined.misses, *check(goal, table, row)]
        verdict = worst(("supported", *(found.verdict for found in verdicts)))
        if verdict == "supported" or (verdict == "unknown" and allow_unknown):
            # What a source vouches for goes before what was let pass, however new that is.
            let_pass = (verdict == "unknown", toolkit is not None and row.text("toolkit") is None)
            stacks.append((let_pass, _stack(goal, row, joined, tuple(verdicts))))
        else:
            against = tuple(found for found in verdicts if found.verdict != "supported")
            refused.append(Refusal(name=row.text("set") or "", verdict=verdict, rules=against))
    stacks.sort(key=lambda item: item[0])
    return Solution(
        stacks=tuple(stack for _, stack in stacks),
        refused=_nearest(refused, asked={"want"} if toolkit is None else {"want", "toolkit"}, answered=bool(stacks)),
        not_judged=tuple(sorted({str(canonicalize_name(one.name)) for one in want} - judged)),
    )


def _nearest(refused: list[Refusal], *, asked: set[str], answered: bool) -> tuple[Refusal, ...]:
    """The nearest misses first: what was asked for before what was not, what is merely unknown before what is known
    to fail, few rules against before many; newest first among equals.

    `asked` are the rules that say what was asked for. Once there is an answer, sets nobody asked for are not worth
    telling.
    """
    order: tuple[Verdict, ...] = ("supported", "unknown", "unsupported")

    def against(refusal: Refusal) -> set[str]:
        return {rule.rule for rule in refusal.rules}

    telling = [one for one in refused if not (answered and against(one) & {"want", "framework-machine"})]
    telling.sort(key=lambda one: (bool(against(one) & asked), order.index(one.verdict), len(one.rules)))
    return tuple(telling[:_NEAREST])


def _node_target(backend: Backend, node: NodeFacts | None) -> str | None:
    if node is None:
        return None
    if node.device_arch is not None:
        return normalise_target(node.device_arch, backend.spec.targets)
    row = device_row(backend, node.device) if node.device is not None else None
    return row.text("target") if row is not None else None


def _code_target(backend: Backend, node: NodeFacts | None, target: str | None) -> str | None:
    """The target whose code the node is given: its own, unless its operator overrides that."""
    if node is None or target is None or node.code_target is None:
        return target
    return normalise_target(node.code_target, backend.spec.targets)


def _candidates(goal: Goal) -> list[tuple[Table, Row]]:
    """Rows of the tables that hold most of what is wanted, newest first; without wants, all of them."""
    tables = set_tables(goal.backend, "core")
    held = [{name for name in goal.wants if any(name in row.packages() for row in table.rows)} for table in tables]
    first = max(held, key=len, default=set())  # the preferred table of those; what only others hold joins its rows
    chosen = []
    for number, (table, names) in enumerate(zip(tables, held, strict=True)):
        if names == first:
            chosen += [(number, table, row) for row in table.rows]
    chosen.sort(key=lambda item: _newness(item[1], item[2]), reverse=True)
    chosen.sort(key=lambda item: item[0])
    return [(table, row) for _, table, row in chosen]


def _newness(table: Table, row: Row) -> tuple[object, ...]:
    """Lead version, then torch's, then what its maker offers by default, then the toolkit. Labels have no order."""
    lead = sort_key(row.packages().get(table.lead or "", "").partition("+")[0])
    torch = sort_key(row.packages().get("torch", "").partition("+")[0])
    toolkit = sort_key(row.text("toolkit_release") or row.text("toolkit") or "")
    return (lead, torch, row.flag("default"), -_STATUS.get(row.text("status"), 1), toolkit)


def _stack(goal: Goal, row: Row, joined: Joined, verdicts: tuple[RuleVerdict, ...]) -> Stack:
    backend = goal.backend
    spec = backend.spec
    cells, variant = _cells(goal, row, joined)
    toolkit = toolkit_of(goal, row)
    python = goal.python or _newest_python(row, joined.rows)
    base, base_reason = choose_base(
        backend, toolkit=toolkit, python=python, target=goal.target, packages=row.packages()
    )
    status = row.text("status")
    of_set = f"the set {row.text('set')}" + (f" ({status})" if status else "")
    why = [Reason(cell=name, why=of_set, source=row.source.text) for name in row.packages()]
    why += [
        Reason(cell=name, why=f"goes with it: {other.text('set')}", source=other.source.text)
        for other in joined.rows
        for name in other.packages()
        if name not in row.packages()
    ]
    why += [
        Reason(cell=name, why=f"goes with it: {told.why}", source=told.source)
        for name, (_, told) in joined.companions.items()
    ]
    if spec.toolkit is not None:
        why.append(_toolkit_reason(goal, row, toolkit))
    why.append(Reason(cell="python", why="asked for" if goal.python else "the newest listed", source=row.source.text))
    if base_reason is not None:
        why.append(base_reason)
    why += [Reason(cell=f"rule {v.rule}", why=f"{v.verdict}: {v.why}", source=v.source) for v in verdicts]
    if goal.node is not None and goal.node.driver is None:
        text = f"the driver of node class {goal.node.name} is not known: not checked"
        why.append(Reason(cell="driver", why=text, source=row.source.text))
    return Stack(
        backend=backend.name,
        toolkit=toolkit,
        python=python,
        frameworks={name: cell for name, cell in cells.items() if not cell.startswith(("<", ">", "=", "!", "~"))},
        constraints=tuple(sorted(f"{name}{bound(cell)}" for name, cell in cells.items())),
        indexes=_indexes(backend, row, variant),
        base=base,
        archs=targets_of(row, goal.arch) or (),
        runtime=spec.runtime_for(toolkit),
        why=tuple(why),
        unknown=tuple(verdict.why for verdict in verdicts if verdict.verdict == "unknown"),
    )


def _cells(goal: Goal, row: Row, joined: Joined) -> tuple[dict[str, str], str | None]:
    """Package to version cell, labels applied; and the index variant when a label is asked for that only it has."""
    cells: dict[str, str] = {}
    variant = row.text("variant")
    label = row.text("label")
    for name in row.packages():
        cell = cell_for(goal.backend, row, name, goal.arch)
        bounds = goal.wants.get(name)
        if bounds is not None and variant is None and needs_label(cell, bounds, label):
            cell, variant = f"{cell}+{label}", label
        cells[name] = cell
    for other in joined.rows:
        cells |= {name: cell for name, cell in other.packages().items() if name not in cells}
    return cells | {name: cell for name, (cell, _) in joined.companions.items()}, variant


def _newest_python(row: Row, joined: tuple[Row, ...]) -> str:
    """The newest Python, without free-threaded builds, that the set lists and those beside it do not rule out; what the
    metadata asks at least otherwise."""
    listed = [python for python in row.texts("python") or () if not python.endswith("t")]
    bounds = row.text("requires_python")
    least = (bounds or "").lstrip(">=") or "3.12"
    fitting = [python for python in listed or (least,) if all(python_fits(one, python) is not False for one in joined)]
    if fitting:
        return max(fitting, key=sort_key)
    both = (python for python in PYTHONS if all(python_fits(one, python) is not False for one in (row, *joined)))
    return next(both, max(listed, key=sort_key) if listed else least)


def _toolkit_reason(goal: Goal, row: Row, toolkit: str | None) -> Reason:
    title = goal.backend.spec.toolkit
    cell = row.text("toolkit")
    if toolkit is None:
        return Reason(cell="toolkit", why=f"{title}: no source says which; let pass", source=row.source.text)
    if cell is None:
        why = f"{title} {toolkit} was asked for; no source says which goes with {row.text('set')}"
    elif is_exact(cell):
        why = f"{title} {toolkit} is what {row.text('set')} is made for"
    else:
        why = f"{title} {toolkit} is within {cell} of {row.text('set')}"
    return Reason(cell="toolkit", why=why, source=row.source.text)


def _indexes(backend: Backend, row: Row, variant: str | None) -> tuple[IndexPin, ...]:
    """The index of the row's variant, and those indexes of the backend that have no variants."""
    pins = []
    for index in backend.spec.indexes:
        if "{variant}" not in index.url:
            pins.append(IndexPin(index=index.url, packages=index.packages))
        elif variant is not None:
            pins.append(IndexPin(index=index.url.replace("{variant}", variant), packages=index.packages))
    return tuple(pins)
