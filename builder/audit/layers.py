"""What the audit sees in one image layer, and which files of a stack of layers are there in the end.

Source: image-spec, layer.md, "Applying Changesets" and "Whiteouts".
"""

from __future__ import annotations

import dataclasses
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from isal import isal_zlib

from builder.audit.facts import ElfFacts, MemberFact, PythonUse, elf_from_json, member_from_json
from builder.audit.wheel import SCAN_VERSION, WheelScanner
from builder.events import Advance
from builder.registry.layers import BlobStream, clean_path, decompressed, reading, tar_members
from builder.registry.values import Descriptor, Repository
from builder.store import Store

__all__ = ["Held", "LayerFacts", "merged", "read_layer"]

Kind = Literal["file", "symlink", "hardlink", "whiteout", "opaque"]

_CHUNK = 1 << 20
_IN_MEMORY = 4 << 20
_KEPT = re.compile(r".*\.dist-info/(METADATA|RECORD|WHEEL)")
_KEPT_LIMIT = 16 << 20
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_LINKS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerFacts:
    """One layer; paths are relative to the root."""

    entries: tuple[tuple[str, Kind, str], ...]
    """(path, kind, target of a link), in the order of the tar; folders are left out."""
    elf: tuple[ElfFacts, ...]
    python: tuple[PythonUse, ...]
    members: tuple[MemberFact, ...]
    texts: Mapping[str, str]
    """METADATA, RECORD and WHEEL of installed distributions."""

    def to_json(self) -> dict[str, Any]:
        """For the store."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LayerFacts:
        """The value written by `to_json` of this version (the store's key names the version)."""
        return cls(
            entries=tuple((path, kind, target) for path, kind, target in value["entries"]),
            elf=tuple(elf_from_json(item) for item in value["elf"]),
            python=tuple(PythonUse(**item) for item in value["python"]),
            members=tuple(member_from_json(item) for item in value["members"]),
            texts=dict(value["texts"]),
        )


@dataclass(frozen=True, slots=True)
class Held:
    """Where a path of the finished image comes from."""

    layer: int
    path: str
    """The path under which that layer has the bytes: another one for a hard link."""


def read_layer(
    repository: Repository, layer: Descriptor, *, scanner: WheelScanner, store: Store, advance: Advance
) -> LayerFacts:
    """The facts of a layer, from the store when it was read before; the blob's digest is checked while it streams."""
    key = f"{layer.digest}/{SCAN_VERSION}/{scanner.tables.digest}"
    known = store.derived("audit-layer", key)
    if known is not None:
        advance(layer.size)
        return LayerFacts.from_json(known)
    stream = BlobStream(repository.read_blob(layer.digest), advance)
    with store.partial() as spool, reading(layer):
        source = decompressed(stream, layer)
        facts = _scan(source, scanner, spool)
        while source.read(_CHUNK):
            pass
    stream.drain()
    store.put_derived("audit-layer", key, facts.to_json())
    return facts


class _TarFile:
    """A file of a tar stream as a file to look at; a large one that must be read again passes through `spool`."""

    symlink = False

    def __init__(self, name: str, size: int, source: IO[bytes], spool: Path) -> None:
        self.name = name
        self.size = size
        self._source = source
        self._spool = spool
        self._head = b""
        self._data: bytes | None = None
        self._spooled = False
        self._crc = 0

    def head(self, size: int) -> bytes:
        self._head = self._source.read(min(size, self.size))
        return self._head

    def crc32(self) -> int:
        return self._crc

    def stream(self) -> Iterator[bytes]:
        if self._data is None and not self._spooled:
            self._take()
        if self._data is not None:
            yield self._data
            return
        with self._spool.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def _take(self) -> None:
        if self.size <= _IN_MEMORY:
            self._data = self._head + self._source.read()
            self._crc = isal_zlib.crc32(self._data)
            return
        with self._spool.open("wb") as file:
            chunk = self._head
            while chunk:
                self._crc = isal_zlib.crc32(chunk, self._crc)
                file.write(chunk)
                chunk = self._source.read(_CHUNK)
        self._spooled = True


def _scan(stream: IO[bytes], scanner: WheelScanner, spool: Path) -> LayerFacts:
    collector = scanner.collector()
    entries: list[tuple[str, Kind, str]] = []
    texts: dict[str, str] = {}
    for tar, member in tar_members(stream):
        path = clean_path(member.name)
        entry = _entry(path, member)
        if entry is None:
            continue
        entries.append(entry)
        source = tar.extractfile(member) if member.isreg() and entry[1] == "file" else None
        if source is None:
            continue
        if _KEPT.fullmatch(path) and member.size <= _KEPT_LIMIT:
            texts[path] = source.read().decode(errors="replace")
        else:
            collector.look(_TarFile(path, member.size, source, spool))
    return LayerFacts(
        entries=tuple(entries),
        elf=tuple(collector.elf),
        python=tuple(collector.python),
        members=tuple(collector.found),
        texts=texts,
    )


def _entry(path: str, member: tarfile.TarInfo) -> tuple[str, Kind, str] | None:
    folder, _, name = path.rpartition("/")
    if name == _OPAQUE:
        return folder, "opaque", ""
    if name.startswith(_WHITEOUT):
        return f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"), "whiteout", ""
    if member.issym():
        return path, "symlink", member.linkname
    if member.islnk():
        return path, "hardlink", clean_path(member.linkname)
    return (path, "file", "") if member.isreg() else None


@dataclass(slots=True)
class _Tree:
    """The files and symbolic links of the layers applied so far, by real path."""

    files: dict[str, Held] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def real(self, path: str) -> str:
        """The path with the symbolic links among its parents followed, e.g. lib/x to usr/lib/x."""
        done: list[str] = []
        waiting = path.split("/")[::-1]
        followed = 0
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del done[-1:]
                continue
            here = "/".join((*done, part))
            target = self.links.get(here) if waiting else None
            if target is None or followed == _LINKS:
                done.append(part)
                continue
            followed += 1
            if target.startswith("/"):
                done = []
            waiting += target.split("/")[::-1]
        return "/".join(done)

    def remove(self, paths: set[str], *, inside: bool = False) -> None:
        """Remove these paths and all below them; only what is below with `inside`."""
        if not paths:
            return
        for table in (self.files, self.links):
            for path in [path for path in table if _under(path, paths, inside=inside)]:
                del table[path]


def _under(path: str, tops: set[str], *, inside: bool) -> bool:
    if not inside and path in tops:
        return True
    if "" in tops:
        return True
    at = path.find("/")
    while at >= 0:
        if path[:at] in tops:
            return True
        at = path.find("/", at + 1)
    return False


def merged(layers: Sequence[LayerFacts]) -> dict[str, Held]:
    """Path, relative to the root, of every regular file of the finished image; lowest layer first."""
    tree = _Tree()
    for number, layer in enumerate(layers):
        # A layer's own whiteouts hide only what lies below it, wherever they stand in the tar.
        tree.remove({tree.real(path) for path, kind, _ in layer.entries if kind == "whiteout"})
        tree.remove({tree.real(path) for path, kind, _ in layer.entries if kind == "opaque"}, inside=True)
        for path, kind, target in layer.entries:
            if kind in ("whiteout", "opaque"):
                continue
            real = tree.real(path)
            tree.files.pop(real, None)
            tree.links.pop(real, None)
            if kind == "symlink":
                tree.links[real] = target
            elif kind == "file":
                tree.files[real] = Held(number, path)
            elif (linked := tree.files.get(tree.real(target))) is not None:
                tree.files[real] = linked
    return tree.files
