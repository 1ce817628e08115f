"""Writing one layer into the store: tar entries packed on the way, both digests taken, nothing written twice.

Hashing runs in two threads of its own (one for the blob, one for the tar), while the caller inflates and writes;
hashlib and isal both release the interpreter lock for large pieces.
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
from builder.image import estargz, gzipstream
from builder.image.packing import GZIP, Packing
from builder.image.tarstream import END, TarKind, header, padding
from builder.image.values import Layer
from builder.names import Digest
from builder.registry.values import Descriptor, FileSource
from builder.store import Store, disk_errors

__all__ = ["LAYER_FORMAT", "LayerWriter", "kept_layer", "layer_source", "write_layer"]

LAYER_FORMAT = "1"
"""Version of how entries become bytes (here, tarstream, gzipstream, packing, estargz); part of every cache key."""

_BATCH = 1 << 18
_WAITING = 8
"""Batches that may wait for a digest."""
_PIECE = 4 << 20
"""Bytes of a file read at a time; they decide where stored blocks end, so they are part of the format."""


class _HashThread:
    """SHA-256 in a thread; small pieces are joined, and the queue is bounded so that memory is too."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._queue: queue.Queue[bytes | None] = queue.Queue(maxsize=_WAITING)
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

    def __init__(self, file: IO[bytes], packing: Packing = GZIP) -> None:
        self._file = file
        self._blob = _HashThread()
        self._tar = _HashThread()
        self._encoder = packing.encoder(self._write)
        self._padding = b""
        self._folders: set[str] = set()
        self._contents: estargz.Contents | None = None
        if packing.estargz:
            self._contents = estargz.Contents()
            self.content(estargz.LANDMARK, estargz.LANDMARK_CONTENT, mode=0o644, compress=False)

    def directory(self, path: str, *, mode: int = 0o755, uid: int = 0, gid: int = 0) -> None:
        """A directory, once; parents are not added."""
        if path not in self._folders:
            self._folders.add(path)
            self._entry(path, "directory", mode=mode, uid=uid, gid=gid)

    def parents(self, path: str, *, below: str) -> None:
        """The directories between `below` (left out) and `path`, mode 755, where they were not added before."""
        folder = path.rpartition("/")[0]
        if folder != below and folder not in self._folders:
            self.parents(folder, below=below)
            self.directory(folder)

    def symlink(self, path: str, target: str, *, uid: int = 0, gid: int = 0) -> None:
        """A symbolic link, its target as written."""
        self._entry(path, "symlink", mode=0o777, uid=uid, gid=gid, link=target)

    def content(self, path: str, data: bytes, *, mode: int, uid: int = 0, gid: int = 0, compress: bool = True) -> None:
        """A file from memory. `compress=False` stores it in gzip, so that the bytes depend on no library."""
        self._entry(path, "file", mode=mode, uid=uid, gid=gid, size=len(data))
        if data:
            with self._noted(len(data)) as seen:
                self._encoder.content(seen([data]), size=len(data), squeeze=compress)

    def file(self, path: str, source: IO[bytes], size: int, *, mode: int) -> None:
        """A file from disk, of exactly `size` bytes, in bounded memory."""
        self._entry(path, "file", mode=mode, size=size)
        if size:
            with self._noted(size) as seen:
                self._encoder.content(seen(_exactly(path, source, size)), size=size, squeeze=True)
        if source.read(1):
            raise _changed(path)

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
        self._entry(path, "file", mode=mode, size=size)
        if not size:
            for _ in plain:
                pass
            return
        with self._noted(size) as seen:
            self._encoder.spliced(seen(plain), stream, size=size, crc32=crc32)

    def _entry(
        self, path: str, kind: TarKind, *, mode: int, uid: int = 0, gid: int = 0, size: int = 0, link: str = ""
    ) -> None:
        self._header(header(path, kind, mode=mode, uid=uid, gid=gid, size=size, link=link))
        if self._contents is not None:
            self._contents.add(path, kind, mode=mode, uid=uid, gid=gid, link=link)

    @contextmanager
    def _noted(self, size: int) -> Iterator[Callable[[Iterable[bytes]], Iterator[bytes]]]:
        """What passes through the function that this gives is the last entry's content, `size` bytes in all."""
        offset = self._blob.size
        digest = hashlib.sha256() if self._contents is not None else None

        def seen(pieces: Iterable[bytes]) -> Iterator[bytes]:
            for piece in pieces:
                self._tar.update(piece)
                if digest is not None:
                    digest.update(piece)
                yield piece

        yield seen
        if self._contents is not None and digest is not None:
            self._contents.content(offset=offset, size=size, sha256=digest.hexdigest())
        self._padding = padding(size)

    def _header(self, blocks: bytes) -> None:
        data = self._padding + blocks
        self._padding = b""
        self._tar.update(data)
        self._encoder.header(data)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._blob.update(data)

    def _finish(self) -> tuple[Descriptor, Digest]:
        annotations = {}
        if self._contents is None:
            self._header(END)
        else:
            annotations[estargz.TOC_ANNOTATION] = str(self._table_of_contents(self._contents.json()))
        self._encoder.end()
        digest, diff_id = self._blob.finish(), self._tar.finish()
        media_type = self._encoder.media_type
        return Descriptor(media_type=media_type, digest=digest, size=self._blob.size, annotations=annotations), diff_id

    def _table_of_contents(self, table: bytes) -> Digest:
        """The last entry, in one member with the archive's end, and the footer that points at it."""
        if self._padding:
            self._header(b"")
        offset = self._blob.size
        data = header(estargz.TOC_NAME, "file", mode=0o444, size=len(table)) + table + padding(len(table)) + END
        self._tar.update(data)
        # Compressed, unlike other headers: a runtime fetches it before it starts anything.
        self._write(gzipstream.HEADER + gzipstream.compressed(data) + gzipstream.trailer(zlib.crc32(data), len(data)))
        self._write(estargz.footer(offset))
        return Digest.of(table)

    def _stop(self) -> None:
        self._blob.stop()
        self._tar.stop()


def _exactly(path: str, source: IO[bytes], size: int) -> Iterator[bytes]:
    left = size
    while left:
        piece = source.read(min(_PIECE, left))
        if not piece:
            raise _changed(path)
        left -= len(piece)
        yield piece


def _changed(path: str) -> OutsideFailed:
    return OutsideFailed(f"{path} changed while it was read", fix="build again when nothing writes to the project")


def write_layer(
    store: Store,
    title: str,
    fill: Callable[[LayerWriter], None],
    *,
    key: str | None = None,
    packing: Packing = GZIP,
) -> Layer:
    """Make a layer by `fill`, keep its blob in the store, and remember it under `key`.

    A layer that is remembered and whose blob is there is not made again: the key and the packing name everything it
    depends on.
    """
    if key is not None and (kept := kept_layer(store, title, key, packing)) is not None:
        return kept
    with store.partial() as path, disk_errors(path):
        with _open(path, packing) as writer:
            fill(writer)
            descriptor, diff_id = writer._finish()
        blob = store.adopt(path, descriptor.digest, verified=True)
    if key is not None:
        store.put_derived("layer", _full(key, packing), {"descriptor": descriptor.to_json(), "diff_id": str(diff_id)})
    return Layer(descriptor=descriptor, diff_id=diff_id, title=title, path=blob)


def kept_layer(store: Store, title: str, key: str, packing: Packing = GZIP) -> Layer | None:
    """The layer remembered under `key`, when its blob is still there."""
    found: Any = store.derived("layer", _full(key, packing))
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


def _full(key: str, packing: Packing) -> str:
    return f"format {LAYER_FORMAT}; {packing.key}{key}"


@contextmanager
def _open(path: Path, packing: Packing) -> Iterator[LayerWriter]:
    with path.open("wb", buffering=1 << 20) as file:
        writer = LayerWriter(file, packing)
        try:
            yield writer
        finally:
            writer._stop()
