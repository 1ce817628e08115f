"""Reading an ELF file the way the dynamic loader does: from program headers, never needing a section header.

`parse_elf` takes the whole file; `parse_elf_from` takes any reader of byte ranges, so that a file can be judged while
it streams by and only the few ranges that matter are kept. Both accept either class and either byte order.
A damaged file is never a crash: what is not an ELF file at all raises `BrokenElf`, everything below that is named in
`ElfFile.faults` and the rest is still read.
Sources: System V ABI, "Object Files" and "Dynamic Linking" (gabi, 2013 draft); LSB 5.0 Core, "Symbol Versioning".
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.errors import BadInput, Where

__all__ = [
    "EM_AARCH64",
    "EM_AMDGPU",
    "EM_ASCEND",
    "EM_CUDA",
    "EM_INTELGT",
    "EM_X86_64",
    "MAGIC",
    "BrokenElf",
    "ElfFile",
    "ElfHeader",
    "ElfType",
    "ReadAt",
    "Segment",
    "Symbol",
    "machine_name",
    "parse_elf",
    "parse_elf_from",
    "parse_header",
    "parse_segments",
    "parse_symbols",
]

MAGIC = b"\x7fELF"

EM_X86_64 = 62
EM_AARCH64 = 183
EM_CUDA = 190
EM_AMDGPU = 224
EM_INTELGT = 205
"""Intel's GPUs ("zebin", ELF registry of machine numbers)."""
EM_ASCEND = 0x1029
"""Ascend AI-core objects (read from the kernels of torch_npu and vllm_ascend)."""

_MACHINES = {
    3: "i386",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    EM_X86_64: "x86_64",
    EM_AARCH64: "aarch64",
    EM_CUDA: "cuda",
    EM_INTELGT: "intelgt",
    EM_AMDGPU: "amdgpu",
    243: "riscv64",
    247: "bpf",
    258: "loongarch64",
    EM_ASCEND: "ascend",
}

ElfType = Literal["relocatable", "executable", "shared", "core", "other"]
_TYPES: dict[int, ElfType] = {1: "relocatable", 2: "executable", 3: "shared", 4: "core"}

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_GNU_STACK = 1, 2, 3, 0x6474E551
PF_X = 1

_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT = 1, 4, 5, 6, 10, 11
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_DT_GNU_HASH, _DT_VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
_DT_FLAGS_1 = 0x6FFFFFFB
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DT_DEPAUDIT, _DT_AUDIT = 0x6FFFFEFB, 0x6FFFFEFC
_DT_AUXILIARY, _DT_FILTER = 0x7FFFFFFD, 0x7FFFFFFF
_DF_1_PIE = 0x08000000

_MAX_DYNAMIC = 1 << 16
_MAX_CHAIN = 1 << 16
_MAX_STRTAB = 1 << 28
_MAX_NAME = 4096
_MAX_SYMBOLS = 1 << 22

ReadAt = Callable[[int, int], bytes]
"""Bytes at (offset, size); fewer when the file ends there. May raise its own exception, which passes through."""


class BrokenElf(BadInput):
    """Starts like an ELF file but cannot be one."""

    kind = "broken-elf"


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfHeader:
    """The file header (gabi, "ELF Header")."""

    bits: Literal[32, 64]
    little: bool
    osabi: int
    abi_version: int
    type: ElfType
    machine: int
    """`e_machine`; `machine_name` spells it."""
    flags: int
    phoff: int
    phentsize: int
    phnum: int
    shoff: int
    shentsize: int
    shnum: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One program header."""

    type: int
    flags: int
    offset: int
    vaddr: int
    filesz: int
    memsz: int

    @property
    def executable(self) -> bool:
        """Whether the segment may hold instructions."""
        return bool(self.flags & PF_X)


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """One entry of the dynamic symbol table."""

    name: str
    defined: bool
    weak: bool
    version: str = ""
    """Version it is bound to or defines, e.g. GLIBC_2.34; empty for none."""
    library: str = ""
    """For an undefined versioned symbol, the library that must define it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFile:
    """What the loader learns from one file."""

    header: ElfHeader
    segments: tuple[Segment, ...]
    soname: str | None = None
    needed: tuple[str, ...] = ()
    """DT_NEEDED, in file order."""
    filters: tuple[str, ...] = ()
    """DT_FILTER: must be there, like DT_NEEDED."""
    auxiliaries: tuple[str, ...] = ()
    """DT_AUXILIARY: used when there."""
    audits: tuple[str, ...] = ()
    """DT_AUDIT and DT_DEPAUDIT: opened by the loader to watch it, passed over when absent (rtld-audit(7))."""
    rpath: str | None = None
    runpath: str | None = None
    version_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Library to the symbol versions it must define, e.g. {"libc.so.6": ("GLIBC_2.17",)}."""
    version_defs: tuple[str, ...] = ()
    """Symbol versions it defines; the first is usually the SONAME it was linked with."""
    interp: str | None = None
    exec_stack: bool | None = None
    """Whether it asks for an executable stack; None when it says nothing (the platform's default)."""
    pie: bool = False
    """An executable in shared-object form (DF_1_PIE, or an interpreter)."""
    strtab: tuple[int, int] | None = None
    """File offset and size of .dynstr."""
    symtab: tuple[int, int] | None = None
    """File offset and number of entries of .dynsym."""
    versym: int | None = None
    """File offset of the version index of each symbol."""
    version_names: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Version index to (version, library)."""
    faults: tuple[str, ...] = ()
    """What was damaged, each with its place."""

    @property
    def machine(self) -> int:
        """`e_machine`."""
        return self.header.machine

    @property
    def loads(self) -> tuple[Segment, ...]:
        """The segments that end up in memory, as in the file."""
        return tuple(segment for segment in self.segments if segment.type == PT_LOAD)


def machine_name(machine: int) -> str:
    """`x86_64`, `aarch64`, `amdgpu` … or `machine 12` for one without a name here."""
    return _MACHINES.get(machine, f"machine {machine}")


def parse_header(data: bytes) -> ElfHeader:
    """The file header from the first 64 bytes; `BrokenElf` when they cannot be one."""
    if data[:4] != MAGIC or len(data) < 52:
        raise BrokenElf("not an ELF file", why="no ELF magic, or shorter than a header")
    if data[4] not in (1, 2) or data[5] not in (1, 2):
        raise BrokenElf("not an ELF file", why=f"class {data[4]} and byte order {data[5]} do not exist")
    wide, little = data[4] == 2, data[5] == 1
    order = "<" if little else ">"
    if wide and len(data) < 64:
        raise BrokenElf("not an ELF file", why="shorter than a 64-bit header")
    fields = struct.unpack_from(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"), data, 16)
    kind, machine, _, _, phoff, shoff, flags, _, phentsize, phnum, shentsize, shnum, _ = fields
    return ElfHeader(
        bits=64 if wide else 32,
        little=little,
        osabi=data[7],
        abi_version=data[8],
        type=_TYPES.get(kind, "other"),
        machine=machine,
        flags=flags,
        phoff=phoff,
        phentsize=phentsize,
        phnum=phnum,
        shoff=shoff,
        shentsize=shentsize,
        shnum=shnum,
    )


def parse_elf(data: bytes | memoryview, *, name: str = "") -> ElfFile:
    """Read a whole file; `name` is only used in the message of `BrokenElf`."""
    view = memoryview(data)
    try:
        return parse_elf_from(lambda offset, size: bytes(view[offset : offset + size]))
    except BrokenElf as error:
        if name:
            error.where = Where(file=name)
        raise


def parse_elf_from(read: ReadAt) -> ElfFile:
    """Read through `read`, which is asked for the header, the program headers, and what the dynamic section names."""
    header = parse_header(read(0, 64))
    faults: list[str] = []
    segments = parse_segments(header, read, faults)
    interp: str | None = None
    exec_stack: bool | None = None
    for segment in segments:
        if segment.type == PT_INTERP:
            interp = _text(read(segment.offset, min(segment.filesz, _MAX_NAME)))
        elif segment.type == PT_GNU_STACK:
            exec_stack = segment.executable
    reader = _Dynamic(header, segments, read, faults)
    return reader.file(interp=interp, exec_stack=exec_stack)


def parse_segments(header: ElfHeader, read: ReadAt, faults: list[str] | None = None) -> tuple[Segment, ...]:
    """The program headers; what is wrong with them is appended to `faults`."""
    return tuple(_segments(header, read, [] if faults is None else faults))


def parse_symbols(
    elf: ElfFile,
    read: ReadAt,
    *,
    wanted: Callable[[str], bool] | None = None,
    places: frozenset[int] | None = None,
) -> tuple[Symbol, ...]:
    """The dynamic symbols with a name, in table order; `wanted` picks by name before a value is made.

    `places` are offsets in the table of names: symbols whose name is elsewhere are passed over at once.
    """
    if elf.symtab is None or elf.strtab is None:
        return ()
    offset, count = elf.symtab
    wide, order = elf.header.bits == 64, "<" if elf.header.little else ">"
    entry = struct.Struct(order + ("IBBHQQ" if wide else "IIIBBH"))
    table = read(offset, entry.size * count)
    strings = read(*elf.strtab)
    versions = b"" if elf.versym is None else read(elf.versym, 2 * count)
    found: list[Symbol] = []
    for index in _symbols_at(memoryview(table), entry.size, header=elf.header, places=places):
        fields = entry.unpack_from(table, index * entry.size)
        name_at = fields[0]
        info, section = (fields[1], fields[3]) if wide else (fields[3], fields[5])
        end = strings.find(b"\0", name_at)
        if not index or not name_at or end <= name_at:
            continue
        name = _text(strings[name_at:end])
        if wanted is not None and not wanted(name):
            continue
        version = library = ""
        if 2 * index + 2 <= len(versions):
            number = struct.unpack_from(order + "H", versions, 2 * index)[0] & 0x7FFF
            version, library = elf.version_names.get(number, ("", ""))
        found.append(Symbol(name=name, defined=section != 0, weak=info >> 4 == 2, version=version, library=library))
    return tuple(found)


def _symbols_at(table: memoryview, size: int, *, header: ElfHeader, places: frozenset[int] | None) -> Iterable[int]:
    """Indices of the symbols whose name is at one of these places; a table may have millions of others."""
    count = len(table) // size
    if places is None:
        return range(count)
    names = table[: count * size].cast("I")[:: size // 4].tolist()
    wanted = places
    if header.little != (sys.byteorder == "little"):
        wanted = frozenset(int.from_bytes(place.to_bytes(4, "little"), "big") for place in places)
    return [index for index, name in enumerate(names) if name in wanted]


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _segments(header: ElfHeader, read: ReadAt, faults: list[str]) -> Iterator[Segment]:
    wide, order = header.bits == 64, "<" if header.little else ">"
    entry = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
    count = header.phnum
    if count == 0xFFFF and header.shoff:  # PN_XNUM: the number is in the first section header
        first = read(header.shoff, 64 if wide else 40)
        at = 44 if wide else 28
        count = struct.unpack_from(order + "I", first, at)[0] if len(first) >= at + 4 else 0
    if not count:
        return
    if header.phentsize < entry.size or count > _MAX_CHAIN:
        faults.append(f"program headers: {count} of {header.phentsize} bytes at offset {header.phoff}")
        return
    table = read(header.phoff, count * header.phentsize)
    if len(table) < count * header.phentsize:
        faults.append(f"program headers end beyond the file (offset {header.phoff})")
    for index in range(len(table) // header.phentsize):
        fields = entry.unpack_from(table, index * header.phentsize)
        if wide:
            kind, flags, offset, vaddr, _, filesz, memsz, _ = fields
        else:
            kind, offset, vaddr, _, filesz, memsz, flags, _ = fields
        yield Segment(type=kind, flags=flags, offset=offset, vaddr=vaddr, filesz=filesz, memsz=memsz)


class _Dynamic:
    """The dynamic section of one file, and what its pointers lead to."""

    def __init__(self, header: ElfHeader, segments: tuple[Segment, ...], read: ReadAt, faults: list[str]) -> None:
        self._header = header
        self._segments = segments
        self._read = read
        self._faults = faults
        self._order = "<" if header.little else ">"
        self._strtab: tuple[int, int] | None = None
        self._tags: dict[int, list[int]] = {}

    def file(self, *, interp: str | None, exec_stack: bool | None) -> ElfFile:
        self._tags = self._dynamic()
        self._load_strings()
        needs, names = self._version_needs()
        defs, own = self._version_defs()
        flags = self._value(_DT_FLAGS_1) or 0
        return ElfFile(
            header=self._header,
            segments=self._segments,
            soname=self._one(_DT_SONAME),
            needed=self._all(_DT_NEEDED),
            filters=self._all(_DT_FILTER),
            auxiliaries=self._all(_DT_AUXILIARY),
            audits=tuple(
                name for value in (*self._all(_DT_AUDIT), *self._all(_DT_DEPAUDIT)) for name in value.split(":") if name
            ),
            rpath=self._one(_DT_RPATH),
            runpath=self._one(_DT_RUNPATH),
            version_needs=needs,
            version_defs=defs,
            interp=interp,
            exec_stack=exec_stack,
            pie=self._header.type == "shared" and (interp is not None or bool(flags & _DF_1_PIE)),
            strtab=self._strtab,
            symtab=self._symbol_table(),
            versym=self._offset(self._value(_DT_VERSYM)),
            version_names={**names, **own},
            faults=tuple(self._faults),
        )

    def _dynamic(self) -> dict[int, list[int]]:
        tags: dict[int, list[int]] = {}
        dynamic = [segment for segment in self._segments if segment.type == PT_DYNAMIC and segment.filesz]
        if not dynamic:
            return tags
        # As glibc's loader does (elf/dl-load.c): the last one counts, by its address; p_offset is not looked at.
        offset = self._offset(dynamic[-1].vaddr)
        place = dynamic[-1].offset if offset is None else offset, dynamic[-1].filesz
        entry = struct.Struct(self._order + ("qQ" if self._header.bits == 64 else "iI"))
        data = self._read(place[0], min(place[1], _MAX_DYNAMIC * entry.size))
        if len(data) < min(place[1], entry.size):
            self._faults.append(f"dynamic section ends beyond the file (offset {place[0]})")
        for at in range(0, len(data) - entry.size + 1, entry.size):
            tag, value = entry.unpack_from(data, at)
            if tag == 0:
                break
            tags.setdefault(tag & 0xFFFFFFFF, []).append(value)
        return tags

    def _offset(self, vaddr: int | None) -> int | None:
        """File offset of a virtual address."""
        if vaddr is None:
            return None
        for segment in self._segments:
            if segment.type == PT_LOAD and segment.vaddr <= vaddr < segment.vaddr + segment.filesz:
                return vaddr - segment.vaddr + segment.offset
        return None

    def _value(self, tag: int) -> int | None:
        """The value of a tag; of several the last, which is the one that the loader keeps."""
        values = self._tags.get(tag)
        return values[-1] if values else None

    def _load_strings(self) -> None:
        address, size = self._value(_DT_STRTAB), self._value(_DT_STRSZ)
        if address is None:
            if self._tags:
                self._faults.append("dynamic section without a string table")
            return
        offset = self._offset(address)
        if offset is None or size is None or size > _MAX_STRTAB:
            self._faults.append(f"dynamic string table at address {address:#x} is not in the file")
            return
        # Names are read one by one: the table of a large library is tens of megabytes, the names few.
        self._strtab = (offset, size)

    def _string(self, index: int) -> str | None:
        if self._strtab is None:
            self._faults.append(f"name at {index} lies outside the dynamic string table")
            return None
        if index >= self._strtab[1]:  # the loader reads it all the same
            self._faults.append(f"name at {index} lies behind the stated end of the dynamic string table")
        data = self._read(self._strtab[0] + index, _MAX_NAME) if index < _MAX_STRTAB else b""
        if not data:
            self._faults.append(f"name at {index} lies beyond the end of the file")
            return None
        return _text(data)

    def _all(self, tag: int) -> tuple[str, ...]:
        names = (self._string(value) for value in self._tags.get(tag, ()))
        return tuple(name for name in names if name is not None)

    def _one(self, tag: int) -> str | None:
        value = self._value(tag)
        return None if value is None else self._string(value)

    def _version_needs(self) -> tuple[dict[str, tuple[str, ...]], dict[int, tuple[str, str]]]:
        needs: dict[str, tuple[str, ...]] = {}
        names: dict[int, tuple[str, str]] = {}
        for at in self._chain(_DT_VERNEED, _DT_VERNEEDNUM, "HHIII", next_field=4):
            _, count, file_at, aux, _ = struct.unpack(self._order + "HHIII", self._exact(at, 16))
            library = self._string(file_at) or ""
            versions: list[str] = []
            place = at + aux
            for _ in range(min(count, _MAX_CHAIN)):
                data = self._exact(place, 16)
                if len(data) < 16:
                    self._faults.append(f"version need ends beyond the file (offset {place})")
                    break
                _, _, other, name_at, step = struct.unpack(self._order + "IHHII", data)
                name = self._string(name_at)
                if name is not None:
                    versions.append(name)
                    names[other & 0x7FFF] = (name, library)
                if not step:
                    break
                place += step
            needs[library] = (*needs.get(library, ()), *versions)
        return needs, names

    def _version_defs(self) -> tuple[tuple[str, ...], dict[int, tuple[str, str]]]:
        defs: list[str] = []
        names: dict[int, tuple[str, str]] = {}
        for at in self._chain(_DT_VERDEF, _DT_VERDEFNUM, "HHHHIII", next_field=6):
            _, _, index, _, _, aux, _ = struct.unpack(self._order + "HHHHIII", self._exact(at, 20))
            data = self._exact(at + aux, 8)
            if len(data) < 8:
                self._faults.append(f"version definition ends beyond the file (offset {at + aux})")
                break
            name = self._string(struct.unpack(self._order + "II", data)[0])
            if name is not None:
                defs.append(name)
                names[index & 0x7FFF] = (name, "")
        return tuple(defs), names

    def _chain(self, table: int, number: int, layout: str, *, next_field: int) -> Iterator[int]:
        """File offsets of the linked records of a version table."""
        address = self._value(table)
        if address is None:
            return
        at = self._offset(address)
        if at is None:
            self._faults.append(f"version table at address {address:#x} is not in the file")
            return
        size = struct.calcsize(self._order + layout)
        for _ in range(min(self._value(number) or _MAX_CHAIN, _MAX_CHAIN)):
            data = self._exact(at, size)
            if len(data) < size:
                self._faults.append(f"version table ends beyond the file (offset {at})")
                return
            yield at
            step = struct.unpack(self._order + layout, data)[next_field]
            if not step:
                return
            at += step

    def _exact(self, offset: int, size: int) -> bytes:
        return self._read(offset, size)

    def _symbol_table(self) -> tuple[int, int] | None:
        offset = self._offset(self._value(_DT_SYMTAB))
        if offset is None:
            return None
        count = self._symbol_count()
        return None if count is None else (offset, min(count, _MAX_SYMBOLS))

    def _symbol_count(self) -> int | None:
        """Number of dynamic symbols, which only the hash tables tell (gabi, "Hash Table"; GNU hash by its chains)."""
        at = self._offset(self._value(_DT_HASH))
        if at is not None:
            data = self._exact(at, 8)
            if len(data) == 8:
                return int(struct.unpack(self._order + "II", data)[1])
        at = self._offset(self._value(_DT_GNU_HASH))
        if at is None:
            return None
        data = self._exact(at, 16)
        if len(data) < 16:
            return None
        buckets, first, bloom, _ = struct.unpack(self._order + "IIII", data)
        if buckets > _MAX_SYMBOLS or bloom > _MAX_SYMBOLS:
            self._faults.append(f"GNU hash table with {buckets} buckets at offset {at}")
            return None
        place = at + 16 + bloom * (self._header.bits // 8)
        table = self._exact(place, 4 * buckets)
        heads = struct.unpack(f"{self._order}{len(table) // 4}I", table[: len(table) // 4 * 4])
        last = max(heads, default=0)
        if last < first:
            return int(first)
        chain = place + 4 * buckets + 4 * (last - first)
        while last < _MAX_SYMBOLS:
            block = self._exact(chain, 256)
            for step in range(0, len(block) - 3, 4):
                last += 1
                if struct.unpack_from(self._order + "I", block, step)[0] & 1:
                    return int(last)
            if len(block) < 256:
                return int(last)
            chain += 256
        return int(last)
