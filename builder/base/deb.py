"""Reading a Debian package: the ar archive and the two tar archives in it.

Sources: deb(5); ar(5), "common" variant. Nothing is written to disk and no maintainer script is run.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import zstandard

from builder.errors import BadInput, Where

__all__ = ["DebFile", "DebMember", "UnsafePackage"]

_LIMIT = 1 << 30
"""More than any package here unpacks to, in bytes."""


class UnsafePackage(BadInput):
    """The package is damaged, or would write outside the image's root."""

    kind = "unsafe-package"


@dataclass(frozen=True, kw_only=True, slots=True)
class DebMember:
    """One entry of the package's data archive."""

    path: str
    """Relative to the root, without a leading `./`; "" for the root itself."""
    kind: str
    """`file`, `directory`, `symlink` or `hardlink`."""
    mode: int
    uid: int
    gid: int
    link: str
    """Target: as written for a symlink, relative to the root for a hardlink."""
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class DebFile:
    """One package, read whole."""

    control: dict[str, bytes]
    """Files of the control archive by name: control, md5sums, conffiles, …"""
    members: tuple[DebMember, ...]
    """In archive order."""

    @classmethod
    def read(cls, file: IO[bytes], *, name: str) -> DebFile:
        """Read a .deb; `UnsafePackage` names the fault."""
        where = Where(file=name)
        parts = {}
        for part, data in _ar(file, where):
            parts[part.split(".tar")[0]] = (part, data)
        if "control" not in parts or "data" not in parts:
            raise UnsafePackage(f"{name} is not a Debian package", why="it lacks control.tar or data.tar", where=where)
        try:
            with _tar(*parts["control"], where) as archive:
                control = {
                    member.name.removeprefix("./"): _content(archive, member) for member in archive if member.isreg()
                }
            with _tar(*parts["data"], where) as archive:
                members = tuple(_member(archive, member, where) for member in archive)
        except (tarfile.TarError, lzma.LZMAError, zlib.error, zstandard.ZstdError, EOFError) as error:
            raise UnsafePackage(f"{name} is damaged", why=str(error), fix="fetch it again", where=where) from error
        return cls(control=control, members=members)


def _ar(file: IO[bytes], where: Where) -> Iterator[tuple[str, bytes]]:
    if file.read(8) != b"!<arch>\n":
        raise UnsafePackage(f"{where.file} is not a Debian package", why="it is not an ar archive", where=where)
    while len(header := file.read(60)) == 60:
        size = header[48:58].decode("ascii", "replace").strip()
        if header[58:] != b"`\n" or not size.isdigit():
            raise UnsafePackage(f"{where.file} is damaged", why="an ar header is malformed", where=where)
        data = file.read(int(size))
        if len(data) != int(size):
            raise UnsafePackage(f"{where.file} is damaged", why="it ends too early", where=where)
        file.read(int(size) % 2)
        yield header[:16].decode("ascii", "replace").strip().removesuffix("/"), data


def _tar(name: str, data: bytes, where: Where) -> tarfile.TarFile:
    suffix = name.rpartition(".tar")[2]
    if suffix == ".xz":
        plain = lzma.LZMADecompressor(memlimit=512 << 20).decompress(data, _LIMIT)
    elif suffix == ".gz":
        plain = zlib.decompressobj(31).decompress(data, _LIMIT)
    elif suffix == ".zst":
        plain = zstandard.ZstdDecompressor().stream_reader(data).read(_LIMIT)
    elif suffix == "":
        plain = data
    else:
        raise UnsafePackage(f"{where.file} cannot be read", why=f"{name} is compressed in an unknown way", where=where)
    if len(plain) >= _LIMIT:
        raise UnsafePackage(f"{where.file} is too large", why=f"{name} unpacks to over {_LIMIT} bytes", where=where)
    return tarfile.open(fileobj=io.BytesIO(plain), mode="r:")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file is not None else b""


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo, where: Where) -> DebMember:
    kinds = ((member.isreg(), "file"), (member.isdir(), "directory"), (member.issym(), "symlink"))
    kind = next((kind for found, kind in (*kinds, (member.islnk(), "hardlink")) if found), "")
    path = _relative(member.name, where)
    if not kind:
        raise UnsafePackage(
            f"{where.file} holds a special file", why=f"{member.name!r} is no file or link", where=where
        )
    return DebMember(
        path=path,
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        link=_relative(member.linkname, where) if kind == "hardlink" else member.linkname,
        data=_content(archive, member) if kind == "file" else b"",
    )


def _relative(name: str, where: Where) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise UnsafePackage(
            f"{where.file} would write outside the image", why=f"{name!r} is not a plain relative path", where=where
        )
    return "/".join(parts)
