"""Cut off, changed and lying engines: each is read or refused with a place, within bounds, and nothing else happens."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.audit.fatbin import FATBIN_MAGIC
from builder.cache.formats import FILE_FORMATS, Blob, BrokenEngine
from builder.cache.formats.folders import FACTORS, library_targets, read_flashinfer, read_vllm
from builder.cache.formats.torch import read_inductor
from builder.cache.formats.triton import read_triton
from tests.cache.formats import samples

WHOLE: dict[str, tuple[str, bytes]] = {
    "plan": ("tensorrt-plan", samples.plan()),
    "rtx": ("tensorrt-rtx", bytes(80)),
    "cubin": ("cubin", samples.cuda_elf()),
    "neff": ("neff", samples.neff()),
    "mxr": ("mxr", samples.mxr()),
    "hsaco": ("hsaco", samples.amd_elf()),
    "om": ("om", samples.om()),
    "mega": ("torch-mega-cache", samples.mega_cache({"inductor": [("k", pickle.dumps({"a": [1, "b"]}, protocol=4))]})),
    "mega-first": ("torch-mega-cache", samples.mega_cache({"pgo": [("k", b"x")]}, checksum=False)),
    "aoti": ("aotinductor", samples.aoti()),
    "openvino": ("openvino-blob", samples.openvino()),
    "openvino-cpu": ("openvino-blob", samples.openvino(xml=False)),
    "jax": ("jax-cache", samples.jax()),
    "jax-zstd": ("jax-cache", samples.jax(compress="zstd")),
    "onnx": ("onnx", samples.onnx(samples.node("EPContext", source="x"))),
    "ort": ("ort", samples.ort()),
}


def attempt(form: str, data: bytes) -> None:
    """Read; only a `BrokenEngine` with a place may come of it, and no read may reach outside."""

    def read(offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size >= 0
        return data[offset : offset + size]

    try:
        header = FILE_FORMATS[form](Blob("engine", len(data), read))
    except BrokenEngine as error:
        fault = error
    else:
        assert [value for value in header.properties.values() if not value.isprintable()] == []
        return
    assert fault.offset >= 0
    assert f"at byte {fault.offset}" in fault.why


@pytest.mark.parametrize("sample", WHOLE)
def test_every_cut_is_read_or_named(sample: str) -> None:
    form, data = WHOLE[sample]
    steps = range(len(data)) if len(data) < 2000 else (*range(1100), *range(1100, len(data), 37))
    for end in steps:
        attempt(form, data[:end])


@pytest.mark.parametrize("sample", ["plan", "neff", "mxr", "om", "mega", "aoti", "openvino", "jax", "onnx", "ort"])
def test_half_an_engine_is_damaged(sample: str) -> None:
    form, data = WHOLE[sample]
    half = data[: min(len(data) // 2, 26)]
    with pytest.raises(BrokenEngine):
        FILE_FORMATS[form](Blob.of_bytes(half))


@settings(max_examples=60, deadline=None)
@given(
    sample=st.sampled_from(sorted(WHOLE)),
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_changed_bytes_are_read_or_named(sample: str, changes: list[tuple[int, int]]) -> None:
    form, data = WHOLE[sample]
    changed = bytearray(data)
    for place, value in changes:
        changed[place % len(changed)] = value
    attempt(form, bytes(changed))


@settings(max_examples=60, deadline=None)
@given(sample=st.sampled_from(sorted(WHOLE)), keep=st.integers(0, 64), rest=st.binary(max_size=400))
def test_noise_behind_a_true_start_is_read_or_named(sample: str, keep: int, rest: bytes) -> None:
    form, data = WHOLE[sample]
    attempt(form, data[:keep] + rest)


@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=200), place=st.sampled_from(["__grp__k.json", "k.json", "fxgraph/ab/k/x"]))
def test_noise_in_a_folder_is_read_or_named(content: bytes, place: str) -> None:
    blobs = {place: Blob.of_bytes(content, place)}
    with pytest.raises(BrokenEngine):
        read_triton(blobs, {})
    with pytest.raises(BrokenEngine):
        read_flashinfer({**blobs, "0.6/90a/cached_ops/k/k.so": blobs[place]})
    with suppress(BrokenEngine):
        assert read_vllm({f"h/rank_0_0/{FACTORS}": blobs[place]}, {}).properties["ranks"] == "1"
    with suppress(BrokenEngine):  # one opcode, STOP, is a graph that says nothing
        assert read_inductor(blobs).properties == {"artifacts": "fxgraph:1"}


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.one_of(st.binary(max_size=60), st.just(FATBIN_MAGIC)), max_size=12))
def test_magics_in_a_library_that_lead_nowhere_are_passed_over(pieces: list[bytes]) -> None:
    data = b"\x7fELF" + b"".join(pieces)
    code, ptx = library_targets(Blob.of_bytes(data))
    assert all("." in one for one in code | ptx)


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("neff", struct.pack("<QQQ", 2, 1024, 1 << 60).ljust(1024, b"\0")),
        ("neff", struct.pack("<QQQ", 2, 1 << 40, 0).ljust(1024, b"\0")),
        ("neff", struct.pack("<QQQQ", 2, 1024, 0, 9).ljust(1024, b"\0")),
        ("mxr", b"\xdf\xff\xff\xff\xff"),
        ("mxr", b"\x81\xdb\xff\xff\xff\xffversion"),
        ("mxr", b"\x81" + b"\x91" * 100_000),
        ("om", b"IMOD" + struct.pack("<II", 256, 1) + bytes(64) + struct.pack("<I", 1 << 31) + bytes(176) + b"xx"),
        ("om", samples.om()[:256] + struct.pack("<I", 0xFFFF)),
        ("torch-mega-cache", struct.pack(">QQ", 1, 1 << 62)),
        ("torch-mega-cache", struct.pack(">Q", 1) + struct.pack(">Q", 4) + b"cGdv" + struct.pack(">Q", 1 << 50)),
        ("torch-mega-cache", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62)),
        ("torch-mega-cache", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x."),
        ("onnx", b"\x3a" + samples.varint(1 << 62)),
        ("onnx", b"\x08" + b"\xff" * 12),
        ("ort", struct.pack("<I", 0xFFFFFFF0) + b"ORTM"),
        ("openvino-blob", b"RR_UPCVO" + struct.pack("<III", 1, 0xFFFFFFFF, 0)),
        ("openvino-blob", b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><compiled_blob ie_version="&b;"/>\n'),
        ("openvino-blob", b"<?xml " + b"a" * 100_000),
        ("aotinductor", b"PK\x05\x06" + bytes(8) + struct.pack("<II", 1 << 30, 1 << 30) + bytes(2)),
        ("jax-cache", zlib.compress(b"abcdefg")[:-5]),
        ("jax-cache", b"\x28\xb5\x2f\xfd\xff" + b"\xff" * 20),
        ("fatbin", struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 50)),
    ],
)
def test_a_length_that_lies_costs_nothing_and_is_named(form: str, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BrokenEngine) as caught:
            FILE_FORMATS[form](Blob.of_bytes(data))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.where is not None
    assert "at byte" in caught.value.why


def test_a_bomb_in_a_jax_entry_is_inflated_within_bounds() -> None:
    bomb = zlib.compress(bytes(70 << 20), 1)
    header = FILE_FORMATS["jax-cache"](Blob.of_bytes(bomb))
    assert "only the first" in header.notes[0]
