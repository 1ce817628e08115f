"""Reading a wheel (PEP 427) as it is: its members, where their compressed bytes lie, and whether it can be trusted.

Nothing is unpacked to disk. `WheelArchive.open` refuses archives that could harm whoever installs them: paths that
leave the target folder, absolute paths, symbolic links, overlapping members and members that promise more than the
archive could hold. Offsets are into the file, so a layer can copy a member's deflate stream without inflating it.
Source of the format: PKWARE APPNOTE.TXT 6.3.10, sections 4.3.7 (local header) and 4.4.
"""

from __future__ import annotations

import lzma
import mmap
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from isal import isal_zlib
from isal.igzip_lib import DECOMP_DEFLATE, IgzipDecompressor
from packaging.metadata import RawMetadata, parse_email
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.errors import BadInput, Where
from builder.inflate import InflateError
from builder.wheels.directory import LOCAL, MAX_RATIO, plain_members
from builder.wheels.values import Member

__all__ = ["DEFLATED", "STORED", "ZSTD", "Member", "UnsafeWheel", "WheelArchive"]

STORED = zipfile.ZIP_STORED
DEFLATED = zipfile.ZIP_DEFLATED
ZSTD = 93
"""Zstandard (APPNOTE 4.4.5), which the standard library knows from Python 3.14 on."""

_CHUNK = 1 << 19
"""Bytes that are inflated at once: they stay in the processor's cache while they are looked at."""
_FEED = 1 << 18
"""Compressed bytes given to the inflater at once."""
_DAMAGE = (
    InflateError,
    zipfile.BadZipFile,
    NotImplementedError,  # a method that zipfile lacks
    RuntimeError,  # a password
    EOFError,
    OSError,  # bzip2 data
    lzma.LZMAError,
    zlib.error,
    ValueError,  # an offset before the start
    struct.error,
)
"""What inflating damaged data raises."""
_RESIDENT = 4 << 20
"""Bytes of a wheel that stay mapped in at most, about; wheels have gigabytes."""


class UnsafeWheel(BadInput):
    """The wheel is damaged, or would write outside the folder it is installed into."""

    kind = "unsafe-wheel"


@dataclass(slots=True)
class WheelArchive:
    """An opened wheel. Use as a context manager; `raw` views die with it."""

    path: Path
    filename: str
    """The wheel's own file name (the store names files by digest)."""
    members: tuple[Member, ...]
    """What an installer would write, in archive order: of members with one name, the last."""
    duplicates: tuple[str, ...]
    """Names that occur more than once in the archive."""
    faults: tuple[UnsafeWheel, ...]
    """What makes it unsafe to install; empty unless opened with `inspect=True`."""
    _map: mmap.mmap = field(repr=False)
    _touched: int = field(default=0, init=False, repr=False)
    """Bytes of the file read since its pages were let go of."""

    @classmethod
    def open(cls, path: Path, *, filename: str | None = None, inspect: bool = False) -> Self:
        """Open and check; `UnsafeWheel` names the member and the reason.

        `inspect=True` is for looking only: unsafe members are kept in `faults` (and out of `members` when they have no
        readable data) instead of raised, so that an audit can report them.
        """
        filename = filename or path.name
        where = Where(file=filename)
        try:
            parse_wheel_filename(filename)
        except InvalidWheelFilename as error:
            raise BadInput(f"not a wheel: {filename}", why=str(error), where=where) from error
        try:
            file = path.open("rb")
        except FileNotFoundError as error:
            raise BadInput(f"no such file: {path}", fix="check the path", where=where) from error
        faults: list[UnsafeWheel] = []
        with file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # nothing can be mapped
                raise _unreadable(filename, error) from error
            plain = plain_members(mapped)
            found = _members(file, mapped, filename, faults) if plain is None else plain
        if faults and not inspect:
            mapped.close()
            raise faults[0]
        by_name: dict[str, Member] = {}
        duplicates: dict[str, None] = {}
        for member in found:
            if by_name.pop(member.name, None) is not None:
                duplicates[member.name] = None
            by_name[member.name] = member
        return cls(path, filename, tuple(by_name.values()), tuple(duplicates), tuple(faults), mapped)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file. Views from `raw` must be gone."""
        self._map.close()

    def raw(self, member: Member) -> memoryview:
        """The member's compressed bytes, not copied."""
        return memoryview(self._map)[member.offset : member.offset + member.compressed_size]

    def copied(self, member: Member, *, chunk: int = _CHUNK) -> Iterator[bytes]:
        """The member's compressed bytes, in pieces of at most `chunk`."""
        with self.raw(member) as data:
            for start in range(0, len(data), chunk):
                piece = bytes(data[start : start + chunk])
                self._let_go(len(piece))
                yield piece

    def _let_go(self, amount: int) -> None:
        """Count what was read; now and then take its pages off this process, where they would count as its memory.

        They stay in the system's page cache, so that reading them again costs next to nothing.
        """
        self._touched += amount
        if self._touched >= _RESIDENT:
            self._touched = 0
            self._map.madvise(mmap.MADV_DONTNEED)

    def stream(self, member: Member, *, chunk: int = _CHUNK) -> Iterator[bytes]:
        """The member's bytes in pieces of at most `chunk`; `UnsafeWheel` when length or CRC-32 is not as promised."""
        crc = 0
        size = 0
        for piece in self._inflate(member, chunk):
            crc = isal_zlib.crc32(piece, crc)
            size += len(piece)
            if size > member.size:
                break
            yield piece
        if size != member.size or crc != member.crc32:
            raise UnsafeWheel(
                f"{self.filename} is damaged",
                why=f"member {member.name!r} does not match its own length and CRC-32",
                fix="fetch it again; if it stays, report it to the package's makers",
                where=Where(file=self.filename, key=member.name),
            )

    def read(self, member: Member) -> bytes:
        """The member's bytes, whole."""
        return b"".join(self.stream(member))

    def get(self, name: str) -> Member | None:
        """The member of this name."""
        return next((member for member in self.members if member.name == name), None)

    @property
    def dist_info(self) -> str:
        """Name of the one `<name>-<version>.dist-info` folder that belongs to the file name (PEP 427)."""
        wanted = parse_wheel_filename(self.filename)[0]
        folders = {name.split("/", 1)[0] for name in (m.name for m in self.members) if ".dist-info/" in name}
        matching = [
            name
            for name in sorted(folders)
            if name.endswith(".dist-info") and _normalized(name.removesuffix(".dist-info").split("-")[0]) == wanted
        ]
        if len(matching) != 1:
            raise UnsafeWheel(
                f"{self.filename} is not a valid wheel",
                why=f"expected one .dist-info folder for {wanted}, found {len(matching)}",
                where=Where(file=self.filename),
            )
        return matching[0]

    def metadata(self) -> RawMetadata:
        """The core metadata as written (METADATA, without validation): keys such as `requires_dist`, `name`."""
        member = self.get(f"{self.dist_info}/METADATA")
        if member is None:
            raise UnsafeWheel(
                f"{self.filename} is not a valid wheel", why="it has no METADATA", where=Where(file=self.filename)
            )
        return parse_email(self.read(member))[0]

    def _inflate(self, member: Member, chunk: int) -> Iterator[bytes]:
        data = self.raw(member)
        try:
            if member.method == STORED:
                yield from self.copied(member, chunk=chunk)
            elif member.method == DEFLATED:
                inflater = IgzipDecompressor(DECOMP_DEFLATE)
                for start in range(0, len(data), _FEED):
                    if inflater.eof:
                        raise _unended()
                    with data[start : start + _FEED] as view:
                        self._let_go(len(view))
                        piece = inflater.decompress(view, chunk)
                    while piece:
                        yield piece
                        piece = b"" if inflater.eof else inflater.decompress(b"", chunk)
                if not inflater.eof or inflater.unused_data:
                    raise _unended()
            elif member.method == ZSTD:
                yield from _zstd(data, chunk)
            else:
                yield from self._inflate_slowly(member, chunk)
        except _DAMAGE as error:
            raise UnsafeWheel(
                f"{self.filename} is damaged",
                why=f"member {member.name!r} cannot be decompressed: {error}",
                where=Where(file=self.filename, key=member.name),
            ) from error
        finally:
            data.release()

    def _inflate_slowly(self, member: Member, chunk: int) -> Iterator[bytes]:
        """By the standard library, for methods that wheels hardly ever use."""
        with zipfile.ZipFile(self.path) as archive:
            # Not by name: zipfile cuts names at a NUL, and knows the last of several.
            infos = [info for info in archive.infolist() if info.orig_filename == member.name]
            with archive.open(infos[-1]) as file:
                while piece := file.read(chunk):
                    yield piece


def _unended() -> Exception:
    """Copied as it is, such a stream would swallow or leave bytes between two members of a layer."""
    return InflateError("the deflate stream does not end where the member ends")


def _zstd(data: memoryview, chunk: int) -> Iterator[bytes]:
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        try:
            while piece := reader.read(chunk):
                yield piece
        except zstandard.ZstdError as error:
            raise InflateError(str(error)) from error


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _unreadable(filename: str, error: Exception) -> UnsafeWheel:
    return UnsafeWheel(
        f"{filename} is damaged",
        why=f"not a readable zip archive: {error}",
        fix="fetch it again; if it stays, report it to the package's makers",
        where=Where(file=filename),
    )


def _members(file: IO[bytes], mapped: mmap.mmap, filename: str, faults: list[UnsafeWheel]) -> list[Member]:
    """The members of any archive, with what is wrong with it appended to `faults`."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            directory = archive.start_dir
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        # NotImplementedError: a newer version of the format; the other two: fields that contradict each other
        mapped.close()
        raise _unreadable(filename, error) from error
    found: list[Member] = []
    for info in infos:
        # Not `is_dir`: zipfile cuts names at a NUL before it looks, and an installer might not.
        if info.orig_filename.endswith("/"):
            faults += _name_faults(info.orig_filename.removesuffix("/"), filename)
        else:
            try:
                found.append(_member(info, mapped, filename, faults))
            except UnsafeWheel as fault:
                faults.append(fault)
    faults += _overlaps(found, len(mapped), filename)
    faults += _two_names(infos, mapped, filename)
    faults += _hidden(infos, mapped, directory, filename)
    return found


_LEAVE = "do not install this wheel; report it to the index it came from"


def _name_faults(name: str, filename: str) -> Iterator[UnsafeWheel]:
    """A fault when the name is not the one plain way to write a relative path: `a/../b`, `/a`, `a//b`, `a\\b`."""
    parts = name.split("/")
    if "" in parts or ".." in parts or "." in parts or "\\" in name or "\0" in name:
        yield UnsafeWheel(
            f"{filename} would write outside its folder",
            why=f"member {name!r} is not a plain relative path",
            fix=_LEAVE,
            where=Where(file=filename, key=name),
        )


def _member(info: zipfile.ZipInfo, data: mmap.mmap, filename: str, faults: list[UnsafeWheel]) -> Member:
    """The member, with what is dangerous about it appended to `faults`; raises when its data cannot be located."""
    name = info.orig_filename
    where = Where(file=filename, key=name)
    faults += _name_faults(name, filename)
    unix = info.external_attr >> 16 if info.create_system == 3 else 0
    if stat.S_IFMT(unix) not in (0, stat.S_IFREG):
        faults.append(
            UnsafeWheel(
                f"{filename} holds a member that is not a plain file",
                why=f"{name!r} has file type {stat.filemode(unix)[0]!r}; wheels hold plain files only",
                fix=_LEAVE,
                where=where,
            )
        )
    if info.file_size > MAX_RATIO * max(info.compress_size, 1) + 64:
        faults.append(
            UnsafeWheel(
                f"{filename} looks like a zip bomb",
                why=f"member {name!r} promises {info.file_size} bytes from {info.compress_size}",
                fix=_LEAVE,
                where=where,
            )
        )
    if info.flag_bits & 0x1:
        raise UnsafeWheel(f"{filename} is encrypted", why=f"member {name!r} needs a password", fix=_LEAVE, where=where)
    header = data[max(0, info.header_offset) : info.header_offset + LOCAL.size]
    if info.header_offset < 0 or len(header) < LOCAL.size or header[:4] != b"PK\x03\x04":
        raise UnsafeWheel(
            f"{filename} is damaged", why=f"member {name!r} has no local header", fix="fetch it again", where=where
        )
    fields = LOCAL.unpack(header)
    start = info.header_offset + LOCAL.size
    return Member(
        name=name,
        size=info.file_size,
        compressed_size=info.compress_size,
        crc32=info.CRC,
        method=info.compress_type,
        mode=unix & 0o7777,
        offset=start + fields[9] + fields[10],
        symlink=stat.S_ISLNK(unix),
    )


def _hidden(infos: list[zipfile.ZipInfo], data: mmap.mmap, directory: int, filename: str) -> Iterator[UnsafeWheel]:
    """Members that the directory does not list: who reads the archive as a stream unpacks them all the same."""
    end = 0
    for at, size in sorted((max(0, info.header_offset), info.compress_size) for info in infos):
        yield from _unlisted(data, end, at, filename)
        header = data[at : at + LOCAL.size]
        if len(header) == LOCAL.size:
            names = struct.unpack_from("<HH", header, 26)
            end = max(end, at + LOCAL.size + sum(names) + size)
    yield from _unlisted(data, end, directory, filename)


def _unlisted(data: mmap.mmap, start: int, stop: int, filename: str) -> Iterator[UnsafeWheel]:
    if stop - start < LOCAL.size:  # nothing, or a data descriptor
        return
    at = data.find(b"PK\x03\x04", start, stop)
    if at >= 0:
        length = int.from_bytes(data[at + 26 : at + 28], "little")
        name = data[at + LOCAL.size : at + LOCAL.size + length].decode("utf-8", "backslashreplace")[:200]
        yield UnsafeWheel(
            f"{filename} holds a member that its directory does not list",
            why=f"{name!r} at offset {at}; installers differ in whether they unpack it",
            fix=_LEAVE,
            where=Where(file=filename, key=name),
        )


def _two_names(infos: list[zipfile.ZipInfo], data: mmap.mmap, filename: str) -> Iterator[UnsafeWheel]:
    """Members that are called one thing in the directory and another where their data is."""
    for info in infos:
        name, start = info.orig_filename, info.header_offset + LOCAL.size
        if start < LOCAL.size or data[start - LOCAL.size : start - LOCAL.size + 4] != b"PK\x03\x04":
            continue  # told already: it has no local header
        length = int.from_bytes(data[start - 4 : start - 2], "little")
        local = data[start : start + length].decode("utf-8" if info.flag_bits & 0x800 else "cp437", "replace")
        if local != name:
            yield UnsafeWheel(
                f"{filename} gives one member two names",
                why=f"the directory calls it {name!r}, the member itself {local!r}; installers differ in this",
                fix=_LEAVE,
                where=Where(file=filename, key=name),
            )


def _overlaps(members: list[Member], length: int, filename: str) -> Iterator[UnsafeWheel]:
    end = 0
    for member in sorted(members, key=lambda item: item.offset):
        where = Where(file=filename, key=member.name)
        if member.compressed_size and member.offset < end:
            yield UnsafeWheel(
                f"{filename} looks like a zip bomb", why=f"member {member.name!r} overlaps another", where=where
            )
        end = max(end, member.offset + member.compressed_size)
        if end > length:
            yield UnsafeWheel(f"{filename} is damaged", why=f"member {member.name!r} ends beyond the file", where=where)
