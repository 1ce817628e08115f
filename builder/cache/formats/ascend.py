"""Ascend: offline models (.om).

A header of 256 bytes, a table of partitions, the partitions. Partition 0 is the model's definition, a protocol buffer
(ge.proto.ModelDef) whose attributes (field 11, a map to AttrDef, whose text is field 2) name the chip, and the versions
of compiler and operator package. Source: Ascend's GE, inc/framework/common/framework_types_internal.h and
executor_c/types.h (`ModelFileHeader`, `ModelPartitionTable`), ge_ir.proto, `PrintModelInfo` of its offline tool.
"""

from __future__ import annotations

from builder.cache.formats.cursor import Cursor
from builder.cache.formats.protobuf import fields, text_of
from builder.cache.formats.values import Blob, BrokenEngine, Header

__all__ = ["OM_MAGIC", "read_om"]

OM_MAGIC = b"IMOD"
"""0x444F4D49, the lowest byte first."""

_HEADER = 256
_MANY_MODELS = 0x20000000
_MODEL_DEF = 0
_MAX_PARTITIONS = 64
_MODEL_ATTR = 11
_ATTR_TEXT = 2
_MAX_FIELDS = 100_000

_ATTRIBUTES = {
    "soc_version": "soc",
    "atc_version": "cann",
    "opp_version": "opp",
    "arch_type": "core-type",
    "host_env_os": "host-os",
    "host_env_cpu": "host-arch",
}
"""Attribute of the model to the property here."""


def read_om(blob: Blob) -> Header:
    """What an offline model says about itself; an encrypted one tells only its header."""
    cursor = Cursor(blob)
    if cursor.take(4, "the tag") != OM_MAGIC:
        raise cursor.fault("an offline model starts with IMOD", at=0)
    size = cursor.little(4, "headsize")
    if size != _HEADER:
        raise cursor.fault(f"headsize is {size}, and an offline model's header has {_HEADER} bytes", at=4)
    version = cursor.little(4, "version")
    cursor.skip(64, "checksum")
    length = cursor.little(4, "length")
    encrypted = cursor.little(1, "is_encrypt")
    cursor.skip(1, "is_checksum")
    kind = cursor.little(1, "modeltype")
    cursor.skip(1, "genmode")
    name = cursor.text(32, "name")
    cursor.skip(4 + 32, "ops and userdefineinfo")
    ir_version = cursor.little(4, "om_ir_version")
    models = cursor.little(4, "model_num")
    platform = cursor.text(20, "platform_version")
    cursor.skip(4, "platform_type")
    long_length = cursor.little(8, "model_length")
    length = length or long_length
    if length > blob.size - _HEADER:
        raise cursor.fault(f"length is {length}, but {blob.size - _HEADER} bytes follow the header", at=76)
    properties = {
        "format": f"{version:#x}",
        "om-ir-version": str(ir_version),
        "model-type": str(kind),
    }
    if name:
        properties["model-name"] = name
    if platform:
        properties["platform-version"] = platform
    unknown = {"driver": "an offline model does not name the driver it needs"}
    notes: list[str] = []
    if version >= _MANY_MODELS and models > 1:
        notes.append(f"{models} models are in it; what is told is of the first")
    if encrypted:
        unknown |= dict.fromkeys(("soc", "cann"), "the model is encrypted")
    else:
        found = _attributes(blob)
        properties |= found
        unknown |= {
            name: f"the model has no attribute {attribute}"
            for attribute, name in _ATTRIBUTES.items()
            if name in ("soc", "cann") and name not in found
        }
    return Header(format="om", properties=properties, unknown=unknown, notes=tuple(notes))


def _attributes(blob: Blob) -> dict[str, str]:
    """The attributes of the definition that tell what the model was built by and for."""
    place = _definition(blob)
    if place is None:
        return {}
    found: dict[str, str] = {}
    for entry in fields(blob, *place, limit=_MAX_FIELDS):
        if entry.number != _MODEL_ATTR or entry.value is not None:
            continue
        name, value = "", ""
        for part in fields(blob, entry.offset, entry.size, limit=8):
            if part.number == 1:
                name = text_of(blob, part)
            elif part.number == 2 and part.value is None and name in _ATTRIBUTES:
                texts = fields(blob, part.offset, part.size, limit=8)
                value = next((text_of(blob, text) for text in texts if text.number == _ATTR_TEXT), "")
        if name in _ATTRIBUTES and value:
            found[_ATTRIBUTES[name]] = value
    return found


def _definition(blob: Blob) -> tuple[int, int] | None:
    """Offset and size of the definition. The table's numbers have four bytes in older files and eight in newer."""
    for width in (4, 8):
        cursor = Cursor(blob, _HEADER)
        count = cursor.little(4, "the number of partitions")
        if not 0 < count <= _MAX_PARTITIONS:
            raise cursor.fault(f"{count} partitions cannot be", at=_HEADER)
        start = _HEADER + width + 3 * width * count
        if start > blob.size:
            continue
        cursor.skip(width - 4, "the table's padding")
        rows = [[cursor.little(width, "the partition table") for _ in range(3)] for _ in range(count)]
        if len({row[0] for row in rows}) == count and all(start + row[1] + row[2] <= blob.size for row in rows):
            return next(((start + row[1], row[2]) for row in rows if row[0] == _MODEL_DEF), None)
    raise BrokenEngine(blob.name, "the partition table names places outside the file", offset=_HEADER)
