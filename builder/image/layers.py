"""Writing one layer into the store: tar entries as gzip members, both digests on the way, nothing written twice.

Each file is two gzip members: the padding of the file before with this one's tar header, and the content. Hashing runs
in two threads of its own (one for the compressed blob, one for the tar), while the caller inflates and writes; hashlib
and isal both release the interpreter lock for large pieces.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from builder.errors import OutsideFailed
from builder.image import gzipstream
from builder.image.tarstream import END, header, padding
from builder.image.values import Layer
from builder.names import Digest
from builder.registry.values import Descriptor, FileSource, MediaType
from builder.store import Store, disk_errors

__all__ = ["LAYER_FORMAT", "LayerWriter", "kept_layer", "layer_source", "write_layer"]

LAYER_FORMAT = "1"
"""Version of how entries become bytes (this module, tarstream, gzipstream); part of every cache key of layers."""

_BATCH = 1 << 18
_COMPRESS_LIMIT = 4 << 20
"""Longer content is stored, not compressed, in bytes: such files of an application are models and archives, which do
not shrink, and compressing gigabytes would be most of a build's time."""


class _HashThread:
    """SHA-256 in a thread; small pieces are joined, and the queue is bounded so that memory is too."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._queue: queue.Queue[bytes | None] = queue.Queue(maxsize=16)
        self._pending: list[bytes] = []
        self._waiting = 0
        self.size = 0
        self._thread = threading.Thread(target=self._run, name="layer-digest", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            self._hash.update(data)

    def update(self, data: bytes) -> None:
        self.size += len(data)
        self._pending.append(data)
        self._waiting += len(data)
        if self._waiting >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._queue.put(self._pending[0] if len(self._pending) == 1 else b"".join(self._pending))
            self._pending = []
            self._waiting = 0

    def finish(self) -> Digest:
        self._flush()
        self.stop()
        return Digest(self._hash.hexdigest())

    def stop(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()


class LayerWriter:
    """Collects the entries of one layer. Made by `write_layer`; entries come in the order they are added."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._blob = _HashThread()
        self._tar = _HashThread()
        self._padding = b""
        self._folders: set[str] = set()

    def directory(self, path: str, *, mode: int = 0o755, uid: int = 0, gid: int = 0) -> None:
        """A directory, once; parents are not added."""
        if path not in self._folders:
            self._folders.add(path)
            self._header(header(path, "directory", mode=mode, uid=uid, gid=gid))

    def parents(self, path: str, *, below: str) -> None:
        """The directories between `below` (left out) and `path`, mode 755, where they were not added before."""
        folder = path.rpartition("/")[0]
        if folder != below and folder not in self._folders:
            self.parents(folder, below=below)
            self.directory(folder)

    def symlink(self, path: str, target: str, *, uid: int = 0, gid: int = 0) -> None:
        """A symbolic link, its target as written."""
        self._header(header(path, "symlink", mode=0o777, uid=uid, gid=gid, link=target))

    def content(self, path: str, data: bytes, *, mode: int, uid: int = 0, gid: int = 0, compress: bool = True) -> None:
        """A file from memory. `compress=False` stores it, so that the bytes do not depend on a compression library."""
        self._header(header(path, "file", mode=mode, uid=uid, gid=gid, size=len(data)))
        if not data:
            return
        self._tar.update(data)
        squeeze = compress and len(data) <= _COMPRESS_LIMIT
        stream = gzipstream.compressed(data) if squeeze else b"".join(gzipstream.stored_blocks(data))
        self._write(gzipstream.HEADER + stream + gzipstream.trailer(zlib.crc32(data), len(data)))
        self._padding = padding(len(data))

    def file(self, path: str, source: IO[bytes], size: int, *, mode: int) -> None:
        """A file from disk, of exactly `size` bytes; long ones are stored in bounded memory."""
        if size <= _COMPRESS_LIMIT:
            data = source.read(size + 1)
            if len(data) != size:
                raise _changed(path)
            self.content(path, data, mode=mode)
            return
        self._header(header(path, "file", mode=mode, size=size))
        self._write(gzipstream.HEADER)
        crc, left = 0, size
        while left:
            piece = source.read(min(_COMPRESS_LIMIT, left))
            if not piece:
                raise _changed(path)
            left -= len(piece)
            crc = zlib.crc32(piece, crc)
            self._tar.update(piece)
            for part in gzipstream.stored_blocks(piece, final=not left):
                self._write(part)
        if source.read(1):
            raise _changed(path)
        self._write(gzipstream.trailer(crc, size))
        self._padding = padding(size)

    def spliced(
        self,
        path: str,
        *,
        mode: int,
        size: int,
        crc32: int,
        plain: Iterable[bytes],
        stream: Callable[[], Iterable[bytes]],
    ) -> None:
        """A file whose deflate stream exists: `plain` is read first, for the diff id, then `stream()` is copied.

        `plain` checks length and CRC-32, so a stream that lies never gets under a layer's name.
        """
        self._header(header(path, "file", mode=mode, size=size))
        if not size:
            for _ in plain:
                pass
            return
        for piece in plain:
            self._tar.update(piece)
        self._write(gzipstream.HEADER)
        for piece in stream():
            self._write(piece)
        self._write(gzipstream.trailer(crc32, size))
        self._padding = padding(size)

    def _header(self, blocks: bytes) -> None:
        data = self._padding + blocks
        self._padding = b""
        self._tar.update(data)
        self._write(gzipstream.member(data))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._blob.update(data)

    def _finish(self) -> tuple[Descriptor, Digest]:
        self._header(END)
        digest, diff_id = self._blob.finish(), self._tar.finish()
        descriptor = Descriptor(media_type=MediaType.LAYER_GZIP, digest=digest, size=self._blob.size)
        return descriptor, diff_id

    def _stop(self) -> None:
        self._blob.stop()
        self._tar.stop()


def _changed(path: str) -> OutsideFailed:
    return OutsideFailed(f"{path} changed while it was read", fix="build again when nothing writes to the project")


def write_layer(store: Store, title: str, fill: Callable[[LayerWriter], None], *, key: str | None = None) -> Layer:
    """Make a layer by `fill`, keep its blob in the store, and remember it under `key`.

    A layer that is remembered and whose blob is there is not made again: the key names everything it depends on.
    """
    if key is not None and (kept := kept_layer(store, title, key)) is not None:
        return kept
    with store.partial() as path, disk_errors(path):
        with _open(path) as writer:
            fill(writer)
            descriptor, diff_id = writer._finish()
        blob = store.adopt(path, descriptor.digest, verified=True)
    if key is not None:
        store.put_derived("layer", _full(key), {"descriptor": descriptor.to_json(), "diff_id": str(diff_id)})
    return Layer(descriptor=descriptor, diff_id=diff_id, title=title, path=blob)


def kept_layer(store: Store, title: str, key: str) -> Layer | None:
    """The layer remembered under `key`, when its blob is still there."""
    found: Any = store.derived("layer", _full(key))
    if found is None:
        return None
    descriptor = Descriptor.from_json(found["descriptor"])
    if not store.has(descriptor.digest, size=descriptor.size):
        return None
    path = store.path(descriptor.digest)
    return Layer(descriptor=descriptor, diff_id=Digest.parse(found["diff_id"]), title=title, path=path)


def layer_source(layer: Layer, store: Store) -> FileSource:
    """The bytes of a layer of the store; those made a moment ago need not be hashed again."""
    if layer.path is None:
        raise ValueError("a layer made here has a file")
    return FileSource(layer.path, immutable=True, verified=store.fresh(layer.descriptor.digest))


def _full(key: str) -> str:
    return f"format {LAYER_FORMAT}; {key}"


@contextmanager
def _open(path: Path) -> Iterator[LayerWriter]:
    with path.open("wb", buffering=1 << 20) as file:
        writer = LayerWriter(file)
        try:
            yield writer
        finally:
            writer._stop()
