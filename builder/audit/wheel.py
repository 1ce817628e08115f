"""One pass over one wheel: every member looked at by content, facts out. The store remembers them by hash."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from isal import isal_zlib
from packaging.utils import parse_wheel_filename

from builder.audit.collect import Collector
from builder.audit.facts import WheelFacts
from builder.audit.promises import hash_matches, record_faults, record_rows
from builder.audit.python_source import PythonScanner
from builder.audit.scan import ElfScanner
from builder.audit.tables import Tables
from builder.inflate import InflateError
from builder.names import Digest
from builder.store import Store
from builder.wheels.archive import DEFLATED, STORED, Member, UnsafeWheel, WheelArchive

__all__ = ["SCAN_VERSION", "WheelScanner"]

SCAN_VERSION = 16
"""Raised when the scan sees something it did not see before: stored facts of older versions are not used."""

_METADATA_LIMIT = 1 << 20
_SOURCE_LIMIT = 1 << 20
_RECORD_KIND = "audit-record-1"


class WheelScanner:
    """Looks at wheels with one set of tables. Making one compiles the searches; it may be shared between threads."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.elf = ElfScanner(tables)
        self.python = PythonScanner(tables)

    def collector(self) -> Collector:
        """To look at the files of one thing, wherever they lie."""
        return Collector(self.tables, self.elf, self.python)

    @property
    def kind(self) -> str:
        """What the store calls facts seen by this code with these tables."""
        return f"audit-facts-{SCAN_VERSION}-{self.tables.digest[:16]}"

    def known(self, filename: str, *, digest: Digest, store: Store) -> WheelFacts | None:
        """The facts of a wheel that was scanned before with these tables; the wheel itself need not be there."""
        found = store.derived(self.kind, f"{digest}/{filename}")
        return None if found is None else WheelFacts.from_json(found)

    def facts(self, path: Path, filename: str, *, digest: Digest, store: Store | None) -> WheelFacts:
        """The facts of a wheel, from the store when it was scanned before with these tables."""
        if store is not None and (known := self.known(filename, digest=digest, store=store)) is not None:
            return known
        facts = self.scan(path, filename)
        if store is not None:
            store.put_derived(self.kind, f"{digest}/{filename}", facts.to_json())
        return facts

    def recorded(self, facts: WheelFacts, path: Path, *, digest: Digest, store: Store | None) -> WheelFacts:
        """The facts, with every member's hash held against RECORD: the wheel is read once more, or was before."""
        key = f"{digest}/{facts.file}"
        kept = None if store is None else store.derived(_RECORD_KIND, key)
        found = tuple(kept["faults"]) if kept is not None else _hash_faults(path, facts.file)
        if store is not None and kept is None:
            store.put_derived(_RECORD_KIND, key, {"faults": found})
        return replace(facts, record=tuple(dict.fromkeys((*facts.record, *found))))

    def scan(self, path: Path, filename: str) -> WheelFacts:
        """Look at every member once. `BadInput` when the file is no wheel at all; lesser damage is among the facts."""
        with WheelArchive.open(path, filename=filename, inspect=True) as archive:
            name, version, _, _ = parse_wheel_filename(filename)
            faults = [f"{fault.what}: {fault.why}" for fault in archive.faults]
            scan, damage = self._look(archive)
            faults += damage
            try:
                requires = tuple(archive.metadata().get("requires_dist", ()))
                record = _record(archive)
            except UnsafeWheel as error:
                requires = record = ()
                faults.append(f"{error.what}: {error.why}")
            else:
                if others := _other_metadata(archive):
                    faults.append(
                        f"{filename} holds metadata of other distributions, which installers refuse: {others}"
                    )
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
                record=record,
                paths=len(archive.members),
            )

    def _look(self, archive: WheelArchive) -> tuple[Collector, list[str]]:
        scan = self.collector()
        faults: list[str] = []
        for member in archive.members:
            try:
                scan.look(_MemberFile(archive, member))
            except UnsafeWheel as error:
                faults.append(f"{error.what}: {error.why}")
        return scan, faults


def _other_metadata(archive: WheelArchive) -> str:
    """Folders with metadata at the top of a wheel, besides its own; empty for none."""
    tops = {member.name.split("/", 1)[0] for member in archive.members if ".dist-info/" in member.name}
    return ", ".join(sorted(top for top in tops if top.endswith(".dist-info") and top != archive.dist_info))


def _record(archive: WheelArchive) -> tuple[str, ...]:
    """Lengths of all members, and the hashes of the metadata, against RECORD; large files are not hashed again."""
    info = f"{archive.dist_info}/"
    member = archive.get(f"{info}RECORD")
    if member is None:
        return ("there is no RECORD",)
    metadata = {
        item.name: archive.read(item)
        for item in archive.members
        if item.name.startswith(info) and item.size <= _METADATA_LIMIT
    }
    sizes = {item.name: item.size for item in archive.members}
    return record_faults(archive.read(member), sizes, metadata)


def _hash_faults(path: Path, filename: str) -> tuple[str, ...]:
    """Members whose content does not have the hash that RECORD lists; what else is wrong the scan tells."""
    with WheelArchive.open(path, filename=filename, inspect=True) as archive:
        try:
            member = archive.get(f"{archive.dist_info}/RECORD")
            rows = record_rows(archive.read(member)) if member is not None else {}
        except (UnsafeWheel, csv.Error):
            return ()
        found: list[str] = []
        for item in archive.members:
            listed = rows.get(item.name, ("", ""))[0]
            try:
                if listed and not hash_matches(listed, archive.stream(item)):
                    found.append(f"{item.name} does not have the listed hash")
            except UnsafeWheel:
                continue
        return tuple(found)


@dataclass(slots=True)
class _MemberFile:
    """A member as a file to look at."""

    archive: WheelArchive
    member: Member
    _whole: bytes | None = None
    """All bytes of a source, which is read to its end in any case: inflated once."""

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def size(self) -> int:
        return self.member.size

    @property
    def symlink(self) -> bool:
        return self.member.symlink

    def crc32(self) -> int:
        return self.member.crc32

    def stream(self) -> Iterator[bytes]:
        return self.archive.stream(self.member) if self._whole is None else iter((self._whole,))

    def head(self, size: int) -> bytes:
        """Without inflating the rest, where the beginning of the compressed data tells enough."""
        if self.member.size <= _SOURCE_LIMIT and self.member.name.endswith(".py"):
            self._whole = self.archive.read(self.member)
            return self._whole[:size]
        raw = self.archive.raw(self.member)
        wanted = min(size, self.member.size)
        head = b""
        try:
            if self.member.method == STORED:
                return bytes(raw[:size])
            if self.member.method == DEFLATED:
                with raw[: 4 * size + 512] as start:
                    head = isal_zlib.decompressobj(-15).decompress(start, size)
        except InflateError:
            pass  # streaming it below tells what is wrong
        finally:
            raw.release()
        if len(head) < wanted:  # empty blocks in front, or another method
            head = next((piece for piece in self.stream() if piece), b"")[:size]
        return head
