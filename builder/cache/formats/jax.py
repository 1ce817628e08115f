"""JAX: entries of the persistent compilation cache.

A file is named `<module>-<64 hex digits>-cache`: the digest is JAX's whole key. Its content is compressed with
zstandard or, where that is not installed, zlib; then come four bytes of compile time in seconds and the executable that
XLA's client wrote. Source: jax, jax/_src/cache_key.py (`get`), jax/_src/compilation_cache.py
(`combine_executable_and_time`, `compress_executable`), jax/_src/lru_cache.py. Executables of the CPU client hold
triple, CPU name and features of the machine as the first three fields of a message (XLA, TargetMachineOptionsProto):
read from files that jaxlib 0.10 wrote.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

import zstandard

from builder.cache.formats.cursor import Cursor
from builder.cache.formats.protobuf import fields, text_of
from builder.cache.formats.values import Blob, BrokenEngine, Header

__all__ = ["cache_name", "read_jax", "read_jax_folder"]

_NAME = re.compile(r"(?P<module>.+)-(?P<key>[0-9a-f]{64})-cache")
_ZSTD = b"\x28\xb5\x2f\xfd"
_MAX_PLAIN = 64 << 20
_TUNING = b"/xla_gpu_per_fusion_autotune_cache_dir"
"""End of the path that JAX gives to XLA by default, also on a CPU (jax/_src/compiler.py): with it the options that the
key covers name the cache's own folder (tried with jax 0.10.2: the moved folder missed, and hit with the setting)."""
_CHUNK = 1 << 16
_TRIPLE = re.compile(rb"\x0a([\x05-\x7f])([a-z0-9_]+-[a-z0-9_]+-[a-z0-9]+(?:-[a-z0-9]+)?)\x12", re.DOTALL)


def cache_name(name: str) -> tuple[str, str] | None:
    """Module and key of a cache file's name; None for any other name."""
    match = _NAME.fullmatch(name)
    return (match["module"], match["key"]) if match else None


def read_jax(blob: Blob) -> Header:
    """An entry of the persistent cache. The name is part of it; the content must be whole."""
    named = cache_name(blob.name)
    plain, compression, whole = _inflated(blob)
    if len(plain) < 5:
        raise BrokenEngine(blob.name, "there is no executable in it", offset=0)
    properties = {"compression": compression}
    if named:
        properties |= {"module": named[0], "jax-key": named[1]}
    unknown = dict.fromkeys(
        ("jaxlib", "xla-flags", "platform-version"), "JAX folds it into its key; only the key's digest is kept"
    )
    machine = _machine(plain)
    properties |= machine
    if not machine:
        unknown["cpu-features"] = "the executable names no CPU"
    notes = [] if whole else [f"only the first {_MAX_PLAIN} bytes of the executable were looked at"]
    if _TUNING in plain:
        notes.append(
            "JAX finds it under the path of the folder it was made in alone, which is part of its key; "
            "set jax_persistent_cache_enable_xla_caches to none before it is made"
        )
    return Header(format="jax-cache", properties=properties, unknown=unknown, notes=tuple(notes))


def read_jax_folder(tree: Mapping[str, Blob]) -> Header:
    """JAX's cache folder by its files: how its entries are compressed, and the CPU they are for when it is one."""
    headers = [read_jax(tree[path]) for path in sorted(tree) if cache_name(PurePosixPath(path).name)]
    if not headers:
        raise BrokenEngine("the folder", "there is no entry of JAX's cache in it", offset=0)
    properties = {"entries": str(len(headers))}
    for name in ("compression", "triple", "cpu", "cpu-features"):
        values = {header.properties.get(name) for header in headers}
        value = values.pop()
        if not values and value is not None:
            properties[name] = value
    unknown = {name: why for header in headers for name, why in header.unknown.items() if name not in properties}
    notes = tuple(dict.fromkeys(note for header in headers for note in header.notes))
    return Header(format="jax-folder", properties=properties, unknown=unknown, notes=notes)


def _inflated(blob: Blob) -> tuple[bytes, str, bool]:
    """The content, at most `_MAX_PLAIN` bytes; its compression; whether that is all of it."""
    head = blob.read(0, 4)
    out = bytearray()
    at = 0
    done = False
    if head == _ZSTD:
        compression = "zstandard"
        unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(write_size=_CHUNK)
    elif len(head) >= 2 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0:
        compression = "zlib"
        inflater = zlib.decompressobj()
    else:
        raise BrokenEngine(blob.name, "it is neither zstandard nor zlib", offset=0)
    try:
        while len(out) < _MAX_PLAIN and not done and (piece := blob.read(at, _CHUNK)):
            at += len(piece)
            if compression == "zstandard":
                out += unpacker.decompress(piece)
                done = unpacker.eof
                continue
            while piece and len(out) < _MAX_PLAIN:
                out += inflater.decompress(piece, _MAX_PLAIN - len(out))
                piece = inflater.unconsumed_tail
            done = inflater.eof
    except (zlib.error, zstandard.ZstdError) as error:
        raise BrokenEngine(blob.name, f"its content cannot be inflated ({error})", offset=max(at - _CHUNK, 0)) from None
    if not done and len(out) < _MAX_PLAIN:
        raise BrokenEngine(blob.name, "its compressed content ends too early", offset=blob.size)
    return bytes(out), compression, done


def _machine(plain: bytes) -> dict[str, str]:
    """Triple, CPU and features of the first message that has them; empty for executables of other clients."""
    blob = Blob.of_bytes(plain)
    for match in _TRIPLE.finditer(plain):
        if match[1][0] != len(match[2]):
            continue
        cursor = Cursor(blob, match.start())
        try:
            found = [text_of(blob, field) for field in fields(blob, cursor.at, cursor.left, limit=3)]
        except BrokenEngine:
            continue
        if len(found) == 3 and found[2][:1] in ("+", "-"):
            on = sorted(part[1:] for part in found[2].split(",") if part.startswith("+"))
            return {"triple": found[0], "cpu": found[1], "cpu-features": ",".join(on)}
    return {}
