"""Files inside files, one level deep: archives among a wheel's members, and ELF files written as base64 text."""

from __future__ import annotations

import base64
import binascii
import bz2
import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import zstandard
from isal import igzip, isal_zlib

from builder.inflate import InflateError

__all__ = [
    "ARCHIVE_LIMIT",
    "ELF_AS_BASE64",
    "MARK",
    "BadArchive",
    "MemoryFile",
    "archive_kind",
    "has_archive_behind",
    "inner_files",
    "text_payloads",
]

MARK = "!/"
"""Stands between the outer and the inner path."""

ARCHIVE_LIMIT = 64 << 20
"""Archives above this many bytes are not opened: a note says so."""
_INNER_LIMIT = 64 << 20
_TOTAL_LIMIT = 256 << 20
_MOST_FILES = 20_000
_WINDOW = 1 << 27
"""What a zstd frame may ask for, in bytes; the program's own --long reaches as far (zstd.1, "--long")."""
_TAR_MARK = slice(257, 262)
_MAGICS = (
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"]\x00\x00", "xz"),  # the older container of the same compression
)
_FIRST = frozenset((b"x", *(magic[:1] for magic, _ in _MAGICS)))
_ZIP_END = b"PK\x05\x06"
_ZIP_TAIL = 65_600
"""The end record of a zip archive with the longest comment, in bytes (APPNOTE 4.3.16)."""
_ZLIB_LEVELS = b"\x01\x5e\x9c\xda"
_HEAD = tarfile.BLOCKSIZE
_CONDA_PART = re.compile(r"(pkg|info)-[^/]+\.tar\.zst")
ELF_AS_BASE64 = "f0VMRg"
"""The first bytes of an ELF file in base64."""
_ELF_TEXT = re.compile(rb"f0VMRg[EI][BC]AQ[A-Za-z0-9+/=\s\\\"']{80,}")
"""Base64 of an ELF header, either class, either byte order; quotes and newlines of a source may stand between."""
_NOT_BASE64 = re.compile(rb"\\\\n|[^A-Za-z0-9+/]")


class BadArchive(ValueError):
    """An inner archive that cannot be read to its end."""


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file that is in memory."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self.data)

    @property
    def symlink(self) -> bool:
        """Never."""
        return False

    def head(self, size: int) -> bytes:
        """The first bytes."""
        return self.data[:size]

    def stream(self) -> Iterator[bytes]:
        """All bytes."""
        yield self.data

    def crc32(self) -> int:
        """CRC-32 of all bytes."""
        return isal_zlib.crc32(self.data)


def archive_kind(head: bytes) -> str | None:
    """`zip`, `tar`, or the compression of what may turn out to be a tar or a single file."""
    if head[_TAR_MARK] == b"ustar":
        return "tar"
    if head[:1] not in _FIRST:
        return None
    if head[:1] == b"x" and head[1:2] and head[1] in _ZLIB_LEVELS and _inflates(head):
        return "zlib"
    return next((kind for magic, kind in _MAGICS if head.startswith(magic)), None)


def has_archive_behind(data: bytes) -> bool:
    """Whether a file that starts as something else ends as a zip archive, as programs packed by zipapp do."""
    return data.rfind(_ZIP_END, max(0, len(data) - _ZIP_TAIL)) >= 0


def _inflates(head: bytes) -> bool:
    """Whether these bytes, which a text may start with too, are the beginning of a zlib stream."""
    try:
        zlib.decompressobj().decompress(head)
    except zlib.error:
        return False
    return not head.isascii()


def inner_files(name: str, data: bytes, kind: str) -> Iterator[MemoryFile]:
    """The files of an archive, each at most 64 MiB, 256 MiB together; raises `BadArchive` where it cannot go on.

    A compressed file that is no tar is one file. A conda package is a zip around compressed tars, which count as one
    level (CEP 2022-02-01, "conda package format v2").
    """
    left = _TOTAL_LIMIT
    try:
        for number, (inner, content) in enumerate(_zip(data) if kind == "zip" else _unpacked(io.BytesIO(data), kind)):
            left -= len(content)
            if left < 0 or number >= _MOST_FILES:
                raise BadArchive("more content than is looked at")
            yield MemoryFile(f"{name}{MARK}{inner}", content)
            if len(content) == _INNER_LIMIT:
                raise BadArchive(f"{inner} is larger than {_INNER_LIMIT} bytes and was cut off there")
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise BadArchive(str(error)) from error
    except (zstandard.ZstdError, InflateError, igzip.BadGzipFile, struct.error, ValueError, OverflowError) as error:
        raise BadArchive(str(error)) from error
    except (NotImplementedError, RuntimeError) as error:  # zipfile, for methods it lacks and for encrypted members
        raise BadArchive(str(error)) from error


def _zip(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        conda = "metadata.json" in archive.namelist()
        for info in archive.infolist():
            if info.filename.endswith("/"):  # `is_dir` fails where there is no name
                continue
            with archive.open(info) as file:
                if conda and _CONDA_PART.fullmatch(info.filename):
                    yield from ((f"{info.filename}/{inner}", content) for inner, content in _unpacked(file, "zstd"))
                else:
                    yield info.filename, file.read(_INNER_LIMIT)


def _unpacked(data: IO[bytes], kind: str) -> Iterator[tuple[str, bytes]]:
    """The files of a tar, or the one file that was compressed."""
    plain = io.BufferedReader(_Forwards(_opened(data, kind)), 1 << 16)
    head = plain.peek(_HEAD)[:_HEAD]
    if not head:
        raise BadArchive("it breaks off before its first block")
    if head[_TAR_MARK] != b"ustar" and not _is_old_tar(head):
        yield "content", plain.read(_INNER_LIMIT)
        return
    with tarfile.open(fileobj=plain, mode="r|") as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isreg() else None
            if source is not None:
                yield member.name, source.read(_INNER_LIMIT)


class _Forwards(io.RawIOBase):
    """Any stream as one that is read forwards, whose reads may be short, and that ends where nobody looks any more."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__()
        self._source = source
        self._left = _TOTAL_LIMIT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        piece = self._source.read(len(buffer))
        buffer[: len(piece)] = piece
        self._left -= len(piece)
        if self._left < 0:
            raise BadArchive("more content than is looked at")
        return len(piece)


def _opened(data: IO[bytes], kind: str) -> IO[bytes]:
    if kind == "gzip":
        opened: IO[bytes] = igzip.IGzipFile(fileobj=data, mode="rb")  # type: ignore[no-untyped-call,assignment]
        return opened
    if kind == "bzip2":
        return bz2.BZ2File(data)
    if kind == "xz":
        return lzma.LZMAFile(data)
    if kind == "zstd":
        inflater = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        return inflater.stream_reader(data, read_across_frames=True)
    if kind == "zlib":
        return io.BytesIO(zlib.decompressobj().decompress(data.read(), _INNER_LIMIT))
    return data


def _is_old_tar(head: bytes) -> bool:
    """A tar from before POSIX, which has no mark but a checksum."""
    try:
        tarfile.TarInfo.frombuf(head, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def text_payloads(name: str, data: bytes) -> Iterator[MemoryFile]:
    """ELF files written as base64 in a text."""
    for match in _ELF_TEXT.finditer(data):
        text = _NOT_BASE64.sub(b"", match[0])
        try:
            payload = base64.b64decode(text[: len(text) // 4 * 4])
        except binascii.Error:
            continue
        yield MemoryFile(f"{name}{MARK}base64-at-{match.start()}", payload)
