"""The tar that `docker load` reads and `docker save` writes (moby, image/spec/spec.md, "Combined Image JSON").

Layers go in as they are, compressed or not: the engine inflates them and checks each diff id. They come out as plain
tars with the engine's times in them; `plain_layer` writes those anew with fixed times, so that a build by an engine of
one version gives the same layer every day.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from isal import isal_zlib

from builder.errors import OutsideFailed, where_path
from builder.image.tarstream import MTIME
from builder.image.values import Layer
from builder.names import Digest
from builder.registry.values import BlobSource, Descriptor, MediaType
from builder.store import Store, disk_errors

__all__ = ["SavedImage", "load_stream", "plain_layer"]

_BLOCK = 512
_LEVEL = 2
"""Of ISA-L's four: about as small as zlib's fastest, at several hundred MB a second."""


def load_stream(name: str, config: bytes, layers: Sequence[tuple[Descriptor, BlobSource]]) -> Iterator[bytes]:
    """An archive for `docker load`: one image under one name, layers lowest first."""
    config_name = f"{Digest.of(config).hex}.json"
    files = [f"{number:03}-{layer.digest.hex}.tar" for number, (layer, _) in enumerate(layers)]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": files}]).encode()
    yield from _member(config_name, len(config), iter([config]))
    yield from _member("manifest.json", len(manifest), iter([manifest]))
    for file, (descriptor, source) in zip(files, layers, strict=True):
        yield from _member(file, descriptor.size, source())
    yield bytes(2 * _BLOCK)


def _member(name: str, size: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    yield info.tobuf(tarfile.PAX_FORMAT)
    yield from chunks
    yield bytes(-size % _BLOCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedImage:
    """An archive that `docker save` wrote with one image in it. Close it after use."""

    archive: tarfile.TarFile
    config: dict[str, Any]
    layers: tuple[str, ...]
    """Member names, lowest first."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the directory and the config; `OutsideFailed` when it is not such an archive."""
        archive = tarfile.open(path)  # noqa: SIM115 - closed by close()
        try:
            (image,) = json.loads(_read(archive, "manifest.json"))
            config = json.loads(_read(archive, image["Config"]))
            return cls(archive=archive, config=config, layers=tuple(image["Layers"]))
        except (ValueError, KeyError, TypeError, tarfile.TarError) as error:
            archive.close()
            raise OutsideFailed(
                "the engine saved something that is not an image", why=str(error), where=where_path(path)
            ) from error

    def close(self) -> None:
        """Close the file."""
        self.archive.close()

    def layer(self, name: str) -> IO[bytes]:
        """A layer's tar."""
        member = self.archive.getmember(name)
        if member.issym():  # engines before 25 write a layer once and link to it from others of the same content
            member = self.archive.getmember(posixpath.normpath(f"{posixpath.dirname(name)}/{member.linkname}"))
        found = self.archive.extractfile(member)
        if found is None:
            raise KeyError(name)
        return found


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)
    if found is None:
        raise KeyError(name)
    with found:
        return found.read()


def plain_layer(source: IO[bytes], store: Store, *, title: str) -> Layer:
    """The layer with fixed times and no owners' names, compressed, in the store."""
    with store.partial() as path:
        with disk_errors(path), path.open("wb") as file:
            sink = _Sink(file)
            with (
                tarfile.open(fileobj=source, mode="r|*") as old,
                tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 18) as new,
            ):
                for member in old:
                    data = old.extractfile(member) if member.isreg() else None
                    new.addfile(_plain(member), data)
            sink.finish()
        store.adopt(path, sink.digest, verified=True)
    return Layer(
        descriptor=Descriptor(media_type=MediaType.LAYER_GZIP, digest=sink.digest, size=sink.size),
        diff_id=sink.diff_id,
        title=title,
        path=store.path(sink.digest),
    )


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = MTIME
    member.uname = member.gname = ""
    member.pax_headers = {key: value for key, value in member.pax_headers.items() if key.startswith("SCHILY.xattr.")}
    return member


class _Sink(io.RawIOBase):
    """Compresses what is written to it and takes both digests on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._compress = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, 31)
        self._tar = hashlib.sha256()
        self._blob = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._tar.update(data)
        self._put(self._compress.compress(data))
        return len(data)

    def finish(self) -> None:
        """Write the end of the stream."""
        self._put(self._compress.flush())

    def _put(self, data: bytes) -> None:
        self._blob.update(data)
        self.size += len(data)
        self._file.write(data)

    @property
    def digest(self) -> Digest:
        """Of the compressed bytes."""
        return Digest(self._blob.hexdigest())

    @property
    def diff_id(self) -> Digest:
        """Of the tar."""
        return Digest(self._tar.hexdigest())
