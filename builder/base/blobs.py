"""Blobs of a base image by way of the store, so that one read from a registry is read once."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from builder.events import Advance
from builder.registry.values import Descriptor, Manifest, Repository
from builder.store import Store, disk_errors

__all__ = ["ChunkReader", "kept_blob", "kept_manifest"]

_CHUNK = 1 << 20


def kept_blob(
    repository: Callable[[], Repository], descriptor: Descriptor, store: Store, *, keep: bool
) -> Iterator[bytes]:
    """The blob's bytes: from the store when there, else from the repository, kept in the store when `keep`.

    `repository` is called only when the store lacks the blob: offline, there may be none to open.
    """
    if not store.has(descriptor.digest, size=descriptor.size):
        if not keep:
            yield from repository().read_blob(descriptor.digest)
            return
        with store.partial() as path:
            with disk_errors(path), path.open("wb") as file:
                for chunk in repository().read_blob(descriptor.digest):
                    file.write(chunk)
            store.adopt(path, descriptor.digest)
    with store.open(descriptor.digest) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def kept_manifest(store: Store, manifest: Manifest) -> None:
    """Keep a manifest's bytes, so that an image can be assembled on this base without the registry."""
    if not store.has(manifest.digest):
        store.add_bytes([manifest.raw])


class ChunkReader(io.RawIOBase):
    """A stream of chunks as a readable file; counts what was read."""

    def __init__(self, chunks: Iterator[bytes], advance: Advance) -> None:
        self._chunks = chunks
        self._advance = advance
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill the buffer with what is left of a chunk; 0 at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._advance(len(chunk))
            self._rest = memoryview(chunk)
        view = memoryview(buffer)  # type: ignore[arg-type]
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
