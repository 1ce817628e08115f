"""Streaming changes nothing: whatever the pieces, the facts are those of the whole file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.audit.facts import ElfFacts
from builder.audit.scan import ElfScanner
from builder.audit.tables import load_tables
from builder.audit.tape import BEHIND, Missing, Tape
from tests.audit.make import RUNTIME_MARK, as_c_array, bundle, fatbin, library, patchelf

SCANNER = ElfScanner(load_tables())


def scanned(data: bytes, chunk: int = 1 << 20) -> ElfFacts:
    return SCANNER.scan("x.so", len(data), lambda: (data[at : at + chunk] for at in range(0, len(data), chunk)))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with device code of two vendors, a static runtime's mark, names it opens and words it only says."""
    code = "\n".join(
        [
            "#include <dlfcn.h>",
            as_c_array(fatbin("sm_80", "sm_90a", "compute_90", payload=5000), name="one"),
            as_c_array(fatbin("sm_120"), name="two"),
            as_c_array(bundle("hipv4-amdgcn-amd-amdhsa--gfx942", payload=3000), section=".hip_fatbin", name="three"),
            as_c_array(RUNTIME_MARK, section=".rodata.mark", name="four"),
            'void *opens(void) { return dlopen("libnccl.so.2", 2); }',
            'const char *says(void) { return "could not find libcudnn.so.9 on this machine"; }',
            "int PyInit_x(void) { return 0; }",
            "void cudaMalloc(void); void uses(void) { cudaMalloc(); }",
        ]
    )
    path = library(tmp_path_factory.mktemp("scan"), "x.so", code=code, needs=["libcudart.so.12"])
    return path.read_bytes()


def test_one_pass_sees_everything(everything: bytes) -> None:
    facts = scanned(everything)
    assert {code.kind: code.targets for code in facts.device} == {
        "bundle": ("gfx942",),
        "fatbin": ("compute_90", "sm_120", "sm_80", "sm_90a"),
    }
    assert [stem for stem, _ in facts.static] == ["libcudart"]
    assert [name.name for name in facts.dlopen] == ["libnccl.so.2"]
    assert [name.name for name in facts.words] == ["libcudnn.so.9"]
    assert facts.can_dlopen
    assert facts.python_module
    assert facts.needed[0] == "libcudart.so.12"
    assert facts.api[0].undefined == ("cudaMalloc",)
    for name in facts.dlopen:
        assert everything[name.offset :].startswith(name.name.encode())
    for stem, offset in facts.static:
        assert everything[offset : offset + 16] == RUNTIME_MARK, stem


@settings(max_examples=25, deadline=None)
@given(chunk=st.integers(64, 9000))
def test_pieces_of_any_size(everything: bytes, chunk: int) -> None:
    assert scanned(everything, chunk) == scanned(everything)


def test_payloads_are_not_searched(everything: bytes) -> None:
    """The payloads hold cubin magic, the runtime's mark and a driver's name; none may come out of them."""
    facts = scanned(everything)
    assert "libcuda.so.1" not in {name.name for name in facts.dlopen}
    assert "cubin" not in {code.kind for code in facts.device}
    assert len(facts.static) == 1


def test_tables_far_from_the_start_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tables were not kept in passing, the file streams by a second time."""
    path = library(tmp_path, "x.so", needs=["libcudart.so.12"], code="char far_away[300000] = {1};")
    patchelf("--add-needed", "libcublas.so.12", path)
    data = path.read_bytes()
    monkeypatch.setattr("builder.audit.scan._KEEP_HEAD", 256)
    monkeypatch.setattr("builder.audit.scan._KEEP_SEGMENT", 0)
    streams = 0

    def stream() -> list[bytes]:
        nonlocal streams
        streams += 1
        return [data[at : at + 512] for at in range(0, len(data), 512)]

    facts = SCANNER.scan("x.so", len(data), stream)
    assert {"libcublas.so.12", "libcudart.so.12"} <= set(facts.needed)
    assert streams > 1


def test_a_vendor_string_without_dlopen_is_a_word(tmp_path: Path) -> None:
    path = library(tmp_path, "x.so", code='const char *says(void) { return "libcuda.so.1"; }')
    assert not scanned(path.read_bytes()).can_dlopen


def test_stripped_files_say_the_same(everything: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(everything)
    subprocess.run(["strip", "--strip-all", str(path)], check=True)
    before, after = scanned(everything), scanned(path.read_bytes())
    assert (after.needed, after.api, [code.targets for code in after.device]) == (
        before.needed,
        before.api,
        [code.targets for code in before.device],
    )


@given(
    data=st.binary(min_size=1, max_size=3000),
    chunk=st.integers(1, 700),
    wanted=st.lists(st.tuples(st.integers(0, 2999), st.integers(0, 900)), max_size=4),
)
def test_the_tape_keeps_what_it_was_asked_to(data: bytes, chunk: int, wanted: list[tuple[int, int]]) -> None:
    tape = Tape((data[at : at + chunk] for at in range(0, len(data), chunk)), len(data))
    tape.keep(wanted)
    while tape.turn(tape.end):
        pass
    for offset, size in wanted:
        assert tape.kept(offset, size) == data[offset : offset + size]


def test_the_tape_says_what_it_let_go() -> None:
    data = bytes(range(200)) * 20
    tape = Tape([data[:2000], data[2000:2100], data[2100:]], 4000)
    assert tape.turn(0)
    assert tape.turn(2050)
    with pytest.raises(Missing):
        tape.kept(10, 5)
    with pytest.raises(ValueError, match="forwards"):
        tape.read(2000 - BEHIND - 1, 5)
    assert tape.read(2000 - BEHIND, 2000) == data[2000 - BEHIND : 4000 - BEHIND]
    assert tape.before(2050, 400) == data[1650:2050]
    assert tape.read(3990, 50) == data[3990:]
    assert not tape.turn(4000)


@given(
    data=st.binary(min_size=1, max_size=5000),
    cuts=st.lists(st.integers(1, 2000), max_size=8),
    places=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 1500)), max_size=8),
)
def test_the_tape_reads_forwards_whatever_its_chunks(
    data: bytes, cuts: list[int], places: list[tuple[int, int]]
) -> None:
    ends = [*sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    tape = Tape((data[start:end] for start, end in zip([0, *ends], ends, strict=False)), len(data))
    for offset, size in sorted(places):
        if offset >= tape.end:
            tape.turn(offset)
        if offset >= tape.base:
            assert tape.read(offset, size) == data[offset : offset + size]
        if tape.base <= offset <= tape.end:
            behind = tape.before(offset, 300)
            assert data[:offset].endswith(behind)
            assert len(behind) == min(300, offset)
