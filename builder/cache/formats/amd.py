"""AMD: MIGraphX programs (.mxr) and code objects (.hsaco).

An .mxr file is a MessagePack map: `version` (of the format; another one is an error), `migraphx_version` (another one
is a warning only), `targets`, `contexts`, `modules`; instructions of the gpu target hold their code objects as bytes.
The gfx target is written nowhere else, and MIGraphX does not check it on loading. Source: ROCm/AMDMIGraphX,
src/program.cpp (`to_value`, `from_value`), src/msgpack.cpp, src/targets/gpu/include/migraphx/gpu/code_object_op.hpp.
A code object is an ELF file or a clang offload bundle.
"""

from __future__ import annotations

from collections.abc import Mapping

from builder.audit.elf import EM_AMDGPU, MAGIC, BrokenElf, parse_header
from builder.audit.offload import BUNDLE_MAGIC, COMPRESSED_MAGICS, read_bundle, read_compressed_bundle
from builder.cache.formats.cursor import Cursor
from builder.cache.formats.msgpack import Item, read_item, walk
from builder.cache.formats.values import Blob, BrokenEngine, Header

__all__ = ["read_code_object", "read_mxr"]

_ITEMS = 100_000
"""Values of an .mxr file that are looked at; larger programs have the same targets all through."""


def read_code_object(blob: Blob, machines: Mapping[int, str]) -> Header:
    """The gfx targets of a code object or bundle; `machines` spells EF_AMDGPU_MACH (builder.audit.tables)."""
    head = blob.read(0, 64)
    if head.startswith(BUNDLE_MAGIC) or head[:6] in COMPRESSED_MAGICS:
        reader = read_bundle if head.startswith(BUNDLE_MAGIC) else read_compressed_bundle
        bundle = reader(blob.read, 0, blob.size)
        if bundle is None:
            raise BrokenEngine(blob.name, "the list of the bundle makes no sense", offset=24)
        return Header(format="hsaco", properties={"gfx": ",".join(bundle.targets)} if bundle.targets else {})
    target = _elf_target(blob, machines)
    if target:
        return Header(format="hsaco", properties={"gfx": target})
    return Header(format="hsaco", properties={}, unknown={"gfx": "its machine number has no name here"})


def _elf_target(blob: Blob, machines: Mapping[int, str]) -> str:
    try:
        header = parse_header(blob.read(0, 64))
    except BrokenElf as error:
        raise BrokenEngine(blob.name, error.why or error.what, offset=0) from None
    if header.machine != EM_AMDGPU:
        raise BrokenEngine(blob.name, f"an ELF file for machine {header.machine}, not for AMD GPUs", offset=18)
    return machines.get(header.flags & 0xFF, "")


def read_mxr(blob: Blob, machines: Mapping[int, str]) -> Header:
    """What a MIGraphX program says: format and MIGraphX version, targets, and the gfx of the code objects inside."""
    cursor = Cursor(blob)
    top = read_item(cursor)
    if top.kind != "map":
        raise cursor.fault("an .mxr file is a map", at=0)
    cursor.at = 0
    properties: dict[str, str] = {}
    targets: set[str] = set()
    gfx: set[str] = set()
    seen = 0
    for path, item in walk(cursor, limit=_ITEMS):
        seen += 1
        if path == ("version",) and item.kind == "int":
            properties["format"] = str(item.value)
        elif path == ("migraphx_version",) and item.kind == "str" and item.value:
            properties["migraphx"] = str(item.value)
        elif path[:1] == ("targets",) and path[-1] == "name" and item.kind == "str" and item.value:
            targets.add(str(item.value))
        elif item.kind == "bin" and "code_object" in path[-2:]:
            gfx |= _embedded(blob, item, machines)
    if "format" not in properties or "migraphx" not in properties:
        raise BrokenEngine(blob.name, "it names no format version or no MIGraphX version", offset=0)
    unknown = {
        "precision": "a program does not say how it was quantised: state the flags given to the compiler",
        "rocm": "a program does not name it",
    }
    if targets:
        properties["targets"] = ",".join(sorted(targets))
    if gfx:
        properties["gfx"] = ",".join(sorted(gfx))
    else:
        part = f" among the first {_ITEMS} values" if seen == _ITEMS else ""
        unknown["gfx"] = f"there is no code object with a known target{part}, and it is written nowhere else"
    return Header(format="mxr", properties=properties, unknown=unknown)


def _embedded(blob: Blob, item: Item, machines: Mapping[int, str]) -> set[str]:
    inner = blob.part(item.offset, item.size, blob.name)
    head = inner.read(0, len(BUNDLE_MAGIC))
    if not (head.startswith((MAGIC, BUNDLE_MAGIC)) or head[:6] in COMPRESSED_MAGICS):
        return set()
    found = read_code_object(inner, machines).properties.get("gfx", "")
    return set(found.split(",")) - {""}
