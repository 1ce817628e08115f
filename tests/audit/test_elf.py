"""The ELF reader against files from a real linker, and against damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import given
from hypothesis import strategies as st

from builder.audit.elf import BrokenElf, machine_name, parse_elf, parse_symbols
from tests.audit.make import library, patchelf, without_sections


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with everything the reader looks at."""
    folder = tmp_path_factory.mktemp("elf")
    script = folder / "versions"
    script.write_text("ONE_1.0 { global: first; local: *; };\nONE_2.0 { global: second; } ONE_1.0;\n")
    return library(
        folder,
        "libone.so",
        code='#include <stdio.h>\nint first(void) { return puts("x"); }\nint second(void) { return 2; }\n',
        soname="libone.so.1",
        needs=["libother.so.3", "libthird.so"],
        options=[f"-Wl,--version-script={script}", "-Wl,-rpath,$ORIGIN/../x:/opt/y", "-Wl,-z,execstack"],
    )


def test_all_fields_of_a_linked_library(built: Path) -> None:
    elf = parse_elf(built.read_bytes())
    assert elf.soname == "libone.so.1"
    assert elf.needed[:2] == ("libother.so.3", "libthird.so")
    assert "libc.so.6" in elf.needed
    assert elf.runpath == "$ORIGIN/../x:/opt/y"
    assert elf.rpath is None
    assert elf.version_defs == ("libone.so.1", "ONE_1.0", "ONE_2.0")
    assert any(version.startswith("GLIBC_2.") for version in elf.version_needs["libc.so.6"])
    assert elf.exec_stack is True
    assert machine_name(elf.machine) == "x86_64"
    assert elf.header.type == "shared"
    assert elf.faults == ()


def test_symbols_carry_versions(built: Path) -> None:
    data = built.read_bytes()
    symbols = {
        symbol.name: symbol
        for symbol in parse_symbols(parse_elf(data), lambda offset, size: data[offset : offset + size])
    }
    assert (symbols["second"].defined, symbols["second"].version) == (True, "ONE_2.0")
    assert (symbols["puts"].defined, symbols["puts"].library) == (False, "libc.so.6")


def test_agrees_with_another_reader(built: Path) -> None:
    with built.open("rb") as file:
        other = ELFFile(file)
        dynamic, symbols = other.get_section_by_name(".dynamic"), other.get_section_by_name(".dynsym")
        assert isinstance(dynamic, DynamicSection)
        assert isinstance(symbols, SymbolTableSection)
        needed = tuple(tag.needed for tag in dynamic.iter_tags("DT_NEEDED"))  # type: ignore[attr-defined]  # set by the tag's kind
        count = symbols.num_symbols()
    elf = parse_elf(built.read_bytes())
    assert elf.needed == needed
    assert elf.symtab is not None
    assert elf.symtab[1] == count


def test_section_headers_are_not_needed(built: Path) -> None:
    whole, cut = parse_elf(built.read_bytes()), parse_elf(without_sections(built.read_bytes()))
    assert (cut.needed, cut.soname, cut.version_defs) == (whole.needed, whole.soname, whole.version_defs)
    assert cut.version_needs == whole.version_needs


def test_patchelf_moves_the_tables_and_they_are_found(built: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.so"
    moved.write_bytes(built.read_bytes())
    patchelf("--add-needed", "libadded.so.9", moved)
    patchelf("--set-soname", "lib" + "x" * 300 + ".so", moved)
    elf = parse_elf(moved.read_bytes())
    assert "libadded.so.9" in elf.needed
    assert elf.soname == "lib" + "x" * 300 + ".so"


def big_endian_32(needed: str) -> bytes:
    """A minimal 32-bit big-endian shared library, by hand: header, two program headers, dynamic section, strings."""
    strings = b"\0" + needed.encode() + b"\0"
    dynamic_at = 52 + 2 * 32
    strings_at = dynamic_at + 4 * 8
    total = strings_at + len(strings)
    ident = b"\x7fELF" + bytes([1, 2, 1, 0]) + bytes(8)
    header = ident + struct.pack(">HHIIIIIHHHHHH", 3, 20, 1, 0, 52, 0, 0, 52, 32, 2, 0, 0, 0)
    load = struct.pack(">IIIIIIII", 1, 0, 0x1000, 0, total, total, 4, 4)
    dynamic = struct.pack(">IIIIIIII", 2, dynamic_at, 0x1000 + dynamic_at, 0, 32, 32, 4, 4)
    table = struct.pack(">iIiIiIiI", 5, 0x1000 + strings_at, 10, len(strings), 1, 1, 0, 0)
    return header + load + dynamic + table + strings


def test_other_class_and_byte_order() -> None:
    elf = parse_elf(big_endian_32("libfar.so.2"))
    assert elf.needed == ("libfar.so.2",)
    assert (elf.header.bits, elf.header.little, machine_name(elf.machine)) == (32, False, "ppc")


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF", b"\x7fELF\x03\x01" + bytes(60), b"\x7fELF\x02\x07" + bytes(60), b"MZ" + bytes(62)],
    ids=["empty", "magic only", "class 3", "byte order 7", "not ELF"],
)
def test_what_is_no_elf_file_is_a_typed_fault(data: bytes) -> None:
    with pytest.raises(BrokenElf):
        parse_elf(data)


@pytest.mark.parametrize("cut", [64, 65, 100, 400, 2000])
def test_cut_off_files_name_what_is_missing(built: Path, cut: int) -> None:
    elf = parse_elf(built.read_bytes()[:cut])
    assert elf.faults or not elf.needed


def test_a_string_table_outside_the_file_is_named() -> None:
    data = bytearray(big_endian_32("liba.so"))
    struct.pack_into(">I", data, 52 + 64 + 4, 0xFFFF0000)
    assert any("string table" in fault for fault in parse_elf(bytes(data)).faults)


@given(st.data())
def test_damage_never_crashes(data: st.DataObject) -> None:
    broken = bytearray(big_endian_32("libfar.so.2"))
    for _ in range(data.draw(st.integers(1, 12))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    try:
        elf = parse_elf(bytes(broken[: data.draw(st.integers(0, len(broken)))]))
    except BrokenElf:
        return
    parse_symbols(elf, lambda offset, size: bytes(broken[offset : offset + size]))


@given(st.data())
def test_damage_to_a_linked_library_never_crashes(built: Path, data: st.DataObject) -> None:
    broken = bytearray(built.read_bytes())
    for _ in range(data.draw(st.integers(1, 30))):
        broken[data.draw(st.integers(4, 4096))] = data.draw(st.integers(0, 255))
    try:
        elf = parse_elf(bytes(broken))
    except BrokenElf:
        return
    parse_symbols(elf, lambda offset, size: bytes(broken[offset : offset + size]))
