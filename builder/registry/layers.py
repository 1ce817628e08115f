"""Reading a layer's tar members once, forwards, without unpacking anything (image-spec, layer.md)."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import zstandard
from isal import igzip

from builder.errors import OutsideFailed
from builder.events import Advance
from builder.inflate import InflateError
from builder.registry.values import Descriptor, MediaType

__all__ = ["DAMAGED", "LAYER_TYPES", "BadLayer", "BlobStream", "clean_path", "decompressed", "reading", "tar_members"]

LAYER_TYPES = frozenset(
    [
        MediaType.LAYER_GZIP,
        MediaType.LAYER_TAR,
        MediaType.LAYER_ZSTD,
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar",
    ]
)
"""Media types of layers that can be read here (image-spec, media-types.md; Docker image manifest schema 2)."""

DAMAGED = (tarfile.TarError, EOFError, igzip.BadGzipFile, InflateError, zstandard.ZstdError)
"""What decompressors and tarfile raise for damaged input."""

_TAR_BUFFER = 32 << 10
"""tarfile copies its buffer once for each small read, so a large one is slow."""


class BadLayer(OutsideFailed):
    """A layer that is not the compressed tar its media type promises."""

    kind = "bad-layer"


class BlobStream(io.RawIOBase):
    """A blob's chunks as a file that can only be read forward."""

    def __init__(self, chunks: Iterator[bytes], advance: Advance) -> None:
        super().__init__()
        self._chunks = chunks
        self._advance = advance
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer as far as the next chunk goes."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._advance(len(chunk))
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def drain(self) -> None:
        """Read to the end, so that the digest of the whole blob is checked."""
        self._rest = memoryview(b"")
        for chunk in self._chunks:
            self._advance(len(chunk))


def decompressed(stream: BlobStream, layer: Descriptor) -> IO[bytes]:
    """By what the bytes are rather than what the media type says: engines accept both (image-spec, layer.md)."""
    buffered = io.BufferedReader(stream, 1 << 20)
    magic = buffered.peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        opened: IO[bytes] = igzip.IGzipFile(fileobj=buffered, mode="rb")  # type: ignore[no-untyped-call,assignment]
        return opened
    if magic == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().stream_reader(buffered, read_across_frames=True)
    if "zstd" in layer.media_type or "gzip" in layer.media_type:
        raise _bad(layer, f"its media type is {layer.media_type}, its first bytes are {magic!r}")
    return buffered


def tar_members(stream: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members of an uncompressed tar stream, each with the archive to read it from before the next is asked for."""
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_TAR_BUFFER) as tar:
        for member in tar:
            # tarfile keeps a list of all members; without it memory does not grow with the layer.
            tar.members.clear()  # type: ignore[attr-defined]  # public in the code, missing in the stub
            yield tar, member


def _bad(layer: Descriptor, why: str) -> BadLayer:
    return BadLayer(f"cannot read layer {layer.digest}", why=why, fix="push the image again")


@contextmanager
def reading(layer: Descriptor) -> Iterator[None]:
    """Turn what decompressors and tarfile say of damaged input into `BadLayer`."""
    try:
        yield
    except DAMAGED as error:
        raise _bad(layer, str(error)) from error


def clean_path(name: str) -> str:
    """A tar name as a path below the root: `..` never leaves it."""
    parts: list[str] = []
    for part in name.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
