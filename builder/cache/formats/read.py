"""From a file or folder to its header: by magic where there is one, by name and structure where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath

from builder.audit.elf import MAGIC as ELF_MAGIC
from builder.audit.fatbin import FATBIN_MAGIC
from builder.audit.offload import BUNDLE_MAGIC, COMPRESSED_MAGICS
from builder.audit.tables import load_tables
from builder.cache.formats.amd import read_code_object, read_mxr
from builder.cache.formats.ascend import OM_MAGIC, read_om
from builder.cache.formats.folders import FACTORS, OPS, read_flashinfer, read_vllm
from builder.cache.formats.jax import cache_name, read_jax, read_jax_folder
from builder.cache.formats.neuron import read_neff
from builder.cache.formats.nvidia import PLAN_MAGIC, read_device_object, read_plan, read_rtx_engine, wrapped_plan
from builder.cache.formats.onnx import ORT_IDENTIFIER, read_onnx, read_ort
from builder.cache.formats.openvino import CPU_TAG, XML_START, read_openvino
from builder.cache.formats.torch import read_aoti, read_inductor, read_mega_cache
from builder.cache.formats.triton import names_target, read_triton
from builder.cache.formats.values import Blob, Header
from builder.errors import BadInput, did_you_mean, where_path

__all__ = ["FILE_FORMATS", "TREE_FORMATS", "UnknownFormat", "format_of", "read_engine", "read_file", "tree_of"]

_MAX_FILES = 200_000
_LOOKED_AT = 100
"""JSON files of a folder that are read to tell whether it is a cache of Triton."""


class UnknownFormat(BadInput):
    """Bytes that no reader here knows."""

    kind = "unknown-engine-format"


def _machines() -> Mapping[int, str]:
    return load_tables().amdgpu


FILE_FORMATS: Mapping[str, Callable[[Blob], Header]] = {
    "tensorrt-plan": read_plan,
    "tensorrt-rtx": read_rtx_engine,
    "cubin": read_device_object,
    "fatbin": read_device_object,
    "neff": read_neff,
    "mxr": lambda blob: read_mxr(blob, _machines()),
    "hsaco": lambda blob: read_code_object(blob, _machines()),
    "om": read_om,
    "torch-mega-cache": read_mega_cache,
    "aotinductor": read_aoti,
    "openvino-blob": read_openvino,
    "jax-cache": read_jax,
    "onnx": read_onnx,
    "ort": read_ort,
}
"""Format of a file to what reads it."""

TREE_FORMATS: Mapping[str, Callable[[Mapping[str, Blob]], Header]] = {
    "triton": lambda tree: read_triton(tree, _machines()),
    "inductor": read_inductor,
    "vllm": lambda tree: read_vllm(tree, _machines()),
    "flashinfer": read_flashinfer,
    "jax-folder": read_jax_folder,
}
"""Format of a folder to what reads it."""

_SUFFIXES = {
    ".neff": "neff",
    ".mxr": "mxr",
    ".om": "om",
    ".onnx": "onnx",
    ".ort": "ort",
    ".pt2": "aotinductor",
    ".rtx": "tensorrt-rtx",
    ".hsaco": "hsaco",
    ".cubin": "cubin",
}


def format_of(blob: Blob) -> str | None:
    """The format of a file, from its first bytes; its name decides where a format has no magic. None: not known."""
    head = blob.read(0, 64)
    if head[:4] == PLAN_MAGIC or wrapped_plan(blob):
        return "tensorrt-plan"
    if head[:4] == OM_MAGIC:
        return "om"
    if head[4:8] == ORT_IDENTIFIER:
        return "ort"
    if head.startswith(FATBIN_MAGIC):
        return "fatbin"
    if head.startswith((BUNDLE_MAGIC, *COMPRESSED_MAGICS)):
        return "hsaco"
    if head.startswith((XML_START, CPU_TAG)):
        return "openvino-blob"
    if head.startswith(ELF_MAGIC):
        machine = int.from_bytes(head[18:20], "little")
        return {190: "cubin", 224: "hsaco"}.get(machine)
    if head.startswith(b"PK\3\4"):
        return "aotinductor"
    if head[8:16] == (1024).to_bytes(8, "little") and head[0:8] in (b"\1" + bytes(7), b"\2" + bytes(7)):
        return "neff"
    if cache_name(blob.name):
        return "jax-cache"
    if head[:8] == (1).to_bytes(8, "big") or head[4:12] == (1).to_bytes(8, "big"):
        return "torch-mega-cache"
    if b"migraphx_version" in head:
        return "mxr"
    return _SUFFIXES.get(PurePosixPath(blob.name).suffix)


def read_file(blob: Blob, *, format: str | None = None) -> Header:  # noqa: A002 - the word of the domain
    """What a file says about itself; `UnknownFormat` when no reader knows it, `BrokenEngine` when it is damaged."""
    name = format or format_of(blob)
    if name is None:
        raise UnknownFormat(
            f"{blob.name} is of no engine format known here",
            why=f"its first bytes are {blob.read(0, 8).hex(' ')}",
            fix=f"name its format if it is one of {', '.join(sorted(FILE_FORMATS))}",
        )
    if name not in FILE_FORMATS:
        raise UnknownFormat(f"unknown engine format {name!r}", fix=did_you_mean(name, FILE_FORMATS))
    return FILE_FORMATS[name](blob)


def tree_of(folder: Path) -> dict[str, Blob]:
    """The regular files of a folder by relative path; symbolic links are not followed and not listed."""
    found: dict[str, Blob] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if len(found) == _MAX_FILES:
            raise BadInput(f"{folder} has more than {_MAX_FILES} files", where=where_path(folder))
        found[path.relative_to(folder).as_posix()] = Blob.of_file(path)
    return found


def read_engine(path: Path, *, format: str | None = None) -> Header:  # noqa: A002 - the word of the domain
    """What an engine on disk says about itself: a file, or a compiler's cache folder."""
    if not path.is_dir():
        return read_file(Blob.of_file(path), format=format)
    tree = tree_of(path)
    if format is not None and format not in TREE_FORMATS:
        raise UnknownFormat(f"unknown format {format!r} of a folder", fix=did_you_mean(format, TREE_FORMATS))
    name = format or _tree_format(tree)
    if name is None:
        raise UnknownFormat(
            f"{path.name} is of no engine format known here",
            why="nothing that Inductor, Triton, vLLM, FlashInfer or JAX keeps is in it",
            fix=f"name its format if it is one of {', '.join(sorted(TREE_FORMATS))}",
            where=where_path(path),
        )
    return TREE_FORMATS[name](tree)


def _tree_format(tree: Mapping[str, Blob]) -> str | None:
    parts = {part for path in tree for part in PurePosixPath(path).parts[:-1]}
    if any(PurePosixPath(path).name == FACTORS for path in tree):
        return "vllm"
    if OPS in parts:
        return "flashinfer"
    if any(cache_name(PurePosixPath(path).name) for path in tree):
        return "jax-folder"
    if parts & {"fxgraph", "aotautograd"}:
        return "inductor"
    kernels = (blob for path, blob in sorted(tree.items()) if path.endswith(".json") and "__grp__" not in path)
    return "triton" if any(names_target(blob) for blob in islice(kernels, _LOOKED_AT)) else None
