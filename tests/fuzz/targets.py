"""What is fuzzed: each target reads bytes from outside, and answers with a value or its own typed error."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.errors import MessageError
from pathlib import Path

from packaging.metadata import parse_email

from builder.audit.audit import load_rules
from builder.audit.elf import BrokenElf, parse_elf, parse_symbols
from builder.audit.environment import marker_environment
from builder.audit.facts import WheelFacts
from builder.audit.fatbin import read_fatbin
from builder.audit.judge import archs_of, claims_of, tokens_of
from builder.audit.nested import BadArchive, MemoryFile, archive_kind, inner_files
from builder.audit.offload import read_bundle, read_compressed_bundle, read_offload_binary
from builder.audit.payloads import python_payloads
from builder.audit.promises import record_faults
from builder.audit.python_tree import PythonTree
from builder.errors import BadInput
from tests.fuzz import seeds

__all__ = ["TARGETS", "Target"]

_ENVIRONMENT = marker_environment("3.11", "x86_64")
_WHEEL = "kit-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One reader of hostile bytes."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterator[bytes]]


def _elf(data: bytes) -> None:
    try:
        elf = parse_elf(data)
    except BrokenElf:
        pass
    else:
        parse_symbols(elf, lambda offset, size: data[offset : offset + size])
    load_rules().scanner.elf.scan("x.so", len(data), lambda: [data]) if _is_elf(data) else None


def _is_elf(data: bytes) -> bool:
    try:
        parse_elf(data[:64])
    except BrokenElf:
        return False
    return True


def _device(data: bytes) -> None:
    def read(offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size >= 0
        return data[offset : offset + size]

    for reader in (read_fatbin, read_bundle, read_compressed_bundle, read_offload_binary):
        found = reader(read, 0, len(data))
        assert found is None or 0 <= found.end <= len(data)
    load_rules().scanner.elf.inside(len(data), lambda: [data])


def _nested(data: bytes) -> None:
    kind = archive_kind(data[:264])
    if kind is None:
        return
    try:
        for _ in inner_files("x", data, kind):
            pass
    except BadArchive:
        pass


def _member(data: bytes) -> None:
    """Any file of a wheel, looked at by content; the first byte chooses its name."""
    names = (
        "x.so",
        "x.py",
        "x.pyc",
        "x.pth",
        "x.bin",
        "x.json",
        "x.txt",
        "libcudart.so.12",
        "x.cu",
        "x.ptx",
        "libdevice.bc",
    )
    collector = load_rules().scanner.collector()
    collector.look(MemoryFile(names[data[0] % len(names)] if data else "x", data[1:]))


def _python(data: bytes) -> None:
    scanner = load_rules().scanner.python
    scanner.uses("x.py", data)
    for _ in python_payloads(data, PythonTree(data), scanner.words(data)):
        pass


def _metadata(data: bytes) -> None:
    rules = load_rules()
    try:
        requires = parse_email(data)[0].get("requires_dist", [])
    except MessageError:
        return
    facts = WheelFacts(
        name="kit", version="1.0", file=_WHEEL, requires_dist=tuple(requires), elf=(), python=(), members=()
    )
    claims = claims_of(facts, tables=rules.tables, packages=rules.packages, environment=_ENVIRONMENT)
    tokens_of(claims)
    archs_of(facts)
    record_faults(data, {"kit/a.py": 3}, {"kit/a.py": b"abc"})


def _wheel(data: bytes) -> None:
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())  # no disk
    path = folder / f"fuzz-{os.getpid()}"
    path.write_bytes(data)
    try:
        facts = load_rules().scanner.scan(path, _WHEEL)
        assert WheelFacts.from_json(facts.to_json()) == facts
    except BadInput:
        pass
    finally:
        path.unlink()


TARGETS = {
    target.name: target
    for target in (
        Target(name="zip", run=_wheel, seeds=seeds.wheels),
        Target(name="elf", run=_elf, seeds=seeds.elf_files),
        Target(name="device", run=_device, seeds=seeds.device_code),
        Target(name="nested", run=_nested, seeds=seeds.archives),
        Target(name="member", run=_member, seeds=seeds.members),
        Target(name="python", run=_python, seeds=seeds.python_sources),
        Target(name="metadata", run=_metadata, seeds=seeds.metadata),
    )
}
"""By name."""
