"""From the audit's ELF reader to the loader's view of a file, with the few facts only the loader asks for."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Literal

from builder.audit.elf import EM_X86_64, BrokenElf, ElfFile, ReadAt, parse_elf_from
from builder.audit.fatbin import FATBIN_MAGIC, read_fatbin
from builder.audit.offload import BUNDLE_MAGIC, COMPRESSED_MAGICS, read_bundle, read_compressed_bundle
from builder.proof.objects import MACHINES, DeviceCode, ElfObject, NeededVersion
from builder.proof.ranges import Ranges

__all__ = ["READER", "read_object"]

READER = "1"
"""Raised when the same bytes would give another `ElfObject`."""

_PT_DYNAMIC, _PT_NOTE = 2, 4
_DT_VERNEED, _DT_FLAGS_1 = 0x6FFFFFFE, 0x6FFFFFFB
_DF_1_NODEFLIB = 0x800
_VER_FLG_WEAK = 0x2
_NT_GNU_PROPERTY_TYPE_0 = 5
_X86_ISA_1_NEEDED = 0xC0008002
_COMPRESSED = COMPRESSED_MAGICS[0][:4]
_MAX_NOTE = 1 << 16
_MAX_LOADER = 8 << 20
_MAX_STRINGS = 1 << 28
_MODULE = re.compile(rb"\0PyInit_([A-Za-z0-9_]+)\0")
_LOADER_NAME = re.compile(r"ld(-linux.*)?\.so\.\d+")
_SYSTEM_DIRS = re.compile(rb"(?:/(?:usr/)?lib[^\0 ]*/\0){2,}")


def read_object(data: Ranges) -> ElfObject | None:
    """The loader's view of a whole file; None when the file only starts like an ELF file."""
    read = data.read
    try:
        elf = parse_elf_from(read)
    except BrokenElf:
        return None
    dynamic = dict(_dynamic(elf, read))
    weak = _weak_versions(elf, read, dynamic.get(_DT_VERNEED))
    return ElfObject(
        machine=elf.machine,
        bits=elf.header.bits,
        kind=_kind(elf, bool(dynamic)),
        interpreter=elf.interp,
        soname=elf.soname,
        needed=elf.needed + elf.filters,
        rpath=elf.rpath,
        runpath=elf.runpath,
        no_default_search=bool(dynamic.get(_DT_FLAGS_1, 0) & _DF_1_NODEFLIB),
        needs=tuple(
            NeededVersion(file, version, (file, version) in weak)
            for file, versions in elf.version_needs.items()
            for version in versions
        ),
        defines=elf.version_defs,
        isa_level=_isa_level(elf, read),
        module_of=_module(elf, read),
        system_dirs=_system_dirs(elf, data),
        device=_device(data) if elf.machine in MACHINES.values() else DeviceCode(),
    )


def _kind(elf: ElfFile, dynamic: bool) -> Literal["program", "shared", "other"]:
    if elf.interp is not None or (elf.header.type == "executable" and dynamic):
        return "program"
    return "shared" if elf.header.type == "shared" and dynamic else "other"


def _order(elf: ElfFile) -> str:
    return "<" if elf.header.little else ">"


def _dynamic(elf: ElfFile, read: ReadAt) -> Iterator[tuple[int, int]]:
    for segment in elf.segments:
        if segment.type == _PT_DYNAMIC:
            entry = struct.Struct(_order(elf) + ("qQ" if elf.header.bits == 64 else "iI"))
            table = read(segment.offset, min(segment.filesz, 1 << 20))
            for tag, value in entry.iter_unpack(table[: len(table) // entry.size * entry.size]):
                if tag == 0:
                    return
                yield tag & 0xFFFFFFFF, value


def _weak_versions(elf: ElfFile, read: ReadAt, address: int | None) -> frozenset[tuple[str, str]]:
    """Versions whose absence the loader only reports (LSB 5.0 Core, "Symbol Versioning", vna_flags)."""
    found: set[tuple[str, str]] = set()
    segment = next((s for s in elf.loads if address is not None and s.vaddr <= address < s.vaddr + s.filesz), None)
    if segment is None or address is None:
        return frozenset()
    place = address - segment.vaddr + segment.offset
    for library, versions in elf.version_needs.items():
        head = read(place, 16)
        if len(head) < 16:
            break
        _, count, _, auxiliary, step = struct.unpack(_order(elf) + "HHIII", head)
        at = place + auxiliary
        for version in versions[:count]:
            entry = read(at, 16)
            if len(entry) < 16:
                break
            _, flags, _, _, ahead = struct.unpack(_order(elf) + "IHHII", entry)
            if flags & _VER_FLG_WEAK:
                found.add((library, version))
            at += ahead
        place += step
    return frozenset(found)


def _isa_level(elf: ElfFile, read: ReadAt) -> int:
    """The highest bit of GNU_PROPERTY_X86_ISA_1_NEEDED (x86-64 psABI, "Program Property"): bit 0 is the baseline."""
    if elf.machine != EM_X86_64 or elf.header.bits != 64:
        return 0
    level = 0
    for segment in elf.segments:
        if segment.type != _PT_NOTE:
            continue
        data = read(segment.offset, min(segment.filesz, _MAX_NOTE))
        for kind, value in _properties(data):
            if kind == _X86_ISA_1_NEEDED and len(value) >= 4:
                level = max(level, struct.unpack_from("<I", value)[0].bit_length())
    return level


def _properties(notes: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        body = at + 12 + -(-name_size // 4) * 4
        if kind == _NT_GNU_PROPERTY_TYPE_0 and notes[at + 12 : at + 16] == b"GNU\0":
            item = body
            while item + 8 <= min(body + size, len(notes)):
                property_kind, length = struct.unpack_from("<II", notes, item)
                yield property_kind, notes[item + 8 : item + 8 + length]
                item += 8 + -(-length // 8) * 8
        at = body + -(-size // 4) * 4


def _module(elf: ElfFile, read: ReadAt) -> str | None:
    if elf.strtab is None or elf.interp is not None:
        return None
    offset, size = elf.strtab
    found = _MODULE.search(read(offset, min(size, _MAX_STRINGS)))
    return found[1].decode() if found else None


def _system_dirs(elf: ElfFile, data: Ranges) -> tuple[str, ...]:
    """The default folders a C library was configured with lie in the loader as one list (glibc, elf/dl-load.c)."""
    if elf.soname is None or _LOADER_NAME.fullmatch(elf.soname) is None:
        return ()
    found = _SYSTEM_DIRS.search(data.read(0, min(data.size, _MAX_LOADER)))
    return tuple(part.decode().rstrip("/") for part in found[0].split(b"\0") if part) if found else ()


def _device(data: Ranges) -> DeviceCode:
    """Targets of every device program inside, by the markers the vendors' loaders look for."""
    sm: set[str] = set()
    ptx: set[str] = set()
    gfx: set[str] = set()
    for offset, magic in data.find((FATBIN_MAGIC, BUNDLE_MAGIC, _COMPRESSED)):
        if magic == FATBIN_MAGIC:
            fatbin = read_fatbin(data.read, offset, data.size)
            for entry in fatbin.entries if fatbin else ():
                if entry.target:
                    (sm if entry.target.startswith("sm_") else ptx).add(entry.target)
        else:
            read = read_bundle if magic == BUNDLE_MAGIC else read_compressed_bundle
            bundle = read(data.read, offset, data.size)
            gfx.update(target for target in (bundle.targets if bundle else ()) if target.startswith("gfx"))
    return DeviceCode(sm=tuple(sorted(sm)), ptx=tuple(sorted(ptx)), gfx=tuple(sorted(gfx)))
