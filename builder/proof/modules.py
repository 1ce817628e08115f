"""Which files of an image its Python takes for extension modules, and which of them it finds by itself."""

from __future__ import annotations

import posixpath
import re

from builder.proof.launch import Interpreter
from builder.proof.objects import ElfObject
from builder.proof.values import ImageConfig

__all__ = ["SITES", "importable", "on_path"]

SITES = ("site-packages", "dist-packages")
"""Names of the folders that installed distributions lie in."""

_TAGGED = re.compile(r"(?P<name>[^.]+)\.(?:cpython-3(?P<minor>\d+)t?(?:-[\w-]+)?|abi3)\.so")


def importable(path: str, item: ElfObject, interpreter: Interpreter) -> bool:
    """Whether `import` of this interpreter takes the file for a module (importlib.machinery.EXTENSION_SUFFIXES)."""
    if item.kind != "shared":
        return False
    name = posixpath.basename(path)
    match = _TAGGED.fullmatch(name)
    if match:
        return match["minor"] is None or interpreter.minor is None or int(match["minor"]) == interpreter.minor
    return name.endswith(".so") and item.module_of == name[:-3]


def on_path(path: str, interpreter: Interpreter, config: ImageConfig) -> bool:
    """Whether the module lies where the image's interpreter imports from, its own standard library left out."""
    for folder in (*config.env.get("PYTHONPATH", "").split(":"), config.workdir):
        if folder.strip("/") and path.startswith(f"{folder.rstrip('/')}/"):
            return True
    if not any(f"/{site}/" in path for site in SITES):
        return False
    return interpreter.system_sites or interpreter.venv is None or path.startswith(f"{interpreter.venv}/")
