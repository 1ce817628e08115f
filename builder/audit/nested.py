"""Files inside files, one level deep: archives among a wheel's members, and ELF files written as base64 text."""

from __future__ import annotations

import base64
import binascii
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from isal import isal_zlib

__all__ = ["ARCHIVE_LIMIT", "MARK", "BadArchive", "MemoryFile", "archive_kind", "inner_files", "text_payloads"]

MARK = "!/"
"""Stands between the outer and the inner path."""

ARCHIVE_LIMIT = 64 << 20
"""Archives above this many bytes are not opened: a note says so."""
_INNER_LIMIT = 64 << 20
_TOTAL_LIMIT = 256 << 20
_MOST_FILES = 20_000
_MAGICS = (
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "tar"),
    (b"BZh", "tar"),
    (b"\xfd7zXZ\x00", "tar"),
)
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
    """`zip` or `tar` (compressed; what is inside may turn out to be something else)."""
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in _MAGICS if head.startswith(magic)), None)


def inner_files(name: str, data: bytes, kind: str) -> Iterator[MemoryFile]:
    """The files of an archive, each at most 64 MiB, 256 MiB together; raises `BadArchive` where it cannot go on."""
    left = _TOTAL_LIMIT
    try:
        for number, (inner, content) in enumerate(_zip(data) if kind == "zip" else _tar(data)):
            left -= len(content)
            if left < 0 or number >= _MOST_FILES:
                raise BadArchive("more content than is looked at")
            yield MemoryFile(f"{name}{MARK}{inner}", content)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise BadArchive(str(error)) from error
    except (NotImplementedError, RuntimeError) as error:  # zipfile, for methods it lacks and for encrypted members
        raise BadArchive(str(error)) from error


def _zip(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                with archive.open(info) as file:
                    yield info.filename, file.read(_INNER_LIMIT)


def _tar(data: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isreg() else None
            if source is not None:
                yield member.name, source.read(_INNER_LIMIT)


def text_payloads(name: str, data: bytes) -> Iterator[MemoryFile]:
    """ELF files written as base64 in a text."""
    for match in _ELF_TEXT.finditer(data):
        text = _NOT_BASE64.sub(b"", match[0])
        try:
            payload = base64.b64decode(text[: len(text) // 4 * 4])
        except binascii.Error:
            continue
        yield MemoryFile(f"{name}{MARK}base64-at-{match.start()}", payload)
