"""One ELF file, seen once while it streams by: what it needs, what it carries, what it names.

A multi-pattern search finds the few places that matter; device code payloads are skipped by their headers. Loader
tables are kept in passing (they lie near the start, or in small segments) and read at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from builder.audit.elf import (
    EM_AMDGPU,
    EM_ASCEND,
    EM_CUDA,
    PT_DYNAMIC,
    PT_INTERP,
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
from builder.audit.offload import BUNDLE_MAGIC, COMPRESSED_MAGICS, read_bundle, read_compressed_bundle
from builder.audit.tables import Tables
from builder.audit.tape import Missing, Tape

__all__ = ["ElfScanner", "device_target"]

_ELF_MAGICS = (b"\x7fELF\x02\x01\x01", b"\x7fELF\x01\x01\x01")
_NAME_MARKS = (b".so\0", b".so.")
_TRAMPOLINE = b"_tramp_table"
"""Implib.so and its descendants name the table of each library's stubs so (yugr/Implib.so)."""

_CONTEXT = 512
"""Bytes kept before the search position: the longest string we look back into."""
_AHEAD = 512
"""Bytes that must follow a hit for its string to be whole."""
_HEADERS = 1 << 16
_KEEP_HEAD = 48 << 20
_KEEP_SEGMENT = 8 << 20
_KEEP_TOTAL = 64 << 20
_MAX_STRTAB = 96 << 20
_MAX_RESTREAMS = 6
_BLOCK = 4 << 20
"""Kept around a range that was missed: what is needed next tends to lie beside it."""
_RUN = re.compile(rb"[\x20-\x7e]*")
_LIBRARY_STRING = re.compile(r"(?:[^\s\"'<>|;]*/)?lib[\w.+-]*?\.so(?:\.[\w.]*)?")
_LIBRARY_WORD = re.compile(r"lib[\w+-]+\.so(?:\.\d+)*")
_MAX_NAMES = 4096


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
        self._patterns: tuple[bytes, ...] = (
            FATBIN_MAGIC,
            BUNDLE_MAGIC,
            *COMPRESSED_MAGICS,
            *_ELF_MAGICS,
            *_NAME_MARKS,
            _TRAMPOLINE,
            *(mark.data for mark in tables.marks),
            *(_interface(name) for name in tables.interfaces),
        )
        self._interfaces = {_interface(name): name for name in tables.interfaces}
        self._longest = max(map(len, self._patterns))
        self._matcher = BytesAhoCorasick(
            self._patterns, matchkind=MatchKind.LeftmostLongest, implementation=Implementation.ContiguousNFA
        )
        self._marks = {mark.data: mark.library for mark in tables.marks}
        functions = {name: api.library for api in tables.apis for name in api.functions}
        self._functions = functions
        self._function_matcher = BytesAhoCorasick(
            [b"\0" + name.encode() for name in functions],
            matchkind=MatchKind.LeftmostLongest,
            implementation=Implementation.ContiguousNFA,
        )

    def scan(self, path: str, size: int, stream: Callable[[], Iterable[bytes]], *, crc32: int = 0) -> ElfFacts:
        """The facts of one file of `size` bytes; `stream` starts it from the beginning (called once, rarely again)."""
        tape = Tape(stream(), size)
        header = parse_header(tape.read(0, 64))
        tape.keep(self._worth_keeping(header, tape, size))
        seen = _Seen()
        self._search(tape, seen)
        extra: list[tuple[int, int]] = []
        for _ in range(_MAX_RESTREAMS):
            try:
                return replace(self._conclude(path, size, tape, seen), crc32=crc32)
            except Missing as missing:
                start = missing.offset // _BLOCK * _BLOCK
                extra.append((start, missing.offset + max(missing.size, _BLOCK) - start))
                tape = Tape(stream(), size)
                tape.keep([*self._worth_keeping(header, tape, size), *extra])
                while tape.pull():
                    tape.drop(tape.end)
        seen.faults.append("loader tables are scattered over the file; not all were read")
        return self._facts(path, size, ElfFile(header=header, segments=()), seen, frozenset(), ())

    def archive_device(self, size: int, stream: Iterable[bytes]) -> tuple[DeviceCode, ...]:
        """Device code inside a file that is no ELF file, e.g. a static library."""
        seen = _Seen()
        self._search(Tape(stream, size), seen)
        return _devices(seen)

    def _worth_keeping(self, header: ElfHeader, tape: Tape, size: int) -> list[tuple[int, int]]:
        """Where the loader's tables probably are: the head of the file, the dynamic section, small segments."""
        ranges = [(0, min(size, _KEEP_HEAD))]
        total = ranges[0][1]
        head = tape.read(0, _HEADERS)
        for segment in parse_segments(header, lambda offset, length: head[offset : offset + length]):
            offset, length = segment.offset, segment.filesz
            if segment.type in (PT_DYNAMIC, PT_INTERP):
                ranges.append((offset, min(length, 1 << 20)))
            elif length <= _KEEP_SEGMENT and total + length <= _KEEP_TOTAL and offset >= _KEEP_HEAD:
                ranges.append((offset, length))
                total += length
        return ranges

    def _search(self, tape: Tape, seen: _Seen) -> None:
        position = resume = 0
        while tape.pull() or position < tape.end:
            window, base, final = tape.window, tape.base, tape.exhausted
            stop = tape.end if final else tape.end - _AHEAD
            if stop > position:
                view = memoryview(window)[position - base :]
                hits = self._matcher.find_matches_as_indexes(view)
                for index, start, _ in hits:
                    at = position + start
                    if at >= stop:
                        break
                    if at >= resume:
                        resume = max(resume, self._hit(self._patterns[index], at, tape, seen))
                position = max(position, stop)
            position = max(position, resume)
            tape.drop(min(position, tape.size) - _CONTEXT if position <= tape.end else position)
            if tape.exhausted and position >= tape.end:
                return

    def _hit(self, pattern: bytes, at: int, tape: Tape, seen: _Seen) -> int:
        """Handle one hit; returns the offset from which to look on."""
        if pattern in _NAME_MARKS:
            return self._name(at, tape, seen)
        if pattern in self._marks:
            seen.marks.setdefault(self._marks[pattern], at)
        elif pattern in self._interfaces:
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
        elif pattern in COMPRESSED_MAGICS:
            bundle = read_compressed_bundle(tape.read, at, tape.size)
            if bundle is not None:
                seen.add_device("compressed-bundle", at, bundle.targets)
                return bundle.end
        elif pattern in _ELF_MAGICS and at > 0:
            return self._inner_elf(at, tape, seen)
        return at + len(pattern)

    def _inner_elf(self, at: int, tape: Tape, seen: _Seen) -> int:
        try:
            header = parse_header(tape.read(at, 64))
        except BrokenElf:
            return at + 7
        found = device_target(header, self._tables)
        if found is None:
            return at + 7
        kind, target = found
        seen.add_device(kind, at, (target,))
        end = at + header.shoff + header.shentsize * header.shnum
        return end if at < end <= tape.size else at + 64

    def _name(self, at: int, tape: Tape, seen: _Seen) -> int:
        text, start, end = _printable(tape, at)
        if len(seen.strings) < _MAX_NAMES and "lib" in text:
            seen.strings.append((text, start))
        return max(end, at + 3)

    def _conclude(self, path: str, size: int, tape: Tape, seen: _Seen) -> ElfFacts:
        elf = parse_elf_from(tape.kept)
        names: frozenset[str] = frozenset()
        api: tuple[ApiUse, ...] = ()
        if elf.strtab is not None:
            strings = tape.kept(elf.strtab[0], min(elf.strtab[1], _MAX_STRTAB))
            names = frozenset(self._symbol_names(strings))
            if names:
                api = self._api(elf, tape, names)
        return self._facts(path, size, elf, seen, names, api)

    def _symbol_names(self, strings: bytes) -> Iterator[str]:
        """Of the names we know, those in the table."""
        known = tuple(self._functions)
        for index, _, end in self._function_matcher.find_matches_as_indexes(strings):
            if strings[end : end + 1] == b"\0":  # the NUL is not part of the pattern: neighbours share it
                yield known[index]
        for probe in (b"\0dlopen\0", b"\0dlmopen\0"):
            if probe in strings:
                yield probe.strip(b"\0").decode()
        if b"\0PyInit_" in strings:
            yield "PyInit_"

    def _api(self, elf: ElfFile, tape: Tape, names: frozenset[str]) -> tuple[ApiUse, ...]:
        def wanted(name: str) -> bool:
            return name in self._functions

        if not any(name in self._functions for name in names):
            return ()
        defined: dict[str, set[str]] = {}
        undefined: dict[str, set[str]] = {}
        for symbol in parse_symbols(elf, tape.kept, wanted=wanted):
            library = self._functions[symbol.name]
            if symbol.defined:
                defined.setdefault(library, set()).add(symbol.name)
            elif not symbol.weak:
                undefined.setdefault(library, set()).add(symbol.name)
        return tuple(
            ApiUse(
                library=library,
                defined=tuple(sorted(defined.get(library, ()))),
                undefined=tuple(sorted(undefined.get(library, ()))),
            )
            for library in sorted(defined.keys() | undefined.keys())
        )

    def _facts(
        self,
        path: str,
        size: int,
        elf: ElfFile,
        seen: _Seen,
        names: frozenset[str],
        api: tuple[ApiUse, ...],
    ) -> ElfFacts:
        dlopen, words, names_seen = self._dlopen(elf, seen)
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
            rpath=elf.rpath,
            runpath=elf.runpath,
            version_needs=dict(elf.version_needs),
            version_defs=elf.version_defs,
            program=elf.header.type == "executable" or elf.pie,
            python_module="PyInit_" in names,
            exec_stack=elf.exec_stack,
            can_dlopen=bool(names & {"dlopen", "dlmopen"}),
            names=names_seen,
            dlopen=dlopen,
            words=words,
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

    def _dlopen(self, elf: ElfFile, seen: _Seen) -> tuple[tuple[DlopenName, ...], tuple[DlopenName, ...], int]:
        """Vendor names among the loaded string constants: whole strings, and mentions inside other text, the number of
        all whole names."""
        loads = [(load.offset, load.offset + load.filesz) for load in elf.loads]
        strtab = (elf.strtab[0], elf.strtab[0] + elf.strtab[1]) if elf.strtab else (0, 0)
        count = 0
        exact: dict[str, DlopenName] = {}
        words: dict[str, DlopenName] = {}
        for text, offset in seen.strings:
            loaded = any(start <= offset < stop for start, stop in loads)
            if not loaded or strtab[0] <= offset < strtab[1]:
                continue
            if _LIBRARY_STRING.fullmatch(text):
                count += 1
                if self._tables.library(text.rstrip(".")):
                    exact.setdefault(text, DlopenName(name=text, offset=offset))
                continue
            for word in _LIBRARY_WORD.findall(text):
                if self._tables.library(word):
                    words.setdefault(word, DlopenName(name=word, offset=offset))
        return tuple(exact.values()), tuple(words.values()), count


def _interface(name: str) -> bytes:
    return b"\0" + name.encode() + b"\0"


def device_target(header: ElfHeader, tables: Tables) -> tuple[DeviceKind, str] | None:
    """What kind of device object an ELF header belongs to, and its target; None for a host file."""
    if header.machine == EM_CUDA:
        return "cubin", cubin_target(header) or ""
    if header.machine == EM_AMDGPU:
        return "amdgpu", tables.amdgpu.get(header.flags & 0xFF, "")
    if header.machine == EM_ASCEND:
        return "ascend", ""
    return None


def _forward(tape: Tape) -> ReadAt:
    """Reads that forget what they jump over, so that a payload of any size passes through a small window."""

    def read(offset: int, size: int) -> bytes:
        if offset > tape.end:
            tape.drop(offset)
        return tape.read(offset, size)

    return read


def _printable(tape: Tape, at: int) -> tuple[str, int, int]:
    """The run of printable characters around `at`, with its start and end."""
    after = tape.read(at, _AHEAD)
    before = tape.window[max(0, at - tape.base - _CONTEXT) : at - tape.base]
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
