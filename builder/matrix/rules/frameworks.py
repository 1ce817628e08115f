"""Rules on packages: which versions go together, with which toolkit, Python, machine and C library."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from builder.errors import did_you_mean
from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.labels import no_build
from builder.matrix.rules.vouch import vouched
from builder.matrix.sets import agrees, describe, set_tables, toolkit_agrees
from builder.matrix.systems import normalise_system, same_system, system_names
from builder.matrix.tables import Row, Table
from builder.matrix.values import RuleVerdict
from builder.matrix.versions import bound, is_exact, parse, sort_key, within

__all__ = [
    "chosen_rows",
    "clash",
    "framework_libc",
    "framework_machine",
    "framework_python",
    "framework_set",
    "python_fits",
    "set_toolkit",
    "system_libc",
]


def _led(question: Question, backend: Backend) -> list[tuple[Table, str]]:
    """Tables of sets whose lead package is asked for, with the version asked."""
    return [
        (table, question.packages[table.lead])
        for table in set_tables(backend)
        if table.lead is not None and table.lead in question.packages
    ]


def _candidates(table: Table, version: str, backend: Backend) -> list[Row]:
    lead = table.lead or ""
    return [row for row in table.rows if agrees(backend, row, lead, version)]


def chosen_rows(question: Question, backend: Backend) -> list[Row]:
    """Rows that agree with all packages and the toolkit asked for, as far as they name them."""
    rows = []
    for table, version in _led(question, backend):
        for row in _candidates(table, version, backend):
            others = all(
                agrees(backend, row, package, asked)
                for package, asked in question.packages.items()
                if package in row.packages()
            )
            if others and (question.toolkit is None or toolkit_agrees(row, question.toolkit) is not False):
                rows.append(row)
    return rows


def set_toolkit(question: Question, backend: Backend) -> tuple[str, str] | None:
    """Toolkit of the set that the packages asked for are, and its name in words: the default build, or the only one."""
    rows = [row for row in chosen_rows(question, backend) if row.text("toolkit") is not None]
    rows = [row for row in rows if row.flag("default")] or rows
    toolkits = {row.text("toolkit_release") or row.text("toolkit") or "" for row in rows}
    if len(toolkits) != 1:
        return None
    toolkit = toolkits.pop()
    major = toolkit.removesuffix(".*")  # a build for any 13.x asks of the driver what the oldest does
    if not is_exact(toolkit) and not (major.isdigit() and "driver-floor" in backend.kinds):
        return None
    return major, f"the set {rows[0].text('set')}"


def framework_set(question: Question, backend: Backend) -> RuleVerdict | None:
    """The packages asked for stand together in a row, with the toolkit.

    Source: the makers' own compatibility tables and package metadata, named by the row. A table says for which cells
    its rows are all there is (`closed`); a mismatch there is unsupported, elsewhere it is unknown.
    """
    verdicts = [_one_set(question, backend, table, version) for table, version in _led(question, backend)]
    if not verdicts:
        return _no_lead(question, backend)
    order = ("supported", "unknown", "unsupported")
    return max(verdicts, key=lambda verdict: order.index(verdict.verdict))


def _no_lead(question: Question, backend: Backend) -> RuleVerdict | None:
    named = {name for table in set_tables(backend) for row in table.rows for name in row.packages()}
    packages = {name: version for name, version in question.packages.items() if name in named}
    if not packages:
        return None
    asked = ", ".join(f"{name} {version}" for name, version in packages.items())
    rows = [
        row
        for table in set_tables(backend)
        for row in table.rows
        if all(agrees(backend, row, name, version) for name, version in packages.items())
        and (question.toolkit is None or toolkit_agrees(row, question.toolkit))
    ]
    if rows:
        best = _best(rows)
        why = f"{asked} stands in the set {describe(best)}"
        return RuleVerdict(rule="framework-set", verdict="supported", why=why, source=best.source.text)
    refused = _closed_release(question, backend, packages)
    if refused is not None:
        return refused
    if packages.keys() <= vouched(_with_libc(question, backend), backend).keys():
        return None
    leads = sorted({table.lead for table in set_tables(backend, "core") if table.lead})
    why = f"no row has {asked}" + (f" with toolkit {question.toolkit}" if question.toolkit else "")
    fix = f"name the version of {' or '.join(leads)} too"
    return RuleVerdict(rule="framework-set", verdict="unknown", why=why, source=backend.spec.source, fix=fix)


def _with_libc(question: Question, backend: Backend) -> Question:
    """The question with the C library of its operating system."""
    return dataclasses.replace(question, libc=question.libc or system_libc(question.os, backend))


def _closed_release(question: Question, backend: Backend, packages: Mapping[str, str]) -> RuleVerdict | None:
    """A toolkit release whose rows are all there is, and none has the package as asked."""
    if question.toolkit is None:
        return None
    for table in set_tables(backend, "core"):
        for name, version in packages.items():
            if name not in table.closed or "toolkit" not in table.closed:
                continue
            having = [
                row for row in table.rows if name in row.packages() and toolkit_agrees(row, question.toolkit) is True
            ]
            if having and not any(agrees(backend, row, name, version) for row in having):
                wanted = sorted({row.packages()[name] for row in having}, key=sort_key)
                return RuleVerdict(
                    rule="framework-set",
                    verdict="unsupported",
                    why=f"{backend.spec.toolkit} {question.toolkit} goes with {name} {' or '.join(wanted)}, "
                    f"not {version}",
                    source=having[0].source.text,
                    fix=f"{name}{bound(wanted[-1])}",
                )
    return None


def _one_set(question: Question, backend: Backend, table: Table, version: str) -> RuleVerdict:
    verdict = _judge_set(question, backend, table, version)
    row = (
        vouched(_with_libc(question, backend), backend, apart=table).get(table.lead or "")
        if verdict.verdict == "unknown"
        else None
    )
    if row is None or any(one.confidence == "uncertain" for one in _candidates(table, version, backend)):
        return verdict
    text = row.text("why") or f"{describe(row) if row.packages() else row.text('package')} names it"
    return RuleVerdict(
        rule="framework-set", verdict="supported", why=f"{verdict.why}; but {text}", source=row.source.text
    )


def _judge_set(question: Question, backend: Backend, table: Table, version: str) -> RuleVerdict:
    lead = table.lead or ""
    rows = _candidates(table, version, backend)
    if not rows:
        return _no_row(question, backend, table, version)
    others = {name: asked for name, asked in question.packages.items() if name != lead}
    fitting = [
        row
        for row in rows
        if all(agrees(backend, row, name, asked) for name, asked in others.items() if name in row.packages())
        and (question.toolkit is None or toolkit_agrees(row, question.toolkit))
    ]
    if fitting:
        best = _best(fitting)
        silent = [name for name in others if name in table.closed and name not in best.packages()]
        unsure = best.confidence == "uncertain"
        why = f"{describe(best)} is a row" + (" that no source vouches for" if unsure else "")
        why += f" ({best.note})" if best.note else ""
        return RuleVerdict(
            rule="framework-set",
            verdict="unknown" if unsure or silent else "supported",
            why=why + (f"; it does not say which {' and '.join(silent)}" if silent else ""),
            source=best.source.text,
            fix=_certain(table, best) if unsure else f"leave {' and '.join(silent)} out" if silent else "",
        )
    nearest = _best(rows)
    for name, asked in others.items():
        having = [row for row in rows if name in row.packages()]
        if having and not any(agrees(backend, row, name, asked) for row in having):
            return _pair(table, f"{lead} {version}", having, name, asked)
    if question.toolkit is not None:
        known = sorted({row.text("toolkit") or "" for row in rows} - {""}, key=sort_key)
        name = f"{backend.spec.toolkit} {question.toolkit}"
        if not known:
            why = f"no source says which {backend.spec.toolkit} goes with {lead} {version}"
            if nearest.note:
                why += f" ({nearest.note})"
            fix = _certain(table, nearest)
            return RuleVerdict(rule="framework-set", verdict="unknown", why=why, source=nearest.source.text, fix=fix)
        closed = "toolkit" in table.closed
        return RuleVerdict(
            rule="framework-set",
            verdict="unsupported" if closed else "unknown",
            why=f"{lead} {version} is listed with {backend.spec.toolkit} {' and '.join(known)}, "
            + (f"there is no build for {question.toolkit}" if closed else f"nothing is said of {name}"),
            source=nearest.source.text,
            fix=f"{backend.spec.toolkit} {known[-1]}",
        )
    why = f"no row of {lead} {version} has all of {', '.join(others)} as asked"
    fix = f"the versions one row has: {describe(nearest)}"
    return RuleVerdict(rule="framework-set", verdict="unknown", why=why, source=nearest.source.text, fix=fix)


def _certain(table: Table, row: Row) -> str:
    """The nearest older set of a table that its source is certain of, toolkit and all."""
    lead = table.lead or ""
    sure = [
        one
        for one in table.rows
        if one.confidence != "uncertain" and (one.text("toolkit") is not None or "toolkit" not in row.cells)
    ]
    sure = [one for one in sure if one.text("toolkit") is not None] or sure
    older = [one for one in sure if sort_key(one.packages()[lead]) <= sort_key(row.packages()[lead])]
    found = max(older or sure, key=lambda one: sort_key(one.packages()[lead]), default=None)
    return f"a set that is listed: {describe(found)}" if found is not None else "another version, or ask its maker"


def _pair(table: Table, lead: str, having: list[Row], name: str, asked: str) -> RuleVerdict:
    """Two packages of which no row has both as asked."""
    wanted = sorted({row.packages()[name] for row in having}, key=sort_key)
    return RuleVerdict(
        rule="framework-set",
        verdict="unsupported" if name in table.closed else "unknown",
        why=f"{lead} goes with {name} {' or '.join(wanted)}, not {asked}",
        source=having[0].source.text,
        fix=f"{name}{bound(wanted[-1])}",
    )


def clash(question: Question, backend: Backend) -> RuleVerdict | None:
    """Two packages asked for that no row puts together, whatever the toolkit, where the rows are all there is.

    Source: as `framework_set`.
    """
    for table, version in _led(question, backend):
        rows = _candidates(table, version, backend)
        for name, asked in question.packages.items():
            having = [row for row in rows if name != table.lead and name in row.packages()]
            if name in table.closed and having and not any(agrees(backend, row, name, asked) for row in having):
                return _pair(table, f"{table.lead} {version}", having, name, asked)
    return None


def _no_row(question: Question, backend: Backend, table: Table, version: str) -> RuleVerdict:
    """A lead version without a row: unknown, unless another of its post-releases already says no to the torch asked."""
    lead = table.lead or ""
    found = parse(version)
    base = found.base_version if found else version
    for name, asked in question.packages.items():
        kin = [
            row
            for row in table.rows
            if name != lead
            and name in row.packages()
            and name in table.closed
            and _same_base(row.packages()[lead], base)
        ]
        if kin and not any(agrees(backend, row, name, asked) for row in kin):
            wanted = sorted({row.packages()[name] for row in kin}, key=sort_key)
            return RuleVerdict(
                rule="framework-set",
                verdict="unsupported",
                why=f"every known build of {lead} {base} goes with {name} {' or '.join(wanted)}, not {asked}",
                source=kin[0].source.text,
                fix=f"{name}{bound(wanted[-1])}",
            )
    refused = no_build(backend, table, version)
    if refused is not None:
        return refused
    versions = sorted({row.packages()[lead] for row in table.rows if lead in row.packages()}, key=sort_key)
    return RuleVerdict(
        rule="framework-set",
        verdict="unknown",
        why=f"no row has {lead} {version}; the newest known is {versions[-1]}",
        source=table.rows[0].source.text,
        fix=did_you_mean(version, versions) if len(versions) < 100 else f"{lead}=={versions[-1]}",
    )


def _same_base(cell: str, base: str) -> bool:
    version = parse(cell)
    return version is not None and version.base_version == base


def _best(rows: list[Row]) -> Row:
    """The most trusted row: certain before uncertain, default before variant."""
    return min(rows, key=lambda row: (row.confidence == "uncertain", not row.flag("default")))


def framework_python(question: Question, backend: Backend) -> RuleVerdict | None:
    """There are wheels for this Python.

    Source: published wheel names and metadata; the release's build matrix.
    """
    python = question.python
    rows = chosen_rows(question, backend)
    if python is None or not rows:
        return None
    known = [row for row in rows if row.texts("python") is not None or row.text("requires_python") is not None]
    if not known:
        why = f"no source lists the Pythons of {describe(rows[0])}"
        fix = "read the names of its wheels, or leave python out to judge the rest"
        return RuleVerdict(rule="framework-python", verdict="unknown", why=why, source=rows[0].source.text, fix=fix)
    for row in known:
        if python_fits(row, python):
            why = f"{describe(row)} has Python {python}"
            return RuleVerdict(rule="framework-python", verdict="supported", why=why, source=row.source.text)
    row = next((row for row in known if python_fits(row, python) is None), known[0])
    offered = ", ".join(row.texts("python") or (row.text("requires_python") or "",))
    if python_fits(row, python) is None:
        why = f"{describe(row)} is listed with Python {offered}; for {python} the sources differ ({row.note})"
        fix = f"a Python among {offered}"
        return RuleVerdict(rule="framework-python", verdict="unknown", why=why, source=row.source.text, fix=fix)
    return RuleVerdict(
        rule="framework-python",
        verdict="unsupported",
        why=f"{describe(row)} has Python {offered}, not {python}",
        source=row.source.text,
        fix=f"a Python among {offered}",
    )


def python_fits(row: Row, python: str) -> bool | None:
    """Whether a set has wheels for a Python; None when no source says."""
    listed = row.texts("python")
    if listed is not None:
        return python in listed or (None if python in (row.texts("python_unsure") or ()) else False)
    bounds = row.text("requires_python")
    return within(python.rstrip("t"), bounds) if bounds is not None else None


def framework_machine(question: Question, backend: Backend) -> RuleVerdict | None:
    """There are wheels for this machine architecture.

    Source: published wheel names; the release's build matrix.
    """
    machine = question.machine
    rows = [row for row in chosen_rows(question, backend) if row.texts("arch") is not None]
    if machine is None or not rows:
        return None
    for row in rows:
        if machine in (row.texts("arch") or ()):
            why = f"{describe(row)} has wheels for {machine}"
            return RuleVerdict(rule="framework-machine", verdict="supported", why=why, source=row.source.text)
    for row in rows:
        if machine in (row.texts("arch_unsure") or ()):
            why = f"no source says whether {describe(row)} has wheels for {machine}"
            fix = _other_build(question, backend, machine) + f"a machine with {' or '.join(row.texts('arch') or ())}"
            return RuleVerdict(rule="framework-machine", verdict="unknown", why=why, source=row.source.text, fix=fix)
    row = rows[0]
    return RuleVerdict(
        rule="framework-machine",
        verdict="unsupported",
        why=f"{describe(row)} has wheels for {', '.join(row.texts('arch') or ())} only",
        source=row.source.text,
        fix=_other_build(question, backend, machine) + f"a machine with {' or '.join(row.texts('arch') or ())}",
    )


def _other_build(question: Question, backend: Backend, machine: str) -> str:
    """Builds of the very version asked for that have wheels for a machine, where only the label is another."""
    found = [
        row.text("set") or ""
        for table, version in _led(question, backend)
        for row in table.rows
        if machine in (row.texts("arch") or ())
        and (row.packages().get(table.lead or "") or "").partition("+")[0] == version.partition("+")[0]
    ]
    return f"another build ({', '.join(sorted(found))}), or " if found else ""


def framework_libc(question: Question, backend: Backend) -> RuleVerdict | None:
    """The C library of the system is new enough for the wheels.

    Source: PEP 600 (manylinux_X_Y installs where glibc >= X.Y), PEP 656 (musl systems need musllinux wheels).
    """
    libc = question.libc or system_libc(question.os, backend)
    rows = [row for row in chosen_rows(question, backend) if row.text("glibc") is not None]
    if (libc is None and question.os is None) or not rows:
        return None
    row = min(rows, key=lambda row: sort_key(row.text("glibc") or ""))
    if libc is None:
        known = sorted({other.text("os") or "" for other in backend.rows("os")})
        return RuleVerdict(
            rule="framework-libc",
            verdict="unknown",
            why=f"no table knows the C library of {question.os!r}",
            source=row.source.text,
            fix=f"give libc=; {did_you_mean(question.os or '', known)}",
        )
    need = row.text("glibc") or ""
    have = f"{question.os} has {'musl' if libc == 'musl' else 'glibc ' + libc}" if question.libc is None else libc
    if libc == "musl":
        return RuleVerdict(
            rule="framework-libc",
            verdict="unsupported",
            why=f"{describe(row)} has manylinux wheels; they never install on a musl system",
            source="PEP 656",
            fix="a base image with glibc",
        )
    good = sort_key(libc) >= sort_key(need)
    return RuleVerdict(
        rule="framework-libc",
        verdict="supported" if good else "unsupported",
        why=f"{describe(row)} needs glibc >= {need}; {have}",
        source=f"PEP 600; {row.source.text}",
        fix="" if good else f"a system with glibc >= {need}",
    )


def system_libc(os: str | None, backend: Backend) -> str | None:
    """glibc version of a system, or `musl`; None when no table knows it."""
    if os is None:
        return None
    rows = [row for row in backend.rows("os") if same_system(os, row.text("os") or "")]
    exact = [row for row in rows if normalise_system(os) in system_names(row.text("os") or "")]
    row = next(iter(exact or rows), None)
    if row is None:
        return None
    return "musl" if row.text("libc") == "musl" else row.text("glibc")
