"""Rules on packages that belong together: members of a toolkit release, what metadata pins, parts of a build."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping

from builder.matrix.grammar import alternatives, spoken
from builder.matrix.load import Backend
from builder.matrix.question import Question, family_name, nameable_packages
from builder.matrix.rules.frameworks import chosen_rows, system_libc
from builder.matrix.rules.labels import made_for
from builder.matrix.rules.vouch import spoken_of, vouched
from builder.matrix.sets import agrees, describe, set_tables, touches
from builder.matrix.tables import Row, Table
from builder.matrix.values import RuleVerdict
from builder.matrix.versions import parse, sort_key, specifier, within

__all__ = [
    "framework_parts",
    "meet",
    "package_known",
    "package_pins",
    "release_members",
    "release_toolkit",
    "shared_packages",
]

_PARTS = ("cudnn", "nccl", "triton")


def _fits(version: str, cell: str) -> bool:
    public = version.partition("+")[0]
    return any(
        within(version, part) or within(public, part) or (part[0].isdigit() and within(part, f"{public}.*"))
        for part in alternatives(cell)
    )


def release_members(question: Question, backend: Backend) -> RuleVerdict | None:
    """The packages are those of the toolkit release, or of one release when none is named.

    Source: the makers' release manifests and compatibility matrices (aws-neuron-sdk n2-manifest.json, ROCm
    compatibility matrix). A table names in `closed` the packages whose list is all there is.
    """
    verdicts = []
    for table in backend.of_kind("release"):
        rows = [row for row in table.rows if row.mapping("members")]
        named = {name for row in rows for name in row.mapping("members")}
        asked = {name: version for name, version in question.packages.items() if name in named}
        if rows and asked:
            of_label = question if question.toolkit is not None else _with_label(question)
            judge = _one_release if of_label.toolkit is not None else _any_release
            verdicts.append(judge(of_label, backend, table, rows, asked))
    known = [verdict for verdict in verdicts if verdict is not None]
    return min(known, key=lambda one: ("unsupported", "unknown", "supported").index(one.verdict)) if known else None


def _with_label(question: Question) -> Question:
    """The question with the release a build's label spells out: `2.9.1+rocm7.2.3` is of 7.2.3."""
    for version in question.packages.values():
        match = re.fullmatch(r"[^+]+\+[a-z]+(\d+\.\d+\.\d+)", version)
        if match:
            return dataclasses.replace(question, toolkit=match[1])
    return question


def _one_release(
    question: Question, backend: Backend, table: Table, rows: list[Row], asked: Mapping[str, str]
) -> RuleVerdict | None:
    toolkit = question.toolkit or ""
    of_release = [row for row in rows if touches(toolkit, row.text("toolkit") or "")]
    title = f"{backend.spec.toolkit} {toolkit}"
    good: Row | None = None
    silent: RuleVerdict | None = None
    known = {table.lead for table in set_tables(backend)} | vouched(question, backend).keys()
    for name, version in asked.items():
        having = [row for row in of_release if name in row.mapping("members")]
        if not having:
            continue
        fitting = [row for row in having if _fits(version, row.mapping("members")[name])]
        if fitting:
            good = good or fitting[-1]
            continue
        if name not in table.closed:
            if name not in known:
                silent = silent or _not_listed(title, name, version, having[-1])
            continue
        listed = spoken(having[-1].mapping("members")[name])
        return RuleVerdict(
            rule="release-members",
            verdict="unsupported",
            why=f"{title} is listed with {name} {listed}, not {version}",
            source=having[-1].source.text,
            fix=f"{name} {listed}" + _release_with(backend, rows, name, version),
        )
    if silent is not None or good is None:
        return silent
    listed = ", ".join(f"{name} {version}" for name, version in asked.items() if name in good.mapping("members"))
    why = f"{title} is listed with {listed}"
    return RuleVerdict(rule="release-members", verdict="supported", why=why, source=good.source.text)


def _not_listed(title: str, name: str, version: str, row: Row) -> RuleVerdict:
    listed = spoken(row.mapping("members")[name])
    return RuleVerdict(
        rule="release-members",
        verdict="unknown",
        why=f"{title} is listed with {name} {listed}; nothing is said of {version}",
        source=row.source.text,
        fix=f"{name} {listed}",
    )


def _release_with(backend: Backend, rows: list[Row], name: str, version: str) -> str:
    found = [row.text("toolkit") or "" for row in rows if _fits(version, row.mapping("members").get(name, "==0.dev0"))]
    return f", or {backend.spec.toolkit} {max(found, key=sort_key)}" if found else ""


def _any_release(
    question: Question, backend: Backend, table: Table, rows: list[Row], asked: Mapping[str, str]
) -> RuleVerdict | None:
    del question
    closed = {name: version for name, version in asked.items() if name in table.closed}
    if len(closed) < 2:
        return None
    fitting = [
        row
        for row in rows
        if all(_fits(version, row.mapping("members").get(name, "==0.dev0")) for name, version in closed.items())
    ]
    listed = ", ".join(f"{name} {version}" for name, version in closed.items())
    if fitting:
        newest = max(fitting, key=lambda row: sort_key(row.text("toolkit") or ""))
        why = f"{listed} are all of {backend.spec.toolkit} {newest.text('toolkit')}"
        return RuleVerdict(rule="release-members", verdict="supported", why=why, source=newest.source.text)
    homes = {
        name: [row for row in rows if _fits(version, row.mapping("members").get(name, "==0.dev0"))]
        for name, version in closed.items()
    }
    if not all(homes.values()):
        return None
    spread = "; ".join(
        f"{name} {closed[name]} of {max((row.text('toolkit') or '' for row in found), key=sort_key)}"
        for name, found in homes.items()
    )
    return RuleVerdict(
        rule="release-members",
        verdict="unsupported",
        why=f"no {backend.spec.toolkit} release has all of them: {spread}",
        source=next(iter(homes.values()))[-1].source.text,
        fix="versions of one release",
    )


def release_toolkit(question: Question, backend: Backend) -> tuple[str, str] | None:
    """The toolkit release whose members the packages asked for are, and what says so, where one minor has them.

    Source: as `release_members`. Of several patches of the minor it is the oldest: what it goes with, all do.
    """
    for table in backend.of_kind("release"):
        asked = {name: version for name, version in question.packages.items() if name in table.closed}
        homes = [
            row.text("toolkit") or ""
            for row in table.rows
            if asked and all(_fits(version, row.mapping("members").get(n, "==0.dev0")) for n, version in asked.items())
        ]
        if homes and len({tuple(home.split(".")[:2]) for home in homes}) == 1:
            return min(homes, key=sort_key), ", ".join(f"{name} {version}" for name, version in asked.items())
    return None


def package_known(question: Question, backend: Backend) -> RuleVerdict | None:
    """Every package that was named is one some table says something of, beside what else was named.

    Source: backend.toml, which packages may come from which index; the tables of the backend. What nothing is said of
    is not passed over: the rest being right does not make it right.
    """
    known = nameable_packages(backend)
    stray = [f"{name} {version}" for name, version in question.packages.items() if name not in known]
    if not stray:
        rows = chosen_rows(question, backend)
        libc = question.libc or system_libc(question.os, backend)
        judged = spoken_of(dataclasses.replace(question, libc=libc), backend, rows)
        stray = [f"{name} {version}" for name, version in question.packages.items() if name not in judged]
    if not stray:
        return None
    return RuleVerdict(
        rule="package-known",
        verdict="unknown",
        why=f"no table says anything of {', '.join(stray)}" + (" with what else is named" if question.packages else ""),
        source=backend.spec.source,
        fix="leave it out to judge the rest",
    )


def package_pins(question: Question, backend: Backend) -> RuleVerdict | None:
    """What one package's metadata asks of another that is named too.

    Source: METADATA (Requires-Dist) of the published wheels, by machine architecture; for components of a toolkit the
    metadata of its meta package.
    """
    good: RuleVerdict | None = None
    for subject, version, rows in _subjects(question, backend):
        for name, asked in question.packages.items():
            having = [(row, cell) for row in rows if (cell := _requirement(row, name)) is not None]
            if not having:
                continue
            fitting = [row for row, cell in having if _fits(asked, cell)]
            row, cell = having[-1]
            if not fitting:
                return RuleVerdict(
                    rule="package-pins",
                    verdict="unknown" if row.confidence == "uncertain" else "unsupported",
                    why=f"{subject} {version} asks for {name} {cell}, not {asked}",
                    source=row.source.text,
                    fix=f"{name} {cell}",
                )
            why = f"{subject} {version} asks for {name} {cell}"
            good = good or RuleVerdict(
                rule="package-pins", verdict="supported", why=why, source=fitting[-1].source.text
            )
    return good


def _subjects(question: Question, backend: Backend) -> list[tuple[str, str, list[Row]]]:
    found = []
    every = backend.rows("pins")
    for name in dict.fromkeys(row.text("package") or "" for row in every):
        version = question.packages.get(name)
        by_toolkit = version is None and name == f"{(backend.spec.toolkit or '').lower()}-toolkit"
        if by_toolkit:
            version = question.toolkit
        if version is None:
            continue
        rows = [row for row in every if row.text("package") == name and _is_subject(row, version, question, by_toolkit)]
        found.append((name, version, rows))
    return found


def _is_subject(row: Row, version: str, question: Question, by_toolkit: bool) -> bool:
    cell = row.text("version") or ""
    machine = row.text("machine")
    if machine is not None and question.machine is not None and machine != question.machine:
        return False
    if by_toolkit:
        return touches(version, cell)
    found = parse(version)
    label = row.text("label")
    if found is not None and found.local is not None and label is not None and found.local != label:
        return False
    if label is not None and found is not None and found.local is None and question.toolkit is not None:
        made = made_for(f"+{label}")  # none of a build without toolkit
        if made is None or not touches(question.toolkit, f"{made}.*"):
            return False  # another build of this version is asked for, by its toolkit
    return any(within(version.partition("+")[0], part) or touches(version, part) for part in alternatives(cell))


def _requirement(row: Row, name: str) -> str | None:
    requires = row.mapping("requires")
    if name in requires:
        return requires[name]
    return next((cell for own, cell in requires.items() if family_name(own) == name), None)


def framework_parts(question: Question, backend: Backend) -> RuleVerdict | None:
    """The cuDNN, NCCL and Triton a framework's build was made with.

    Source: the build matrix of the release and the metadata of the default wheel; where only the default wheel was
    read, another version is not known to be wrong.
    """
    asked = {family_name(name): version for name, version in question.packages.items() if family_name(name) in _PARTS}
    rows = [row for row in chosen_rows(question, backend) if any(row.text(part) for part in _PARTS)]
    if not asked or not rows:
        return None
    rows = [row for row in rows if row.flag("default")] or rows
    good: RuleVerdict | None = None
    for part, version in asked.items():
        having = [row for row in rows if row.text(part)]
        fitting = [row for row in having if _fits(version, row.text(part) or "")]
        if fitting:
            why = f"{describe(fitting[0])} is built with {part} {fitting[0].text(part)}"
            good = good or RuleVerdict(
                rule="framework-parts", verdict="supported", why=why, source=fitting[0].source.text
            )
        elif having:
            row = having[0]
            read = f"{part} of the default wheel" not in row.note
            return RuleVerdict(
                rule="framework-parts",
                verdict="unsupported" if read else "unknown",
                why=f"{describe(row)} is built with {part} {row.text(part)}, not {version}"
                + ("" if read else " (that of the default wheel; this build was not read)"),
                source=row.source.text,
                fix=f"{part} {row.text(part)}",
            )
    return good


def shared_packages(question: Question, backend: Backend) -> RuleVerdict | None:
    """Two frameworks in one image agree on the package both need: a process loads one libtpu.

    Source: METADATA of both (FR-16); where they do not meet, each belongs in an image of its own.
    """
    leads = [
        (table.lead, [row for row in table.rows if agrees(backend, row, table.lead, question.packages[table.lead])])
        for table in set_tables(backend)
        if table.lead is not None and table.lead in question.packages
    ]
    for (first, mine), (second, theirs) in itertools.combinations(leads, 2):
        for own, other in itertools.product(mine, theirs):
            for name in sorted(own.packages().keys() & other.packages().keys() - question.packages.keys()):
                if not meet(own.packages()[name], other.packages()[name]):
                    return RuleVerdict(
                        rule="shared-packages",
                        verdict="unsupported",
                        why=f"{first} {question.packages[first]} needs {name} {own.packages()[name]}, "
                        f"{second} {question.packages[second]} needs {other.packages()[name]}: not in one image",
                        source=f"{own.source.text}; {other.source.text}",
                        fix="an image for each",
                    )
    return None


def meet(cell: str, other: str) -> bool:
    """Whether some version satisfies two cells, as far as cells are exact, prefixes or plain bounds."""
    first, second = specifier(cell), specifier(other)
    if first is None or second is None:
        return cell == other
    tries = [bare for text in (cell, other) for bare in re.findall(r"\d[0-9A-Za-z.+]*", text)]
    tries += [f"{text.rstrip('.')}.{patch}" for text in tries for patch in (0, 1, 9999)]
    return any((first & second).contains(text, prereleases=True) for text in tries if parse(text) is not None)
