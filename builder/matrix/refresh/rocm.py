"""ROCm compatibility-matrix CSV: one column a release, one line a component or framework."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping

from builder.errors import BadInput
from builder.matrix.schema import Cell

__all__ = ["member_rows"]

_NAMES = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "onnx runtime": "onnxruntime",
    "hip": "hip",
    "rccl": "rccl",
    "miopen": "miopen",
    "hipblas": "hipblas",
    "rocblas": "rocblas",
    "hipblaslt": "hipblaslt",
    "hipsparse": "hipsparse",
    "hipsolver": "hipsolver",
    "rocsparse": "rocsparse",
    "rocrand": "rocrand",
    "llvm-project": "llvm",
}


def member_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """Frameworks and components of each release; names as `:doc:` and `:ref:` links are read by their text."""
    lines = [line for line in csv.reader(io.StringIO(text)) if line]
    if not lines or not lines[0][0].lower().startswith("rocm version"):
        raise BadInput(
            "not a ROCm compatibility CSV",
            why="its first cell is not 'ROCm Version'",
            fix="compatibility-matrix-historical-6.0.csv",
        )
    releases = [match[0] if (match := re.search(r"\d+\.\d+(?:\.\d+)*", cell)) else "" for cell in lines[0][1:]]
    members: list[dict[str, str]] = [{} for _ in releases]
    for line in lines[1:]:
        label = re.sub(r"(?::[a-z]+:)?`([^<`]+?)\s*(?:<[^>]*>)?`_?", r"\1", line[0]).strip().lower()
        name = _NAMES.get(label)
        if name is None:
            continue
        for number, cell in enumerate(line[1 : len(releases) + 1]):
            versions = re.findall(r"\d+\.\d+(?:\.\d+)*", re.sub(r"\[#.*?\]_|\(.*?\)", "", cell))
            if versions:
                short = name in ("torch", "tensorflow", "jax")
                members[number][name] = " | ".join(
                    f"=={version}.*" if short and version.count(".") < 2 else version for version in versions
                )
    return tuple(
        {"toolkit": release, "members": found}
        for release, found in zip(releases, members, strict=True)
        if release and found
    )
