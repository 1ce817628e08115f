"""Facts of one wheel or image layer, collected file by file; each file is told by its content, not its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from builder.audit.elf import MAGIC, BrokenElf, parse_header
from builder.audit.facts import DeviceCode, ElfFacts, MemberFact, PythonUse
from builder.audit.nested import ARCHIVE_LIMIT, MARK, BadArchive, archive_kind, inner_files, text_payloads
from builder.audit.python_source import PythonScanner
from builder.audit.scan import ElfScanner, device_target
from builder.audit.tables import Tables

__all__ = ["Collector", "SeenFile"]

_HEAD = 264
"""Far enough for the mark of a tar archive."""
_SPIRV = b"\x03\x02\x23\x07"
"""Magic number of a SPIR-V module, little-endian (SPIR-V specification, "Physical Layout")."""
_SPIRV_HEAD = 4096
_KERNEL = 6
"""Capability of kernels for OpenCL (SPIR-V specification, "Capability")."""
_ELF_TEXT = b"f0VMRg"
_AR_MAGIC = b"!<arch>\n"
_DEVICE_OWNERS = {"cubin": "cuda", "amdgpu": "rocm", "ascend": "npu"}


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
            return
        if file.name.endswith((".py", ".pyi")) or head.startswith(b"#!"):
            if not file.name.endswith(".pyi"):
                source = b"".join(file.stream())
                self.python += self._python.uses(file.name, source)
                self._payloads(file, source)
            return
        if head.startswith(_ELF_TEXT) and file.size <= ARCHIVE_LIMIT:
            self._payloads(file, b"".join(file.stream()))
            return
        kind = archive_kind(head)
        if kind is not None and MARK not in file.name:
            self._archive(file, kind)
            return
        if head.startswith(_SPIRV):
            self._spirv(file)
            return
        if self._by_name(file, archive=head.startswith(_AR_MAGIC)):
            return
        library = self._tables.library(file.name)
        if library is not None:
            self.found.append(
                MemberFact(
                    path=file.name,
                    kind="not-elf",
                    backend=library.backend,
                    detail=f"named like a library, but starts with {head[:24]!r}",
                )
            )

    def _payloads(self, file: SeenFile, text: bytes) -> None:
        if MARK not in file.name:
            for payload in text_payloads(file.name, text):
                self.look(payload)

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
            facts = self._scanner.scan(file.name, file.size, file.stream)
            self.elf.append(replace(facts, crc32=file.crc32()))
            return True
        kind, target = device
        code = DeviceCode(kind=kind, targets=(target,) if target else (), offset=0, count=1)
        self.found.append(MemberFact(path=file.name, kind="device-file", backend=_DEVICE_OWNERS[kind], device=code))
        return True

    def _by_name(self, file: SeenFile, *, archive: bool = False) -> bool:
        """Facts that follow from the file's name, with device code where the format tells."""
        matched = False
        for rule in self._tables.member_rules(file.name):
            matched = True
            codes: Iterable[DeviceCode | None] = (None,)
            if archive:
                codes = self._scanner.archive_device(file.size, file.stream()) or (None,)
            for code in codes:
                self.found.append(MemberFact(path=file.name, kind=rule.kind, backend=rule.backend, device=code))
        return matched
