"""One pass over one wheel: every member looked at by content, facts out. The store remembers them by hash."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from isal import igzip_lib, isal_zlib
from packaging.utils import parse_wheel_filename

from builder.audit.elf import MAGIC, BrokenElf, parse_header
from builder.audit.facts import DeviceCode, ElfFacts, MemberFact, PythonUse, WheelFacts
from builder.audit.python_source import PythonScanner
from builder.audit.scan import ElfScanner, device_target
from builder.audit.tables import Tables
from builder.names import Digest
from builder.store import Store
from builder.wheels.archive import DEFLATED, STORED, Member, UnsafeWheel, WheelArchive

__all__ = ["SCAN_VERSION", "WheelScanner"]

SCAN_VERSION = 1
"""Raised when the scan sees something it did not see before: stored facts of older versions are not used."""

_HEAD = 64
_InflateError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # isal's stub says instance
_AR_MAGIC = b"!<arch>\n"


class WheelScanner:
    """Looks at wheels with one set of tables. Making one compiles the searches; it may be shared between threads."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.elf = ElfScanner(tables)
        self.python = PythonScanner(tables)

    def facts(self, path: Path, filename: str, *, digest: Digest, store: Store | None) -> WheelFacts:
        """The facts of a wheel, from the store when it was scanned before with these tables."""
        key = f"{digest}/{filename}/{SCAN_VERSION}/{self.tables.digest}"
        if store is not None and (known := store.derived("audit-facts", key)) is not None:
            return WheelFacts.from_json(known)
        facts = self.scan(path, filename)
        if store is not None:
            store.put_derived("audit-facts", key, facts.to_json())
        return facts

    def scan(self, path: Path, filename: str) -> WheelFacts:
        """Look at every member once. `BadInput` when the file is no wheel at all; lesser damage is among the facts."""
        with WheelArchive.open(path, filename=filename, inspect=True) as archive:
            name, version, _, _ = parse_wheel_filename(filename)
            faults = [f"{fault.what}: {fault.why}" for fault in archive.faults]
            scan = _Scan(archive, self)
            for member in archive.members:
                try:
                    scan.member(member)
                except UnsafeWheel as error:
                    faults.append(f"{error.what}: {error.why}")
            try:
                requires = tuple(archive.metadata().get("requires_dist", ()))
            except UnsafeWheel as error:
                requires = ()
                faults.append(f"{error.what}: {error.why}")
            return WheelFacts(
                name=name,
                version=str(version),
                file=filename,
                requires_dist=requires,
                elf=tuple(scan.elf),
                python=tuple(scan.python),
                members=tuple(scan.found),
                duplicates=archive.duplicates,
                faults=tuple(dict.fromkeys(faults)),
                paths=len(archive.members),
            )


class _Scan:
    """Facts of one archive, being collected."""

    def __init__(self, archive: WheelArchive, scanner: WheelScanner) -> None:
        self._archive = archive
        self._tables = scanner.tables
        self._scanner = scanner.elf
        self._python = scanner.python
        self.elf: list[ElfFacts] = []
        self.python: list[PythonUse] = []
        self.found: list[MemberFact] = []

    def member(self, member: Member) -> None:
        """Look at one member."""
        if member.symlink:
            library = self._tables.library(member.name)
            self.found.append(
                MemberFact(
                    path=member.name,
                    kind="symlink",
                    backend=library.backend if library else "",
                    detail="an installer writes a text file here",
                )
            )
            return
        head = self._head(member)
        if head.startswith(MAGIC) and self._elf(member, head):
            self._by_name(member)
            return
        if member.name.endswith((".py", ".pyi")) or head.startswith(b"#!"):
            if not member.name.endswith(".pyi"):
                self.python += self._python.uses(member.name, self._archive.read(member))
            return
        if self._by_name(member, archive=head.startswith(_AR_MAGIC)):
            return
        library = self._tables.library(member.name)
        if library is not None:
            self.found.append(
                MemberFact(
                    path=member.name,
                    kind="not-elf",
                    backend=library.backend,
                    detail=f"named like a library, but starts with {head[:24]!r}",
                )
            )

    def _elf(self, member: Member, head: bytes) -> bool:
        """Whether the member is an ELF file; facts are added."""
        try:
            header = parse_header(head)
        except BrokenElf as error:
            self.found.append(MemberFact(path=member.name, kind="broken-elf", backend="", detail=error.why))
            return True
        device = device_target(header, self._tables)
        if device is None:
            facts = self._scanner.scan(
                member.name, member.size, lambda: self._archive.stream(member), crc32=member.crc32
            )
            self.elf.append(facts)
            return True
        kind, target = device
        backend = {"cubin": "cuda", "amdgpu": "rocm", "ascend": "npu"}[kind]
        code = DeviceCode(kind=kind, targets=(target,) if target else (), offset=0, count=1)
        self.found.append(MemberFact(path=member.name, kind="device-file", backend=backend, device=code))
        return True

    def _by_name(self, member: Member, *, archive: bool = False) -> bool:
        """Facts that follow from the member's name, with device code where the format tells."""
        matched = False
        for rule in self._tables.member_rules(member.name):
            matched = True
            codes: Iterable[DeviceCode | None] = (None,)
            if archive:
                codes = self._scanner.archive_device(member.size, self._archive.stream(member)) or (None,)
            for code in codes:
                self.found.append(MemberFact(path=member.name, kind=rule.kind, backend=rule.backend, device=code))
        return matched

    def _head(self, member: Member) -> bytes:
        """The first bytes of a member, without inflating the rest."""
        raw = self._archive.raw(member)
        try:
            if member.method == STORED:
                return bytes(raw[:_HEAD])
            if member.method == DEFLATED:
                with raw[: 4 * _HEAD + 512] as start:
                    return isal_zlib.decompressobj(-15).decompress(start, _HEAD)
        except _InflateError:
            pass  # streaming it below tells what is wrong
        finally:
            raw.release()
        return next(iter(self._archive.stream(member)), b"")[:_HEAD]
