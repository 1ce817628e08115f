"""Unpacks an image's layers into a folder, as a user who need not be root.

Rules of the image-spec (layer.md): entries overwrite, `.wh.NAME` removes NAME of lower layers, `.wh..wh..opq` empties
a folder of what lower layers put there. Nothing is written outside the folder, whatever names and links a layer
holds: every parent is resolved inside the folder, symlinks included. Owners, device nodes and setuid bits are
dropped, since the programs run later are one user's; permissions are widened for that user, so that the folder can be
removed again.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from builder.errors import BadInput, CannotTell
from builder.events import Advance
from builder.registry.values import Descriptor, MediaType, Repository

__all__ = ["open_layer", "unpack_layer"]

_GZIP = {MediaType.LAYER_GZIP, "application/vnd.docker.image.rootfs.diff.tar.gzip"}
_PLAIN = {MediaType.LAYER_TAR, "application/vnd.docker.image.rootfs.diff.tar"}
_ZSTD = {MediaType.LAYER_ZSTD}
_LINKS = 40
"""Most symlinks followed for one path, as in the kernel."""


def open_layer(repository: Repository, layer: Descriptor, advance: Advance) -> IO[bytes]:
    """The layer's uncompressed tar as a stream; compressed bytes are counted to `advance` and verified while read."""
    if layer.media_type in _GZIP:
        return io.BufferedReader(_Chunks(_gunzip(_counted(repository, layer, advance))), 1 << 18)
    if layer.media_type in _PLAIN:
        return io.BufferedReader(_Chunks(_counted(repository, layer, advance)), 1 << 18)
    if layer.media_type in _ZSTD:
        return io.BufferedReader(_Chunks(_unzstd(_counted(repository, layer, advance))), 1 << 18)
    raise CannotTell(
        f"a layer of type {layer.media_type} cannot be unpacked here",
        why="the built-in runner reads tar layers, plain or compressed by gzip or zstd",
        fix="run with --runner docker",
    )


def unpack_layer(stream: IO[bytes], root: Path) -> None:
    """Apply one layer's tar to `root`. `BadInput` when the tar is damaged or wants out of the folder."""
    added: set[Path] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r|", errorlevel=2) as archive:
            for member in archive:
                _apply(archive, member, root, added)
        while stream.read(1 << 20):  # to the end, so that the blob's digest is checked
            pass
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise BadInput("a layer of the image cannot be unpacked", why=str(error)) from error


def _apply(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path, added: set[Path]) -> None:
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BadInput("a layer of the image wants to write outside of it", why=f"entry {member.name!r}")
    if not parts:
        return
    folder = _inside(root, parts[:-1])
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    name = parts[-1]
    if name == ".wh..wh..opq":
        for child in folder.iterdir():
            if child not in added:
                _remove(child)
        return
    if name.startswith(".wh."):
        _remove(folder / name[4:])
        return
    target = folder / name
    added.add(target)
    added.update(parent for parent in target.parents if parent != root and root in parent.parents)
    if member.isdir():
        if target.is_symlink() or not target.is_dir():
            _remove(target)
            target.mkdir()
        target.chmod(stat.S_IMODE(member.mode) & 0o1777 | 0o700)
        return
    _remove(target)
    if member.issym():
        target.symlink_to(member.linkname)
    elif member.islnk():
        linked = _inside(
            root, [part for part in member.linkname.split("/") if part not in ("", ".")], follow_last=False
        )
        if not linked.is_symlink() and not linked.is_file():
            raise BadInput(
                "a layer of the image is damaged",
                why=f"{member.name!r} is a hard link to {member.linkname!r}, which is not there",
            )
        os.link(linked, target, follow_symlinks=False)
    elif member.isreg():
        source = archive.extractfile(member)
        if source is None:
            raise BadInput("a layer of the image is damaged", why=f"no data for {member.name!r}")
        with target.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        target.chmod(stat.S_IMODE(member.mode) & 0o777 | 0o400)
        os.utime(target, (member.mtime, member.mtime))


def _inside(root: Path, parts: list[str], *, follow_last: bool = True) -> Path:
    """The path of `parts` below root with symlinks read as a process confined to root would; need not exist."""
    todo = list(reversed(parts))
    path, followed = root, 0
    while todo:
        part = todo.pop()
        if part == "..":
            path = path if path == root else path.parent
            continue
        step = path / part
        if (todo or follow_last) and step.is_symlink():
            followed += 1
            if followed > _LINKS:
                raise BadInput("a layer of the image has a loop of symlinks", why=f"at {'/'.join(parts)!r}")
            link = step.readlink()
            if link.is_absolute():
                path = root
            todo.extend(part for part in reversed(str(link).split("/")) if part not in ("", "."))
        else:
            path = step
    return path


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def _counted(repository: Repository, layer: Descriptor, advance: Advance) -> Iterator[bytes]:
    for chunk in repository.read_blob(layer.digest):
        advance(len(chunk))
        yield chunk


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Inflate a gzip file of any number of members (RFC 1952, 2.2) without holding it."""
    from isal import isal_zlib

    inflate = isal_zlib.decompressobj(31)
    started = False
    for piece in chunks:
        chunk = piece
        while chunk:
            started = True
            data = inflate.decompress(chunk, 1 << 20)
            if data:
                yield data
            if inflate.eof:
                chunk = inflate.unused_data
                inflate, started = isal_zlib.decompressobj(31), False
            else:
                chunk = inflate.unconsumed_tail
    if started:
        raise EOFError("the compressed layer ends too early")


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress any number of zstd frames (RFC 8878) without holding them."""
    import zstandard

    source = io.BufferedReader(_Chunks(chunks), 1 << 18)
    try:
        with zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True) as reader:
            while data := reader.read(1 << 20):
                yield data
    except zstandard.ZstdError as error:
        raise EOFError(f"the compressed layer is damaged: {error}") from error


class _Chunks(io.RawIOBase):
    """A readable stream over chunks of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
