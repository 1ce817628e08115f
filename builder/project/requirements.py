"""Requirement lines: PEP 508 strings, requirements.txt files, and the dependencies of a pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.errors import BadInput, Fault, Where, did_you_mean
from builder.project.table import parse_toml

__all__ = ["check_requirement", "read_requirements"]


def check_requirement(text: str) -> str | None:
    """What is wrong with one PEP 508 line, or None."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        return f"not a requirement: {text!r} ({str(error).splitlines()[0]})"
    if requirement.url is not None:
        return (
            f"requirement by URL: {text!r}; every locked file comes from an index or a find-links folder, "
            "so put the wheel into a folder named by find-links and ask for its version"
        )
    return None


def read_requirements(path: Path, extras: Sequence[str], faults: list[Fault]) -> tuple[str, ...]:
    """Requirement lines of a requirements.txt, or of a pyproject.toml with these extras; faults are appended."""
    if path.suffix == ".toml":
        return _from_pyproject(path, extras, faults)
    return _from_text(path, faults, seen=())


def _from_text(path: Path, faults: list[Fault], *, seen: tuple[Path, ...]) -> tuple[str, ...]:
    if path.resolve() in seen:
        faults.append(Fault(what=f"{path.name} includes itself", where=Where(file=str(path))))
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        faults.append(Fault(what=f"cannot read requirements file {path}: {error}", where=Where(file=str(path))))
        return ()
    good: list[str] = []
    pending = ""
    for number, line in enumerate(lines, start=1):
        text = pending + re.sub(r"(^|\s)#.*$", "", line)
        if text.endswith("\\"):
            pending = text[:-1]
            continue
        pending = ""
        text = text.strip()
        where = Where(file=str(path), line=number)
        include = re.match(r"(?:-r|--requirement)[\s=]+(\S+)", text)
        if include:
            good += _from_text(path.parent / include[1], faults, seen=(*seen, path.resolve()))
        elif text.startswith("-"):
            faults.append(
                Fault(what=f"option in a requirements file: {text.split()[0]}", where=where, fix=_option_fix(text))
            )
        elif text:
            text = " ".join(re.sub(r"\s+--hash[=\s]\S+", "", text).split())
            if wrong := check_requirement(text):
                faults.append(Fault(what=wrong, where=where))
            else:
                good.append(text)
    return tuple(good)


def _option_fix(text: str) -> str:
    if re.match(r"-(-index-url|-extra-index-url|-find-links|i|f)\b", text):
        return "indexes and find-links folders belong in your pip or uv configuration, or come from the matrix"
    if re.match(r"-(-editable|e)\b", text):
        return "the project's own code goes into the image by [image] copy"
    return "remove the line; only requirements and -r lines are read"


def _from_pyproject(path: Path, extras: Sequence[str], faults: list[Fault]) -> tuple[str, ...]:
    try:
        data, lines = parse_toml(path)
    except BadInput as error:
        faults.append(Fault(what=f"{error.what}: {error.why}" if error.why else error.what, where=error.where))
        return ()
    project = data.get("project") or {}
    optional = {canonicalize_name(name): value for name, value in (project.get("optional-dependencies") or {}).items()}
    found = list(project.get("dependencies") or ())
    for extra in extras:
        name = canonicalize_name(extra)
        if name in optional:
            found += optional[name]
        else:
            faults.append(
                Fault(
                    what=f"{path.name} has no extra {extra!r}",
                    where=Where(file=str(path)),
                    fix=did_you_mean(extra, optional),
                )
            )
    where = Where(file=str(path), line=lines.get(("project", "dependencies")), key="project.dependencies")
    good = []
    for text in found:
        if wrong := check_requirement(text):
            faults.append(Fault(what=wrong, where=where))
        else:
            good.append(text)
    return tuple(good)
