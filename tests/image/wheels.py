"""Wheels made for tests: real zip archives, with as much or little in them as a case needs."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard


@dataclass(frozen=True)
class File:
    """One member; `mode` None writes an archive member as made on a system without modes."""

    data: bytes
    mode: int | None = 0o644
    method: int = zipfile.ZIP_DEFLATED


def build_wheel(
    folder: Path,
    name: str = "demo",
    version: str = "1.0",
    *,
    files: Mapping[str, bytes | File],
    tag: str = "py3-none-any",
    entry_points: str = "",
    record: bool = True,
    extra: Sequence[tuple[str, bytes]] = (),
    streamed: bool = False,
) -> Path:
    """Write `<name>-<version>-<tag>.whl`; `streamed` writes data descriptors, as a pipe forces zip writers to."""
    info = f"{name}-{version}.dist-info"
    members: dict[str, File] = {path: item if isinstance(item, File) else File(item) for path, item in files.items()}
    members[f"{info}/METADATA"] = File(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode())
    members[f"{info}/WHEEL"] = File(f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode())
    if entry_points:
        members[f"{info}/entry_points.txt"] = File(entry_points.encode())
    if record:
        rows = io.StringIO()
        table = csv.writer(rows, lineterminator="\n")
        table.writerows([path, f"sha256={_hash(item.data)}", len(item.data)] for path, item in members.items())
        table.writerow([f"{info}/RECORD", "", ""])
        members[f"{info}/RECORD"] = File(rows.getvalue().encode())
    path = folder / f"{name}-{version}-{tag}.whl"
    sink: io.RawIOBase = _Pipe(path) if streamed else io.FileIO(path, "w")
    with sink, zipfile.ZipFile(sink, "w") as archive:
        for member, item in [*members.items(), *((key, File(data)) for key, data in extra)]:
            entry = zipfile.ZipInfo(member, (2024, 1, 1, 0, 0, 0))
            entry.compress_type = item.method
            entry.create_system = 0 if item.mode is None else 3
            entry.external_attr = 0 if item.mode is None else (0o100000 | item.mode) << 16
            archive.writestr(entry, item.data)
    return path


def zstd_member(wheel: Path, content: bytes) -> None:
    """Rewrite a wheel whose first member is `content`, stored, so that it is compressed by zstd (APPNOTE 4.4.5)."""
    packed = zstandard.compress(content)
    with zipfile.ZipFile(wheel) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(wheel, "w") as archive:
        for info, data in members:
            archive.writestr(info, packed if data == content else data)
    raw = bytearray(wheel.read_bytes())
    for header, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = raw.index(header)
        struct.pack_into("<H", raw, start + at, 93)
        struct.pack_into("<L", raw, start + at + 6, zlib.crc32(content))
        struct.pack_into("<L", raw, start + at + 14, len(content))
    wheel.write_bytes(raw)


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class _Pipe(io.RawIOBase):
    """A file that cannot seek, so that zipfile writes sizes behind the data."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return self._file.write(data)  # type: ignore[arg-type]

    def close(self) -> None:
        self._file.close()
        super().close()
