"""Writes a first builder.toml: filled from what the folder holds, the rest commented out with what it is for.

`survey` looks at the folder, `render` is pure, `write_project` puts the file there and reads it back as any user of it
would, so that a file this module wrote always loads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.errors import BadInput, Fault, Refused, where_path
from builder.names import ARCHES
from builder.project.load import FILE_NAME, TAG_FIELDS, load_project
from builder.project.requirements import read_requirements
from builder.project.table import parse_toml
from builder.project.values import DEFAULT_TAG
from builder.store import disk_errors

__all__ = ["Rejected", "Survey", "render", "survey", "write_project"]

_PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.10")
"""Interpreters in the order they are tried: 3.11 is the one of the built-in base."""
_SCRIPTS = ("app.py", "main.py", "server.py", "service.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """A requirements file that cannot be used as it is."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What a folder tells about its project. Empty means that the folder does not say."""

    name: str
    version: str = ""
    description: str = ""
    license: str = ""
    source: str = ""
    python: str = ""
    """Minor version, e.g. `3.12`."""
    requirement_files: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    extras: tuple[str, ...] = ()
    """Extras of the pyproject.toml, for the user to choose from."""
    entrypoint: tuple[str, ...] = ()
    copy: tuple[tuple[str, str], ...] = ()
    """(path in the project, path in the image)."""


def survey(folder: Path) -> Survey:
    """Look at a project's folder: pyproject.toml, requirements files, what looks like the program."""
    pyproject = folder / "pyproject.toml"
    data = parse_toml(pyproject)[0] if pyproject.is_file() else {}
    project = data.get("project")
    project = project if isinstance(project, dict) else {}
    found = ["pyproject.toml"] if "dependencies" in project or "optional-dependencies" in project else []
    found += sorted(path.name for path in folder.glob("requirements*.txt")) if not found else []
    usable: list[str] = []
    rejected: list[Rejected] = []
    for name in found:
        faults: list[Fault] = []
        read_requirements(folder / name, (), faults)
        if faults:
            rejected.append(Rejected(file=name, reason="; ".join(str(fault) for fault in faults)))
        else:
            usable.append(name)
    name = _name(_text(project, "name") or folder.resolve().name)
    entrypoint, copy = _program(folder, name)
    return Survey(
        name=name,
        version=_version(_text(project, "version")),
        description=_text(project, "description"),
        license=_text(project, "license"),
        source=_source(project.get("urls")),
        python=_python(_text(project, "requires-python")),
        requirement_files=tuple(usable),
        rejected=tuple(rejected),
        extras=tuple(sorted(project.get("optional-dependencies") or ())) if "pyproject.toml" in usable else (),
        entrypoint=entrypoint,
        copy=copy,
    )


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value.strip() if isinstance(value, str) else ""


def _name(text: str) -> str:
    return canonicalize_name(re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")) or "service"


def _version(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion:
        return ""


def _source(urls: object) -> str:
    if not isinstance(urls, dict):
        return ""
    by_label = {re.sub(r"[^a-z]", "", label.lower()): url for label, url in urls.items() if isinstance(url, str)}
    wanted = ("source", "sourcecode", "repository", "github", "homepage")
    return next((by_label[label] for label in wanted if label in by_label), "")


def _python(requires: str) -> str:
    """The first interpreter of `_PYTHONS` that `requires-python` admits in its first or latest patch release."""
    if not requires:
        return ""
    try:
        allowed = SpecifierSet(requires)
    except InvalidSpecifier:
        return ""
    return next((minor for minor in _PYTHONS if f"{minor}.0" in allowed or f"{minor}.99" in allowed), "")


def _program(folder: Path, name: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Command and files of a package that runs with `python -m`, or of a single script."""
    mains = sorted([*folder.glob("*/__main__.py"), *folder.glob("src/*/__main__.py")])
    packages = [path.parent for path in mains if path.parent.name not in ("src", "tests")]
    preferred = sorted(packages, key=lambda path: (canonicalize_name(path.name) != name, path))
    if preferred:
        package = preferred[0]
        source = package.relative_to(folder).as_posix()
        return ("python", "-m", package.name), ((source, f"/app/{package.name}"),)
    script = next((script for script in _SCRIPTS if (folder / script).is_file()), None)
    return (("python", script), ((script, f"/app/{script}"),)) if script else ((), ())


def _toml(value: object) -> str:
    """A string, or a list of strings, as TOML: JSON's strings are TOML's basic strings (TOML 1.0, "String")."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(lines: Iterable[str]) -> list[str]:
    return [f"# {line}".rstrip() for line in lines]


def render(found: Survey) -> str:
    """The text of builder.toml. Every key that the loader knows appears, set or commented out."""
    lines = _comment(
        [
            "What `builder` builds of this project; docs/project-file.md explains every key.",
            "Try: builder lock --backend cpu",
        ]
    )
    lines.append(f"name = {_toml(found.name)}")
    lines.append(f"version = {_toml(found.version or '0.1.0')}{'' if found.version else '  # not found; put yours'}")
    lines.append(_set_or_hint("description", found.description, "What the image is, in one sentence."))
    lines.append(_set_or_hint("license", found.license, "Apache-2.0"))
    lines.append(_set_or_hint("source", found.source, "https://example.org/repository"))
    lines += ["", *_comment(["The interpreter in the image, and the machine it runs on: " + " or ".join(ARCHES) + "."])]
    lines.append(_set_or_hint("python", found.python, "3.11"))
    lines.append(_set_or_hint("arch", "", ARCHES[0]))
    lines += ["", *_requirements(found), "", *_IMAGE_NOTES]
    lines += ["[image]", *_image(found), "", *_WARMUP, "", *_AUDIT, "", *_BACKENDS]
    return "\n".join(lines) + "\n"


def _set_or_hint(key: str, value: str, hint: str) -> str:
    return f"{key} = {_toml(value)}" if value else f"# {key} = {_toml(hint)}"


def _requirements(found: Survey) -> list[str]:
    lines = _comment(["What every backend installs. Frameworks that differ by backend go below [backend.…] instead."])
    if found.requirement_files:
        lines.append(f"requirements-files = {_toml(list(found.requirement_files))}")
    else:
        lines.append('# requirements-files = ["requirements.txt"]')
    for rejected in found.rejected:
        lines += _comment([f"left out {rejected.file}: {' '.join(rejected.reason.split())}"])
    lines.append('# requirements = ["numpy>=2,<3"]')
    hint = f"  # of pyproject.toml: {', '.join(found.extras)}" if found.extras else "  # of pyproject.toml"
    lines.append(f'# extras = ["serve"]{hint}')
    return lines


def _image(found: Survey) -> list[str]:
    lines = []
    if found.entrypoint:
        lines.append(f"entrypoint = {_toml(list(found.entrypoint))}")
        lines.append("copy = [" + ", ".join(f"{{ from = {_toml(a)}, to = {_toml(b)} }}" for a, b in found.copy) + "]")
    else:
        lines.append('# entrypoint = ["python", "-m", "service"]')
        lines.append('# copy = ["service"]  # or { from = "src/service", to = "/app/service" }')
    return [*lines, *_IMAGE_HINTS]


_IMAGE_NOTES = [
    "# Where images go: a repository, or a folder as oci:DIR; without it a layout beside this file.",
    '# registry = "registry.example.org/team/service"',
    f"# tag = {json.dumps(DEFAULT_TAG)}  # fields: {', '.join(TAG_FIELDS)}",
    "# The image to build on. Without it each backend takes the base that its matrix names.",
    '# base = "debian:bookworm"',
    "",
]
_IMAGE_HINTS = [
    '# command = ["--port", "8080"]',
    '# user = "10001:10001"  # numeric, never root',
    '# workdir = "/app"',
    '# ports = ["8080"]',
    "# compile-bytecode = false  # true: large frameworks start in seconds, for some megabytes more",
    '# compression = "gzip"  # or "zstd": smaller and quicker to unpack, from Docker 23 and containerd 1.5 on',
    "# estargz = false  # true: a runtime with a stargz snapshotter starts before the layers are pulled",
    '# env = { PYTHONUNBUFFERED = "1" }',
    '# labels = { "org.example.team" = "search" }',
]
_WARMUP = [
    "# Run inside the finished image with one real batch; it must exit 0 before the image is published.",
    "# [warmup]",
    '# command = ["python", "-m", "service", "--once"]',
    "# timeout = 300  # seconds",
]
_AUDIT = [
    "# Findings of the audit to live with until a day.",
    "# [audit]",
    '# exception = [{ package = "name", rule = "foreign-soft", reason = "why it does no harm", expires = 2030-01-01 }]',
]
_BACKENDS = [
    "# One table for each backend whose image differs; `builder matrix list` names them.",
    "# [backend.npu]",
    '# requirements = ["torch-npu==2.13.0", "torch==2.13.0+cpu"]  # added to the ones above',
    '# exclude = ["onnxruntime"]  # names of the ones above that this backend leaves out',
    '# overrides = ["numpy==2.2.6"]  # replace whatever version anything asks for',
    '# translations = ["zluda"]  # layers in the image that stand in for another vendor\'s libraries',
    '# max-size = "4.5 GB"  # refuse a larger image, its largest layers named',
    '# toolkit = "9.1"  # without it the newest coherent one',
    '# base = "debian:bookworm"',
    '# python = "3.11"',
    '# env = { OMP_NUM_THREADS = "4" }',
    '# node-classes = ["ascend-910b"]  # the pools this image is for',
]


def write_project(folder: Path) -> tuple[Path, Survey]:
    """Write builder.toml into a folder; refuses when the folder has a project file already."""
    if not folder.is_dir():
        raise BadInput(f"no such folder: {folder}", fix="give the folder of your project")
    path = folder / FILE_NAME
    pyproject = folder / "pyproject.toml"
    found = survey(folder)
    if pyproject.is_file() and "builder" in (parse_toml(pyproject)[0].get("tool") or {}):
        raise Refused(
            f"{folder} is described already",
            why="pyproject.toml has a [tool.builder] table",
            fix="change that table, or remove it first",
            where=where_path(pyproject, key="tool.builder"),
        )
    try:
        with disk_errors(path), path.open("x", encoding="utf-8") as file:
            file.write(render(found))
    except FileExistsError as error:
        raise Refused(
            f"{path} exists",
            why="nothing is overwritten",
            fix="change it, or move it away first",
            where=where_path(path),
        ) from error
    load_project(path)
    return path, found
