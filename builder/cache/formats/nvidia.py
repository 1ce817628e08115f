"""NVIDIA: TensorRT plans, TensorRT for RTX engines, device objects (cubin, fat binary: FlashInfer and jit caches).

A plan starts with `ftrt`, the version of its own layout (u32, 0 is the only one published), and has the four bytes of
the TensorRT version at 24. Source: NVIDIA/TensorRT, samples/common/sampleEngines.cpp, `printPlanVersion`. The compute
capability, the compatibility levels and the serialisation number of error messages (226, 228) are in it too, at places
NVIDIA does not publish; they are unknown here and must come from whoever built the engine.
A TensorRT for RTX engine has a header of 64 bytes that only the library reads (TensorRT-RTX documentation, "Engine
Compatibility": `getEngineValidity`, `getEngineHeaderSize`); it is recognised by its name alone.
Exporters put metadata before a plan: a length (u32), then as many bytes of JSON (ultralytics exporter).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from builder.audit.elf import EM_CUDA, BrokenElf, parse_header
from builder.audit.fatbin import FATBIN_MAGIC, cubin_target, read_fatbin
from builder.cache.formats.cursor import Cursor
from builder.cache.formats.values import Blob, BrokenEngine, Header

__all__ = [
    "PLAN_MAGIC",
    "RTX_HEADER",
    "capabilities",
    "read_device_object",
    "read_plan",
    "read_rtx_engine",
    "wrapped_plan",
]

PLAN_MAGIC = b"ftrt"
RTX_HEADER = 64
"""Bytes of the header that TensorRT for RTX judges an engine by."""

_VERSION_AT = 24
_MAX_METADATA = 1 << 20
_TARGET = re.compile(r"(?:sm_?|compute_?)?(\d+)(\d)[af]?")

_UNSTATED = {
    "compute-capability": "the plan's place for it is not published: state that of the device it was built on",
    "hardware-compatibility": "the plan's place for it is not published: state the level given to the builder",
    "version-compatible": "the plan's place for it is not published: state whether VERSION_COMPATIBLE was set",
    "serialization": "the plan's place for it is not published: the library prints it when it refuses an engine",
    "cuda": "a plan does not name it",
}


def read_plan(blob: Blob) -> Header:
    """A TensorRT plan, also one behind an exporter's metadata; `BrokenEngine` when it is none."""
    start = wrapped_plan(blob)
    cursor = Cursor(blob, start)
    if cursor.take(4, "the tag") != PLAN_MAGIC:
        raise cursor.fault("a TensorRT plan starts with ftrt", at=start)
    layout = cursor.little(4, "the version of the layout")
    unknown = dict(_UNSTATED)
    properties: dict[str, str] = {}
    if layout == 0:
        cursor.skip(_VERSION_AT - 8, "the header")
        properties["tensorrt"] = ".".join(str(number) for number in cursor.take(4, "the TensorRT version"))
    else:
        unknown["tensorrt"] = f"layout version {layout} is not published; only 0 is"
    notes = () if start == 0 else (f"an exporter's metadata of {start} bytes stands before the plan",)
    return Header(format="tensorrt-plan", properties=properties, unknown=unknown, notes=notes)


def wrapped_plan(blob: Blob) -> int:
    """Where the plan starts: 0, or behind an exporter's length and JSON metadata."""
    head = blob.read(0, 4)
    size = int.from_bytes(head, "little")
    if head == PLAN_MAGIC or len(head) < 4 or not 2 <= size <= min(_MAX_METADATA, blob.size - 8):
        return 0
    if blob.read(4 + size, 4) != PLAN_MAGIC:
        return 0
    try:
        value = json.loads(blob.read(4, size))
    except (ValueError, RecursionError):
        return 0
    return 4 + size if isinstance(value, dict) else 0


def read_rtx_engine(blob: Blob) -> Header:
    """A TensorRT for RTX engine. Only the library can read its header; a file shorter than that is damaged."""
    Cursor(blob).take(RTX_HEADER, "the header")
    why = "only the library reads the header (getEngineValidity): state it, or ask the library on the node"
    names = ("tensorrt-rtx", "compute-capability", "driver", "cuda")
    return Header(format="tensorrt-rtx", properties={}, unknown=dict.fromkeys(names, why))


def read_device_object(blob: Blob) -> Header:
    """A cubin or a fat binary: the targets it holds code for, and PTX that a driver can compile for newer ones."""
    if blob.read(0, len(FATBIN_MAGIC)) == FATBIN_MAGIC:
        fatbin = read_fatbin(blob.read, 0, blob.size)
        if fatbin is None:
            raise BrokenEngine(blob.name, "its header promises more than the file holds", offset=8)
        if not fatbin.complete:
            raise BrokenEngine(blob.name, "an entry's header makes no sense", offset=fatbin.end)
        targets = {entry.target for entry in fatbin.entries if entry.target}
        name = "fatbin"
    else:
        try:
            header = parse_header(blob.read(0, 64))
        except BrokenElf as error:
            raise BrokenEngine(blob.name, error.why or error.what, offset=0) from None
        if header.machine != EM_CUDA:
            raise BrokenEngine(blob.name, f"an ELF file for machine {header.machine}, not for CUDA", offset=18)
        targets = {cubin_target(header) or ""}
        name = "cubin"
    properties = {
        "compute-capability": capabilities(target for target in targets if target.startswith("sm_")),
        "ptx": capabilities(target for target in targets if target.startswith("compute_")),
    }
    return Header(format=name, properties={key: value for key, value in properties.items() if value})


def capabilities(targets: Iterable[str]) -> str:
    """`8.6 9.0` of sm_90a, sm_86: sorted by number, each once; what has no number is left out."""
    found = {match for target in targets if (match := _TARGET.fullmatch(target))}
    numbers = sorted({(int(match[1]), int(match[2])) for match in found})
    return " ".join(f"{major}.{minor}" for major, minor in numbers)
