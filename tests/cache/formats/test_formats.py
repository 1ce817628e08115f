"""What each reader tells of an engine in the documented layout, and what it says it cannot know."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import pytest

from builder.audit.tables import load_tables
from builder.cache.formats import Blob, BrokenEngine, UnknownFormat, format_of, read_engine, read_file
from builder.cache.formats.folders import FACTORS, read_flashinfer, read_vllm
from builder.cache.formats.jax import read_jax_folder
from builder.cache.formats.neuron import check_neff, missing_features, parse_neff
from builder.cache.formats.nvidia import capabilities
from builder.cache.formats.pickles import read_pickle
from builder.cache.formats.torch import artifacts, read_inductor
from builder.cache.formats.triton import read_triton
from builder.cache.formats.values import Header
from builder.errors import BadInput
from tests.audit.make import fatbin
from tests.cache.formats import samples


def read(data: bytes, name: str = "engine", **options: str) -> Header:
    return read_file(Blob.of_bytes(data, name), **options)


def tree(files: dict[str, bytes]) -> dict[str, Blob]:
    return {path: Blob.of_bytes(data, path) for path, data in files.items()}


class Spy:
    """Unpickling it would show."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return Path, ("reached",)


GRAPH = pickle.dumps({"device_types": ["cuda"], "device_idxs": [0], "spy": Spy()}, protocol=4)


@pytest.mark.parametrize(
    ("data", "name", "form", "properties", "unknown"),
    [
        (samples.plan(), "m.plan", "tensorrt-plan", {"tensorrt": "10.9.0.34"}, {"compute-capability", "serialization"}),
        (samples.plan(layout=3), "m.plan", "tensorrt-plan", {}, {"tensorrt", "compute-capability"}),
        (samples.cuda_elf(90), "k.cubin", "cubin", {"compute-capability": "9.0"}, set()),
        (
            samples.neff(features=0x1F),
            "m.neff",
            "neff",
            {"neff-version": "2.0", "features": "0x1f", "lnc": "2"},
            {"target"},
        ),
        (samples.neff(package=1, lnc=0), "m.neff", "neff", {"features": "0x0"}, {"lnc"}),
        (
            samples.mxr(),
            "m.mxr",
            "mxr",
            {"migraphx": "2.13.0.dev+17558d32", "format": "8", "gfx": "gfx942", "targets": "gpu"},
            {"precision"},
        ),
        (samples.mxr(gfx=None), "m.mxr", "mxr", {"format": "8"}, {"gfx", "rocm"}),
        (samples.amd_elf(0x4C), "k.hsaco", "hsaco", {"gfx": "gfx942"}, set()),
        (
            samples.om(),
            "m.om",
            "om",
            {"soc": "Ascend910B1", "cann": "8.2.RC1", "format": "0x20000000", "platform-version": "V100R001"},
            {"driver"},
        ),
        (samples.om(width=4), "m.om", "om", {"soc": "Ascend910B1"}, set()),
        (samples.om(long=True), "m.om", "om", {"soc": "Ascend910B1"}, set()),
        (samples.om({}), "m.om", "om", {"model-name": "net"}, {"soc", "cann"}),
        (samples.om(encrypted=True), "m.om", "om", {}, {"soc", "cann"}),
        (
            samples.mega_cache({"inductor": [("k", GRAPH)], "pgo": [("p", b"x"), ("q", b"")]}),
            "m.bin",
            "torch-mega-cache",
            {"artifacts": "inductor:1 pgo:2", "device-type": "cuda", "container": "1"},
            {"compute-capability", "torch"},
        ),
        (
            samples.mega_cache({"pgo": [("p", b"x")]}, checksum=False),
            "m.bin",
            "torch-mega-cache",
            {"artifacts": "pgo:1"},
            set(),
        ),
        (
            samples.aoti(),
            "m.pt2",
            "aotinductor",
            {
                "device-type": "cuda",
                "compute-capability": "9.0",
                "target": "sm_90",
                "cpu-isa": "AVX512",
                "platform": "linux-x86_64",
                "pt2-version": "0",
            },
            {"torch", "driver"},
        ),
        (
            samples.openvino(),
            "m.blob",
            "openvino-blob",
            {"openvino": "2026.4.1-22982-e213a147257", "device": "CPU", "cpu-isa": "Intel AVX512"},
            {"precision"},
        ),
        (samples.openvino(alignment=64), "m.blob", "openvino-blob", {"cpu-isa": "Intel AVX512"}, set()),
        (
            samples.openvino(xml=False),
            "m.blob",
            "openvino-blob",
            {"openvino-release": "2026.4.1", "cpu-isa": "Intel AVX512"},
            set(),
        ),
        (
            samples.jax(),
            samples.JAX_NAME,
            "jax-cache",
            {"cpu": "haswell", "cpu-features": "avx2,fma", "compression": "zlib", "module": "jit_f"},
            {"jaxlib", "xla-flags"},
        ),
        (
            samples.jax(compress="zstd"),
            samples.JAX_NAME,
            "jax-cache",
            {"compression": "zstandard", "triple": "x86_64-unknown-linux-gnu"},
            set(),
        ),
        (
            samples.onnx(),
            "m.onnx",
            "onnx",
            {"ir-version": "9", "producer": "pytorch", "opsets": "ai.onnx:17,com.m:1"},
            {"onnxruntime"},
        ),
        (
            samples.onnx(samples.node("Conv", "com.microsoft.nchwc")),
            "m.onnx",
            "onnx",
            {"layout": "nchwc"},
            {"cpu-level"},
        ),
        (
            samples.onnx(
                samples.node(
                    "EPContext",
                    "com.microsoft",
                    source="NvTensorRTRTXExecutionProvider",
                    ep_sdk_version="1.4",
                    hardware_architecture="90",
                )
            ),
            "m.onnx",
            "onnx",
            {"provider": "NvTensorRTRTXExecutionProvider", "sdk": "1.4", "device-architecture": "90"},
            set(),
        ),
        (samples.ort(), "m.ort", "ort", {"ort-format": "6", "providers": "CPUExecutionProvider"}, {"cpu-level"}),
    ],
)
def test_a_header_tells_what_the_layout_holds(
    data: bytes, name: str, form: str, properties: dict[str, str], unknown: set[str]
) -> None:
    header = read(data, name)
    assert header.format == form
    assert properties.items() <= header.properties.items()
    assert unknown <= header.unknown.keys()
    assert not header.unknown.keys() & header.properties.keys()
    assert all(header.unknown.values())


def test_the_compute_capability_of_a_plan_is_never_guessed() -> None:
    header = read(samples.plan())
    assert "compute-capability" not in header.properties
    assert "state that of the device" in header.unknown["compute-capability"]


def test_a_plan_behind_metadata_of_an_exporter_is_found() -> None:
    metadata = b'{"task": "detect", "stride": 32}'
    header = read(struct.pack("<I", len(metadata)) + metadata + samples.plan(version=(8, 6, 1, 6)))
    assert header.properties == {"tensorrt": "8.6.1.6"}
    assert header.notes == (f"an exporter's metadata of {len(metadata) + 4} bytes stands before the plan",)


def test_a_tensorrt_for_rtx_engine_is_known_by_its_name_alone() -> None:
    header = read(bytes(range(64)), "m.rtx")
    assert header.format == "tensorrt-rtx"
    assert not header.properties
    assert "getEngineValidity" in header.unknown["compute-capability"]
    with pytest.raises(BrokenEngine, match="damaged"):
        read(bytes(63), "m.rtx")


def test_a_file_of_no_format_is_named_with_its_first_bytes() -> None:
    with pytest.raises(UnknownFormat) as caught:
        read(b"\x01\x02 nothing", "weights.dat")
    assert "01 02 20" in caught.value.why
    with pytest.raises(UnknownFormat, match="unknown engine format 'nef'") as wrong:
        read(b"", format="nef")
    assert "'neff'" in wrong.value.fix


@pytest.mark.parametrize(
    ("targets", "expected"),
    [(["sm_90a", "sm_86"], "8.6 9.0"), (["120"], "12.0"), (["compute_103f"], "10.3"), (["gfx942", ""], "")],
)
def test_capabilities_are_sorted_by_number(targets: list[str], expected: str) -> None:
    assert capabilities(targets) == expected


# --- AWS Neuron


def test_the_hash_of_a_neff_finds_a_changed_byte() -> None:
    for package in (1, 2):
        data = bytearray(samples.neff(package=package))
        check_neff(Blob.of_bytes(bytes(data)))
        data[-1] ^= 1
        with pytest.raises(BrokenEngine, match="damaged") as caught:
            check_neff(Blob.of_bytes(bytes(data)))
        assert ("sha256" if package == 1 else "md5") in caught.value.why


def test_features_that_a_container_does_not_know_are_named() -> None:
    """FR-15: bit 8 is not inside 0x800000000000001f."""
    neff = parse_neff(Blob.of_bytes(samples.neff(features=0x100)))
    assert missing_features(neff.features, 0x800000000000001F) == (8,)
    assert missing_features(neff.features, 0x11F) == ()
    assert missing_features(1 << 63 | 0x1F, 0x800000000000001F) == ()


# --- pickles


def test_a_pickle_is_read_and_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    evil = b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    found = read_pickle(Blob.of_bytes(evil))
    assert found.imports == ("os.system",)
    assert found.complete
    header = read(samples.mega_cache({"inductor": [("k", evil)]}), "m.bin")
    assert header.notes == ("it holds pickles, which run code when loaded; they import from: os",)
    assert not mark.exists()


def test_imports_through_the_memo_are_found() -> None:
    found = read_pickle(Blob.of_bytes(pickle.dumps([Spy(), Spy()], protocol=4)))
    assert "pathlib.Path" in found.imports


def test_the_first_mega_cache_was_one_pickle() -> None:
    header = read(GRAPH, "m.bin", format="torch-mega-cache")
    assert header.properties == {"container": "pickle"}
    assert "pathlib" in header.notes[0]


def test_a_mega_cache_whose_bytes_changed_is_refused() -> None:
    data = bytearray(samples.mega_cache({"pgo": [("p", b"abc")]}))
    data[-1] ^= 1
    with pytest.raises(BrokenEngine) as caught:
        read(bytes(data))
    assert "checksum" in caught.value.why
    assert caught.value.offset == 0


def test_the_artefacts_of_a_mega_cache_are_listed_without_their_contents() -> None:
    listed = list(artifacts(Blob.of_bytes(samples.mega_cache({"inductor": [("a", b"xx"), ("b", b"yyy")]}))))
    assert [(item.kind, item.key, item.size) for item in listed] == [("inductor", "a", 2), ("inductor", "b", 3)]


def test_kernels_bundled_with_a_graph_tell_their_target() -> None:
    bundle = b'{"hash": "00", "target": {"backend": "cuda", "arch": 90, "warp_size": 32}}'
    graph = pickle.dumps({"device_types": ["cuda"], "device_idxs": [], "bundle": bundle}, protocol=4)
    header = read(samples.mega_cache({"inductor": [("k", graph)]}), "m.bin")
    assert header.properties["compute-capability"] == "9.0"
    assert "compute-capability" not in header.unknown


def test_a_jax_entry_that_holds_its_folder_in_its_key_says_so() -> None:
    tuned = samples.jax(tuning="/home/app/.cache/jax/xla_gpu_per_fusion_autotune_cache_dir")
    assert "set jax_persistent_cache_enable_xla_caches to none" in read(tuned, samples.JAX_NAME).notes[0]
    assert read(samples.jax(), samples.JAX_NAME).notes == ()


def test_jaxs_folder_tells_what_its_entries_have_in_common() -> None:
    other = samples.JAX_NAME.replace("jit_f", "jit_g")
    same = read_jax_folder(tree({samples.JAX_NAME: samples.jax(), other: samples.jax(), "x-atime": b""}))
    assert same.properties["entries"] == "2"
    assert (same.properties["compression"], same.properties["cpu"]) == ("zlib", "haswell")
    tuned = samples.jax(features="+sse2", tuning="/c/xla_gpu_per_fusion_autotune_cache_dir")
    mixed = read_jax_folder(tree({samples.JAX_NAME: samples.jax(), other: tuned}))
    assert "cpu-features" not in mixed.properties
    assert len(mixed.notes) == 1
    with pytest.raises(BrokenEngine, match="the folder"):
        read_jax_folder(tree({"x": b""}))


# --- folders


def test_the_cache_folder_of_inductor_is_read_by_its_graphs() -> None:
    header = read_inductor(
        tree(
            {
                "fxgraph/xb/fxbl5/aoq": GRAPH,
                "aotautograd/ajbq/vw6": GRAPH,
                "by/cbyf.py": b"code",
                "x/k.wrapper_metadata.json": b'{"AOTI_CPU_ISA": "AVX2"}',
            }
        )
    )
    assert header.properties == {"artifacts": "aotautograd:1 fxgraph:1", "device-type": "cuda", "cpu-isa": "AVX2"}
    with pytest.raises(BrokenEngine, match="the folder"):
        read_inductor(tree({"by/cbyf.py": b"code"}))


def test_a_triton_cache_tells_targets_versions_and_absolute_paths() -> None:
    files = samples.triton("A") | samples.triton("B", backend="hip", arch="gfx942", binary=samples.amd_elf())
    header = read_triton(tree(files), load_tables().amdgpu)
    assert header.properties == {
        "kernel-count": "2",
        "backend": "cuda hip",
        "compute-capability": "12.0",
        "gfx": "gfx942",
        "triton": "3.6.0",
        "warp-size": "32 64",
    }
    assert header.notes == ("2 groups name their files by absolute paths: valid in this folder alone",)


def test_a_triton_kernel_that_is_not_for_its_target_is_refused() -> None:
    """FR-18: a binary for 12.0 beside metadata that say 12.1."""
    with pytest.raises(BrokenEngine) as caught:
        read_triton(tree(samples.triton(arch=121, binary=samples.cuda_elf(120))), {})
    assert "compiled for 12.0" in caught.value.why
    assert "12.1" in caught.value.why
    assert "compiles it again" in caught.value.fix


def test_other_backends_of_triton_are_told_by_their_own_words() -> None:
    header = read_triton(tree(samples.triton(backend="npu", arch="Ascend910B1", binary=b"")), {})
    assert header.properties["soc"] == header.properties["target"] == "Ascend910B1"


SYSTEM = {"device": {"name": "NVIDIA H100 80GB HBM3"}, "version": {"triton": "ab12", "cuda": "12.8"}, "hash": "00"}


def test_vllms_cache_tells_ranks_device_and_toolkit() -> None:
    factors = json.dumps({"env": {"HOME": "x"}, "compiler": {"inductor": [SYSTEM, "torch"]}, "config": {}}).encode()
    files = {f"torch_compile_cache/0a1b2c3d4e/rank_{rank}_0/backbone/{FACTORS}": factors for rank in (0, 1)}
    header = read_vllm(tree(files), {})
    assert header.properties == {
        "ranks": "2",
        "hashes": "0a1b2c3d4e",
        "device": "NVIDIA H100 80GB HBM3",
        "toolkit": "12.8",
    }
    assert header.unknown.keys() == {"vllm", "torch", "target"}
    inside = "torch_compile_cache/0a1b2c3d4e/rank_0_0/triton_cache"
    kernels = {f"{inside}/{path}": data for path, data in samples.triton().items()}
    assert read_vllm(tree(files | kernels), {}).properties["target"] == "sm_120"
    with pytest.raises(BrokenEngine, match="the folder"):
        read_vllm(tree({FACTORS: b"{}"}), {})
    with pytest.raises(BrokenEngine, match="rank_0_0"):
        read_vllm(tree({f"h/rank_0_0/{FACTORS}": b"{"}), {})


def test_flashinfers_cache_covers_what_every_library_in_it_covers() -> None:
    def library(*targets: str) -> bytes:
        return b"\x7fELF" + bytes(5000) + fatbin(*targets) + bytes(300) + fatbin(targets[0])

    files = {
        "0.6.1/90a_100a/cached_ops/norm/norm.so": library("sm_90", "sm_100", "compute_100"),
        "0.6.1/90a_100a/cached_ops/rope/rope.so": library("sm_100", "sm_120", "compute_100"),
        "0.6.1/90a_100a/cached_ops/rope/rope.ninja": b"text",
    }
    header = read_flashinfer(tree(files))
    assert header.properties == {
        "operators": "2",
        "compute-capability": "10.0",
        "ptx": "10.0",
        "flashinfer": "0.6.1",
    }
    apart = read_flashinfer(tree({"a.so": library("sm_90"), "b.so": library("sm_80")}))
    assert "compute-capability" not in apart.properties
    assert "covered by every library" in apart.unknown["compute-capability"]
    with pytest.raises(BrokenEngine, match="the folder"):
        read_flashinfer(tree({"0.6.1/90a/cached_ops/x/x.so": b"\x7fELF" + bytes(100)}))


def test_a_file_read_in_ranges_gives_its_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    (tmp_path / "blob").write_bytes(data)
    blob = Blob.of_file(tmp_path / "blob")
    places = ((0, 4), (200_000, 3), (65_530, 20), (10, 100_000), (255_990, 50), (256_000, 5), (3, 0), (65_000, 65_536))
    for offset, size in places:
        assert blob.read(offset, size) == data[offset : offset + size]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="is not a file"):
        read_engine(tmp_path / "pipe")


def test_an_engine_on_disk_is_found_by_what_it_is(tmp_path: Path) -> None:
    for path, data in samples.triton().items():
        (tmp_path / "cache" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache" / path).write_bytes(data)
    (tmp_path / "cache" / "link").symlink_to("/etc/passwd")
    assert read_engine(tmp_path / "cache").format == "triton"
    (tmp_path / "m.plan").write_bytes(samples.plan())
    assert read_engine(tmp_path / "m.plan").properties["tensorrt"] == "10.9.0.34"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownFormat, match="of no engine format"):
        read_engine(tmp_path / "empty")
    with pytest.raises(UnknownFormat, match="'tritn'"):
        read_engine(tmp_path / "cache", format="tritn")


def test_a_package_with_objects_for_two_machines_is_refused() -> None:
    with pytest.raises(BrokenEngine) as caught:
        read(samples.aoti(samples.AOTI, {**samples.AOTI, "AOTI_COMPUTE_CAPABILITY": "86"}))
    assert "compute-capability is 9.0 and 8.6" in caught.value.why


def test_formats_with_a_magic_need_no_name() -> None:
    for data, form in (
        (samples.plan(), "tensorrt-plan"),
        (samples.om(), "om"),
        (samples.ort(), "ort"),
        (samples.cuda_elf(), "cubin"),
        (samples.amd_elf(), "hsaco"),
        (samples.openvino(), "openvino-blob"),
        (samples.openvino(xml=False), "openvino-blob"),
        (samples.neff(), "neff"),
        (samples.mxr(), "mxr"),
        (samples.aoti(), "aotinductor"),
        (samples.mega_cache({"pgo": []}), "torch-mega-cache"),
    ):
        assert format_of(Blob.of_bytes(data, "blob")) == form
