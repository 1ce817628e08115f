"""OpenVINO: compiled models, as its cache keeps them and as `export_model` writes them.

In the cache one line of XML comes first, `<compiled_blob ie_version=… file_info=… runtime_info=… />`, padded with zeros
to `header_size_alignment`; the plug-in's own data follow. Source: openvino, src/inference/src/compilation_context.cpp.
The CPU plug-in's data start with a tag of eight bytes, a version and the length of text such as
`meta=1.0;ov=2026.4.1;isa=…`: read from files that OpenVINO 2026.4.1 wrote.
The hash in `file_info` covers path and time of the model's file, and is no property of the engine.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError, ParserCreate

from builder.cache.formats.cursor import Cursor
from builder.cache.formats.values import Blob, Header

__all__ = ["CPU_TAG", "XML_START", "read_openvino"]

CPU_TAG = b"RR_UPCVO"
XML_START = b"<?xml"

_MAX_LINE = 1 << 16
_MAX_META = 4096
_VERSION = re.compile(r"OV_VERSION:([^;}]+)")


def read_openvino(blob: Blob) -> Header:
    """A compiled model of OpenVINO; the CPU plug-in tells the instruction set that it was compiled for."""
    properties: dict[str, str] = {}
    at = 0
    if blob.read(0, len(XML_START)) == XML_START:
        attributes, at = _xml(blob)
        properties["openvino"] = attributes["ie_version"]
        told = _VERSION.search(attributes.get("runtime_info", ""))
        if told:
            properties["runtime"] = told[1]
    unknown = {
        "precision": "a compiled model does not say it: state INFERENCE_PRECISION_HINT",
        "driver": "a compiled model does not name it",
    }
    if blob.read(at, len(CPU_TAG)) == CPU_TAG:
        properties["device"] = "CPU"
        properties |= _meta(blob, at)
    else:
        unknown["device"] = "only the CPU plug-in's data are read; state the device it was compiled for"
    if not properties:
        raise Cursor(blob).fault("neither the line of OpenVINO's cache nor the tag of its CPU plug-in is at its start")
    if "cpu-isa" not in properties:
        unknown["cpu-isa"] = "it is not in this plug-in's data"
    return Header(format="openvino-blob", properties=properties, unknown=unknown)


def _xml(blob: Blob) -> tuple[dict[str, str], int]:
    """Attributes of the first line, and where the plug-in's data start. There can be no entities."""
    head = blob.read(0, _MAX_LINE)
    line, newline, _ = head.partition(b"\n")
    cursor = Cursor(blob)
    if not newline:
        raise cursor.fault(f"its first line has no end within {_MAX_LINE} bytes", at=min(len(head), blob.size))
    found: list[dict[str, str]] = []
    parser = ParserCreate()
    parser.StartElementHandler = lambda name, attributes: found.append({"": name, **attributes})
    try:
        if b"<!" in line:
            raise ParseError("a declaration has no place here")
        parser.Parse(line.rstrip(b"\0"), True)
    except (ExpatError, ParseError) as error:
        raise cursor.fault(f"its first line is not XML ({error})", at=0) from None
    attributes = found[0]
    if attributes[""] != "compiled_blob" or "ie_version" not in attributes:
        raise cursor.fault("its first line is no <compiled_blob> with an ie_version", at=0)
    try:
        alignment = int(attributes.get("header_size_alignment") or 0)
    except ValueError:
        raise cursor.fault("header_size_alignment is not a number", at=0) from None
    at = len(line) + 1
    if alignment > 0:
        at = -(-at // alignment) * alignment
    return attributes, at


def _meta(blob: Blob, at: int) -> dict[str, str]:
    """Version and instruction set from the text of the CPU plug-in."""
    cursor = Cursor(blob, at)
    cursor.skip(len(CPU_TAG), "the tag")
    version = cursor.little(4, "the version of the plug-in's data")
    size = cursor.little(4, "the length of the plug-in's text")
    cursor.skip(4, "the header")
    if version != 1:
        return {}
    if size > _MAX_META:
        raise cursor.fault(f"the plug-in's text of {size} bytes is longer than {_MAX_META}", at=at + 12)
    text = cursor.text(size, "the plug-in's text")
    found = dict(part.partition("=")[::2] for part in text.split(";"))
    names = {"ov": "openvino-release", "isa": "cpu-isa"}
    return {names[key]: value for key, value in found.items() if key in names and value}
