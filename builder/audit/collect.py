"""Facts of one wheel or image layer, collected file by file; each file is told by its content, not its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from builder.audit.elf import MAGIC, BrokenElf, parse_header
from builder.audit.facts import DeviceCode, ElfFacts, MemberFact, PythonUse, device_backends
from builder.audit.nested import (
    ARCHIVE_LIMIT,
    ELF_AS_BASE64,
    MARK,
    BadArchive,
    MemoryFile,
    archive_kind,
    has_archive_behind,
    inner_files,
    text_payloads,
)
from builder.audit.payloads import python_payloads
from builder.audit.python_source import PythonScanner
from builder.audit.python_tree import PythonTree
from builder.audit.scan import ElfScanner, Inner, device_target
from builder.audit.tables import Tables

__all__ = ["Collector", "SeenFile"]

_HEAD = 264
"""Far enough for the mark of a tar archive."""
_SPIRV = b"\x03\x02\x23\x07"
"""Magic number of a SPIR-V module, little-endian (SPIR-V specification, "Physical Layout")."""
_SPIRV_HEAD = 4096
_KERNEL = 6
"""Capability of kernels for OpenCL (SPIR-V specification, "Capability")."""
_AR_MAGIC = b"!<arch>\n"
_OTHER_SYSTEMS = (b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""Files for Windows and macOS, which nothing on Linux loads."""
_PICTURES = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"RIFF",
    b"OggS",
    b"%PDF",
    b"\0\1\0\0",
    b"OTTO",
    b"wOF",
    b"\xde\x12\x04\x95",
)
"""Pictures, sounds, fonts, message catalogues: nothing hides there that anybody could load as it is."""
_PTX = re.compile(rb"(?:\s*//[^\n]*\n|\s)*\.version\s+\d")
_PTX_TARGET = re.compile(rb"\.target\s+sm_(\d+[af]?)")


class SeenFile(Protocol):
    """One file of an archive. `head` comes first, the others only where the head makes them worth it."""

    @property
    def name(self) -> str:
        """Path, `/`-separated."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    @property
    def symlink(self) -> bool:
        """Whether a wheel marks it as a symbolic link."""

    def head(self, size: int) -> bytes:
        """The first `size` bytes."""

    def stream(self) -> Iterator[bytes]:
        """All bytes, from the beginning at each call."""

    def crc32(self) -> int:
        """CRC-32 of all bytes; asked for after `stream`."""


class Collector:
    """Looks at files and keeps the facts."""

    def __init__(self, tables: Tables, elf: ElfScanner, python: PythonScanner) -> None:
        self._tables = tables
        self._scanner = elf
        self._python = python
        self.elf: list[ElfFacts] = []
        self.python: list[PythonUse] = []
        self.found: list[MemberFact] = []

    def look(self, file: SeenFile) -> None:
        """Look at one file."""
        if file.symlink:
            library = self._tables.library(file.name)
            self.found.append(
                MemberFact(
                    path=file.name,
                    kind="symlink",
                    backend=library.backend if library else "",
                    detail="an installer writes a text file here",
                )
            )
            return
        head = file.head(_HEAD)
        if head.startswith(MAGIC) and self._elf(file, head):
            self._by_name(file)
        elif head.startswith(b"#!") or file.name.endswith((".py", ".pyw", ".pth")):
            self._source(file)
        elif file.name.endswith(".pyc"):
            self.python += self._python.compiled_uses(file.name, b"".join(file.stream()))
        else:
            self._other(file, head)

    def _source(self, file: SeenFile) -> None:
        """Python, or a script whose end may be anything."""
        data = b"".join(file.stream())
        code = data
        if file.name.endswith(".pth"):  # lines that begin with import run when Python starts (site module)
            code = b"\n".join(line for line in data.splitlines() if line.startswith((b"import ", b"import\t")))
        tree, words = PythonTree(code), self._python.words(code)
        self.python += self._python.uses(file.name, code, tree, words)
        if MARK in file.name:
            return
        if data.startswith(b"#!") and (b"\0" in data or has_archive_behind(data)):
            if has_archive_behind(data):
                self._archive(file, "zip")
            else:
                self._search(file)
            return
        if code is not data or ELF_AS_BASE64 in words:
            for payload in text_payloads(file.name, data):
                self.look(payload)
        for number, found in enumerate(python_payloads(code, tree, words)):
            self._payload(f"{file.name}{MARK}line-{found.line}.{number}", found.data)

    def _payload(self, name: str, data: bytes) -> None:
        """Bytes that a source spells out: a library, something packed, or more source."""
        kind = archive_kind(data[:_HEAD])
        if data.startswith(MAGIC):
            self.look(MemoryFile(name, data))
        elif kind is not None:
            try:
                for inner in inner_files(name, data, kind):
                    text = not inner.data.startswith(MAGIC) and b"\0" not in inner.data[:_HEAD]
                    self.look(MemoryFile(f"{inner.name}.py", inner.data) if text else inner)
            except BadArchive:
                return  # a text that happens to begin like an archive
        elif b"\0" not in data:
            self.look(MemoryFile(f"{name}.py", data))

    def _other(self, file: SeenFile, head: bytes) -> None:
        """Neither an ELF file nor Python."""
        if head.startswith(ELF_AS_BASE64.encode()) and file.size <= ARCHIVE_LIMIT and MARK not in file.name:
            for payload in text_payloads(file.name, b"".join(file.stream())):
                self.look(payload)
            return
        kind = archive_kind(head)
        if kind is not None and MARK not in file.name:
            self._archive(file, kind)
            return
        if head.startswith(_SPIRV):
            self._spirv(file)
            return
        if head.startswith(_OTHER_SYSTEMS):
            return
        named = self._by_name(file)
        if not named and b".version" in head and _PTX.match(head):
            code = DeviceCode(kind="ptx", targets=_ptx_target(next(iter(file.stream()), b"")), offset=0, count=1)
            self.found.append(MemberFact(path=file.name, kind="device-file", backend="cuda", device=code))
            return
        if (b"\0" in head or head.startswith(_AR_MAGIC)) and not head.startswith(_PICTURES):
            self._search(file, named=named)
            return
        library = None if named else self._tables.library(file.name)
        if library is not None:
            self.found.append(
                MemberFact(
                    path=file.name,
                    kind="not-elf",
                    backend=library.backend,
                    detail=f"named like a library, but starts with {head[:24]!r}",
                )
            )

    def _search(self, file: SeenFile, *, named: bool = False) -> None:
        """Device code and libraries anywhere in a file of no known kind."""
        codes, inner = self._scanner.inside(file.size, file.stream())
        for code in codes:
            for backend in device_backends(code):
                self.found.append(MemberFact(path=file.name, kind="device-file", backend=backend, device=code))
        if MARK not in file.name:
            for at, data in inner:
                self.look(MemoryFile(f"{file.name}{MARK}elf-at-{at}", data))
        library = self._tables.library(file.name)
        if library is not None and not named and not codes and not inner:
            self.found.append(MemberFact(path=file.name, kind="not-elf", backend=library.backend, detail="no ELF file"))

    def _archive(self, file: SeenFile, kind: str) -> None:
        """The files of an archive among the members, as files that somebody must unpack first."""
        detail = f"{file.size} bytes, which is more than is unpacked" if file.size > ARCHIVE_LIMIT else ""
        if not detail:
            try:
                for inner in inner_files(file.name, b"".join(file.stream()), kind):
                    self.look(inner)
            except BadArchive as error:
                detail = str(error)
        if detail:
            self.found.append(MemberFact(path=file.name, kind="unread-archive", backend="", detail=detail))

    def _spirv(self, file: SeenFile) -> None:
        """A SPIR-V module: kernels for OpenCL (and what is built on it), or shaders for Vulkan."""
        words = next(file.stream(), b"")[:_SPIRV_HEAD]
        capabilities = set()
        at = 20
        while at + 8 <= len(words) and words[at : at + 4] == b"\x11\0\x02\0":  # OpCapability, two words
            capabilities.add(int.from_bytes(words[at + 4 : at + 8], "little"))
            at += 8
        backend = "opencl" if _KERNEL in capabilities else "vulkan"
        code = DeviceCode(kind="spirv", targets=(), offset=0, count=1)
        self.found.append(MemberFact(path=file.name, kind="spirv", backend=backend, device=code))

    def _elf(self, file: SeenFile, head: bytes) -> bool:
        """Whether the file is an ELF file; facts are added."""
        try:
            header = parse_header(head)
        except BrokenElf as error:
            self.found.append(MemberFact(path=file.name, kind="broken-elf", backend="", detail=error.why))
            return True
        device = device_target(header, self._tables)
        if device is None:
            inner: list[Inner] = []
            facts = self._scanner.scan(file.name, file.size, file.stream, inner=inner)
            self.elf.append(replace(facts, crc32=file.crc32()))
            if MARK not in file.name:
                for at, data in inner:
                    self.look(MemoryFile(f"{file.name}{MARK}elf-at-{at}", data))
            return True
        kind, target = device
        code = DeviceCode(kind=kind, targets=(target,) if target else (), offset=0, count=1)
        backend = device_backends(code)[0]
        self.found.append(MemberFact(path=file.name, kind="device-file", backend=backend, device=code))
        return True

    def _by_name(self, file: SeenFile) -> bool:
        """Facts that follow from the file's name."""
        matched = False
        for rule in self._tables.member_rules(file.name):
            matched = True
            self.found.append(MemberFact(path=file.name, kind=rule.kind, backend=rule.backend))
        return matched


def _ptx_target(text: bytes) -> tuple[str, ...]:
    match = _PTX_TARGET.search(text)
    return (f"compute_{match[1].decode()}",) if match else ()
