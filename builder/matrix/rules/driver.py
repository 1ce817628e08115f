"""Rules on the kernel driver of a node: what the toolkit asks of it, and what the device does."""

from __future__ import annotations

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.sets import touches
from builder.matrix.tables import Row
from builder.matrix.values import RuleVerdict, Verdict
from builder.matrix.versions import matches, parse, sort_key, within

__all__ = ["device_driver", "driver_floor", "driver_window", "reported_toolkit", "require_toolkit"]


def _at_least(driver: str, floor: str) -> bool | None:
    """Whether a driver is `floor` or newer; None when only its branch is known and that is the floor's own."""
    have, need = parse(driver), parse(floor)
    if have is None or need is None:
        return None
    if len(have.release) == 1 and have.major == need.major and len(need.release) > 1:
        return None
    return have >= need


def driver_floor(question: Question, backend: Backend) -> RuleVerdict | None:
    """Driver at least the one a toolkit release was made for, or the oldest of its major.

    Source: NVIDIA CUDA Toolkit release notes, table of toolkit and corresponding driver versions; NVIDIA CUDA
    Compatibility, "Minor Version Compatibility": within a major a driver of the major's first release is enough, but
    PTX of a newer toolkit than the driver cannot be compiled there (error 222).
    """
    toolkit, driver = question.toolkit, question.driver
    if toolkit is None or driver is None:
        return None
    rows = [row for row in backend.rows("driver-floor") if touches(toolkit, row.text("toolkit") or "")]
    row = _made_for(rows, backend)
    floor = row.text("driver") if row else None
    branch = row.text("branch") if row else None
    made_for = f">= {floor}" if floor else f"of branch {branch} or newer" if branch else ""
    enough = _at_least(driver, floor or branch or "") if row and (floor or branch) else None
    name = f"{backend.spec.toolkit} {toolkit}"
    if row is not None and enough:
        why = f"{name} was made for driver {made_for}; {driver} is"
        return RuleVerdict(rule="driver-floor", verdict="supported", why=why, source=row.source.text)
    family = next((row for row in backend.rows("driver-family") if row.text("family") == toolkit.split(".")[0]), None)
    if family is None or (row is None and not rows):
        why = f"the tables have no driver for {name}"
        return _unknown("driver-floor", why, f"a release among {_known(backend)}", backend.spec.source)
    oldest = family.text("driver") or ""
    by_family = _at_least(driver, oldest)
    if by_family:
        why = (
            f"driver {driver} is older than what {name} was made for ({made_for or 'not known'}), and new enough for "
            f"its major ({oldest}): minor-version compatibility; PTX newer than the driver cannot be compiled there"
        )
        return RuleVerdict(rule="driver-floor", verdict="supported", why=why, source=family.source.text)
    if by_family is None and sort_key(_oldest_of(backend, oldest)) >= sort_key(oldest):
        why = f"branch {driver} begins with {oldest}, which is enough for any CUDA {family.text('family')}.x"
        return RuleVerdict(rule="driver-floor", verdict="supported", why=why, source=family.source.text)
    if by_family is None or (enough is None and row is not None and floor is not None and by_family is not False):
        fix = f"give the full version: {oldest} is the oldest that will do"
        return _unknown("driver-floor", f"{driver} names only a branch", fix, family.source.text)
    return RuleVerdict(
        rule="driver-floor",
        verdict="unsupported",
        why=f"{name} needs driver >= {oldest} (made for {made_for or 'a newer one'}); {driver} is older",
        source=family.source.text,
        fix=_driver_fix(backend, driver, oldest),
    )


def _oldest_of(backend: Backend, driver: str) -> str:
    """The oldest driver the tables know of the branch a driver is of: R450 has older ones than its major needs."""
    kin = [
        other
        for row in backend.rows("driver-floor")
        if (other := row.text("driver")) is not None and other.split(".")[0] == driver.split(".")[0]
    ]
    return min([driver, *kin], key=sort_key)


def _made_for(rows: list[Row], backend: Backend) -> Row | None:
    """The row that decides for a release as asked: of several (12.8 stands for 12.8.0, 12.8.1 …) the oldest."""
    for row in sorted(rows, key=lambda row: sort_key(row.text("toolkit") or "")):
        target = row.text("same_as")
        if target is not None:
            return next((other for other in backend.rows("driver-floor") if other.text("toolkit") == target), None)
        if row.text("driver") or row.text("branch"):
            return row
    return None


def _driver_fix(backend: Backend, driver: str, oldest: str) -> str:
    fitting = [
        row.text("toolkit") or ""
        for row in backend.rows("driver-floor")
        if (floor := row.text("driver")) is not None and _at_least(driver, floor)
    ]
    families = [
        row.text("family") or "" for row in backend.rows("driver-family") if _at_least(driver, row.text("driver") or "")
    ]
    fix = f"driver >= {oldest}"
    if families:
        fix += f", or a toolkit {max(families, key=sort_key)}.x"
    elif fitting:
        fix += f", or toolkit <= {max(fitting, key=sort_key)}"
    return fix


def _known(backend: Backend) -> str:
    names = sorted({row.text("toolkit") or "" for row in backend.rows("driver-floor")}, key=sort_key)
    return f"{names[0]} to {names[-1]}" if names else "the tables"


def driver_window(question: Question, backend: Backend) -> RuleVerdict | None:
    """Driver (or firmware package) among those listed with a toolkit.

    Source: ROCm "User and AMD GPU Driver support matrix" and compatibility matrix; CANN release notes on HDK;
    aws-neuron-sdk release notes on aws-neuronx-dkms. The row that decides is named.
    """
    toolkit = question.toolkit
    driver = question.driver or question.firmware
    if toolkit is None or driver is None:
        return None
    found: Row | None = None
    closed: Row | None = None
    listed: list[str] = []
    for row in backend.rows("driver-window"):
        toolkits, drivers = row.texts("toolkit") or (), row.texts("driver") or ()
        by_toolkit = any(touches(toolkit, cell) for cell in toolkits)
        by_driver = matches(driver, drivers)
        if by_toolkit and by_driver:
            if found is None or row.text("verdict") == "unsupported":
                found = row
        elif by_toolkit and row.text("verdict") == "supported":
            listed += [cell for cell in drivers if cell not in listed]
            if row.text("closed") == "driver":
                closed = row
        elif by_driver and row.text("closed") == "toolkit" and _listed_when(toolkit, row):
            closed = closed or row
    name = f"{backend.spec.toolkit} {toolkit}"
    fix = f"a driver among: {', '.join(_show(cell) for cell in listed)}" if listed else ""
    if found is not None:
        verdict: Verdict = "supported" if found.text("verdict") == "supported" else "unsupported"
        why = f"{name} with driver {driver} is listed as {verdict}"
        if found.note:
            why += f" ({found.note})"
        return RuleVerdict(
            rule="driver-window",
            verdict=verdict,
            why=why,
            source=found.source.text,
            fix="" if verdict == "supported" else fix or _other_than(found),
        )
    if closed is not None:
        why = f"driver {driver} is not among those {name} is listed with"
        return RuleVerdict(
            rule="driver-window",
            verdict="unsupported",
            why=why,
            source=closed.source.text,
            fix=fix or "another toolkit",
        )
    fix = fix or f"another release: no table lists a driver of {name}"
    return _unknown("driver-window", f"no row puts driver {driver} with {name}", fix, backend.spec.source)


def _listed_when(toolkit: str, row: Row) -> bool:
    """A list is only closed for what existed when it was written: up to `closed_until`, or its newest entry."""
    until = row.text("closed_until")
    cells = (until,) if until is not None else row.texts("toolkit") or ()
    newest = max((sort_key(cell) for cell in cells), default=None)
    return newest is not None and sort_key(toolkit) <= newest


def _other_than(row: Row) -> str:
    drivers, toolkits = (", ".join(_show(cell) for cell in row.texts(name) or ()) for name in ("driver", "toolkit"))
    return f"a driver other than {drivers}, or a toolkit other than {toolkits}"


def _show(cell: str) -> str:
    return cell.removeprefix("==").replace(".*", ".x")


def device_driver(question: Question, backend: Backend) -> RuleVerdict | None:
    """Driver branch that still (or already) knows the device.

    Source: NVIDIA "CUDA Toolkit, Driver and Architecture Matrix" (last branch of Kepler, and of Maxwell, Pascal and
    Volta); CUDA Compatibility: Blackwell needs 570.26.
    """
    driver, target = question.driver, question.target
    if driver is None or target is None:
        return None
    rows = [row for row in backend.rows("device") if row.text("target") == target]
    have = parse(driver)
    if have is None or not rows:
        return None
    row = rows[0]
    last, first = row.text("driver_last"), row.text("driver_first")
    if last is not None and have.major > int(last):
        return RuleVerdict(
            rule="device-driver",
            verdict="unsupported",
            why=f"branch {last} is the last that drives {target} ({row.text('architecture')}); {driver} is newer",
            source=row.source.text,
            fix=f"driver branch {last}",
        )
    if first is not None and _at_least(driver, first) is False:
        return RuleVerdict(
            rule="device-driver",
            verdict="unsupported",
            why=f"{target} ({row.text('architecture')}) needs driver >= {first}; {driver} is older",
            source=row.source.text,
            fix=f"driver >= {first}",
        )
    if last is None and first is None:
        return None
    why = f"driver {driver} knows {target}"
    return RuleVerdict(rule="device-driver", verdict="supported", why=why, source=row.source.text)


def _unknown(rule: str, why: str, fix: str, source: str) -> RuleVerdict:
    return RuleVerdict(rule=rule, verdict="unknown", why=why, source=source, fix=fix)


def reported_toolkit(backend: Backend, driver: str) -> str | None:
    """The toolkit version a driver itself offers, by its branch (what nvidia-smi prints as CUDA version)."""
    have = parse(driver)
    if have is None:
        return None
    return next(
        (
            row.text("toolkit")
            for row in backend.rows("driver-branch")
            if within(str(have.major), row.text("branch") or "")
        ),
        None,
    )


def require_toolkit(question: Question, backend: Backend) -> RuleVerdict | None:
    """The image's own requirement on the driver, which the container runtime checks at start, holds.

    Source: NVIDIA/nvidia-container-toolkit, NVIDIA/libnvidia-container: NVIDIA_REQUIRE_CUDA compares with the CUDA
    version of the host driver and knows nothing of minor-version compatibility (FR-05).
    """
    wanted = backend.spec.runtime.env.get("NVIDIA_REQUIRE_CUDA", "")
    if question.toolkit is None or question.driver is None or "{toolkit}" not in wanted:
        return None
    offered = reported_toolkit(backend, question.driver)
    if offered is None or sort_key(offered) >= sort_key(".".join(question.toolkit.split(".")[:2])):
        return None
    text = wanted.replace("{toolkit}", question.toolkit)
    return RuleVerdict(
        rule="require-cuda",
        verdict="unsupported",
        why=f"the image asks NVIDIA_REQUIRE_CUDA={text}, driver {question.driver} offers {offered}: the container is "
        "refused at start, minor-version compatibility does not lift that",
        source="NVIDIA/nvidia-container-toolkit@d34b3046 (2026-08-21); NVIDIA/libnvidia-container src/dsl.c@5823754b",
        fix=f"a build for toolkit <= {offered}, or a newer driver",
    )
