"""ONNX Runtime: models that it optimised and wrote out, and models whose nodes hold another compiler's engine.

`.onnx` is a protocol buffer (onnx/onnx.proto: ModelProto, GraphProto, NodeProto, AttributeProto), `.ort` a flat buffer
with the identifier ORTM (onnxruntime, core/flatbuffers/schema/ort.fbs). A node `EPContext` carries a compiled engine,
or names its file, with the SDK's version and the architecture it is for (ONNX Runtime documentation, "EP Context
Design"). Nodes of com.microsoft.nchwc are laid out for the vector width of the CPU that optimised the model.
"""

from __future__ import annotations

import re

from builder.cache.formats.cursor import Cursor
from builder.cache.formats.protobuf import Field, fields, text_of
from builder.cache.formats.values import Blob, Header

__all__ = ["ORT_IDENTIFIER", "read_onnx", "read_ort"]

ORT_IDENTIFIER = b"ORTM"

_MAX_FIELDS = 1_000_000
_NCHWC = "com.microsoft.nchwc"
_CONTEXT = {"source": "provider", "ep_sdk_version": "sdk", "hardware_architecture": "device-architecture"}
"""Attribute of EPContext to the property here."""
_PROVIDER = re.compile(rb"[A-Z][A-Za-z]{1,40}ExecutionProvider")
_ORT_SCAN = 16 << 20


def read_onnx(blob: Blob) -> Header:
    """An ONNX model; `BrokenEngine` when it is no ModelProto."""
    properties: dict[str, str] = {}
    opsets: list[str] = []
    graph: Field | None = None
    cursor = Cursor(blob)
    for field in fields(blob, 0, blob.size, limit=_MAX_FIELDS):
        if field.number == 1 and field.value is not None:
            properties["ir-version"] = str(field.value)
        elif field.number == 2 and text_of(blob, field):
            properties["producer"] = text_of(blob, field)
        elif field.number == 3 and text_of(blob, field):
            properties["producer-version"] = text_of(blob, field)
        elif field.number == 7 and field.value is None:
            graph = field
        elif field.number == 8 and field.value is None:
            opsets.append(_opset(blob, field))
    if "ir-version" not in properties or graph is None:
        raise cursor.fault("a model has an ir_version and a graph", at=0)
    properties["opsets"] = ",".join(sorted(opsets))
    domains: set[str] = set()
    contexts: list[dict[str, str]] = []
    for node in fields(blob, graph.offset, graph.size, limit=_MAX_FIELDS):
        if node.number == 1 and node.value is None:
            domain, context = _node(blob, node)
            domains.add(domain)
            if context is not None:
                contexts.append(context)
    notes = []
    for key in sorted({key for context in contexts for key in context}):
        properties[key] = ",".join(sorted({context[key] for context in contexts if key in context}))
    if contexts:
        notes.append(f"{len(contexts)} of its nodes hold an engine of another compiler, or name its file")
    unknown = {"onnxruntime": "an optimised model does not name the version that wrote it"}
    if _NCHWC in domains:
        properties["layout"] = "nchwc"
        unknown["cpu-level"] = "it is laid out for the vector width of one CPU, and does not say which"
        notes.append("it was optimised for the CPU that wrote it: use it on such CPUs alone")
    return Header(format="onnx", properties=properties, unknown=unknown, notes=tuple(notes))


def _opset(blob: Blob, field: Field) -> str:
    domain, version = "", 0
    for part in fields(blob, field.offset, field.size, limit=8):
        if part.number == 1:
            domain = text_of(blob, part)
        elif part.number == 2:
            version = part.value or 0
    return f"{domain or 'ai.onnx'}:{version}"


def _node(blob: Blob, node: Field) -> tuple[str, dict[str, str] | None]:
    """Domain of a node, and what an EPContext says."""
    domain = kind = ""
    attributes: list[Field] = []
    for part in fields(blob, node.offset, node.size, limit=_MAX_FIELDS):
        if part.number == 4:
            kind = text_of(blob, part)
        elif part.number == 7:
            domain = text_of(blob, part)
        elif part.number == 5 and part.value is None:
            attributes.append(part)
    if kind != "EPContext":
        return domain, None
    found: dict[str, str] = {}
    for attribute in attributes:
        name, value = "", ""
        for part in fields(blob, attribute.offset, attribute.size, limit=64):
            if part.number == 1:
                name = text_of(blob, part)
            elif part.number == 4 and name in _CONTEXT:
                value = text_of(blob, part)
        if name in _CONTEXT and value:
            found[_CONTEXT[name]] = value
    return domain, found


def read_ort(blob: Blob) -> Header:
    """A model in ONNX Runtime's own format: its format version, and the providers that its nodes were given to."""
    cursor = Cursor(blob)
    root = cursor.little(4, "the root's offset")
    if cursor.take(4, "the identifier") != ORT_IDENTIFIER:
        raise cursor.fault("a model in ONNX Runtime's format has the identifier ORTM", at=4)
    properties: dict[str, str] = {}
    version = _table_text(cursor, root, field=0)
    if version:
        properties["ort-format"] = version
    found = {match.decode() for match in _PROVIDER.findall(blob.read(0, _ORT_SCAN))}
    if found:
        properties["providers"] = ",".join(sorted(found))
    unknown = {
        "onnxruntime": "the format names its own version, not the one of ONNX Runtime",
        "cpu-level": "whether it was optimised for one CPU is not said",
    }
    return Header(format="ort", properties=properties, unknown=unknown)


def _table_text(cursor: Cursor, table: int, *, field: int) -> str:
    """A text field of a flat buffer's table (FlatBuffers, "Internals": vtable, offsets); empty when it is not set."""
    cursor.at = table
    back = int.from_bytes(cursor.take(4, "the table"), "little", signed=True)
    cursor.at = table - back
    if not 0 <= cursor.at < cursor.end:
        raise cursor.fault("the table's description is outside the file", at=table)
    size = cursor.little(2, "the size of the table's description")
    if size < 4 + 2 * field + 2:
        return ""
    cursor.skip(2 + 2 * field, "the table's description")
    offset = cursor.little(2, "a field's place")
    if not offset:
        return ""
    cursor.at = table + offset
    cursor.at = cursor.at + cursor.little(4, "a text's place") if cursor.at < cursor.end else cursor.end
    length = cursor.little(4, "a text's length")
    return cursor.text(length, "a text") if length <= 256 else ""
