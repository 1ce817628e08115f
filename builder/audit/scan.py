"""One ELF file, seen once while it streams by: what it needs, what it carries, what it names.

A multi-pattern search finds the few places that matter; device code payloads are skipped by their headers. Loader
tables are kept in passing (they lie near the start, or in small segments) and read at the end.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from builder.audit.elf import (
    EM_AMDGPU,
    EM_ASCEND,
    EM_CUDA,
    EM_INTELGT,
    MAGIC,
    PT_DYNAMIC,
    PT_INTERP,
    PT_LOAD,
    BrokenElf,
    ElfFile,
    ElfHeader,
    ReadAt,
    machine_name,
    parse_elf_from,
    parse_header,
    parse_segments,
    parse_symbols,
)
from builder.audit.facts import ApiUse, DeviceCode, DeviceKind, DlopenName, ElfFacts
from builder.audit.fatbin import FATBIN_MAGIC, cubin_target, read_fatbin
from builder.audit.native_names import native_names
from builder.audit.offload import (
    BUNDLE_MAGIC,
    OFFLOAD_MAGICS,
    read_bundle,
    read_compressed_bundle,
    read_offload_binary,
)
from builder.audit.tables import Tables, library_stem
from builder.audit.tape import Missing, Tape

__all__ = ["ElfScanner", "Inner", "device_target"]

_NAME_MARKS = (b".so\0", b".so.")
_COMPRESSED = b"CCOB"
_OFFLOAD = OFFLOAD_MAGICS[0][:4]
_PYTHON_LOADER = b"CDLL\0"
_MERGED = (b"/rustc/", b"Go buildinf:")
"""Left by compilers that write string constants one behind the other."""
_TRAMPOLINE = b"_tramp_table"
"""Implib.so and its descendants name the table of each library's stubs so (yugr/Implib.so)."""

_PTX_END = b".address_size 64\n"
"""Stands near the beginning of every program in PTX (PTX ISA, "Directives"); compilers write it in two pieces."""
_PTX_BEGIN = re.compile(rb"\.version\s+\d+\.\d+\s+\.target\s+(sm_\d+[af]?)[^\n]*\s+$")
_ZIP_END = b"PK\x05\x06"
_ZIP_END_SIZE = 22
_IMMEDIATE = 8
"""Bytes of a name that are the operand of one instruction."""
_MOVABS = re.compile(rb"[\x48\x49][\xb8-\xbf]")
"""MOV of eight bytes into a register of x86-64 (Intel's manual, volume 2, "MOV")."""

_CONTEXT = 512
"""Bytes kept before the search position: the longest string we look back into."""
_AHEAD = 512
"""Bytes that must follow a hit for its string to be whole."""
_HEADERS = 1 << 16
_KEEP_HEAD = 48 << 20
_KEEP_LEAST = 4 << 20
_KEEP_SEGMENT = 8 << 20
_KEEP_TOTAL = 64 << 20
_MAX_STRTAB = 96 << 20
_MAX_RESTREAMS = 6
_BLOCK = 4 << 20
"""Kept around a range that was missed: what is needed next tends to lie beside it."""
_RUN = re.compile(rb"[\x20-\x7e]*")
_NAME_BYTES = re.compile(rb"[\w$]{1,255}")
_MAX_NAMES = 4096
_MAX_INNER = 64 << 20
"""Bytes of files inside one file that are looked at."""
_SHOWN_FUNCTIONS = 8
_HOST_MACHINES = frozenset({3, 21, 22, 40, 62, 183, 243, 258})

Inner = tuple[int, bytes]
"""A host ELF file, or a zip archive, inside another file: its offset and its bytes."""


@dataclass(slots=True)
class _Device:
    """Device code of one kind, being collected."""

    offset: int
    targets: set[str] = field(default_factory=set)
    details: set[str] = field(default_factory=set)
    count: int = 0


@dataclass(slots=True)
class _Seen:
    """What the search has met so far in one file."""

    strings: list[tuple[str, int]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    trampolines: set[str] = field(default_factory=set)
    interfaces: dict[str, int] = field(default_factory=dict)
    device: dict[DeviceKind, _Device] = field(default_factory=dict)
    inner: list[Inner] = field(default_factory=list)
    instructions: list[tuple[str, int]] = field(default_factory=list)
    """Stems of names among the instructions, with their places."""
    literals: frozenset[str] = frozenset()
    """Names that the file holds because a compiler is in it."""
    archive: tuple[int, int] | None = None
    """Begin and end of a zip archive behind everything else."""
    merged: bool = False
    loads_from_python: bool = False
    faults: list[str] = field(default_factory=list)

    def add_device(self, kind: DeviceKind, offset: int, targets: Iterable[str], detail: str = "") -> None:
        entry = self.device.setdefault(kind, _Device(offset))
        entry.targets.update(target for target in targets if target)
        entry.count += 1
        if detail:
            entry.details.add(detail)


class ElfScanner:
    """Scans ELF members with one set of tables. Holds no state between members; safe to share between threads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._stems = tuple(stem.encode() + b"\0" for stem in tables.stems)
        self._begins = {f"{stem}.so"[:_IMMEDIATE].encode(): stem for stem in (*tables.begins, *tables.stems)}
        self._patterns: tuple[bytes, ...] = (
            # Few and with few beginnings, or the search loses its fast path. Short ones are checked by hand.
            FATBIN_MAGIC,
            BUNDLE_MAGIC,
            _COMPRESSED,
            _OFFLOAD,
            MAGIC,
            *_NAME_MARKS,
            _PYTHON_LOADER,
            *_MERGED,
            _TRAMPOLINE,
            *self._stems,
            *self._begins,
            _PTX_END,
            _ZIP_END,
            *(literal.mark for literal in tables.literals),
            *(mark.data for mark in tables.marks),
            *(_interface(name) for name in tables.interfaces),
        )
        self._literals = {literal.mark: literal.names for literal in tables.literals}
        self._interfaces = {_interface(name): name for name in tables.interfaces}
        self._longest = max(map(len, self._patterns))
        self._matcher = BytesAhoCorasick(
            self._patterns, matchkind=MatchKind.LeftmostLongest, implementation=Implementation.ContiguousNFA
        )
        self._marks = {mark.data: mark.library for mark in tables.marks}
        functions = {name: api.library for api in tables.apis for name in api.functions}
        self._functions = functions
        self._prefixes = {api.prefix: api.library for api in tables.apis if api.prefix}
        beginnings = dict.fromkeys((*functions, *tables.loaders, *self._prefixes, "PyInit_"))
        self._beginnings = tuple(beginnings)
        self._function_matcher = BytesAhoCorasick(
            [b"\0" + name.encode() for name in beginnings],
            matchkind=MatchKind.LeftmostLongest,
            implementation=Implementation.ContiguousNFA,
        )

    def scan(
        self,
        path: str,
        size: int,
        stream: Callable[[], Iterable[bytes]],
        *,
        crc32: int = 0,
        inner: list[Inner] | None = None,
    ) -> ElfFacts:
        """The facts of one file of `size` bytes; `stream` starts it from the beginning (called once, rarely again).

        Host ELF files inside it, and a zip archive behind it, are appended to `inner`.
        """
        tape = Tape(stream(), size)
        header = parse_header(tape.read(0, 64))
        tape.keep(self._worth_keeping(header, tape, size))
        seen = _Seen()
        self._search(tape, seen)
        if inner is not None:
            inner += (*seen.inner, *_archive(stream, seen))
        extra: list[tuple[int, int]] = []
        for _ in range(_MAX_RESTREAMS):
            try:
                return replace(self._conclude(path, size, tape, seen), crc32=crc32)
            except Missing as missing:
                start = missing.offset // _BLOCK * _BLOCK
                extra.append((start, missing.offset + max(missing.size, _BLOCK) - start))
                tape = Tape(stream(), size)
                tape.keep([*self._worth_keeping(header, tape, size), *extra])
                while tape.turn(tape.end):
                    pass
        seen.faults.append("loader tables are scattered over the file; not all were read")
        return self._facts(path, size, ElfFile(header=header, segments=()), seen, frozenset(), ())

    def inside(
        self, size: int, stream: Callable[[], Iterable[bytes]]
    ) -> tuple[tuple[DeviceCode, ...], tuple[tuple[str, int], ...], tuple[Inner, ...]]:
        """Device code, marks of runtimes (stem and offset) and files inside a file that is no ELF file, e.g. a static
        library."""
        seen = _Seen()
        self._search(Tape(stream(), size), seen)
        return _devices(seen), tuple(sorted(seen.marks.items())), (*seen.inner, *_archive(stream, seen))

    def _worth_keeping(self, header: ElfHeader, tape: Tape, size: int) -> list[tuple[int, int]]:
        """Where the loader's tables probably are: before the first code, in the dynamic section, in small segments.

        Of 187 libraries above 4 MB, 21 have code and tables in one segment; the tables are within its first eighth.
        What was kept is memory that no later chunk can use: too much of it costs more time than it saves.
        """
        head = tape.read(0, _HEADERS)
        segments = parse_segments(header, lambda offset, length: head[offset : offset + length])
        code = min(
            (segment.offset for segment in segments if segment.type == PT_LOAD and segment.executable), default=0
        )
        total = min(size, _KEEP_HEAD, code or size, max(_KEEP_LEAST, size // 4))
        ranges = [(0, total)]
        for segment in segments:
            offset, length = segment.offset, segment.filesz
            if segment.type in (PT_DYNAMIC, PT_INTERP):
                ranges.append((offset, min(length, 1 << 20)))
            elif segment.executable or offset < ranges[0][1]:
                continue
            elif length <= _KEEP_SEGMENT and total + length <= _KEEP_TOTAL:
                ranges.append((offset, length))
                total += length
        return ranges

    def _search(self, tape: Tape, seen: _Seen) -> None:
        """Search chunk by chunk; what lies between two is searched in a short copy of where they meet."""
        position = 0
        while True:
            if position >= tape.end - _AHEAD and not tape.turn(position):
                break
            stop = tape.end - _AHEAD
            if position < tape.base:
                stop = min(stop, tape.base)
                data: bytes | memoryview = tape.read(position, stop - position + self._longest)
            else:
                data = memoryview(tape.window)[position - tape.base :]
            if position < stop:
                position = self._hits(data, position, stop, tape, seen)
        if position < tape.end:
            self._hits(tape.read(position, _AHEAD), position, tape.end, tape, seen)

    def _hits(self, data: bytes | memoryview, position: int, stop: int, tape: Tape, seen: _Seen) -> int:
        """Handle the hits of `data`, which begins at `position`, before `stop`; returns from where to look on."""
        resume = position
        for index, start, _ in self._matcher.find_matches_as_indexes(data):
            at = position + start
            if at >= stop:
                break
            if at >= resume:
                resume = max(resume, self._hit(self._patterns[index], at, tape, seen))
        return max(stop, resume)

    def _hit(self, pattern: bytes, at: int, tape: Tape, seen: _Seen) -> int:
        """Handle one hit; returns the offset from which to look on."""
        if pattern in _NAME_MARKS:
            return self._name(at, tape, seen)
        if pattern in self._marks:
            seen.marks.setdefault(self._marks[pattern], at)
        elif pattern in self._interfaces:
            if _follows_nul(tape, at):
                seen.interfaces.setdefault(self._interfaces[pattern], at)
        elif pattern == _TRAMPOLINE:
            word = _printable(tape, at)[0]
            seen.trampolines.add(word.split(_TRAMPOLINE.decode())[0].strip("_"))
        elif pattern == FATBIN_MAGIC:
            fatbin = read_fatbin(_forward(tape), at, tape.size)
            if fatbin is not None and fatbin.entries:
                flags = [
                    word
                    for word, on in (
                        ("compressed", any(entry.compressed for entry in fatbin.entries)),
                        ("relocatable", any(entry.relocatable for entry in fatbin.entries)),
                        ("damaged", not fatbin.complete),
                    )
                    if on
                ]
                seen.add_device("fatbin", at, (entry.target for entry in fatbin.entries), " ".join(flags))
                return fatbin.end
        elif pattern == BUNDLE_MAGIC:
            bundle = read_bundle(tape.read, at, tape.size)
            if bundle is not None and bundle.targets:
                seen.add_device("bundle", at, bundle.targets)
                return bundle.end
        elif pattern == _COMPRESSED:
            bundle = read_compressed_bundle(tape.read, at, tape.size)
            if bundle is not None:
                seen.add_device("compressed-bundle", at, bundle.targets)
                return bundle.end
        elif pattern == _OFFLOAD:
            bundle = read_offload_binary(tape.read, at, tape.size)
            if bundle is not None:
                seen.add_device("offload-binary", at, bundle.targets)
                return bundle.end
        elif pattern == MAGIC:
            return self._inner_elf(at, tape, seen) if at > 0 else at + len(MAGIC)
        elif pattern in _MERGED:
            seen.merged = True
        elif pattern == _PYTHON_LOADER:
            seen.loads_from_python |= _follows_nul(tape, at)
        elif pattern in self._stems:
            return self._name(at, tape, seen)
        elif pattern in self._begins:
            return self._begin(pattern, at, tape, seen)
        elif pattern == _PTX_END:
            begin = _PTX_BEGIN.search(tape.before(at, _CONTEXT))
            if begin is not None:
                seen.add_device("ptx", at - len(begin[0]), (), f"for {begin[1].decode()}")
        elif pattern in self._literals:
            seen.literals |= self._literals[pattern]
        elif pattern == _ZIP_END:
            seen.archive = _archive_behind(tape, at)
        return at + len(pattern)

    def _inner_elf(self, at: int, tape: Tape, seen: _Seen) -> int:
        try:
            header = parse_header(tape.read(at, 64))
        except BrokenElf:
            return at + len(MAGIC)
        found = device_target(header, self._tables)
        if found is None:
            return self._inner_host(at, header, tape, seen)
        kind, target = found
        seen.add_device(kind, at, (target,))
        end = at + header.shoff + header.shentsize * header.shnum
        return end if at < end <= tape.size else at + 64

    def _inner_host(self, at: int, header: ElfHeader, tape: Tape, seen: _Seen) -> int:
        """A whole host file among the data of this one, as a tool that unpacks it would find it."""
        wide = header.bits == 64
        plausible = (
            header.type in ("shared", "executable")
            and header.machine in _HOST_MACHINES
            and header.phentsize == (56 if wide else 32)
            and 0 < header.phnum <= 64
            and header.phoff <= 4096
        )
        if not plausible:
            return at + len(MAGIC)
        head = tape.read(at, header.phoff + header.phnum * header.phentsize)
        segments = parse_segments(header, lambda offset, size: head[offset : offset + size])
        length = max((segment.offset + segment.filesz for segment in segments), default=0)
        if not length or at + length > tape.size:
            return at + len(MAGIC)
        sections = header.shoff + header.shentsize * header.shnum
        length = max(length, sections if at + sections <= tape.size else 0)
        if length + sum(len(data) for _, data in seen.inner) > _MAX_INNER:
            seen.faults.append(f"unknown: an ELF file of {length} bytes at offset {at} is too large to be looked at")
            return at + len(MAGIC)
        seen.inner.append((at, tape.read(at, length)))
        return at + length

    def _name(self, at: int, tape: Tape, seen: _Seen) -> int:
        text, start, end = _printable(tape, at)
        if len(seen.strings) < _MAX_NAMES and ("lib" in text or "%" in text or text.startswith(".so")):
            seen.strings.append((text, start))
        return max(end, at + 3)

    def _begin(self, pattern: bytes, at: int, tape: Tape, seen: _Seen) -> int:
        """The first eight bytes of a name: of a string, or the operand of an instruction."""
        text, start, _ = _printable(tape, at)
        if ".so" in text[at - start :]:
            return self._name(at, tape, seen)
        if _MOVABS.fullmatch(tape.before(at, 2)):
            seen.instructions.append((self._begins[pattern], at))
        return at + len(pattern)

    def _conclude(self, path: str, size: int, tape: Tape, seen: _Seen) -> ElfFacts:
        elf = parse_elf_from(tape.kept)
        found: dict[str, int] = {}
        api: tuple[ApiUse, ...] = ()
        if elf.strtab is not None:
            strings = tape.kept(elf.strtab[0], min(elf.strtab[1], _MAX_STRTAB))
            found = dict(self._symbol_names(strings))
            api = self._api(elf, tape, found)
        names = frozenset(found)
        return self._facts(path, size, elf, seen, names, api)

    def _symbol_names(self, strings: bytes) -> Iterator[tuple[str, int]]:
        """Of the names we know, those in the table, and others that begin like a vendor's, with their places."""
        for index, start, end in self._function_matcher.find_matches_as_indexes(strings):
            known = self._beginnings[index]
            # The NUL behind a name is not part of the pattern: neighbours share it.
            if known == "PyInit_" or strings[end : end + 1] == b"\0":
                yield known, start + 1
            else:
                match = _NAME_BYTES.match(strings, start + 1)
                name = match[0].decode("ascii", "replace") if match else ""
                if self._family(name):
                    yield name, start + 1

    def _family(self, name: str) -> str:
        """The library whose functions begin like this one; empty for none."""
        for size in range(2, 10):
            if name[:size] in self._prefixes and name[size : size + 1].isupper():
                return self._prefixes[name[:size]]
        return ""

    def _api(self, elf: ElfFile, tape: Tape, names: Mapping[str, int]) -> tuple[ApiUse, ...]:
        wanted = {name: at for name, at in names.items() if name not in self._tables.loaders and name != "PyInit_"}
        if not wanted:
            return ()
        defined: dict[str, set[str]] = {}
        undefined: dict[str, set[str]] = {}
        for symbol in parse_symbols(elf, tape.kept, places=frozenset(wanted.values())):
            library = self._functions.get(symbol.name) or self._family(symbol.name)
            if symbol.defined:
                defined.setdefault(library, set()).add(symbol.name)
            elif not symbol.weak:
                undefined.setdefault(library, set()).add(symbol.name)
        found: list[ApiUse] = []
        for library in sorted(defined.keys() | undefined.keys()):
            ours, theirs = defined.get(library, set()), undefined.get(library, set())
            found.append(
                ApiUse(
                    library=library,
                    defined=tuple(sorted(name for name in ours if name in self._functions)),
                    undefined=tuple(sorted(name for name in theirs if name in self._functions)),
                    also_defined=sum(name not in self._functions for name in ours),
                    also_undefined=tuple(sorted(theirs - self._functions.keys())[:_SHOWN_FUNCTIONS]),
                )
            )
        return tuple(found)

    def _facts(
        self,
        path: str,
        size: int,
        elf: ElfFile,
        seen: _Seen,
        names: frozenset[str],
        api: tuple[ApiUse, ...],
    ) -> ElfFacts:
        signs = native_names(self._constants(elf, seen), self._tables, merged=seen.merged)
        written = {library_stem(entry.name) for entry in signs.opened}
        opened = [
            *(entry for entry in signs.opened if entry.name not in seen.literals),
            *(
                DlopenName(name=f"{stem}.so", offset=at)
                for stem, at in dict(seen.instructions).items()
                if stem not in written
            ),
        ]
        return ElfFacts(
            path=path,
            machine=machine_name(elf.machine),
            type=elf.header.type,
            size=size,
            crc32=0,
            soname=elf.soname,
            needed=elf.needed,
            filters=elf.filters,
            auxiliaries=elf.auxiliaries,
            audits=elf.audits,
            rpath=elf.rpath,
            runpath=elf.runpath,
            version_needs=dict(elf.version_needs),
            version_defs=elf.version_defs,
            program=elf.header.type == "executable" or elf.pie,
            python_module="PyInit_" in names,
            exec_stack=elf.exec_stack,
            can_dlopen=not names.isdisjoint(self._tables.loaders),
            loads_from_python=seen.loads_from_python,
            names=signs.count,
            dlopen=tuple(opened),
            parts=signs.parts,
            words=signs.words,
            static=tuple(sorted(seen.marks.items())),
            trampolines=tuple(sorted(filter(None, map(self._trampoline, seen.trampolines)))),
            interfaces=self._opened(elf, seen),
            api=api,
            device=_devices(seen),
            faults=(*elf.faults, *seen.faults),
        )

    def _opened(self, elf: ElfFile, seen: _Seen) -> tuple[str, ...]:
        """Interfaces named by a string constant; the same name among the symbols is a definition."""
        start, size = elf.strtab or (0, 0)
        return tuple(sorted(name for name, at in seen.interfaces.items() if not start <= at < start + size))

    def _trampoline(self, name: str) -> str:
        """`libcudart` of a table called `cudart`; empty for a library we do not know."""
        for stem in (name, f"lib{name}"):
            if stem in self._tables.libraries:
                return stem
        return ""

    def _constants(self, elf: ElfFile, seen: _Seen) -> Iterator[tuple[str, int]]:
        """Strings that are in memory when the file is loaded, without the loader's own table of names."""
        loads = [(load.offset, load.offset + load.filesz) for load in elf.loads]
        strtab = (elf.strtab[0], elf.strtab[0] + elf.strtab[1]) if elf.strtab else (0, 0)
        for text, offset in seen.strings:
            loaded = any(start <= offset < stop for start, stop in loads)
            if loaded and not strtab[0] <= offset < strtab[1]:
                yield text, offset


def _archive_behind(tape: Tape, at: int) -> tuple[int, int] | None:
    """Where the zip archive lies whose last record is at `at`; None for a record that does not end the file."""
    record = tape.read(at, _ZIP_END_SIZE)
    if len(record) < _ZIP_END_SIZE:
        return None
    count, directory, offset, comment = struct.unpack_from("<HIIH", record, 10)
    start, end = at - directory - offset, at + _ZIP_END_SIZE + comment
    return (start, end) if count and 0 < start < at and end == tape.size and end - start <= _MAX_INNER else None


def _archive(stream: Callable[[], Iterable[bytes]], seen: _Seen) -> Iterator[Inner]:
    """The archive that was seen, from a second reading of the file."""
    if seen.archive is not None:
        start, end = seen.archive
        tape = Tape(stream(), end)
        tape.turn(start)
        yield start, tape.read(start, end - start)


def _interface(name: str) -> bytes:
    return name.encode() + b"\0"


def device_target(header: ElfHeader, tables: Tables) -> tuple[DeviceKind, str] | None:
    """What kind of device object an ELF header belongs to, and its target; None for a host file."""
    if header.machine == EM_CUDA:
        return "cubin", cubin_target(header) or ""
    if header.machine == EM_AMDGPU:
        return "amdgpu", tables.amdgpu.get(header.flags & 0xFF, "")
    if header.machine == EM_ASCEND:
        return "ascend", ""
    if header.machine == EM_INTELGT:
        return "intelgt", ""
    return None


def _forward(tape: Tape) -> ReadAt:
    """Reads that forget what they jump over, so that a payload of any size passes through a small window."""

    def read(offset: int, size: int) -> bytes:
        if offset > tape.end:
            tape.turn(offset)
        return tape.read(offset, size)

    return read


def _follows_nul(tape: Tape, at: int) -> bool:
    """Whether a constant begins at `at`. The NUL is not part of any pattern: the constant before may end with it."""
    return tape.before(at, 1) == b"\0"


def _printable(tape: Tape, at: int) -> tuple[str, int, int]:
    """The run of printable characters around `at`, with its start and end."""
    after = tape.read(at, _AHEAD)
    before = tape.before(at, _CONTEXT)
    left = _printable_start(before[::-1])[::-1]
    right = _printable_start(after)
    return (left + right).decode("ascii"), at - len(left), at + len(right)


def _printable_start(data: bytes) -> bytes:
    match = _RUN.match(data)
    return match[0] if match else b""


def _devices(seen: _Seen) -> tuple[DeviceCode, ...]:
    return tuple(
        DeviceCode(
            kind=kind,
            targets=tuple(sorted(entry.targets)),
            offset=entry.offset,
            count=entry.count,
            detail=" ".join(sorted(entry.details)),
        )
        for kind, entry in sorted(seen.device.items())
    )
