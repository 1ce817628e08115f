"""Facts of one wheel or image layer, collected file by file; each file is told by its content, not its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from builder.audit.bitcode import BITCODE_MAGICS, bitcode_backend, bitcode_triple
from builder.audit.elf import MAGIC, BrokenElf, parse_header
from builder.audit.facts import DeviceCode, ElfFacts, MemberFact, PythonUse, device_backends
from builder.audit.fatbin import FATBIN_MAGIC
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
from builder.audit.payloads import compiled_payloads, python_payloads
from builder.audit.python_source import PythonScanner
from builder.audit.python_tree import PythonTree
from builder.audit.scan import ElfScanner, Inner, device_target
from builder.audit.tables import Tables

__all__ = ["Collector", "SeenFile"]

_HEAD = 264
"""Far enough for the mark of a tar archive."""
_CODE = (b"\xe3\0", b"c\0")
"""How marshal begins a code object, with and without the mark of a reference."""
_SPIRV = b"\x03\x02\x23\x07"
"""Magic number of a SPIR-V module, little-endian (SPIR-V specification, "Physical Layout")."""
_SPIRV_HEAD = 4096
_KERNEL = 6
"""Capability of kernels for OpenCL (SPIR-V specification, "Capability")."""
_AR_MAGIC = b"!<arch>\n"
_ARCHIVES = (_AR_MAGIC, b"!<thin>\n")
_OTHER_SYSTEMS = (b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""Files for Windows and macOS, which nothing on Linux loads."""
_FOREIGN_ARCHIVES = (
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"hsqs", "squashfs"),
    (b"\xed\xab\xee\xdb", "rpm"),
    (b"MSCF\0\0\0\0", "cab"),
)
"""Archives that are told and not opened."""
_TEXTS = re.compile(
    r".*\.(?:txt|md|rst|html?|css|[cm]?[jt]sx?|json|ya?ml|toml|xml|svg|csv|tsv|ini|cfg|cmake|h|hpp|hh|hxx|cuh|inl|inc|ipp"
    r"|c|cc|cpp|cxx|pyi|pyx|pxd|pxi|typed|in|po|pot|map|ipynb|sh|proto|f|f90|r|rs|go|java|tex|bib|license)",
    re.IGNORECASE,
)
"""Texts by their ending; any other file whose beginning looks like a text is searched."""
_CARRIERS = re.compile(r".*\.(?:txt|json|js|ya?ml|toml|xml|html?|csv|svg|ipynb|ini|cfg)", re.IGNORECASE)
"""Texts in which programs keep data; headers and sources, of which there are thousands, are none."""
_PLAN_OWNERS = ((b"IMOD", "npu"), (b"ftrt", "cuda"))
"""Compiled models: Ascend's offline model, TensorRT's plan."""
_PLANS = tuple(magic for magic, _ in _PLAN_OWNERS)
_KERNEL_SOURCE = re.compile(
    rb"__global__|__device__|__host__|threadIdx|<<<|cuda|CUDA|hip[A-Z_/]|#\s*include|template\s*<"
)
_PTX_VERSION = re.compile(rb"\.version\s+\d")
_BITCODE_HEAD = 8 << 20
_SCRIPT = b"#!"
_CODED = re.compile(rb"(?:[ \t\f]*(?:#[^\r\n]*)?\r?\n)?[ \t\f]*#[^\r\n]*?coding[:=][ \t]*([-\w.]+)")
"""Says in one of the first two lines in which encoding a source is written (PEP 263)."""
_PLAIN_CODES = frozenset({b"utf-8", b"utf8", b"utf_8", b"ascii", b"latin-1", b"latin1", b"iso-8859-1", b"cp1252"})
"""Encodings in which a name of a library looks as it does in ASCII."""
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
            self._by_name(file, head)
        elif head.startswith(_SCRIPT) or file.name.endswith((".py", ".pyw", ".pth")):
            self._source(file)
        elif file.name.endswith(".pyc"):
            self._compiled(file)
        else:
            self._other(file, head)

    def _source(self, file: SeenFile) -> None:
        """Python, or a script whose end may be anything."""
        data = b"".join(file.stream())
        code = data
        if data.startswith(_SCRIPT):
            self._by_name(file, data)
        coded = _CODED.match(data)
        if coded is not None and coded[1].lower() not in _PLAIN_CODES:
            code = _as_utf8(data, coded[1].decode("ascii"))
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

    def _compiled(self, file: SeenFile) -> None:
        """A compiled Python module, and what its constants spell out."""
        data = b"".join(file.stream())
        self.python += self._python.compiled_uses(file.name, data)
        if MARK in file.name:
            return
        if MAGIC in data:
            self._search(file)
        for number, found in enumerate(compiled_payloads(data)):
            self._payload(f"{file.name}{MARK}constant-{number}", found.data)

    def _payload(self, name: str, data: bytes) -> None:
        """Bytes that a source spells out: a library, something packed, or more source."""
        kind = archive_kind(data[:_HEAD])
        if data.startswith(MAGIC):
            self.look(MemoryFile(name, data))
        elif kind is not None:
            try:
                for inner in inner_files(name, data, kind):
                    self._payload_file(inner.name, inner.data)
            except BadArchive:
                return  # a text that happens to begin like an archive
        else:
            self._payload_file(name, data)

    def _payload_file(self, name: str, data: bytes) -> None:
        """A library, more source, or a code object as marshal writes it."""
        if data.startswith(MAGIC):
            self.look(MemoryFile(name, data))
        elif b"\0" not in data[:_HEAD]:
            self.look(MemoryFile(f"{name}.py", data))
        elif data.startswith(_CODE):
            self.look(MemoryFile(f"{name}.pyc", data))
        elif MAGIC in data or FATBIN_MAGIC in data:
            self._search(MemoryFile(name, data))

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
            self.found.append(MemberFact(path=file.name, kind="other-system", backend=""))
            return
        if head.startswith(BITCODE_MAGICS) and self._bitcode(file):
            return
        foreign = kind or next((name for magic, name in _FOREIGN_ARCHIVES if head.startswith(magic)), None)
        if foreign is not None:
            inside = " inside an archive" if MARK in file.name else ""
            detail = f"{foreign} archive{inside}, which is not opened"
            self.found.append(MemberFact(path=file.name, kind="unread-archive", backend="", detail=detail))
        named = self._by_name(file, head)
        if not named and b".version" in head and _PTX.match(head):
            code = DeviceCode(kind="ptx", targets=_ptx_target(next(iter(file.stream()), b"")), offset=0, count=1)
            self.found.append(MemberFact(path=file.name, kind="device-file", backend="cuda", device=code))
            return
        if head.startswith(_PLANS):
            backend = next(owner for magic, owner in _PLAN_OWNERS if head.startswith(magic))
            self.found.append(
                MemberFact(path=file.name, kind="device-file", backend=backend, detail="a compiled model")
            )
        long = file.size > len(head)
        if b"\0" in head or head.startswith(_AR_MAGIC) or (long and not _TEXTS.fullmatch(file.name)):
            self._search(file, named=named)
            return
        if long and file.size <= ARCHIVE_LIMIT and _CARRIERS.fullmatch(file.name):
            self._text(file)
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
        codes, marks, inner = self._scanner.inside(file.size, file.stream)
        for code in codes:
            for backend in device_backends(code):
                self.found.append(MemberFact(path=file.name, kind="device-file", backend=backend, device=code))
        for stem, at in marks:
            backend = self._tables.libraries[stem].backend
            detail = f"the mark of a static {stem} at offset {at}"
            self.found.append(MemberFact(path=file.name, kind="vendor-archive", backend=backend, detail=detail))
        self._inner(file, inner)
        library = self._tables.library(file.name)
        if library is not None and not named and not codes and not inner:
            self.found.append(MemberFact(path=file.name, kind="not-elf", backend=library.backend, detail="no ELF file"))

    def _inner(self, file: SeenFile, found: list[Inner] | tuple[Inner, ...]) -> None:
        """ELF files and archives in the middle or at the end of a file, which may itself lie in an archive."""
        if file.name.count(MARK) > 1:
            return
        for at, data in found:
            if not data.startswith(MAGIC):
                self._archive(MemoryFile(file.name, data), "zip")
            else:
                self.look(MemoryFile(f"{file.name}{MARK}elf-at-{at}", data))

    def _bitcode(self, file: SeenFile) -> bool:
        """Whether a module of LLVM's says for which processor it is; of a device's, facts are added."""
        data = b""
        for piece in file.stream():
            data += piece
            if len(data) >= _BITCODE_HEAD:
                break
        triple = bitcode_triple(data)
        if triple is None:
            return False
        backend = bitcode_backend(triple)
        if backend:
            self.found.append(MemberFact(path=file.name, kind="bitcode", backend=backend, detail=f"for {triple}"))
        return True

    def _text(self, file: SeenFile) -> None:
        """A text of a format in which programs keep data: libraries written as base64, or as they are."""
        data = b"".join(file.stream())
        if ELF_AS_BASE64.encode() in data and MARK not in file.name:
            for payload in text_payloads(file.name, data):
                self.look(payload)
        if MAGIC in data or FATBIN_MAGIC in data or b".address_size" in data:
            self._search(file, named=True)

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
            self._inner(file, inner)
            return True
        kind, target = device
        code = DeviceCode(kind=kind, targets=(target,) if target else (), offset=0, count=1)
        backend = device_backends(code)[0]
        self.found.append(MemberFact(path=file.name, kind="device-file", backend=backend, device=code))
        return True

    def _by_name(self, file: SeenFile, head: bytes) -> bool:
        """Facts that follow from the file's name, where its content does not gainsay it."""
        matched = False
        for rule in self._tables.member_rules(file.name):
            if _is_what_it_is_called(rule.kind, file, head):
                matched = True
                self.found.append(MemberFact(path=file.name, kind=rule.kind, backend=rule.backend))
        return matched


def _is_what_it_is_called(kind: str, file: SeenFile, head: bytes) -> bool:
    """Whether a file begins like what its name says: not a pointer of Git LFS, a page about a tool, another program's
    file with the same ending."""
    text = b"\0" not in head
    if kind == "vendor-tool":
        return head.startswith((MAGIC, _SCRIPT))
    if kind == "vendor-archive":
        return head.startswith(_ARCHIVES)
    if kind == "bitcode":
        return head.startswith(BITCODE_MAGICS)
    if kind == "device-source":
        return text and _KERNEL_SOURCE.search(b"".join(file.stream())) is not None
    if file.name.endswith(".ptx"):
        return text and _PTX_VERSION.search(next(iter(file.stream()), b"")) is not None
    return not text  # machine code


def _as_utf8(data: bytes, code: str) -> bytes:
    """A source in another encoding, as Python will read it; itself where Python could not either."""
    try:
        text = data.decode(code)
    except (LookupError, UnicodeError):
        return data
    return text.replace("coding", "c0ding", 1).encode()


def _ptx_target(text: bytes) -> tuple[str, ...]:
    match = _PTX_TARGET.search(text)
    return (f"compute_{match[1].decode()}",) if match else ()
