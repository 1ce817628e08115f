"""Reads matrices/<backend>/backend.toml: the marker of a backend and what all its images have in common."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from builder.errors import BadInput, Fault, Where, did_you_mean
from builder.matrix.values import BackendSpec, IndexRow, Label, RunLine, Runtime, TargetScheme
from builder.names import ARCHES

__all__ = ["parse_backend_data", "parse_backend_file", "read_backend_data", "require_spec"]

_TOP = (
    "title",
    "toolkit",
    "targets",
    "prefer",
    "default_index",
    "vendor_base",
    "default_chip",
    "wheels",
    "checked",
    "source",
    "labels",
    "indexes",
    "runtime",
)
_SCHEMES: tuple[TargetScheme, ...] = get_args(TargetScheme)


class _Reader:
    """One TOML table whose keys are taken one by one; what is left over is an error."""

    def __init__(self, data: Mapping[str, Any], where: str, faults: list[Fault], file: Path) -> None:
        self.data, self.where, self.faults, self.file = data, where, faults, file

    def fault(self, what: str, key: str, fix: str = "") -> None:
        path = f"{self.where}.{key}".lstrip(".")
        self.faults.append(Fault(what=what, where=Where(file=str(self.file), key=path), fix=fix))

    def known(self, keys: tuple[str, ...]) -> None:
        for key in self.data:
            if key not in keys:
                self.fault(f"unknown key {key!r}", key, did_you_mean(key, keys))

    def text(self, key: str, *, required: bool = True) -> str | None:
        value = self.data.get(key)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not value:
            self.fault(f"{key} is not a text", key)
            return None
        return value

    def flag(self, key: str) -> bool:
        value = self.data.get(key)
        if not isinstance(value, bool):
            self.fault(f"{key} is not true or false", key)
        return value is True

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fault(f"{key} is not a list of texts", key)
            return ()
        return tuple(value)

    def table(self, key: str) -> _Reader:
        value = self.data.get(key, {})
        if not isinstance(value, dict):
            self.fault(f"{key} is not a table", key)
            value = {}
        return _Reader(value, f"{self.where}.{key}".lstrip("."), self.faults, self.file)

    def tables(self, key: str) -> list[_Reader]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.fault(f"{key} is not an array of tables", key)
            value = []
        return [_Reader(item, f"{key}[{n}]", self.faults, self.file) for n, item in enumerate(value)]


def parse_backend_file(text: str, path: Path) -> tuple[BackendSpec | None, tuple[Fault, ...]]:
    """The backend a file describes, and everything wrong with it; None when there are faults."""
    try:
        data = read_backend_data(text)
    except tomllib.TOMLDecodeError as error:
        return None, (Fault(what=f"not TOML: {error}", where=Where(file=str(path))),)
    return parse_backend_data(data, path)


def read_backend_data(text: str) -> Mapping[str, Any]:
    """The file's TOML; `tomllib.TOMLDecodeError` when it is none."""
    return tomllib.loads(text)


def parse_backend_data(data: Mapping[str, Any], path: Path) -> tuple[BackendSpec | None, tuple[Fault, ...]]:
    """The backend that a file's TOML describes, and everything wrong with it; None when there are faults."""
    faults: list[Fault] = []
    top = _Reader(data, "", faults, path)
    top.known(_TOP)
    targets = top.text("targets") or "none"
    scheme = next((known for known in _SCHEMES if known == targets), None)
    if scheme is None:
        top.fault(f"unknown scheme of targets {targets!r}", "targets", did_you_mean(targets, _SCHEMES))
    checked = top.data.get("checked")
    if checked is None:
        top.fault("no date of the last check", "checked", "add checked = YYYY-MM-DD")
    spec = BackendSpec(
        name=path.parent.name,
        title=top.text("title") or "",
        toolkit=top.text("toolkit", required=False),
        targets=scheme or "none",
        prefer=top.texts("prefer"),
        default_index=top.flag("default_index"),
        vendor_base=top.flag("vendor_base"),
        default_chip=top.text("default_chip", required=False),
        wheels=top.text("wheels", required=False),
        labels=tuple(_label(reader) for reader in top.tables("labels")),
        indexes=tuple(_index(reader) for reader in top.tables("indexes")),
        runtime=_runtime(top.table("runtime")),
        source=top.text("source") or "",
        checked=str(checked),
    )
    return (None if faults else spec), tuple(faults)


def _label(reader: _Reader) -> Label:
    reader.known(("package", "arch", "label", "required", "since"))
    arch = reader.text("arch") or ""
    if arch and arch not in ARCHES:
        reader.fault(f"unknown architecture {arch!r}", "arch", did_you_mean(arch, ARCHES))
    return Label(
        package=reader.text("package") or "",
        arch=arch,
        label=reader.text("label") or "",
        required=reader.flag("required") if "required" in reader.data else True,
        since=reader.text("since", required=False),
    )


def _index(reader: _Reader) -> IndexRow:
    reader.known(("name", "url", "packages", "source", "checked"))
    url = reader.text("url") or ""
    if url and not url.startswith("https://"):
        reader.fault(f"an index without https: {url}", "url")
    if "checked" not in reader.data:
        reader.fault("no date of the last check", "checked", "add checked = YYYY-MM-DD")
    packages = reader.texts("packages")
    if list(packages) != sorted(packages):
        reader.fault("packages are not sorted", "packages")
    return IndexRow(name=reader.text("name") or "", url=url, packages=packages, source=reader.text("source") or "")


def _runtime(reader: _Reader) -> Runtime:
    reader.known(("env", "run", "setup", "source"))
    reader.text("source")
    env = reader.table("env")
    run = reader.table("run")
    run.known(("devices", "mounts", "groups", "arguments"))
    return Runtime(
        env={key: env.text(key) or "" for key in sorted(env.data)},
        run=RunLine(
            devices=run.texts("devices"),
            mounts=run.texts("mounts"),
            groups=run.texts("groups"),
            arguments=run.texts("arguments"),
        ),
        setup=reader.texts("setup"),
    )


def require_spec(spec: BackendSpec | None, faults: tuple[Fault, ...], path: Path) -> BackendSpec:
    """The backend, or one `BadInput` with all faults."""
    if spec is None:
        raise BadInput(f"{path} does not describe a backend", faults=faults, where=Where(file=str(path)))
    return spec
