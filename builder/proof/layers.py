"""Reads one image layer once and keeps what a static proof asks of it: names and kinds of all files, the loader's view
of every ELF file, and the few small files that decide where libraries are looked for.

Nothing is unpacked: a layer is a stream of tar members (image-spec, layer.md); an ELF file larger than a few
mebibytes passes through one temporary file at a time.
"""

from __future__ import annotations

import re
import tarfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from builder.events import Advance
from builder.proof.objects import ElfObject
from builder.proof.ranges import BytesRanges, FileRanges, Ranges
from builder.registry.layers import BlobStream, clean_path, decompressed, reading, tar_members
from builder.registry.values import Descriptor, Repository
from builder.store import Store

__all__ = ["LayerEntry", "LayerIndex", "index_layer", "read_files", "read_layer"]

VERSION = "1"
"""Raised when the same layer would give another index."""

Kind = Literal["file", "dir", "symlink", "hardlink", "whiteout", "opaque"]
ReadObject = Callable[[Ranges], ElfObject | None]

_IN_MEMORY = 4 << 20
_KEPT = re.compile(
    r"etc/ld\.so\.(cache|conf|preload|conf\.d/[^/]+\.conf)|.*/pyvenv\.cfg|.*\.dist-info/(METADATA|RECORD)"
)
_KEPT_LIMIT = 16 << 20
_PYTHON_LIMIT = 4 << 20
_LOADS = (b"CDLL", b"LoadLibrary", b"PyDLL", b"dlopen", b"load_library")
_LIBRARY_NAME = re.compile(rb"lib[A-Za-z0-9_.+-]+\.so(?:\.[0-9]+)*")
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One name a layer adds or removes."""

    path: str
    """Without a leading slash; for `whiteout` the path removed, for `opaque` the folder emptied."""
    kind: Kind
    target: str = ""
    """Of a symlink as written; of a hard link the path it names."""
    executable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerIndex:
    """Everything kept of one layer; entries in the order of the tar."""

    entries: tuple[LayerEntry, ...]
    objects: Mapping[str, ElfObject]
    """ELF files by path."""
    texts: Mapping[str, bytes]
    """Small files kept whole: loader configuration, pyvenv.cfg, METADATA heads, the libraries named in RECORD."""
    scripts: Mapping[str, str]
    """Executable files that start with `#!`: the rest of that line."""
    loads: Mapping[str, tuple[str, ...]]
    """Python files that load libraries by ctypes or dlopen: the library names written in them (may be none)."""

    def to_json(self) -> dict[str, Any]:
        """As JSON for the store."""
        return {
            "entries": [[entry.path, entry.kind, entry.target, int(entry.executable)] for entry in self.entries],
            "objects": {path: item.to_json() for path, item in self.objects.items()},
            "texts": {path: b64encode(data).decode() for path, data in self.texts.items()},
            "scripts": dict(self.scripts),
            "loads": {path: list(names) for path, names in self.loads.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LayerIndex:
        """The inverse of `to_json`."""
        return cls(
            entries=tuple(LayerEntry(path, kind, target, bool(mode)) for path, kind, target, mode in value["entries"]),
            objects={path: ElfObject.from_json(item) for path, item in value["objects"].items()},
            texts={path: b64decode(text) for path, text in value["texts"].items()},
            scripts=dict(value["scripts"]),
            loads={path: tuple(names) for path, names in value["loads"].items()},
        )


@dataclass(slots=True)
class _Building:
    entries: list[LayerEntry] = field(default_factory=list)
    objects: dict[str, ElfObject] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    loads: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_layer(
    repository: Repository, layer: Descriptor, *, read: ReadObject, reader: str, store: Store, advance: Advance
) -> LayerIndex:
    """The index of a layer, from the store when this layer was read before.

    `reader` names the version of `read`; it is part of what the index is remembered under. The blob's digest is
    checked while it streams, and nothing is remembered of a layer that does not check out.
    """
    key = f"{layer.digest} layer-index {VERSION} reader {reader}"
    known = store.derived("layer-index", key)
    if known is not None:
        advance(layer.size)
        return LayerIndex.from_json(known)
    stream = BlobStream(repository.read_blob(layer.digest), advance)
    with store.partial() as spool:
        index = index_layer(decompressed(stream, layer), layer, read=read, spool=spool)
    stream.drain()
    store.put_derived("layer-index", key, index.to_json())
    return index


def read_files(repository: Repository, layer: Descriptor, paths: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Path and content of these regular files of a layer, in the order of the tar; read until all were seen."""
    left = set(paths)
    stream = decompressed(BlobStream(repository.read_blob(layer.digest), lambda amount, /: None), layer)
    with reading(layer):
        for tar, member in tar_members(stream):
            path = clean_path(member.name)
            if path in left and member.isreg():
                source = tar.extractfile(member)
                if source is not None:
                    left.discard(path)
                    yield path, source.read()
            if not left:
                return


def index_layer(tar_stream: IO[bytes], layer: Descriptor, *, read: ReadObject, spool: Path) -> LayerIndex:
    """Index an uncompressed tar stream; `spool` is a path that may be written for large ELF files."""
    building = _Building()
    with reading(layer):
        for tar, member in tar_members(tar_stream):
            _add(building, tar, member, read, spool)
        while tar_stream.read(1 << 20):
            pass
    return LayerIndex(
        entries=tuple(building.entries),
        objects=building.objects,
        texts=building.texts,
        scripts=building.scripts,
        loads=building.loads,
    )


def _add(building: _Building, tar: tarfile.TarFile, member: tarfile.TarInfo, read: ReadObject, spool: Path) -> None:
    path = clean_path(member.name)
    folder, _, name = path.rpartition("/")
    if name == _OPAQUE:
        building.entries.append(LayerEntry(folder, "opaque"))
    elif name.startswith(_WHITEOUT):
        removed = name[len(_WHITEOUT) :]
        building.entries.append(LayerEntry(f"{folder}/{removed}" if folder else removed, "whiteout"))
    elif member.isdir():
        if path:
            building.entries.append(LayerEntry(path, "dir"))
    elif member.issym():
        building.entries.append(LayerEntry(path, "symlink", member.linkname))
    elif member.islnk():
        building.entries.append(LayerEntry(path, "hardlink", clean_path(member.linkname)))
    elif member.isreg():
        building.entries.append(LayerEntry(path, "file", executable=bool(member.mode & 0o111)))
        source = tar.extractfile(member)
        if source is not None:
            _look_inside(building, path, member, source, read, spool)


def _look_inside(
    building: _Building, path: str, member: tarfile.TarInfo, source: IO[bytes], read: ReadObject, spool: Path
) -> None:
    if _KEPT.fullmatch(path) and member.size <= _KEPT_LIMIT:
        building.texts[path] = _shortened(path, source.read())
        return
    if path.endswith(".py") and member.size <= _PYTHON_LIMIT:
        data = source.read()
        if any(word in data for word in _LOADS):
            names = {found.decode() for found in _LIBRARY_NAME.findall(data)}
            building.loads[path] = tuple(sorted(names))
        head = data[:256]
    else:
        head = source.read(min(256, member.size))
        if head[:4] == b"\x7fELF":
            found = _read_elf(head, member.size, source, read, spool)
            if found is not None:
                building.objects[path] = found
    if head[:2] == b"#!" and member.mode & 0o111:
        building.scripts[path] = head[2:].split(b"\n", 1)[0].decode(errors="replace").strip()


def _read_elf(head: bytes, size: int, source: IO[bytes], read: ReadObject, spool: Path) -> ElfObject | None:
    if size <= _IN_MEMORY:
        return read(BytesRanges(head + source.read()))
    with spool.open("w+b") as file:
        file.write(head)
        while chunk := source.read(1 << 20):
            file.write(chunk)
        file.flush()
        return read(FileRanges(file))


def _shortened(path: str, data: bytes) -> bytes:
    """Of RECORD only the lines that name libraries and programs, of METADATA only the names and requirements."""
    name = PurePosixPath(path).name
    if name == "RECORD":
        lines = (line.split(b",", 1)[0] for line in data.splitlines())
        return b"\n".join(line for line in lines if b".so" in line or line.endswith(b".py") or b"bin/" in line)
    if name == "METADATA":
        head = data.replace(b"\r\n", b"\n").split(b"\n\n", 1)[0]
        wanted = (b"Name:", b"Version:", b"Requires-Dist:")
        return b"\n".join(line for line in head.split(b"\n") if line.startswith(wanted))
    return data
