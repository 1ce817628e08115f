"""How a layer's tar becomes its blob: gzip members around streams that exist, or one zstd frame.

Both give the same tar, hence the same diff id. Gzip members are what every engine reads, and need no compressing; zstd
is smaller and quicker to unpack, and is read from Docker 23, containerd 1.5 and buildah 1.22 on.
Sources: RFC 1952, 2.2 (members one after another); RFC 8878, 3.1 (frames); image-spec, layer.md (`+zstd`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, get_args

import zstandard

from builder.errors import BadInput
from builder.image import gzipstream
from builder.project.values import Compression, ImageOptions
from builder.registry.values import MediaType

__all__ = ["COMPRESSIONS", "GZIP", "Encoder", "Packing", "refuse_packing"]

COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)

_ZSTD_LEVEL = 3
"""BuildKit's and containers/image's default too: most of the gain for little of the time."""
_COMPRESS_LIMIT = 4 << 20
"""Longer content is stored in gzip, not compressed, in bytes: such files of an application are models and archives,
which do not shrink, and compressing gigabytes would be most of a build's time."""

_Write = Callable[[bytes], None]


class Encoder(Protocol):
    """Takes a layer's tar piece by piece, in order, and writes the blob."""

    media_type: str

    def header(self, data: bytes) -> None:
        """Padding of the entry before and headers of the next."""

    def content(self, pieces: Iterable[bytes], *, size: int, squeeze: bool) -> None:
        """A file's bytes, of `size` in all and above 0; `squeeze=False` keeps gzip from compressing them."""

    def spliced(self, plain: Iterable[bytes], stream: Callable[[], Iterable[bytes]], *, size: int, crc32: int) -> None:
        """A file's bytes, whose raw deflate stream exists; `plain` is read to its end before `stream` is called."""

    def end(self) -> None:
        """Nothing comes after this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """How the layers made here are packed; those of an OCI base stay as they are."""

    compression: Compression = "gzip"
    estargz: bool = False
    """With a table of contents for lazy pulling (estargz.py)."""

    @classmethod
    def of(cls, image: ImageOptions) -> Packing:
        """What a project asks for. `BadInput` when its wishes do not go together."""
        if image.estargz and image.compression != "gzip":
            raise BadInput(
                f"eStargz layers cannot be compressed by {image.compression}",
                why="the format is one gzip member for each file",
                fix="leave out one of estargz and compression",
            )
        return cls(compression=image.compression, estargz=image.estargz)

    @property
    def key(self) -> str:
        """What the blob depends on besides its entries; "" for plain gzip, whose bytes depend on no library."""
        if self.compression == "zstd":
            version = ".".join(map(str, zstandard.ZSTD_VERSION))
            return f"zstd {version} level {_ZSTD_LEVEL}; "
        return "estargz; " if self.estargz else ""

    def encoder(self, write: _Write) -> Encoder:
        """A new blob, given to `write` in pieces."""
        return _GzipMembers(write) if self.compression == "gzip" else _ZstdFrame(write)


GZIP = Packing()
"""What is done unless something else is asked for."""


def refuse_packing(image: ImageOptions, engine: str) -> None:
    """`BadInput` when a project wants what only the built-in engine writes."""
    packing = Packing.of(image)
    if packing != GZIP:
        wanted = "eStargz" if packing.estargz else packing.compression
        raise BadInput(
            f"the {engine} engine writes no {wanted} layers",
            why="what it hands over is packed by gzip",
            fix="build with --engine oci, which makes the same files; or leave the option out",
        )


class _GzipMembers:
    """Each header and each file is a member of its own, so that no stream is ever compressed again."""

    media_type = MediaType.LAYER_GZIP

    def __init__(self, write: _Write) -> None:
        self._write = write

    def header(self, data: bytes) -> None:
        self._write(gzipstream.member(data))

    def content(self, pieces: Iterable[bytes], *, size: int, squeeze: bool) -> None:
        if size <= _COMPRESS_LIMIT:
            data = b"".join(pieces)
            stream = gzipstream.compressed(data) if squeeze else b"".join(gzipstream.stored_blocks(data))
            self._write(gzipstream.HEADER + stream + gzipstream.trailer(zlib.crc32(data), size))
            return
        self._write(gzipstream.HEADER)
        crc = 0
        for piece, last in _with_last(pieces, size):
            crc = zlib.crc32(piece, crc)
            for part in gzipstream.stored_blocks(piece, final=last):
                self._write(part)
        self._write(gzipstream.trailer(crc, size))

    def spliced(self, plain: Iterable[bytes], stream: Callable[[], Iterable[bytes]], *, size: int, crc32: int) -> None:
        for _ in plain:
            pass
        self._write(gzipstream.HEADER)
        for piece in stream():
            self._write(piece)
        self._write(gzipstream.trailer(crc32, size))

    def end(self) -> None:
        pass


class _ZstdFrame:
    """The whole tar as one frame, by one thread: with more of them the bytes would depend on their number."""

    media_type = MediaType.LAYER_ZSTD

    def __init__(self, write: _Write) -> None:
        self._write = write
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True, write_content_size=False)
        self._stream = compressor.compressobj()

    def header(self, data: bytes) -> None:
        self._put(data)

    def content(self, pieces: Iterable[bytes], *, size: int, squeeze: bool) -> None:
        del size, squeeze  # zstd passes over what does not shrink, at the speed of copying
        for piece in pieces:
            self._put(piece)

    def spliced(self, plain: Iterable[bytes], stream: Callable[[], Iterable[bytes]], *, size: int, crc32: int) -> None:
        del stream, size, crc32
        for piece in plain:
            self._put(piece)

    def end(self) -> None:
        self._write(self._stream.flush())

    def _put(self, data: bytes) -> None:
        packed = self._stream.compress(data)
        if packed:
            self._write(packed)


def _with_last(pieces: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Each piece, and whether it is the last of `size` bytes."""
    left = size
    for piece in pieces:
        left -= len(piece)
        yield piece, not left
