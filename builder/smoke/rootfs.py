"""Unpacks an image's layers into a folder, as a user who need not be root.

Rules of the image-spec (layer.md): entries overwrite, `.wh.NAME` removes NAME of lower layers, `.wh..wh..opq` empties
a folder of what lower layers put there. Nothing is written outside the folder, whatever names and links a layer
holds: every parent is resolved inside the folder, symlinks included. Owners, device nodes and setuid bits are
dropped, since the programs run later are one user's; permissions are widened for that user, so that the folder can be
removed again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO

from builder.errors import BadInput, CannotTell
from builder.events import Advance
from builder.registry.layers import DAMAGED, LAYER_TYPES, BlobStream, decompressed
from builder.registry.values import Descriptor
from builder.smoke.values import Blobs

__all__ = ["make_folder", "open_layer", "unpack_layer"]

_LINKS = 40
"""Most symlinks followed for one path, as in the kernel."""


def open_layer(repository: Blobs, layer: Descriptor, advance: Advance) -> IO[bytes]:
    """The layer's uncompressed tar as a stream; compressed bytes are counted to `advance` and verified while read."""
    if layer.media_type not in LAYER_TYPES:
        raise CannotTell(
            f"a layer of type {layer.media_type} cannot be unpacked here",
            why="the built-in runner reads tar layers, plain or compressed by gzip or zstd",
            fix="run with --runner docker",
        )
    return decompressed(BlobStream(repository.read_blob(layer.digest), advance), layer)


def unpack_layer(stream: IO[bytes], root: Path) -> None:
    """Apply one layer's tar to `root`. `BadInput` when the tar is damaged or wants out of the folder."""
    layer = _Layer(root)
    try:
        with tarfile.open(fileobj=stream, mode="r|", errorlevel=2) as archive:
            for member in archive:
                layer.apply(archive, member)
        while stream.read(1 << 20):  # to the end, so that the blob's digest is checked
            pass
    except DAMAGED as error:
        raise BadInput("a layer of the image cannot be unpacked", why=str(error)) from error


def make_folder(root: Path, path: str) -> None:
    """Make a folder of the image unless it is there; what stands in its way is left alone."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    with contextlib.suppress(FileExistsError, NotADirectoryError):
        _inside(root, parts).mkdir(mode=0o755, parents=True, exist_ok=True)


class _Layer:
    """One layer being applied. Folders are looked up once: most entries lie beside the one before."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._added: set[str] = set()
        self._folders: dict[str, str] = {}

    def apply(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise BadInput("a layer of the image wants to write outside of it", why=f"entry {member.name!r}")
        if not parts:
            return
        folder = self._folder(parts[:-1])
        name = parts[-1]
        if name.startswith(".wh."):
            self._white_out(folder, name)
            return
        target = f"{folder}/{name}"
        self._added.add(target)
        if member.isdir():
            if os.path.islink(target) or not os.path.isdir(target):
                self._remove(target)
                os.mkdir(target)
            os.chmod(target, stat.S_IMODE(member.mode) & 0o1777 | 0o700)
            return
        self._remove(target)
        if member.issym():
            self._folders.clear()
            os.symlink(member.linkname, target)
        elif member.islnk():
            self._link(member, target)
        elif member.isreg():
            source = archive.extractfile(member)
            if source is None:
                raise BadInput("a layer of the image is damaged", why=f"no data for {member.name!r}")
            with open(target, "xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
                os.fchmod(file.fileno(), stat.S_IMODE(member.mode) & 0o777 | 0o400)
            os.utime(target, (member.mtime, member.mtime))

    def _folder(self, parts: list[str]) -> str:
        key = "/".join(parts)
        known = self._folders.get(key)
        if known is None:
            path = _inside(self._root, parts)
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            known = self._folders[key] = str(path)
            root = str(self._root)
            while known != root and len(known) > len(root):
                self._added.add(known)
                known = os.path.dirname(known)
            known = self._folders[key]
        return known

    def _white_out(self, folder: str, name: str) -> None:
        """Take away what lower layers put there (image-spec, layer.md, "Whiteouts")."""
        if name == ".wh..wh..opq":
            for child in os.listdir(folder):
                if f"{folder}/{child}" not in self._added:
                    self._remove(f"{folder}/{child}")
        else:
            self._remove(f"{folder}/{name[4:]}")

    def _link(self, member: tarfile.TarInfo, target: str) -> None:
        parts = [part for part in member.linkname.split("/") if part not in ("", ".")]
        linked = _inside(self._root, parts, follow_last=False)
        if not linked.is_symlink() and not linked.is_file():
            raise BadInput(
                "a layer of the image is damaged",
                why=f"{member.name!r} is a hard link to {member.linkname!r}, which is not there",
            )
        os.link(linked, target, follow_symlinks=False)

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):  # the latter is what POSIX says of a folder
            shutil.rmtree(path)
        self._folders.clear()


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
