"""Damaged and lying wheels: a finding or a typed error, never a crash, whatever byte is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder.audit.audit import load_rules
from builder.audit.bitcode import BITCODE_MAGICS, bitcode_triple
from builder.audit.loose_source import loose_strings
from builder.audit.nested import MemoryFile
from builder.audit.payloads import compiled_payloads
from builder.errors import BadInput
from tests.audit.make import RUNTIME_MARK, Entry, as_c_array, fatbin, judged, library, wheel


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("rich")
    code = as_c_array(fatbin("sm_80", "compute_90")) + as_c_array(RUNTIME_MARK, section=".rodata.m", name="m")
    made = library(folder, "x.so", code=code, needs=["libcudart.so.12"])
    entries = [
        Entry(name="rich/x.so", data=made.read_bytes()),
        Entry(name="rich/stored.so", data=made.read_bytes(), stored=True),
        Entry(name="rich/__init__.py", data=b'import ctypes\nctypes.CDLL("libcuda.so.1")\n'),
        Entry(name="rich/lib.a", data=b"!<arch>\n" + fatbin("sm_75")),
    ]
    return wheel(folder, "rich", entries, requires=["nvidia-nccl-cu12"]).read_bytes()


def test_a_member_whose_bytes_are_not_what_the_archive_promises(tmp_path: Path, rich: bytes) -> None:
    at = rich.index(b"libcudart.so.12")  # in the stored copy: the deflated one does not show it
    path = tmp_path / "rich-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    path.write_bytes(rich[:at] + b"libharmless.so." + rich[at + 15 :])
    audit = judged(path)
    assert audit.level == "block"
    damage = next(finding for finding in audit.findings if finding.rule == "unsafe-wheel")
    assert "rich/stored.so" in damage.evidence
    assert "CRC-32" in damage.evidence


def test_a_cut_off_wheel_is_an_error(tmp_path: Path, rich: bytes) -> None:
    path = tmp_path / "rich-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    path.write_bytes(rich[: len(rich) // 2])
    with pytest.raises(BadInput, match="damaged"):
        judged(path)


def test_paths_that_leave_the_folder_block(tmp_path: Path) -> None:
    audit = judged(wheel(tmp_path, "escape", {"../evil.py": b"", "escape/__init__.py": b""}))
    assert audit.level == "block"
    assert any("would write outside its folder" in finding.evidence for finding in audit.findings)


def test_metadata_is_missing(tmp_path: Path) -> None:
    path = wheel(tmp_path, "other", {})
    renamed = path.rename(tmp_path / "named-1.0-py3-none-any.whl")
    audit = judged(renamed)
    assert audit.level == "block"
    assert any(".dist-info" in finding.evidence for finding in audit.findings)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_wrong_byte(tmp_path: Path, rich: bytes, data: st.DataObject) -> None:
    broken = bytearray(rich)
    for _ in range(data.draw(st.integers(1, 8))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "rich-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    path.write_bytes(bytes(broken[: data.draw(st.integers(len(broken) // 2, len(broken)))]))
    try:
        audit = judged(path)
    except BadInput:
        return
    assert audit.level in ("ok", "warn", "carry", "block")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_wrong_byte_inside_an_elf_member(tmp_path: Path, rich_elf: bytes, data: st.DataObject) -> None:
    broken = bytearray(rich_elf)
    for _ in range(data.draw(st.integers(1, 20))):
        broken[data.draw(st.integers(4, len(broken) - 1))] = data.draw(st.integers(0, 255))
    audit = judged(wheel(tmp_path, "inside", {"inside/x.so": bytes(broken)}))
    assert audit.level in ("ok", "warn", "carry", "block")


@pytest.fixture(scope="module")
def rich_elf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    code = as_c_array(fatbin("sm_80", "compute_90"))
    return library(tmp_path_factory.mktemp("elf"), "x.so", code=code, needs=["libcudart.so.12"]).read_bytes()


def test_an_elf_magic_and_nothing_more(tmp_path: Path) -> None:
    audit = judged(wheel(tmp_path, "magic", {"magic/x.so": b"\x7fELF", "magic/y.so": b"\x7fELF\x09\x09" + bytes(99)}))
    assert [finding.rule for finding in audit.findings] == ["damaged-elf", "damaged-elf"]
    assert audit.level == "ok"


@settings(max_examples=200, deadline=None)
@given(magic=st.sampled_from(BITCODE_MAGICS), noise=st.binary(max_size=200))
def test_any_bits_behind_the_magic_of_bitcode(magic: bytes, noise: bytes) -> None:
    triple = bitcode_triple(magic + noise)
    assert triple is None or triple.isascii()


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.sampled_from(['"""', "'''", '"', "'", "\\", "\n", "#", "(", "CDLL", "libcuda.so.1", "x"])))
def test_any_text_read_without_a_grammar(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert all(line <= text.count("\n") + 1 for _, line, _ in loose_strings(text.encode()))


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=400), name=st.sampled_from(["x.pyc", "x.bin", "x.json", "x", "x.so", "x.py"]))
def test_any_file_that_ends_like_an_archive_or_decodes_something(noise: bytes, name: str) -> None:
    for _ in compiled_payloads(b"b64decode" + noise):
        pass
    tail = b"PK\x05\x06" + noise[:18].ljust(18, b"\0")
    load_rules().scanner.collector().look(MemoryFile(name, b"\0" + noise + tail))


def test_a_source_whose_names_have_no_end(tmp_path: Path) -> None:
    """Each name is made of four others: without a bound there are 4 ** 20 ways through."""
    lines = [f"n{at} = n{at + 1} + n{at + 2} + f'{{n{at + 1}}}{{n{at + 2}}}'" for at in range(20)]
    source = "import ctypes\n" + "\n".join(reversed(lines)) + "\nctypes.CDLL(n0)\n"
    audit = judged(wheel(tmp_path, "endless", {"endless/__init__.py": source.encode()}))
    assert [finding.rule for finding in audit.findings] == ["computed-dlopen"]
