"""Rules on device targets: is the product known, does the toolkit compile for it, does the framework carry its code."""

from __future__ import annotations

import dataclasses
import re
from difflib import get_close_matches
from functools import lru_cache

from builder.matrix.load import Backend, siblings
from builder.matrix.products import device_row, product_names
from builder.matrix.question import Question
from builder.matrix.rules.driver import reported_toolkit
from builder.matrix.sets import agrees, describe, set_tables, targets_of, toolkit_agrees, touches
from builder.matrix.tables import Row
from builder.matrix.targets import covers, runs_ptx
from builder.matrix.values import RuleVerdict, TargetScheme
from builder.matrix.versions import matches, sort_key
from builder.names import ARCHES, GFX_OVERRIDE, overridden_target

__all__ = [
    "device_known",
    "framework_ptx",
    "framework_target",
    "row_target",
    "target_features",
    "toolkit_target",
]


def device_known(question: Question, backend: Backend) -> RuleVerdict | None:
    """The product is one the tables know, and is the target that was named beside it.

    Source: the device table of the backend (makers' product pages).
    """
    device = question.device
    rows = backend.rows("device")
    if device is None or not rows:
        return _target_known(question, backend) if rows else None
    row = device_row(backend, device)
    if row is None:
        foreign = _foreign(backend, device)
        if foreign is not None:
            other, theirs = foreign
            return RuleVerdict(
                rule="device-known",
                verdict="unsupported",
                why=f"{device} is {theirs.text('target')}, a device of backend {other}, not of {backend.name}",
                source=theirs.source.text,
                fix=f"--backend {other}",
            )
        names = {known for row in rows for known in product_names(row)}
        close = get_close_matches(device, sorted(names), n=3, cutoff=0.4)
        return RuleVerdict(
            rule="device-known",
            verdict="unknown",
            why=f"no table of {backend.name} knows the device {device!r}",
            source=rows[0].source.text,
            fix=f"closest names: {', '.join(close)}" if close else "give arch= instead",
        )
    target = row.text("target") or ""
    if question.target is not None and question.target != target:
        return RuleVerdict(
            rule="device-known",
            verdict="unsupported",
            why=f"{device} is {target}, not {question.target}",
            source=row.source.text,
            fix=f"arch={target}",
        )
    return RuleVerdict(rule="device-known", verdict="supported", why=f"{device} is {target}", source=row.source.text)


def _target_known(question: Question, backend: Backend) -> RuleVerdict | None:
    """A target without a product: nothing to say where some table has it, as a device's or as one that code is for.

    A name for code alone (`gfx9-4-generic`, `sm_90a`) is another rule's.
    """
    target = question.target
    if target is None or target.endswith("-generic") or _is_listed(backend, target):
        return None
    other = next((one for one in siblings(backend) if _is_listed(one, target)), None)
    if other is not None:
        why = f"{target} is a device target of backend {other.name}, not of {backend.name}"
        fix = f"--backend {other.name}"
        return RuleVerdict(
            rule="device-known", verdict="unsupported", why=why, source=other.rows("device")[0].source.text, fix=fix
        )
    known = sorted({row.text("target") or "" for row in backend.rows("device")})
    close = get_close_matches(target, known, n=3, cutoff=0.6)
    return RuleVerdict(
        rule="device-known",
        verdict="unknown",
        why=f"no table of {backend.name} knows a device {target}",
        source=backend.rows("device")[0].source.text,
        fix=f"closest: {', '.join(close or known)}",
    )


def _is_listed(backend: Backend, target: str) -> bool:
    bare = re.sub(r"(?<=\d)[af]$", "", target) if backend.spec.targets == "sm" else target
    return bare in _listed_targets(backend)


@lru_cache(maxsize=64)
def _listed_targets(backend: Backend) -> frozenset[str]:
    """Every target that a device is, that a toolkit compiles for or that a build carries."""
    names = {row.text("target") or "" for row in backend.rows("device")}
    for kind in ("target", "set"):
        for row in backend.rows(kind):
            names |= {*(row.texts("targets") or ())}
    return frozenset(names)


def _foreign(backend: Backend, device: str) -> tuple[str, Row] | None:
    """The backend and row of a device that only another backend knows."""
    for other in siblings(backend):
        row = device_row(other, device)
        if row is not None:
            return other.name, row
    return None


def toolkit_target(question: Question, backend: Backend) -> RuleVerdict | None:
    """The toolkit compiles code that runs on the device.

    Source: target lists printed by ptxas of each release (CUDA); ROCm compatibility matrix (GPUs of each release).
    """
    toolkit, target = question.toolkit, _code_target(question)
    if toolkit is None or target is None:
        return None
    tables = backend.rows("target")
    rows = [row for row in tables if _same_release(toolkit, row.text("toolkit") or "")]
    name = f"{backend.spec.toolkit} {toolkit}"
    if not rows:
        why = f"the tables list no targets of {name}"
        fix = f"a release they list: {', '.join(sorted({row.text('toolkit') or '' for row in tables}, key=sort_key))}"
        return RuleVerdict(rule="toolkit-target", verdict="unknown", why=why, source=backend.spec.source, fix=fix)
    row = max(rows, key=lambda row: sort_key(row.text("toolkit") or ""))
    scheme = backend.spec.targets
    found = _compiles(scheme, row.texts("targets") or (), target)
    exception = _exception(backend, row.texts("targets") or (), target, toolkit) if found is None else None
    if exception is not None:
        why = f"{name} compiles for {exception.text('code')}: {exception.text('why')}"
        return RuleVerdict(rule="toolkit-target", verdict="supported", why=why, source=exception.source.text)
    if found is not None:
        why = f"{name} compiles for {found}" + ("" if found == target else f", which runs on {target}")
        return RuleVerdict(rule="toolkit-target", verdict="supported", why=why, source=row.source.text)
    able = [row.text("toolkit") or "" for row in tables if _compiles(scheme, row.texts("targets") or (), target)]
    real = any(other.text("target") == target for other in backend.rows("device"))
    span = f"toolkits {min(able, key=sort_key)} to {max(able, key=sort_key)} do" if able else "no toolkit listed does"
    lacks = "does not list" if scheme == "gfx" else "has no target that runs on"
    partly = row.confidence == "uncertain"
    return RuleVerdict(
        rule="toolkit-target",
        verdict="unsupported" if (able or real) and not partly else "unknown",
        why=f"{name} {lacks} {target}; {span}" + (f" ({row.note})" if partly and row.note else ""),
        source=row.source.text,
        fix=f"a toolkit from {min(able, key=sort_key)} to {max(able, key=sort_key)}"
        if able
        else f"a device of {', '.join(row.texts('targets') or ())}",
    )


def _code_target(question: Question) -> str | None:
    """The target whose code the device is given: another than its own where its operator recorded the override."""
    text = question.settings.get("hsa-override-gfx-version")
    return overridden_target(text) if text is not None and question.override_of is not None else question.target


def _compiles(scheme: TargetScheme, targets: tuple[str, ...], target: str) -> str | None:
    """As `covers`; a target with a suffix (sm_90a) is one the compiler must know by that very name."""
    if scheme == "sm" and target[-1:] in ("a", "f"):
        return target if target in targets else None
    return covers(scheme, targets, target)


def _exception(backend: Backend, targets: tuple[str, ...], target: str, toolkit: str | None) -> Row | None:
    """A row that lets code of one of `targets` run on a device against the general rule."""
    for row in backend.rows("target-exception"):
        bounds = row.texts("toolkit")
        applies = bounds is None or (toolkit is not None and matches(toolkit, bounds))
        if applies and row.text("device") == target and row.text("code") in targets:
            return row
    return None


def _same_release(asked: str, cell: str) -> bool:
    return touches(asked, cell) or touches(cell, asked)


def framework_target(question: Question, backend: Backend) -> RuleVerdict | None:
    """The framework's build carries code that runs on the device.

    Source: build scripts and cuobjdump of the wheels; what was measured is the row that stands.
    """
    target = _code_target(question)
    if target is None or not question.packages:
        return None
    every = _rows(question, backend)
    rows = [row for row in every if targets_of(row, question.machine) is not None]
    if not rows:
        return _targets_not_seen(every, target, backend)
    if question.toolkit is None:
        rows = [row for row in rows if row.flag("default")] or rows  # an unlabelled version is the index's own build
    verdicts = [verdict for row in rows if (verdict := row_target(backend, row, target, question.machine)) is not None]
    best = min(verdicts, key=lambda one: ("supported", "unknown", "unsupported").index(one.verdict))
    if best.verdict == "supported":
        return best
    return dataclasses.replace(best, fix=_target_fix(question, target, backend))


def _targets_not_seen(rows: list[Row], target: str, backend: Backend) -> RuleVerdict | None:
    """A build whose device code no source lists, in a table that has it for others."""
    for table in set_tables(backend):
        if not any(row.texts("targets") for row in table.rows):
            continue
        row = next((row for row in rows if row in table.rows), None)
        if row is not None:
            return RuleVerdict(
                rule="framework-target",
                verdict="unknown",
                why=f"no source lists the device code of {describe(row)}: whether it runs on {target} is not known",
                source=row.source.text,
                fix="a build whose device code is listed, or read it with cuobjdump or a like tool",
            )
    return None


def row_target(backend: Backend, row: Row, target: str, machine: str | None) -> RuleVerdict | None:
    """Whether one set carries code for a target; None when its targets are not known."""
    targets = targets_of(row, machine)
    if targets is None:
        return None
    scheme = backend.spec.targets
    found = covers(scheme, targets, target, row.texts("ptx") or ())
    if found is not None:
        why = f"{describe(row)} carries {found}" + ("" if found == target else f", which runs on {target}")
        return RuleVerdict(rule="framework-target", verdict="supported", why=why, source=row.source.text)
    exception = _exception(backend, targets, target, row.text("toolkit"))
    if exception is not None:
        why = f"{describe(row)} carries {exception.text('code')}: {exception.text('why')}"
        return RuleVerdict(rule="framework-target", verdict="supported", why=why, source=exception.source.text)
    carried = ", ".join(targets)
    if scheme == "jit":
        why = f"{describe(row)} has no code for {target} ({carried}); it is compiled at first use, a slow start"
        return RuleVerdict(rule="framework-target", verdict="supported", why=why, source=row.source.text)
    if target.endswith("-generic"):
        return RuleVerdict(
            rule="framework-target",
            verdict="unknown",
            why=f"{target} is a name for code, which rocminfo lists beside a device's own: no device is called so",
            source="LLVM AMDGPU usage guide; rocminfo of ROCm 10",
            fix="the target of the device itself, e.g. gfx942",
        )
    unsure = covers(scheme, row.texts("targets_unsure") or (), target)
    if unsure is not None:
        why = f"{describe(row)} carries {carried}; for {unsure} the sources differ ({row.note})"
        return RuleVerdict(rule="framework-target", verdict="unknown", why=why, source=row.source.text)
    return RuleVerdict(
        rule="framework-target",
        verdict="unsupported",
        why=f"{describe(row)} carries {carried}: nothing that runs on {target}",
        source=row.source.text,
        fix=f"a set with code for {target}",
    )


def framework_ptx(question: Question, backend: Backend) -> RuleVerdict | None:
    """PTX that stands in for missing device code is one the driver can compile.

    Source: NVIDIA CUDA Programming Guide, "PTX Compatibility"; PTX ISA of each toolkit as its ptxas prints it; the
    toolkit a driver offers by its branch. A newer PTX is error 222.
    """
    driver, target = question.driver, question.target
    if driver is None or target is None or backend.spec.targets != "sm":
        return None
    rows = [row for row in _rows(question, backend) if targets_of(row, question.machine) is not None]
    row = rows[0] if rows else None
    if row is None or covers("sm", targets_of(row, question.machine) or (), target) is not None:
        return None
    if not any(runs_ptx(virtual, target) for virtual in row.texts("ptx") or ()):
        return None
    made, offered = _isa(backend, row.text("toolkit")), _isa(backend, reported_toolkit(backend, driver))
    if made is None or offered is None:
        return None
    good = sort_key(made) <= sort_key(offered)
    return RuleVerdict(
        rule="framework-ptx",
        verdict="supported" if good else "unsupported",
        why=f"{describe(row)} has only PTX for {target}, of ISA {made}; driver {driver} compiles up to {offered}",
        source=row.source.text,
        fix="" if good else "a newer driver, or a build with code for the device",
    )


def _isa(backend: Backend, toolkit: str | None) -> str | None:
    """PTX ISA of a toolkit; of the newest older one where a release printed none (there was no toolkit 12.7)."""
    if toolkit is None:
        return None
    older = [row for row in backend.rows("target") if sort_key(row.text("toolkit") or "")[0] <= sort_key(toolkit)[0]]
    return max(older, key=lambda row: sort_key(row.text("toolkit") or "")).text("ptx_isa") if older else None


def target_features(question: Question, backend: Backend) -> RuleVerdict | None:
    """The device can have the target features that are asked (xnack, sramecc).

    Source: LLVM AMDGPU usage guide, "Target Features"; ROCm/TheRock cmake/therock_amdgpu_targets.cmake. Code without a
    feature in its target ID runs with either setting.
    """
    target, features = question.target, question.features
    row = next((row for row in backend.rows("device") if row.text("target") == target), None)
    if features is None or row is None:
        return None
    for feature in features.split(":"):
        name, sign = feature[:-1], feature[-1]
        can = row.text(name)
        if sign == "+" and can in ("unsupported", "no"):
            return RuleVerdict(
                rule="target-features",
                verdict="unsupported",
                why=f"{target} cannot have {name} ({can})",
                source=row.source.text,
                fix=f"arch={target}",
            )
        if can in (None, "unknown"):
            why = f"no source says whether {target} has {name}"
            fix = f"arch={target}, without {name}"
            return RuleVerdict(rule="target-features", verdict="unknown", why=why, source=row.source.text, fix=fix)
    why = f"{features} can be set on {target}; code without a feature in its target runs with either"
    return RuleVerdict(rule="target-features", verdict="supported", why=why, source=row.source.text)


def _rows(question: Question, backend: Backend) -> list[Row]:
    """Sets that agree with every package and the toolkit asked for, most trusted first."""
    rows = [
        row
        for table in set_tables(backend)
        for row in table.rows
        if any(package in row.packages() for package in question.packages)
        and all(
            agrees(backend, row, package, version)
            for package, version in question.packages.items()
            if package in row.packages()
        )
        and (question.toolkit is None or toolkit_agrees(row, question.toolkit) is not False)
        and (question.machine is None or _built_for(row, question.machine))
    ]
    return sorted(rows, key=lambda row: not row.flag("default"))


def _built_for(row: Row, machine: str) -> bool:
    """Whether a set has wheels for a machine architecture, or may have."""
    listed = row.texts("arch")
    return listed is None or machine in listed or machine in (row.texts("arch_unsure") or ())


def _target_fix(question: Question, target: str, backend: Backend) -> str:
    """Another build of the same packages that has the target, the nearest other version that has, or other devices."""
    machine = question.machine
    rows = [
        row
        for table in set_tables(backend, "core")
        for row in table.rows
        if any(package in row.packages() for package in question.packages)
    ]
    able = [row for row in rows if _carries(backend, row, target, machine)]
    able = [row for row in able if row.confidence != "uncertain"] or able
    same = [row for row in able if any(agrees(backend, row, *item) for item in question.packages.items())]
    if same:
        return f"another build: {', '.join(sorted(row.text('set') or '' for row in same))}"
    own = [row for row in rows if any(agrees(backend, row, *item) for item in question.packages.items())]
    other = next((arch for arch in ARCHES if any(_carries(backend, row, target, arch) for row in own)), None)
    if other is not None and machine is not None:
        return f"the build for {other}"
    forced = _override(target, {code for row in own for code in targets_of(row, machine) or ()})
    if able:
        return f"a set with {target}: {_nearest(able, own).text('set')}" + forced
    asked = own or _rows(question, backend)  # a companion stands in no table of the core
    carried = sorted({code for row in asked for code in targets_of(row, machine) or ()})
    return f"no build listed carries {target}; one of the devices this one is for: {', '.join(carried)}" + forced


def _nearest(able: list[Row], own: list[Row]) -> Row:
    """The set whose versions are nearest to what was asked: the oldest of the newer ones, or the newest of the rest."""

    def key(row: Row) -> tuple[object, ...]:
        return tuple(sort_key(cell.partition("+")[0])[0] for cell in row.packages().values())[:1]

    asked = max((key(row) for row in own), default=())
    newer = [row for row in able if key(row) >= asked]
    return min(newer, key=key) if newer else max(able, key=key)


def _override(target: str, carried: set[str]) -> str:
    """What operators do at their own risk on AMD devices: run the code of a sibling (FR-09)."""
    kin = sorted(code for code in carried if len(target) > 6 and code[:-1] == target[:-1] and code != target)
    found = re.fullmatch(r"gfx(\d+)([0-9a-f])([0-9a-f])", kin[0]) if target.startswith("gfx") and kin else None
    if found is None:
        return ""
    version = f"{found[1]}.{int(found[2], 16)}.{int(found[3], 16)}"
    return (
        f"; operators force code for {kin[0]} with {GFX_OVERRIDE}={version}, which AMD does not support: at "
        "their risk, for that node class only, never inside an image"
    )


def _carries(backend: Backend, row: Row, target: str, machine: str | None) -> bool:
    """Whether a set has code for a target and wheels for a machine; as `row_target`, without words."""
    targets = targets_of(row, machine)
    if targets is None or (machine is not None and not _built_for(row, machine)):
        return False
    if covers(backend.spec.targets, targets, target, row.texts("ptx") or ()) is not None:
        return True
    return _exception(backend, targets, target, row.text("toolkit")) is not None
