"""pytorch/test-infra tools/scripts/generate_binary_build_matrix.py: the variants each torch release is built in.

The script keeps them in constants at its top: CUDA_ARCHES_DICT, ROCM_ARCHES_DICT, PYTHON_ARCHES_DICT (by channel),
STABLE_CUDA_VERSIONS, CUDA_CUDNN_VERSIONS (the exact release of each toolkit) and CURRENT_STABLE_VERSION. They are read,
never run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from builder.errors import BadInput
from builder.matrix.schema import Cell

__all__ = ["cuda_rows", "rocm_rows"]

_WANTED = (
    "CUDA_ARCHES_DICT",
    "CUDA_CUDDN_VERSIONS",
    "CUDA_CUDNN_VERSIONS",
    "CURRENT_STABLE_VERSION",
    "PYTHON_ARCHES_DICT",
    "ROCM_ARCHES_DICT",
    "STABLE_CUDA_VERSIONS",
)


def _constants(text: str) -> Mapping[str, Any]:
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise BadInput(
            "the build matrix is not Python", why=str(error), fix="is it generate_binary_build_matrix.py?"
        ) from error
    found: dict[str, Any] = {}
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id in _WANTED and value is not None:
            try:
                found[target.id] = ast.literal_eval(value)
            except ValueError as error:
                raise BadInput(
                    f"{target.id} is computed, not written out", why=str(error), fix="mend the generator"
                ) from error
    missing = [name for name in ("CURRENT_STABLE_VERSION", "PYTHON_ARCHES_DICT") if name not in found]
    if missing:
        raise BadInput(
            f"no {' and no '.join(missing)} in the build matrix", fix="is it generate_binary_build_matrix.py?"
        )
    return found


def _rows(text: str, constant: str, prefix: str) -> tuple[Mapping[str, Cell], ...]:
    found = _constants(text)
    version = str(found["CURRENT_STABLE_VERSION"])
    pythons = tuple(map(str, found["PYTHON_ARCHES_DICT"].get("release", ())))
    stable = str(found.get("STABLE_CUDA_VERSIONS", {}).get("release", "")) if prefix == "cu" else ""
    releases = found.get("CUDA_CUDNN_VERSIONS") or found.get("CUDA_CUDDN_VERSIONS") or {}
    rows: list[Mapping[str, Cell]] = []
    for toolkit in map(str, found.get(constant, {}).get("release", ())):
        variant = f"{prefix}{toolkit.replace('.', '')}" if prefix == "cu" else f"{prefix}{toolkit}"
        cells: dict[str, Cell] = {
            "set": f"torch-{version}-{variant}",
            "packages": {"torch": version if toolkit == stable else f"{version}+{variant}"},
            "toolkit": toolkit,
            **({"toolkit_release": releases[toolkit]["cuda"]} if toolkit in releases else {}),
            "python": pythons,
            "index": "pytorch",
            "variant": variant,
        }
        if toolkit == stable:
            cells |= {"label": variant, "default": True}
            del cells["index"], cells["variant"]
        rows.append(cells)
    return tuple(rows)


def cuda_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """Sets of torch on CUDA of the current release."""
    return _rows(text, "CUDA_ARCHES_DICT", "cu")


def rocm_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """Sets of torch on ROCm of the current release."""
    return _rows(text, "ROCM_ARCHES_DICT", "rocm")
