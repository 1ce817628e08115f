"""Bytecode as layers of its own, compiled by the very Python that will run it.

The base's interpreter does it (install.py, inside the base), not this machine's: what a compiler writes changes between
releases of one minor version, and an image's digest must not depend on who builds it. Wheels' own layers stay as they
are, so that a base with another Python changes small layers and not gigabytes.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from builder.base.values import LockedBase
from builder.errors import Refused
from builder.events import Reporter
from builder.image import install
from builder.image.install import Venv
from builder.image.layers import LayerWriter, kept_layer, write_layer
from builder.image.packing import GZIP, Packing
from builder.image.splice import WheelFile
from builder.image.values import Layer
from builder.store import Store, disk_errors
from builder.wheels.archive import WheelArchive

__all__ = ["BasePython", "bytecode_layer", "interpreter", "source_size"]

_INSIDE = "/run/builder"
"""Where the program and its input are seen in the base; a folder that is fresh for each program."""
_ARCHIVE = "bytecode.zip"

_WHO = "import sys, importlib.util as u; print(sys.implementation.cache_tag, u.MAGIC_NUMBER.hex(), sys.version)"


class BasePython(Protocol):
    """The base image's interpreter, started on this machine. Called from several threads, once for each layer."""

    def run(self, arguments: Sequence[str], *, read: Mapping[str, Path], write: Mapping[str, Path]) -> str:
        """Its standard output. `read` and `write` map paths in the base to files and folders of this machine.

        `Refused` when this machine cannot run the base, `OutsideFailed` when the program fails.
        """


def interpreter(python: BasePython, base: LockedBase, venv: Venv, store: Store) -> str:
    """What bytecode depends on: cache tag, magic number and full version; asked once for each base.

    `Refused` when the base's Python writes other bytecode than the environment's file names say.
    """
    key = f"{base.python_path} of {base.digest}"
    kept = store.derived("interpreter", key)
    if kept is None:
        kept = {"is": " ".join(python.run(["-c", _WHO], read={}, write={}).split())}
        store.put_derived("interpreter", key, kept)
    found = str(kept["is"])
    expected = f"cpython-{venv.python.replace('.', '')}"
    if found.split()[0] != expected:
        raise Refused(
            "bytecode cannot be compiled for this base",
            why=f"its Python is {found.split()[0]}, the lock is for {expected}",
            fix="leave --compile-bytecode out, or take a base with CPython",
        )
    return found


def source_size(wheel: WheelFile, store: Store) -> int:
    """Compressed length of a wheel's Python files, in bytes: about that of their bytecode. Read once for each wheel."""
    key = str(wheel.sha256)
    kept = store.derived("sources", key)
    if kept is None:
        with WheelArchive.open(wheel.path, filename=wheel.file) as archive:
            size = sum(member.compressed_size for member in archive.members if member.name.endswith(".py"))
        kept = {"size": size}
        store.put_derived("sources", key, kept)
    return int(kept["size"])


def bytecode_layer(
    wheels: Sequence[WheelFile],
    venv: Venv,
    store: Store,
    *,
    python: BasePython,
    by: str,
    title: str,
    reporter: Reporter,
    left_out: Mapping[str, frozenset[str]] | None = None,
    packing: Packing = GZIP,
) -> Layer:
    """One layer with the bytecode of these wheels. `by` is what `interpreter` says of `python`.

    `left_out` names, by wheel file, sources that another wheel brings later, as for `wheel_layer`.
    """
    hidden = {wheel.file: sorted(paths) for wheel in wheels if (paths := (left_out or {}).get(wheel.file))}
    key = f"bytecode into {venv.root} by {by} rules {install.LAYOUT} {install.BYTECODE_LAYOUT}; " + " ".join(
        str(wheel.sha256) for wheel in wheels
    )
    if hidden:
        key += f"; without {sorted(hidden.items())!r}"
    kept = kept_layer(store, title, key, packing)
    if kept is not None:
        return kept
    with store.scratch("bytecode-") as folder:
        said = _compile(wheels, venv, python, hidden, folder)
        reporter.detail(f"{title}: {said.strip()}")
        with zipfile.ZipFile(folder / "out" / _ARCHIVE) as archive:

            def fill(writer: LayerWriter) -> None:
                root = venv.root.lstrip("/")
                writer.directory(root)
                for name in sorted(archive.namelist()):
                    writer.parents(f"{root}/{name}", below=root)
                    writer.content(f"{root}/{name}", archive.read(name), mode=0o644)

            return write_layer(store, title, fill, key=key, packing=packing)


def _compile(
    wheels: Sequence[WheelFile], venv: Venv, python: BasePython, hidden: Mapping[str, list[str]], folder: Path
) -> str:
    """Run the installer in the base; the archive lies in `folder`/out then."""
    rows = [
        {
            "file": wheel.file,
            "path": f"wheels/{wheel.file}",
            "sha256": wheel.sha256.hex,
            "without": hidden.get(wheel.file, []),
        }
        for wheel in wheels
    ]
    listing, out = folder / "wheels.json", folder / "out"
    with disk_errors(folder):
        out.mkdir()
        listing.write_text(json.dumps(rows), encoding="utf-8")
    arguments = [
        *("-s", "-S", "-B", f"{_INSIDE}/install.py", "--target", venv.root, "--python", venv.python),
        *("--base-python", "/", "--wheels", f"{_INSIDE}/wheels.json"),
        *("--bytecode-only", f"{_INSIDE}/out/{_ARCHIVE}"),
    ]
    read = {f"{_INSIDE}/wheels/{wheel.file}": wheel.path for wheel in wheels}
    read |= {f"{_INSIDE}/install.py": Path(install.__file__), f"{_INSIDE}/wheels.json": listing}
    return python.run(arguments, read=read, write={f"{_INSIDE}/out": out})
