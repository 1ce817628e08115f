"""The lock on disk: `pylock.<backend>.toml` (PEP 751) and `requirements.<backend>.txt` for pip.

Everything PEP 751 has a place for stands there, so that any installer can use the file; what only this tool needs
stands under `[tool.builder]`. The bytes depend on the lock alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.items
from packaging.pylock import Pylock, PylockValidationError

from builder.base.values import DebPackage, LockedBase
from builder.errors import BadInput, BuilderError, where_path
from builder.lock.values import Lock, LockedPackage, parse_moment
from builder.matrix.values import IndexPin
from builder.names import ARCHES, Arch, Digest
from builder.store import write_atomic
from builder.wheels.settings import PYPI

__all__ = ["lock_path", "read_lock", "render_pylock", "render_requirements", "requirements_path", "write_lock"]

FORMAT = 1
"""Version of the `[tool.builder]` table."""
_ANEW = "take it back from version control, or delete it and lock again"


def lock_path(folder: Path, backend: str) -> Path:
    """`pylock.<backend>.toml` beside the project file."""
    return folder / f"pylock.{backend}.toml"


def requirements_path(folder: Path, backend: str) -> Path:
    """`requirements.<backend>.txt` beside the project file."""
    return folder / f"requirements.{backend}.txt"


def write_lock(lock: Lock, folder: Path) -> Path:
    """Write both files, each whole or not at all; returns the lock's path."""
    path = lock_path(folder, lock.backend)
    write_atomic(requirements_path(folder, lock.backend), render_requirements(lock).encode())
    write_atomic(path, render_pylock(lock).encode())
    return path


def render_pylock(lock: Lock) -> str:
    """The text of `pylock.<backend>.toml`."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment(f"Locked by builder for {lock.backend}; renew with: builder lock --backend {lock.backend}")
    )
    document["lock-version"] = "1.0"
    machine = f"sys_platform == 'linux' and platform_machine == '{lock.arch}'"
    document["environments"] = [f"python_version == '{lock.python}' and {machine} and implementation_name == 'cpython'"]
    document["requires-python"] = f"=={lock.python}.*"
    document["created-by"] = "builder"
    packages = tomlkit.aot()
    for package in lock.packages:
        packages.append(_package(package))
    document["packages"] = packages
    document["tool"] = {"builder": _own(lock)}
    return tomlkit.dumps(document)


def _package(package: LockedPackage) -> tomlkit.items.Table:
    table = tomlkit.table()
    table["name"] = package.name
    table["version"] = package.version
    table["index"] = package.index
    if package.requires:
        table["dependencies"] = _inline([{"name": name} for name in package.requires])
    wheel: dict[str, Any] = {"name": package.file}
    if package.uploaded is not None:
        wheel["upload-time"] = datetime.fromisoformat(package.uploaded)
    wheel["url"] = package.url
    if package.size is not None:
        wheel["size"] = package.size
    wheel["hashes"] = {"sha256": package.sha256.hex}
    table["wheels"] = _inline([wheel])
    return table


def _inline(rows: list[dict[str, Any]]) -> tomlkit.items.Array:
    array = tomlkit.array()
    for row in rows:
        entry = tomlkit.inline_table()
        for key, value in row.items():
            if isinstance(value, dict):
                inner = tomlkit.inline_table()
                inner.update(value)
                entry[key] = inner
            else:
                entry[key] = value
        array.append(entry)
    return array


def _own(lock: Lock) -> dict[str, Any]:
    base: dict[str, Any] = {
        "reference": lock.base.reference,
        "digest": str(lock.base.digest),
        "python": lock.base.python,
        "python-path": lock.base.python_path,
        "glibc": lock.base.glibc,
    }
    own: dict[str, Any] = {
        "format": FORMAT,
        "backend": lock.backend,
        "project": lock.project,
        "python": lock.python,
        "arch": lock.arch,
        "glibc": lock.glibc,
        "exclude-newer": lock.exclude_newer,
        "engine": lock.engine,
        "inputs": str(lock.inputs),
        "content": str(lock.content),
        "requirements": list(lock.requirements),
        "constraints": list(lock.constraints),
        "overrides": list(lock.overrides),
        "unknown-allowed": list(lock.unknown_allowed),
        "undated-indexes": list(lock.undated),
        "frameworks": dict(sorted(lock.frameworks.items())),
    }
    if lock.toolkit is not None:
        own["toolkit"] = lock.toolkit
    if lock.indexes:
        own["indexes"] = _inline([{"url": pin.index, "packages": list(pin.packages)} for pin in lock.indexes])
    if lock.base.packages:
        base["packages"] = _inline_lines(
            [
                {
                    "name": deb.name,
                    "version": deb.version,
                    "architecture": deb.architecture,
                    "size": deb.size,
                    "sha256": deb.sha256.hex,
                    "url": deb.url,
                }
                for deb in lock.base.packages
            ]
        )
    own["base"] = base
    return own


def _inline_lines(rows: list[dict[str, Any]]) -> tomlkit.items.Array:
    """One row a line: a changed Debian package is one line of a diff."""
    return _inline(rows).multiline(multiline=True)


def render_requirements(lock: Lock) -> str:
    """The text of `requirements.<backend>.txt`: hashed pins, and where pip finds the files."""
    lines = [
        f"# Locked by builder for {lock.backend}: Python {lock.python}, Linux {lock.arch}, glibc {lock.glibc}.",
        f"# Renew with: builder lock --backend {lock.backend}",
        f"# Install with: pip install --require-hashes --no-deps -r requirements.{lock.backend}.txt",
    ]
    flat = {package.index for package in lock.packages if _is_flat(package)}
    indexes = {package.index for package in lock.packages} - flat - {PYPI}
    lines += [f"--find-links {location}" for location in sorted(flat)]
    lines += [f"--extra-index-url {url}" for url in sorted(indexes)]
    parents: dict[str, list[str]] = {}
    for package in lock.packages:
        for name in package.requires:
            parents.setdefault(name, []).append(package.name)
    roots = set(lock.roots())
    for package in lock.packages:
        via = (["the project"] if package.name in roots else []) + sorted(parents.get(package.name, []))
        lines += [f"{package.name}=={package.version} \\", f"    --hash=sha256:{package.sha256.hex}"]
        lines.append(f"    # via {', '.join(via)}")
    return "\n".join(lines) + "\n"


def _is_flat(package: LockedPackage) -> bool:
    """Whether the file lies in a find-links folder: a file: location that directly holds it."""
    return package.index.startswith("file:") and package.url.rpartition("/")[0] == package.index.rstrip("/")


def read_lock(path: Path) -> Lock:
    """The lock in a `pylock.<backend>.toml` of this tool; `BadInput` says what is wrong with it."""
    where = where_path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"no lock: {path}", fix="make one with builder lock", where=where) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        fix = "make it a readable file" if isinstance(error, OSError) else _ANEW
        raise BadInput(f"cannot read the lock {path}", why=why, fix=fix, where=where) from error
    own = table.get("tool", {}).get("builder")
    if not isinstance(own, dict):
        raise BadInput(
            f"{path.name} was not made by builder",
            why="it has no [tool.builder] table",
            fix=_ANEW,
            where=where,
        )
    if own.get("format") != FORMAT:
        raise BadInput(
            f"{path.name} has another format",
            why=f"its format is {own.get('format')!r}, this version reads {FORMAT}",
            fix="delete it and lock again, or use the version of builder that made it",
            where=where,
        )
    try:
        Pylock.from_dict(table)
        return _lock(table, own)
    except (PylockValidationError, KeyError, TypeError, ValueError, AttributeError, BuilderError) as error:
        raise BadInput(
            f"the lock {path} is damaged",
            why=f"{error.what}; {error.why}" if isinstance(error, BuilderError) else f"{type(error).__name__}: {error}",
            fix=_ANEW,
            where=where,
        ) from error


def _lock(table: Mapping[str, Any], own: Mapping[str, Any]) -> Lock:
    base = own["base"]
    arch: Arch
    (arch,) = (known for known in ARCHES if known == own["arch"])
    return Lock(
        backend=own["backend"],
        project=own["project"],
        python=own["python"],
        arch=arch,
        glibc=own["glibc"],
        toolkit=own.get("toolkit"),
        frameworks=dict(own["frameworks"]),
        requirements=tuple(own["requirements"]),
        packages=tuple(_locked(entry) for entry in table["packages"]),
        base=LockedBase(
            reference=base["reference"],
            digest=Digest.parse(base["digest"]),
            python=base["python"],
            python_path=base["python-path"],
            glibc=base["glibc"],
            packages=tuple(
                DebPackage(
                    name=deb["name"],
                    version=deb["version"],
                    architecture=deb["architecture"],
                    sha256=Digest.parse(f"sha256:{deb['sha256']}"),
                    size=deb["size"],
                    url=deb["url"],
                )
                for deb in base.get("packages", ())
            ),
        ),
        exclude_newer=own["exclude-newer"],
        inputs=Digest.parse(own["inputs"]),
        engine=own["engine"],
        unknown_allowed=tuple(own["unknown-allowed"]),
        constraints=tuple(own["constraints"]),
        overrides=tuple(own["overrides"]),
        indexes=tuple(IndexPin(index=pin["url"], packages=tuple(pin["packages"])) for pin in own.get("indexes", ())),
        undated=tuple(own["undated-indexes"]),
        recorded=Digest.parse(own["content"]) if "content" in own else None,
    )


def _locked(entry: Mapping[str, Any]) -> LockedPackage:
    (wheel,) = entry["wheels"]
    return LockedPackage(
        name=entry["name"],
        version=entry["version"],
        file=wheel["name"],
        sha256=Digest.parse(f"sha256:{wheel['hashes']['sha256']}"),
        url=wheel["url"],
        index=entry["index"],
        size=wheel.get("size"),
        requires=tuple(item["name"] for item in entry.get("dependencies", ())),
        uploaded=parse_moment(str(wheel["upload-time"])) if "upload-time" in wheel else None,
    )
