"""Reads builder.toml, or `[tool.builder]` of pyproject.toml; reports every fault at once, with file and line."""

from __future__ import annotations

import re
import string
from decimal import Decimal
from pathlib import Path
from typing import Any, cast, get_args

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder import resources
from builder.errors import BadInput, did_you_mean, raise_faults
from builder.names import ARCHES, GFX_OVERRIDE, Arch
from builder.project.exceptions import AuditException, parse_exceptions
from builder.project.requirements import check_requirement, read_requirements
from builder.project.table import Faults, Table, parse_toml
from builder.project.values import (
    DEFAULT_TAG,
    BackendOptions,
    Compression,
    CopyRule,
    ImageOptions,
    Project,
    Warmup,
)

__all__ = ["TAG_FIELDS", "find_project", "load_project"]

FILE_NAME = "builder.toml"
TAG_FIELDS = ("name", "version", "backend", "toolkit", "arch", "python")


def find_project(start: Path) -> Path:
    """The project file: `start` itself when it is a file, else in `start` or the nearest folder above it."""
    if start.is_file():
        return start
    if not start.is_dir():
        raise BadInput(f"no such project: {start}", fix="give a builder.toml, a pyproject.toml or their folder")
    folder = start.resolve()
    without = None
    for candidate in (folder, *folder.parents):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
        pyproject = candidate / "pyproject.toml"
        if pyproject.is_file() and "builder" in (parse_toml(pyproject)[0].get("tool") or {}):
            return pyproject
        if without is None and pyproject.is_file():
            without = pyproject
    raise BadInput(
        f"no project file in {start} or above",
        why="looked for builder.toml and for [tool.builder] in pyproject.toml"
        + (f"; {without} has no such table" if without else ""),
        fix="`builder init` writes a commented builder.toml" + (" from what that file says" if without else ""),
    )


def load_project(path: Path) -> Project:
    """The project a file describes. Raises `BadInput` with every fault found."""
    data, lines = parse_toml(path)
    defaults: dict[str, Any] = {}
    key: tuple[str, ...] = ()
    if path.name == "pyproject.toml":
        project = data.get("project") or {}
        defaults = {
            name: project[name] for name in ("name", "version", "description") if isinstance(project.get(name), str)
        }
        data = (data.get("tool") or {}).get("builder") or {}
        key = ("tool", "builder")
    faults = Faults(str(path), lines)
    top = Table({**defaults, **data}, key, faults)
    loaded = _project(top, path, from_pyproject=bool(key))
    raise_faults(f"{path.name} cannot be used", faults.found)
    return loaded


def _project(top: Table, path: Path, *, from_pyproject: bool) -> Project:
    name = _required(top, "name", _check_name)
    version = _required(top, "version", _check_version)
    extras = top.texts("extras")
    requirements = list(top.texts("requirements", check=check_requirement))
    files = top.texts("requirements-files")
    for file in (*(("pyproject.toml",) if from_pyproject else ()), *files):
        requirements += read_requirements(
            path.parent / file, extras if file.endswith(".toml") else (), top.faults.found
        )
    if extras and not from_pyproject and not any(file.endswith(".toml") for file in files):
        top.fault("extras", "extras are given, but no pyproject.toml", 'add requirements-files = ["pyproject.toml"]')
    project = Project(
        path=path,
        name=canonicalize_name(name),
        version=version,
        python=top.text("python", check=_check_python) or "3.11",
        arch=cast("Arch", top.text("arch", check=_check_arch) or "x86_64"),
        requirements=tuple(dict.fromkeys(requirements)),
        image=_image(top.table("image"), path.parent),
        backends=_backends(top.table("backend")),
        base=top.text("base"),
        warmup=_warmup(top.table("warmup")),
        registry=top.text("registry"),
        tag=top.text("tag", check=_check_tag) or DEFAULT_TAG,
        exceptions=_exceptions(top.table("audit")),
        description=top.text("description") or "",
        license=top.text("license") or "",
        source=top.text("source") or "",
    )
    top.finish()
    return project


def _required(table: Table, name: str, check: Any) -> str:
    if name not in table.data:
        table.fault(name, f"{name} is missing", f'add {name} = "…"')
    return table.text(name, check=check) or "unnamed"


def _image(table: Table, root: Path) -> ImageOptions:
    image = ImageOptions(
        entrypoint=table.texts("entrypoint"),
        command=table.texts("command"),
        user=table.text("user", check=_check_user) or "10001:10001",
        workdir=table.text("workdir", check=_check_absolute) or "/app",
        env=_variables(table),
        labels=table.strings("labels"),
        ports=tuple(port if "/" in port else f"{port}/tcp" for port in table.texts("ports", check=_check_port)),
        copy=tuple(rule for item in table.items("copy") if (rule := _copy_rule(table, item, root))),
        compile_bytecode=table.flag("compile-bytecode"),
        compression=cast("Compression", table.text("compression", check=_check_compression) or "gzip"),
        estargz=table.flag("estargz"),
    )
    if image.estargz and image.compression != "gzip":
        table.fault(
            "estargz", f"eStargz layers cannot be compressed by {image.compression}", "leave out one of the two"
        )
    table.finish()
    return image


def _variables(table: Table) -> dict[str, str]:
    """The environment of the image, without what is for a node class alone to set."""
    env = table.strings("env")
    if GFX_OVERRIDE in env:
        table.fault(
            "env",
            f"{GFX_OVERRIDE} is not set in an image: it would make every node take its device for another",
            f'record it on the one node class that needs it: env = ["{GFX_OVERRIDE}={env[GFX_OVERRIDE]}"] in its file',
        )
    return env


def _copy_rule(table: Table, item: object, root: Path) -> CopyRule | None:
    if isinstance(item, str):
        source, target = item, None
    elif isinstance(item, dict) and set(item) <= {"from", "to"} and isinstance(item.get("from"), str):
        source, target = item["from"], item.get("to")
    else:
        table.fault("copy", f"not a copy rule: {item!r}", 'write "app.py" or { from = "app", to = "/app/app" }')
        return None
    clean = source.rstrip("/")
    if not clean or clean.startswith("/") or ".." in clean.split("/"):
        table.fault("copy", f"copy source {source!r} is not a path inside the project")
        return None
    if target is not None and (not isinstance(target, str) or _check_absolute(target)):
        table.fault("copy", f"copy target {target!r} must be an absolute path without '..'")
        return None
    if not (root / clean).exists():
        table.fault("copy", f"copy source {source!r} does not exist", f"it is looked for in {root}")
        return None
    workdir = table.data.get("workdir", "/app")
    return CopyRule(source=clean, target=target or f"{workdir}/{clean}")


def _warmup(table: Table) -> Warmup | None:
    command = table.texts("command")
    timeout = table.number("timeout", 300.0)
    table.finish()
    if table.data and not command:
        table.fault("command", "warmup has no command", 'write command = ["python", "warmup.py"]')
    return Warmup(command=command, timeout=timeout) if command else None


def _exceptions(table: Table) -> tuple[AuditException, ...]:
    found, wrong = parse_exceptions(table.items("exception"))
    for what, fix in wrong:
        table.fault("exception", what, fix)
    table.finish()
    return found


def _backends(table: Table) -> dict[str, BackendOptions]:
    known = resources.backends()
    found: dict[str, BackendOptions] = {}
    for name in table.data:
        options = table.table(name)
        if name not in known:
            table.fault(name, f"unknown backend {name!r}", did_you_mean(name, known))
            continue
        found[name] = BackendOptions(
            requirements=options.texts("requirements", check=check_requirement),
            overrides=options.texts("overrides", check=check_requirement),
            toolkit=options.text("toolkit"),
            base=options.text("base"),
            env=_variables(options),
            node_classes=options.texts("node-classes"),
            python=options.text("python", check=_check_python),
            exclude=options.texts("exclude"),
            translations=options.texts("translations"),
            max_size=_size(options.text("max-size", check=_check_size)),
        )
        options.finish()
    return found


_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _check_size(text: str) -> str | None:
    if re.fullmatch(rf"\d+(\.\d+)?\s*({'|'.join(_UNITS)})", text) is None or _size(text) == 0:
        return f"size {text!r} must be a number above 0 with a unit of {', '.join(_UNITS)}, for example 4.5 GB"
    return None


def _size(text: str | None) -> int | None:
    """Bytes of a text that `_check_size` lets pass."""
    if text is None:
        return None
    unit = next(unit for unit in _UNITS if text.endswith(unit))
    return int(Decimal(text.removesuffix(unit).strip()) * _UNITS[unit])


def _check_name(text: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", text) is None:
        return f"name {text!r} may hold letters, digits and . _ - between letters or digits (PEP 508)"
    return None


def _check_version(text: str) -> str | None:
    try:
        Version(text)
    except InvalidVersion:
        return f"version {text!r} is not a version (PEP 440), for example 1.4.0 or 1.4.0rc1"
    return None


def _check_python(text: str) -> str | None:
    if re.fullmatch(r"3\.\d{1,2}", text) is None:
        return f"python {text!r} must be a minor version such as 3.11"
    return None


def _check_arch(text: str) -> str | None:
    return None if text in ARCHES else f"arch {text!r} must be one of {', '.join(ARCHES)}"


def _check_user(text: str) -> str | None:
    if re.fullmatch(r"[1-9]\d*(:\d+)?", text) is None:
        return f"user {text!r} must be a numeric uid or uid:gid above 0; images do not run as root"
    return None


def _check_compression(text: str) -> str | None:
    known = get_args(Compression)
    return None if text in known else f"compression {text!r} must be one of {', '.join(known)}"


def _check_absolute(text: str) -> str | None:
    if not text.startswith("/") or ".." in text.split("/"):
        return f"{text!r} must be an absolute path without '..'"
    return None


def _check_port(text: str) -> str | None:
    match = re.fullmatch(r"(\d{1,5})(?:/(?:tcp|udp))?", text)
    if match is None or not 0 < int(match[1]) < 65536:
        return f"port {text!r} must be 1 to 65535, optionally with /tcp or /udp"
    return None


def _check_tag(text: str) -> str | None:
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        return f"tag grammar {text!r}: {error}"
    for name in fields:
        if name not in TAG_FIELDS:
            return f"tag grammar has no field {{{name}}}: {did_you_mean(name, TAG_FIELDS)}"
    if "backend" not in fields:
        return f"tag grammar {text!r} must hold {{backend}}: one tag must not name images of two backends"
    return None
