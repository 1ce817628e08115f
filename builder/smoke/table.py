"""Reads checks/<backend>/checks.toml: which checks a backend has, what each needs, which frameworks it can use."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from builder.errors import BadInput, Fault, Where, did_you_mean, raise_faults

__all__ = ["CheckTable", "Framework", "TableCheck", "load_table"]

WithoutFramework = Literal["leave-out", "not-run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """A distribution that can compute on the backend's device."""

    distribution: str
    """Normalised name, as locks spell it."""
    module: str
    """The part of checks/common/frameworks.py that speaks to it."""
    device: str
    """What the framework calls the device: `cuda`, `xpu`, an execution provider."""
    imports: tuple[str, ...] = ()
    """Modules imported first, which register the device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCheck:
    """One row."""

    name: str
    program: str | None
    """Path under checks/; None for the project's own warmup command."""
    timeout: float
    """Seconds; the warmup's own limit is the project's."""
    needs: tuple[str, ...] = ()
    """Names of checks before it that must have passed, or this one is not run."""
    frameworks: tuple[str, ...] = ()
    """Run once for each of these that the lock holds; empty: run once."""
    without_framework: WithoutFramework = "not-run"
    """What an image with none of them gets: `leave-out` where nothing is then left to check, else `not-run`."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckTable:
    """All rows of one backend, in the order they run."""

    backend: str
    frameworks: Mapping[str, Framework]
    checks: tuple[TableCheck, ...]


_CHECK_KEYS = {"name", "program", "warmup", "timeout", "needs", "frameworks", "without-framework", "options"}
_FRAMEWORK_KEYS = {"module", "device"}
_FRAMEWORK_OPTIONAL = {"imports"}


def load_table(checks: Path, backend: str) -> CheckTable:
    """The table of one backend below the folder `checks`; `BadInput` with every fault of the file."""
    path = checks / backend / "checks.toml"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = [found.parent.name for found in checks.glob("*/checks.toml")]
        raise BadInput(
            f"backend {backend!r} has no checks",
            why=f"there is no {path.name} for it",
            fix=did_you_mean(backend, known),
            where=Where(file=str(path)),
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput("a table of checks cannot be read", why=str(error), where=Where(file=str(path))) from error
    raise_faults(f"the checks of {backend} cannot be used", _faults(document, checks, path))
    return CheckTable(
        backend=backend,
        frameworks={
            name: Framework(
                distribution=name, module=row["module"], device=row["device"], imports=tuple(row.get("imports", ()))
            )
            for name, row in document.get("frameworks", {}).items()
        },
        checks=tuple(_check(row) for row in document["check"]),
    )


def _check(row: Mapping[str, Any]) -> TableCheck:
    return TableCheck(
        name=row["name"],
        program=row.get("program"),
        timeout=float(row.get("timeout", 300)),
        needs=tuple(row.get("needs", ())),
        frameworks=tuple(row.get("frameworks", ())),
        without_framework=row.get("without-framework", "not-run"),
        options=row.get("options", {}),
    )


def _faults(document: Mapping[str, Any], checks: Path, path: Path) -> Iterator[Fault]:
    def fault(what: str, key: str, fix: str = "") -> Fault:
        return Fault(what=what, where=Where(file=str(path), key=key), fix=fix)

    for key in document.keys() - {"frameworks", "check"}:
        yield fault(f"unknown key {key!r}", key, did_you_mean(key, {"frameworks", "check"}))
    frameworks = document.get("frameworks", {})
    for name, row in frameworks.items():
        if set(row) - _FRAMEWORK_OPTIONAL != _FRAMEWORK_KEYS:
            yield fault("needs module and device, and may have imports", f"frameworks.{name}")
        elif not _words(row.get("imports", [])):
            yield fault("imports is not a list of module names", f"frameworks.{name}")
    rows = document.get("check", [])
    if not rows:
        yield fault("has no [[check]]", "check")
    seen: list[str] = []
    for number, row in enumerate(rows):
        name = row.get("name", f"check[{number}]")
        for key in row.keys() - _CHECK_KEYS:
            yield fault(f"unknown key {key!r}", name, did_you_mean(key, _CHECK_KEYS))
        if "name" not in row:
            yield fault("has no name", name)
        if name in seen:
            yield fault("is there twice", name)
        if ("program" in row) == bool(row.get("warmup")):
            yield fault("needs either a program or warmup = true", name)
        if "program" in row and not (checks / row["program"]).is_file():
            yield fault(f"names a program that is not there: {row['program']}", name)
        for need in set(row.get("needs", ())) - set(seen):
            yield fault(f"needs {need!r}, which is not a check before it", name, did_you_mean(need, seen))
        for framework in set(row.get("frameworks", ())) - set(frameworks):
            yield fault(f"names an unknown framework {framework!r}", name, did_you_mean(framework, frameworks))
        if row.get("without-framework", "not-run") not in ("leave-out", "not-run"):
            yield fault("without-framework is leave-out or not-run", name)
        seen.append(name)


def _words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
