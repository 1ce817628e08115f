"""Triton: cache folders (TRITON_CACHE_DIR).

One folder a kernel: `<name>.json` with the target and the options, the stages of compilation, the binary, and
`__grp__<name>.json`, whose `child_paths` give the places of the files, absolute as Triton writes them. Source: triton,
python/triton/runtime/cache.py (`put_group`), python/triton/compiler/compiler.py (`compile`: metadata, `GPUTarget`).
A binary tells its own architecture: one that is not the one its metadata name was put there by somebody else, or is the
stale artefact of a near relative (FR-18).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from builder.audit.elf import MAGIC
from builder.cache.formats.amd import read_code_object
from builder.cache.formats.nvidia import capabilities, read_device_object
from builder.cache.formats.torch import target_properties
from builder.cache.formats.values import Blob, BrokenEngine, Header, json_object

__all__ = ["names_target", "read_triton"]

_MAX_JSON = 1 << 20
_GROUP = "__grp__"


def read_triton(tree: Mapping[str, Blob], machines: Mapping[int, str]) -> Header:
    """A cache folder of Triton by its files, or the folder of one kernel; `BrokenEngine` when it holds no kernel.

    `machines` spells EF_AMDGPU_MACH (builder.audit.tables).
    """
    targets: set[tuple[str, str]] = set()
    told: dict[str, set[str]] = {"triton": set(), "warp-size": set(), "ptx-version": set()}
    kernels = absolute = 0
    for path in sorted(tree):
        name = PurePosixPath(path).name
        if not name.endswith(".json"):
            continue
        value = _object(tree[path], path)
        if name.startswith(_GROUP):
            absolute += _absolute(value)
            continue
        target = value.get("target")
        if not isinstance(target, dict) or not re.fullmatch(r"[a-z]{1,16}", str(target.get("backend"))):
            continue
        kernels += 1
        arch = re.sub(r"[^A-Za-z0-9_:+.-]", "", str(target.get("arch", "")))
        targets.add((target["backend"], arch))
        for key, found in (
            ("warp-size", target.get("warp_size")),
            ("triton", value.get("triton_version")),
            ("ptx-version", value.get("ptx_version")),
        ):
            if found is not None and str(found).isprintable():
                told[key].add(str(found))
        _check_binary(tree, path, target["backend"], arch, machines)
    if not kernels:
        raise BrokenEngine("the folder", "there is no kernel of Triton in it: no JSON file names a target", offset=0)
    properties = {"kernel-count": str(kernels), **target_properties(targets)}
    properties |= {key: " ".join(sorted(found)) for key, found in told.items() if found}
    unknown = {
        "compiler": "only its hash is in the folders' names: state the version of ptxas, ROCm or CANN's bisheng",
        "driver": "a cache of Triton does not name it",
    }
    if "triton" not in properties:
        unknown["triton"] = "the metadata do not name it"
    notes = (f"{absolute} groups name their files by absolute paths: valid in this folder alone",) if absolute else ()
    return Header(format="triton", properties=properties, unknown=unknown, notes=notes)


def names_target(blob: Blob) -> bool:
    """Whether a JSON file is the metadata of a kernel."""
    try:
        target = _object(blob, blob.name).get("target")
    except BrokenEngine:
        return False
    return isinstance(target, dict) and isinstance(target.get("backend"), str)


def _object(blob: Blob, path: str) -> dict[str, Any]:
    if blob.size > _MAX_JSON:
        raise BrokenEngine(path, f"metadata of {blob.size} bytes", offset=0)
    return json_object(blob, path, limit=_MAX_JSON)


def _absolute(value: Mapping[str, Any]) -> int:
    """1 when a group names a file by an absolute path."""
    places = value.get("child_paths")
    named = places.values() if isinstance(places, dict) else ()
    return int(any(isinstance(place, str) and place.startswith("/") for place in named))


def _check_binary(tree: Mapping[str, Blob], path: str, backend: str, arch: str, machines: Mapping[int, str]) -> None:
    """Hold the kernel's binary against the target of its metadata."""
    stem = path.removesuffix(".json")
    suffix, key = (".cubin", "compute-capability") if backend == "cuda" else (".hsaco", "gfx")
    blob = tree.get(stem + suffix)
    if blob is None or not blob.read(0, 4).startswith(MAGIC):
        return
    header = read_device_object(blob) if backend == "cuda" else read_code_object(blob, machines)
    found = header.properties.get(key)
    wanted = capabilities([arch]) if backend == "cuda" else arch.split(":", 1)[0]
    if found and wanted and found != wanted:
        why = f"it is compiled for {found}, and the metadata beside it say {wanted}"
        raise BrokenEngine(stem + suffix, why, offset=48, fix="remove this kernel's folder; Triton compiles it again")
