"""Engines written byte by byte in the layouts that the makers document; small, whole, and easy to break."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any


def plan(*, version: tuple[int, int, int, int] = (10, 9, 0, 34), layout: int = 0) -> bytes:
    """A TensorRT plan: tag, layout version, 16 bytes, version, and content."""
    return b"ftrt" + struct.pack("<I", layout) + bytes(range(16)) + bytes(version) + b"\x90" * 100


def neff(
    *, features: int = 0, package: int = 2, major: int = 2, minor: int = 0, lnc: int = 2, name: str = "model"
) -> bytes:
    """A NEFF: 1024 bytes of header, then a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if package == 2 else "w") as archive:
        info = tarfile.TarInfo("neff.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
    data = buffer.getvalue()
    digest = hashlib.md5(data, usedforsecurity=False).digest() if package == 2 else hashlib.sha256(data).digest()
    header = struct.pack("<5Q", package, 1024, len(data), major, minor)
    header += b"2.0.21884.0+abc".ljust(128, b"\0") + struct.pack("<I", 1) + digest.ljust(32, b"\0") + bytes(16)
    header += name.encode().ljust(256, b"\0") + struct.pack("<I", 2) + bytes(64) + struct.pack("<QI", features, lnc)
    return header.ljust(1024, b"\0") + data


def packed(value: Any) -> bytes:
    """MessagePack of None, bool, int, str, bytes, list and dict."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return struct.pack("B", value) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
        case str():
            data = value.encode()
            return (bytes([0xA0 | len(data)]) if len(data) < 32 else b"\xdb" + struct.pack(">I", len(data))) + data
        case bytes():
            return b"\xc6" + struct.pack(">I", len(value)) + value
        case list():
            return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(packed, value))
        case dict():
            items = b"".join(packed(key) + packed(item) for key, item in value.items())
            return (bytes([0x80 | len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))) + items
        case _:
            raise TypeError(value)


def amd_elf(machine: int = 0x4C) -> bytes:
    """The header of an AMD GPU code object; 0x4c is gfx942 (LLVM, AMDGPU usage, EF_AMDGPU_MACH)."""
    head = b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7)
    return head + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, 0, machine, 64, 56, 0, 64, 0, 0) + b"code"


def cuda_elf(capability: int = 90) -> bytes:
    """The header of a cubin of ABI version 8."""
    head = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7)
    return head + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 64, 0, capability << 8, 64, 56, 0, 64, 0, 0) + b"code"


def mxr(*, gfx: int | None = 0x4C, version: int = 8) -> bytes:
    """A MIGraphX program as `program::to_value` orders it."""
    node: dict[str, Any] = {"output": "x", "name": "gpu::code_object", "shape": {"type": "float_type"}}
    if gfx is not None:
        # bytes are written as an array of chunks (msgpack.cpp)
        node["operator"] = {"code_object": [amd_elf(gfx)], "symbol_name": "kernel", "global": 64, "local": 64}
    return packed(
        {
            "version": version,
            "migraphx_version": "2.13.0.dev+17558d32",
            "targets": [{"name": "gpu"}],
            "contexts": [{"events": 1, "streams": 1}],
            "modules": {"main": {"name": "main", "nodes": [node]}},
        }
    )


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    """A protocol buffer of numbers and bytes."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def varint(value: int) -> bytes:
    """A number as protocol buffers write it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


OM_ATTRIBUTES = {
    "soc_version": "Ascend910B1",
    "atc_version": "8.2.RC1",
    "opp_version": "8.2.RC1",
    "atc_cmdline": "atc --model=/home/somebody/m.onnx",
}


def om(
    attributes: Mapping[str, str] = OM_ATTRIBUTES, *, width: int = 8, encrypted: bool = False, long: bool = False
) -> bytes:
    """An offline model: header of 256 bytes, partition table, definition and weights."""
    entries = [(11, message((1, name), (2, message((2, value))))) for name, value in attributes.items()]
    definition = message((1, "net"), (2, 1), (7, b""), *entries)
    weights = b"w" * 40
    rows = [(1, 0, len(weights)), (0, len(weights), len(definition))]
    numbers = "<" + ("Q" if width == 8 else "I") * 3
    table = struct.pack("<I", len(rows)) + bytes(width - 4) + b"".join(struct.pack(numbers, *row) for row in rows)
    body = table + weights + definition
    head = b"IMOD" + struct.pack("<II", 256, 0x20000000) + bytes(64) + struct.pack("<I", 0 if long else len(body))
    head += bytes([1 if encrypted else 0, 0, 1, 0]) + b"net".ljust(32, b"\0") + struct.pack("<I", 0) + bytes(32)
    head += struct.pack("<II", 1, 1) + b"V100R001".ljust(20, b"\0") + bytes(4)
    head += struct.pack("<Q", len(body) if long else 0)
    return head.ljust(256, b"\0") + body


def mega_cache(groups: Mapping[str, Sequence[tuple[str, bytes]]], *, checksum: bool = True) -> bytes:
    """What `torch.compiler.save_cache_artifacts` gives."""

    def text(value: str) -> bytes:
        data = base64.b64encode(value.encode())
        return struct.pack(">Q", len(data)) + data

    body = struct.pack(">Q", 1)
    for kind, artifacts in groups.items():
        body += text(kind) + struct.pack(">Q", len(artifacts))
        for key, content in artifacts:
            body += text(key) + struct.pack(">Q", len(content)) + content
    return (struct.pack(">I", zlib.crc32(body)) if checksum else b"") + body


AOTI = {
    "AOTI_DEVICE_KEY": "cuda",
    "AOTI_PLATFORM": "linux",
    "AOTI_MACHINE": "x86_64",
    "AOTI_CPU_ISA": "AVX512",
    "AOTI_COMPUTE_CAPABILITY": "90",
}


def aoti(*metadata: Mapping[str, str]) -> bytes:
    """A package of AOTInductor with one object for each metadata."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/archive_version", "0")
        for number, values in enumerate(metadata or (AOTI,)):
            archive.writestr(f"m/data/aotinductor/model/k{number}.wrapper_metadata.json", json.dumps(values))
            archive.writestr(f"m/data/aotinductor/model/k{number}.wrapper.so", b"\x7fELF")
    return buffer.getvalue()


def openvino(*, xml: bool = True, isa: str = "Intel AVX512", alignment: int = 0) -> bytes:
    """A compiled model of OpenVINO's CPU plug-in, with or without the line of its cache."""
    meta = f"meta=1.0;ov=2026.4.1;isa={isa}".encode()
    data = b"RR_UPCVO" + struct.pack("<III", 1, len(meta), 0) + meta + bytes(64)
    if not xml:
        return data
    line = (
        '<?xml version="1.0"?><compiled_blob ie_version="2026.4.1-22982-e213a147257" file_info="614250919"'
        f' runtime_info="{{OV_VERSION:2026.4.1-22982}}" header_size_alignment="{alignment}"/>\n'
    ).encode()
    padded = line if not alignment else line.ljust(-(-len(line) // alignment) * alignment, b"\0")
    return padded + data


def jax(*, features: str = "+avx2,+fma,-avx512f", compress: str = "zlib", tuning: str = "") -> bytes:
    """An entry of JAX's cache: compressed compile time and executable with the machine it is for."""
    import zstandard

    machine = message((1, "x86_64-unknown-linux-gnu"), (2, "haswell"), (3, features))
    plain = struct.pack(">I", 3) + message((1, 3), (2, "pjrt_ifrt"), (9, machine), (4, "e-m:e-p270:32:32"), (5, tuning))
    return zlib.compress(plain) if compress == "zlib" else zstandard.ZstdCompressor().compress(plain)


JAX_NAME = "jit_f-1fd4ccd7c987cfc40efd0a159bf927b84bc29b65706569c77f6aba3455544d18-cache"


def node(kind: str, domain: str = "", **attributes: str) -> tuple[int, bytes]:
    """A node of an ONNX graph."""
    listed = [(5, message((1, name), (4, value), (20, 3))) for name, value in attributes.items()]
    return (1, message((1, "x"), (2, "y"), (4, kind), *listed, (7, domain)))


def onnx(*nodes: tuple[int, bytes]) -> bytes:
    """An ONNX model."""
    graph = message(*(nodes or (node("Relu"),)), (2, "g"))
    opset = message((1, ""), (2, 17))
    return message((1, 9), (2, "pytorch"), (3, "2.9.0"), (7, graph), (8, opset), (8, message((1, "com.m"), (2, 1))))


def ort() -> bytes:
    """The head of a model in ONNX Runtime's format: root table with one text, then providers' names."""
    vtable = struct.pack("<HHH", 6, 8, 4)
    table_at = 8 + 2 + len(vtable)
    table = struct.pack("<ii", table_at - 8, 4)
    return (
        struct.pack("<I", table_at)
        + b"ORTM"
        + vtable
        + bytes(2)
        + table
        + struct.pack("<I", 1)
        + b"6\0\0\0"
        + (b"\x14\0\0\0CPUExecutionProvider\0")
    )


def triton(
    folder: str = "ABCD", *, backend: str = "cuda", arch: int | str = 120, binary: bytes | None = None
) -> dict[str, bytes]:
    """The folder of one kernel in Triton's cache."""
    suffix = ".cubin" if backend == "cuda" else ".hsaco"
    target = {"backend": backend, "arch": arch, "warp_size": 32 if backend == "cuda" else 64}
    metadata = {"hash": "6a09", "target": target, "num_warps": 4, "triton_version": "3.6.0", "name": "add_kernel"}
    place = f"/home/app/.triton/cache/{folder}/"
    group = {"child_paths": {name: place + name for name in ("add_kernel.json", f"add_kernel{suffix}")}}
    return {
        f"{folder}/add_kernel.json": json.dumps(metadata).encode(),
        f"{folder}/add_kernel{suffix}": cuda_elf(120) if binary is None else binary,
        f"{folder}/__grp__add_kernel.json": json.dumps(group).encode(),
    }
