"""From what an engine says about itself to the factors of its key, and whether that contradicts what was stated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from builder.cache.formats import Header, UnknownFormat, read_engine
from builder.cache.forms import spell
from builder.cache.kinds import engine_kind
from builder.cache.values import EngineKey
from builder.errors import BadInput, Fault, Where, raise_faults

__all__ = ["FORMAT_KINDS", "confirmed", "confirmed_key", "header_of", "told_factors"]

FORMAT_KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tensorrt-plan": ("tensorrt", "onnxruntime-trt"),
        "tensorrt-rtx": ("tensorrt-rtx",),
        "neff": ("neff",),
        "mxr": ("mxr",),
        "om": ("om",),
        "torch-mega-cache": ("mega-cache",),
        "inductor": ("inductor",),
        "aotinductor": ("aotinductor",),
        "vllm": ("vllm",),
        "flashinfer": ("flashinfer",),
        "triton": ("triton-nvidia", "triton-amd", "triton-ascend"),
        "openvino-blob": ("openvino",),
        "jax-cache": ("jax-xla",),
        "jax-folder": ("jax-xla",),
        "onnx": ("onnxruntime-optimised",),
        "ort": ("onnxruntime-optimised",),
        "cubin": ("flashinfer",),
        "fatbin": ("flashinfer",),
    }
)
"""Format of a file or folder to the kinds of engine it may be."""


_GROUPS = ("builder", "device", "format")
"""What bytes can state; options and variables of the environment have names of their own in the tables."""


def told_factors(kind: str, header: Header) -> dict[str, str]:
    """Those properties of a kind that an engine's own bytes state, in their canonical spelling.

    A folder that holds kernels for several devices states none where the property is of one.
    """
    properties = engine_kind(kind).properties
    found = {}
    for name, value in header.properties.items():
        if name in properties and properties[name].group in _GROUPS:
            with suppress(BadInput):
                found[name] = spell(properties[name].form, name, value, properties[name].ignore)
    return found


def header_of(kind: str, path: Path) -> Header | None:
    """What a file or folder says about itself; None for one of no format here, or of a format of other kinds."""
    try:
        header = read_engine(path)
    except UnknownFormat:
        return None
    return header if kind in FORMAT_KINDS.get(header.format, ()) else None


def confirmed(kind: str, stated: Mapping[str, str], path: Path) -> dict[str, str]:
    """What a file or folder adds to the stated properties of its kind; nothing for a format without a reader here.

    `BadInput` when a stated value is not what the engine itself says, `BrokenEngine` when it is damaged.
    """
    header = header_of(kind, path)
    if header is None:
        return {}
    told = told_factors(kind, header)
    properties = engine_kind(kind).properties
    several = {
        name: value
        for name, value in header.properties.items()
        if name not in told and name in properties and properties[name].group in _GROUPS
    }
    raise_faults(
        f"{path.name} is not the engine it is said to be",
        [
            Fault(
                what=f"{name} is stated as {stated[name]}, and the engine itself says {value}",
                where=Where(file=str(path)),
                fix=f"state what is true, or leave {name} out",
            )
            for name, value in {**told, **several}.items()
            if name in stated
            and not any(_agree(stated[name], one) for one in ([value] if name in told else value.split()))
        ],
    )
    return {name: value for name, value in told.items() if name not in stated}


def confirmed_key(key: EngineKey, path: Path) -> EngineKey:
    """The key with what the engine at `path` adds to it; `BadInput` when it is another engine than the key says.

    A default is no statement: what the engine itself says wins over it.
    """
    properties = engine_kind(key.kind).properties
    stated = {
        name: value
        for name, value in key.factors.items()
        if name not in properties or value != properties[name].default
    }
    told = confirmed(key.kind, stated, path)
    return EngineKey(key.kind, MappingProxyType({**key.factors, **told})) if told else key


def _agree(stated: str, told: str) -> bool:
    """Equal, or one goes into more detail: 10.9 and 10.9.0.34, gfx90a and gfx90a:xnack-."""
    short, long = sorted((stated, told), key=len)
    return short == long or (long.startswith(short) and long[len(short)] in ".:+-")
