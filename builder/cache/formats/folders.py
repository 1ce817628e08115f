"""Folders that hold several compilers' work: vLLM's compile cache, FlashInfer's jit cache.

vLLM keeps `torch_compile_cache/<hash>/rank_<rank>_<data-parallel rank>/<part>/`, with a `cache_key_factors.json` of
what the hash is made of: env, config, compiler, code. Among the compiler's factors is Inductor's view of the system,
`{"device": {"name": …}, "version": {"triton": …, "cuda" or "hip": …}}`. Source: vllm, vllm/compilation/backends.py;
torch, torch/_inductor/codecache.py (`CacheBase.get_system`). Caches of Triton lie in it where vLLM was told so.
FlashInfer keeps `<version>/<architectures>/cached_ops/<name>/<name>.so`; the libraries hold fat binaries. Source:
flashinfer, flashinfer/jit/env.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from builder.audit.elf import MAGIC as ELF_MAGIC
from builder.audit.fatbin import FATBIN_MAGIC, read_fatbin
from builder.cache.formats.nvidia import capabilities, read_device_object
from builder.cache.formats.triton import read_triton
from builder.cache.formats.values import Blob, BrokenEngine, Header, json_object

__all__ = ["FACTORS", "OPS", "library_targets", "read_flashinfer", "read_vllm"]

FACTORS = "cache_key_factors.json"
OPS = "cached_ops"

_MAX_JSON = 8 << 20
_MAX_DEPTH = 12
_WINDOW = 4 << 20
_RANK = re.compile(r"rank_\d+_\d+")
_VERSION = re.compile(r"\d+(?:\.\d+)+[A-Za-z0-9.+]*")


def read_vllm(tree: Mapping[str, Blob], machines: Mapping[int, str]) -> Header:
    """vLLM's compile cache by its files: ranks, the device and toolkit it was compiled with, Triton's targets.

    `machines` spells EF_AMDGPU_MACH (builder.audit.tables).
    """
    ranks: set[str] = set()
    hashes: set[str] = set()
    devices: set[str] = set()
    toolkits: set[str] = set()
    for path in sorted(tree):
        parts = PurePosixPath(path).parts
        if parts[-1] != FACTORS:
            continue
        rank = next((number for number, part in enumerate(parts) if _RANK.fullmatch(part)), None)
        if rank is not None:
            ranks.add(parts[rank])
            hashes |= {parts[rank - 1]} if rank else set()
        for system in _systems(json_object(tree[path], path, limit=_MAX_JSON)):
            device, version = system["device"].get("name"), system["version"]
            devices |= {device} if isinstance(device, str) and device.isprintable() else set()
            told = version.get("cuda") or version.get("hip")
            toolkits |= {told} if isinstance(told, str) and told.isprintable() else set()
    if not ranks:
        raise BrokenEngine("the folder", f"there is no rank_… with a {FACTORS} in it", offset=0)
    properties = {"ranks": str(len(ranks)), "hashes": " ".join(sorted(hashes))}
    if len(devices) == 1:
        properties["device"] = devices.pop()
    if len(toolkits) == 1:
        properties["toolkit"] = toolkits.pop()
    unknown = dict.fromkeys(("vllm", "torch"), f"{FACTORS} does not name it; only hashes of the sources are there")
    with suppress(BrokenEngine):
        inner = read_triton(tree, machines)
        for name in ("target", "compute-capability", "gfx", "triton"):
            if name in inner.properties:
                properties[name] = inner.properties[name]
    if "target" not in properties:
        unknown["target"] = "no kernel of Triton in it names the device it was compiled for"
    notes = ("it was compiled on several devices",) if len(devices) > 1 else ()
    return Header(format="vllm", properties=properties, unknown=unknown, notes=notes)


def _systems(value: Any, depth: int = 0) -> Iterator[dict[str, dict[str, Any]]]:
    """Every object with a device and a version, however deep."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        if isinstance(value.get("device"), dict) and isinstance(value.get("version"), dict):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _systems(item, depth + 1)


def read_flashinfer(tree: Mapping[str, Blob]) -> Header:
    """FlashInfer's jit cache by its files: its version, and the capabilities that every library in it has code for."""
    versions: set[str] = set()
    covered: list[set[str]] = []
    ptx: list[set[str]] = []
    for path in sorted(tree):
        parts = PurePosixPath(path).parts
        if path.endswith(".cubin"):
            covered.append(set(read_device_object(tree[path]).properties.get("compute-capability", "").split()))
        elif path.endswith(".so") and tree[path].read(0, 4) == ELF_MAGIC:
            code, forward = library_targets(tree[path])
            if code or forward:
                covered.append(code)
                ptx.append(forward)
        else:
            continue
        if OPS in parts and parts.index(OPS) >= 2:
            versions.add(parts[parts.index(OPS) - 2])
    if not covered:
        raise BrokenEngine("the folder", "no library and no cubin in it holds code for a device", offset=0)
    properties = {"operators": str(len(covered))}
    common = set.intersection(*covered)
    if common:
        properties["compute-capability"] = capabilities(_target(one) for one in common)
    unknown = {"cuda": "the libraries do not name it"}
    if not common:
        unknown["compute-capability"] = "no capability is covered by every library in it"
    if len(versions) == 1 and _VERSION.fullmatch(min(versions)):
        properties["flashinfer"] = versions.pop()
    else:
        unknown["flashinfer"] = "the folders do not name one version"
    if ptx and len(ptx) == len(covered) and set.intersection(*ptx):
        properties["ptx"] = capabilities(_target(one) for one in set.intersection(*ptx))
    return Header(format="flashinfer", properties=properties, unknown=unknown)


def _target(capability: str) -> str:
    """`sm_90` of 9.0."""
    return f"sm_{capability.replace('.', '')}"


def library_targets(blob: Blob) -> tuple[set[str], set[str]]:
    """Capabilities that the fat binaries in a library have code for, and those they have PTX for."""
    code: set[str] = set()
    ptx: set[str] = set()
    at = 0
    while at < blob.size:
        window = blob.read(at, _WINDOW)
        if len(window) < len(FATBIN_MAGIC):
            break
        found = window.find(FATBIN_MAGIC)
        if found < 0:
            at += max(len(window) - len(FATBIN_MAGIC) + 1, 1)
            continue
        fatbin = read_fatbin(blob.read, at + found, blob.size)
        for entry in fatbin.entries if fatbin else ():
            if entry.target:
                (code if entry.target.startswith("sm_") else ptx).add(capabilities([entry.target]))
        at = max(fatbin.end if fatbin else 0, at + found + len(FATBIN_MAGIC))
    return code - {""}, ptx - {""}
