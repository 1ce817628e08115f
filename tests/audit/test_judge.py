"""Tokens and levels of small wheels, one idea each."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.audit.make import as_c_array, bundle, judged, library, wheel

PY = "int PyInit_x(void) { return 0; }"


def test_a_neutral_name_over_a_cuda_extension_is_refused_for_rocm(tmp_path: Path) -> None:
    """FR-03: an AMD image got a kernel package that is CUDA-only and does not say so."""
    needs = ["libc10.so", "libtorch.so", "libcudart.so.12", "libcuda.so.1"]
    made = library(tmp_path, "common_ops.abi3.so", code=PY, needs=needs)
    path = wheel(
        tmp_path,
        "sgl-kernel",
        {"sgl_kernel/common_ops.abi3.so": made.read_bytes()},
        version="0.0.4.post2",
        tag="cp39-abi3-manylinux2014_x86_64",
    )
    audit = judged(path, "rocm")
    assert audit.level == "block"
    finding = next(finding for finding in audit.findings if finding.severity == "error")
    assert audit.file == "sgl_kernel-0.0.4.post2-cp39-abi3-manylinux2014_x86_64.whl"
    assert (finding.rule, finding.backend, finding.path) == ("foreign-hard", "cuda", "sgl_kernel/common_ops.abi3.so")
    assert "libcudart.so.12" in finding.evidence
    assert "libcuda.so.1" in finding.evidence
    assert "build it from source for rocm" in finding.fix
    assert judged(path, "cuda").level == "ok"


def test_framework_libraries_of_a_backend_are_via(tmp_path: Path) -> None:
    made = library(tmp_path, "_C.so", needs=["libtorch_cuda.so", "libc10_cuda.so", "libtorch.so"])
    assert judged(wheel(tmp_path, "ops", {"ops/_C.so": made.read_bytes()})).tokens == {"cuda": ("via",)}


def test_a_plugin_beside_an_extension_is_not_hard(tmp_path: Path) -> None:
    files = {
        "rt/_state.so": library(tmp_path / "a", "s.so", code=PY).read_bytes(),
        "rt/libproviders_cuda.so": library(tmp_path / "b", "p.so", needs=["libcudart.so.12"]).read_bytes(),
        "rt/libproviders_rocm.so": library(tmp_path / "c", "p.so", needs=["libamdhip64.so.7"]).read_bytes(),
    }
    audit = judged(wheel(tmp_path, "rt", files))
    assert audit.tokens == {"cuda": ("hard-plugin",), "rocm": ("hard-plugin",)}
    assert audit.level == "warn"
    # The wheel has a plug-in for the asked backend and one for another: only the other is a finding.
    assert {finding.backend for finding in judged(wheel(tmp_path, "rt", files), "rocm").findings} == {"cuda"}


def test_one_of_several_builds_of_a_file_is_a_plugin(tmp_path: Path) -> None:
    files = {
        "llm/lib/avx2/libllm.so": library(tmp_path / "a", "l.so").read_bytes(),
        "llm/lib/cuda/libllm.so": library(tmp_path / "b", "l.so", needs=["libcudart.so.12"]).read_bytes(),
    }
    assert judged(wheel(tmp_path, "llm", files)).tokens == {"cuda": ("hard-plugin",)}


def test_a_library_that_an_extension_needs_is_hard_whatever_its_name(tmp_path: Path) -> None:
    inner = library(tmp_path, "libinner_cuda.so", soname="libinner_cuda.so", needs=["libcudart.so.12"])
    outer = library(tmp_path / "o", "_x.so", code=PY, needs=["libinner_cuda.so"])
    files = {"p/_x.so": outer.read_bytes(), "p/libinner_cuda.so": inner.read_bytes()}
    assert judged(wheel(tmp_path, "p", files)).tokens == {"cuda": ("hard",)}


def test_a_carried_library_is_bundled_and_satisfies_its_users(tmp_path: Path) -> None:
    name = "libnvjpeg-1a2b3c4d.so.13"
    carried = library(tmp_path, name, soname=name)
    user = library(tmp_path / "u", "_x.so", code=PY, needs=[name])
    files = {"p/_x.so": user.read_bytes(), f"p.libs/{name}": carried.read_bytes()}
    assert judged(wheel(tmp_path, "p", files)).tokens == {"cuda": ("bundled",)}


def test_undefined_functions_without_a_library_are_hard(tmp_path: Path) -> None:
    code = f"{PY} int hipMalloc(void **, unsigned long); int f(void) {{ void *p; return hipMalloc(&p, 1); }}"
    made = library(tmp_path, "_x.so", code=code)
    audit = judged(wheel(tmp_path, "under", {"under/_x.so": made.read_bytes()}))
    assert audit.tokens == {"rocm": ("hard",)}
    assert "hipMalloc" in audit.findings[0].evidence


def test_trampolines_are_stubs_not_the_library(tmp_path: Path) -> None:
    code = "int cublasCreate_v2(void) { return 1; } int cublasGemmEx(void) { return 1; }"
    made = library(tmp_path, "libx.so", code=code)
    audit = judged(wheel(tmp_path, "stubs", {"stubs/libx.so": made.read_bytes()}))
    assert audit.tokens == {"cuda": ("stub",)}
    assert audit.level == "warn"


def test_a_translation_layer_is_not_held_against_its_own_backend(tmp_path: Path) -> None:
    code = "int cudaMalloc(void) { return 1; } int cudaFree(void) { return 1; }"
    made = library(tmp_path, "libx.so", code=code, needs=["libamdhip64.so.7"])
    audit = judged(wheel(tmp_path, "shim", {"shim/libx.so": made.read_bytes()}), "rocm")
    assert audit.tokens == {"rocm": ("hard",)}
    assert audit.level == "ok"


def test_hip_code_and_its_targets(tmp_path: Path) -> None:
    code = as_c_array(
        bundle("host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"), section=".hip_fatbin"
    )
    made = library(tmp_path, "x.so", code=code)
    audit = judged(wheel(tmp_path, "hip", {"hip/x.so": made.read_bytes()}))
    assert audit.tokens == {"rocm": ("device",)}
    assert audit.archs.gfx == ("gfx90a",)
    assert "gfx90a:xnack-" in audit.findings[0].evidence
    assert audit.level == "carry"


def device_object(machine: int, flags: int = 0) -> bytes:
    ident = b"\x7fELF" + bytes([2, 1, 1, 64, 4]) + bytes(7)
    return ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 0, flags, 64, 56, 0, 64, 0, 0)


def test_device_objects_as_members(tmp_path: Path) -> None:
    files = {
        "k/gfx942/matmul.co": device_object(224, 0x4C),
        "k/ascend910b/add.o": device_object(0x1029),
        "k/tool.ptx": b".version 8.0\n.target sm_90\n",
    }
    audit = judged(wheel(tmp_path, "kernels", files))
    assert audit.tokens == {"cuda": ("data",), "npu": ("data",), "rocm": ("data",)}
    assert (audit.archs.gfx, audit.archs.ascend_soc, audit.archs.cuda_sm) == (("gfx942",), ("ascend910b",), ())


def test_sources_compiled_on_first_use(tmp_path: Path) -> None:
    files = {"s/__init__.py": b"", "s/csrc/add.cu": b"__global__ void k() {}"}
    assert judged(wheel(tmp_path, "s", files)).tokens == {"cuda": ("src",)}
    # Beside a compiled extension, sources are templates and examples.
    compiled = {**files, "s/_x.so": library(tmp_path, "x.so", code=PY).read_bytes()}
    assert judged(wheel(tmp_path, "t", compiled)).tokens == {}


def test_python_loading_a_driver_library(tmp_path: Path) -> None:
    source = b'import ctypes\nlib = ctypes.CDLL("libnvidia-ml.so.1")\n'
    assert judged(wheel(tmp_path, "ml", {"ml.py": source})).level == "warn"
    # The +cpu build of a package shares its Python with the CUDA build: undecided, and not held against it.
    assert judged(wheel(tmp_path, "ml", {"ml.py": source}, version="1.0+cpu")).level == "ok"


@pytest.mark.parametrize(
    ("folder", "level"), [("p", "warn"), ("p/core", "warn"), ("p/tools", "ok"), ("p/tests/data", "ok")]
)
def test_scripts_and_tests_beside_the_package_are_not_held_against_it(tmp_path: Path, folder: str, level: str) -> None:
    source = b'import ctypes\nlib = ctypes.CDLL("libcuda.so.1")\n'
    assert judged(wheel(tmp_path, "p", {f"{folder}/tune.py": source})).level == level


def test_a_list_of_every_vendor_says_nothing(tmp_path: Path) -> None:
    source = b'import ctypes\nNAMES = ["libcudart.so.12", "libamdhip64.so.7"]\n'
    audit = judged(wheel(tmp_path, "lists", {"lists.py": source}))
    assert (audit.tokens, audit.level) == ({}, "ok")


def test_a_package_for_a_backend_must_contain_it(tmp_path: Path) -> None:
    placeholder = wheel(tmp_path, "libneuronxla", {"libneuronxla/__init__.py": b"raise ImportError"})
    audit = judged(placeholder, "neuron")
    assert [finding.rule for finding in audit.findings] == ["must-contain"]
    assert audit.level == "warn"
    assert judged(placeholder, "cpu").findings == ()


def test_torch_without_a_pin_is_reported_and_not_held_against_the_wheel(tmp_path: Path) -> None:
    made = wheel(tmp_path, "model", {"model.py": b""}, requires=["torch>=2"])
    assert (judged(made).tokens, judged(made).level) == ({"cuda": ("meta-torch",)}, "ok")
    pinned = wheel(tmp_path, "pinned", {"pinned.py": b""}, requires=["torch==2.13.0+cpu"])
    assert judged(pinned).tokens == {}


@pytest.mark.parametrize("needed", ["libgraph.so", "libruntime.so", "libhwloc.so.15", "libmedia.so"])
def test_names_that_unrelated_software_uses_need_company(tmp_path: Path, needed: str) -> None:
    made = library(tmp_path, "x.so", needs=[needed])
    assert judged(wheel(tmp_path, "shared", {"shared/x.so": made.read_bytes()})).tokens == {}


def test_neutral_interfaces_are_reported_and_never_foreign(tmp_path: Path) -> None:
    made = library(tmp_path, "x.so", needs=["libOpenCL.so.1", "libvulkan.so.1"])
    audit = judged(wheel(tmp_path, "graphics", {"graphics/x.so": made.read_bytes()}))
    assert audit.tokens == {"opencl": ("hard",), "vulkan": ("hard",)}
    assert audit.level == "ok"


def test_extras_for_developers_say_nothing(tmp_path: Path) -> None:
    requires = [
        'nvidia-sphinx-theme; extra == "docs"',
        'cupy-cuda12x; extra == "test"',
        'nvidia-nccl-cu12; extra == "gpu"',
    ]
    audit = judged(wheel(tmp_path, "extras", {"extras.py": b""}, requires=requires))
    assert audit.tokens == {"cuda": ("meta-extra",)}
    assert "nvidia-nccl-cu12" in audit.findings[0].evidence
    assert "sphinx" not in audit.findings[0].evidence
