"""Facts of one wheel or image layer, collected file by file; each file is told by its content, not its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from builder.audit.elf import MAGIC, BrokenElf, parse_header
from builder.audit.facts import DeviceCode, ElfFacts, MemberFact, PythonUse
from builder.audit.python_source import PythonScanner
from builder.audit.scan import ElfScanner, device_target
from builder.audit.tables import Tables

__all__ = ["Collector", "SeenFile"]

_HEAD = 64
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
                self.python += self._python.uses(file.name, b"".join(file.stream()))
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
