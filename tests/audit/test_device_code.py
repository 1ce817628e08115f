"""Fat binaries and offload bundles: targets from headers, payloads never looked into, literals never taken for code."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from builder.audit.elf import parse_header
from builder.audit.fatbin import cubin_target, read_fatbin
from builder.audit.offload import read_bundle, read_compressed_bundle
from tests.audit.make import bundle, fatbin


def reader(data: bytes):  # type: ignore[no-untyped-def]  # a ReadAt over bytes
    return lambda offset, size: data[offset : offset + size]


def test_fatbin_targets_and_flags() -> None:
    data = fatbin("sm_75", "sm_90a", "sm_100f", "compute_120", compressed=True)
    found = read_fatbin(reader(b"??" + data), 2, len(data) + 2)
    assert found is not None
    assert [entry.target for entry in found.entries] == ["sm_75", "sm_90a", "sm_100f", "compute_120"]
    assert all(entry.compressed for entry in found.entries)
    assert found.end == len(data) + 2
    assert found.complete


def test_a_fatbin_that_promises_more_than_the_file_holds_is_none() -> None:
    data = fatbin("sm_75")
    assert read_fatbin(reader(data), 0, len(data) - 1) is None


def test_a_damaged_entry_keeps_what_came_before() -> None:
    data = bytearray(fatbin("sm_75", "sm_80"))
    struct.pack_into("<H", data, 16 + 64 + 256 + 2, 0x999)
    found = read_fatbin(reader(bytes(data)), 0, len(data))
    assert found is not None
    assert [entry.target for entry in found.entries] == ["sm_75"]
    assert not found.complete


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_what_nvcc_writes(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("__global__ void k(float *x) { x[threadIdx.x] *= 2; }\n")
    out = tmp_path / "k.fatbin"
    targets = ["sm_80", "sm_90a", "sm_100f"]
    codes = [f"-gencode=arch=compute_{target[3:]},code={target}" for target in targets]
    command = ["nvcc", "-fatbin", "-o", str(out), str(source), *codes, "-gencode=arch=compute_120,code=compute_120"]
    subprocess.run(command, check=True)
    data = out.read_bytes()
    found = read_fatbin(reader(data), 0, len(data))
    assert found is not None
    assert sorted(entry.target for entry in found.entries) == ["compute_120", "sm_100f", "sm_80", "sm_90a"]
    subprocess.run(["nvcc", "-cubin", "-arch=sm_90", "-o", str(tmp_path / "k.cubin"), str(source)], check=True)
    assert cubin_target(parse_header((tmp_path / "k.cubin").read_bytes()[:64])) == "sm_90"


IDS = (
    "host-x86_64-unknown-linux-gnu-",
    "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-",
    "hipv4-amdgcn-amd-amdhsa--gfx942",
)


def test_plain_bundle() -> None:
    data = bundle(*IDS)
    found = read_bundle(reader(data), 0, len(data))
    assert found is not None
    assert found.targets == ("gfx90a:sramecc+:xnack-", "gfx942")
    assert found.end == len(data)


def test_the_magic_alone_is_a_string_of_llvm() -> None:
    data = b"__CLANG_OFFLOAD_BUNDLE__\0" + b"some other string constant\0" * 9
    assert read_bundle(reader(data), 0, len(data)) is None


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_compressed_bundle(version: int, method: str) -> None:
    plain = bundle(*IDS, payload=100_000)
    packed = zlib.compress(plain) if method == "zlib" else zstandard.compress(plain)
    number = ["zlib", "zstd"].index(method)
    sizes = {
        1: struct.pack("<I", len(plain)),
        2: struct.pack("<II", len(packed) + 24, len(plain)),
        3: struct.pack("<QQ", len(packed) + 32, len(plain)),
    }[version]
    data = b"CCOB" + struct.pack("<HH", version, number) + sizes + bytes(8) + packed
    found = read_compressed_bundle(reader(data + b"tail"), 0, len(data) + 4)
    assert found is not None
    assert found.targets == ("gfx90a:sramecc+:xnack-", "gfx942")
    assert found.end == (len(data) if version > 1 else 20)


@given(st.binary(max_size=400), st.integers(0, 399))
def test_damage_never_crashes(noise: bytes, place: int) -> None:
    for good in (
        fatbin("sm_75", "sm_90a"),
        bundle(*IDS),
        b"CCOB" + struct.pack("<HHQQQ", 3, 1, 200, 999, 0) + bytes(200),
    ):
        data = good[:place] + noise + good[place + len(noise) :]
        read_fatbin(reader(data), 0, len(data))
        read_bundle(reader(data), 0, len(data))
        read_compressed_bundle(reader(data), 0, len(data))
