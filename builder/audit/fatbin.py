"""NVIDIA fat binaries: the list of device programs inside, read from headers alone.

Layout (read from files made by nvcc 13.0 and compared with cuobjdump's listing of older ones): a 16-byte header
{magic u32, version u16, header size u16, size of the rest u64}, then entries, each a header of at least 64 bytes
{kind u16, version u16, header size u32, payload size u64, compressed size u32, …, SM number u32 at 28, flags u64 at 40}
followed by its payload. Targets are readable even when the payload is compressed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from builder.audit.elf import EM_CUDA, ElfHeader, ReadAt

__all__ = ["FATBIN_MAGIC", "Fatbin", "FatbinEntry", "cubin_target", "read_fatbin"]

FATBIN_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
"""Magic, version and header size: eight bytes that every fat binary starts with."""

_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_PTX, _CUBIN = 1, 2
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000
_LZ4, _ZSTD = 0x2000, 0x8000
_MAX_ENTRIES = 1 << 14


@dataclass(frozen=True, kw_only=True, slots=True)
class FatbinEntry:
    """One device program."""

    kind: int
    """1 PTX, 2 cubin; others are compiler intermediates."""
    target: str
    """`sm_90a` for a cubin, `compute_120` for PTX, empty for another kind."""
    compressed: bool
    relocatable: bool
    """Only known of uncompressed cubins: ELF type REL."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fatbin:
    """One fat binary."""

    end: int
    """Offset just behind it, or behind the last entry that made sense."""
    entries: tuple[FatbinEntry, ...]
    complete: bool
    """False when an entry's header made no sense before the end was reached."""


def read_fatbin(read: ReadAt, offset: int, limit: int) -> Fatbin | None:
    """The fat binary at `offset`; None when there is none. `limit` is the file's size.

    `read` is only ever asked for bytes further on, so that payloads can stream by unseen.
    """
    header = read(offset, _HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(FATBIN_MAGIC):
        return None
    size = _HEADER.unpack(header)[3]
    stop = offset + _HEADER.size + size
    if stop > limit:
        return None
    entries: list[FatbinEntry] = []
    at = offset + _HEADER.size
    while at + _ENTRY.size <= stop and len(entries) < _MAX_ENTRIES:
        data = read(at, 128)
        if len(data) < _ENTRY.size:
            break
        kind, version, header_size, payload, _, _, _, _, number, _, _, flags = _ENTRY.unpack_from(data)
        if version != 0x101 or not 64 <= header_size <= 4096 or at + header_size + payload > stop or number > 9999:
            return Fatbin(end=max(at, offset + _HEADER.size), entries=tuple(entries), complete=False)
        suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
        prefix = {_PTX: "compute_", _CUBIN: "sm_"}.get(kind)
        compressed = bool(flags & (_LZ4 | _ZSTD))
        start = data[header_size : header_size + 18]
        entries.append(
            FatbinEntry(
                kind=kind,
                target=f"{prefix}{number}{suffix}" if prefix else "",
                compressed=compressed,
                relocatable=kind == _CUBIN and not compressed and start[:4] == b"\x7fELF" and start[16:18] == b"\1\0",
            )
        )
        at += header_size + payload
    return Fatbin(end=stop, entries=tuple(entries), complete=True)


def cubin_target(header: ElfHeader) -> str | None:
    """`sm_90` of a cubin's own ELF header: the number is in bits 8-15 of e_flags from ABI version 8 on, else in 0-7."""
    if header.machine != EM_CUDA:
        return None
    number = header.flags >> 8 & 0xFF if header.abi_version >= 8 else header.flags & 0xFF
    return f"sm_{number}"
