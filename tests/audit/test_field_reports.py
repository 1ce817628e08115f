"""Field reports about wheels, as `builder audit` answers them: verdict, exit code, and what the answer must name."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from builder.lock.files import write_lock
from tests import schemas
from tests.audit.inside import Inside
from tests.audit.make import library, wheel
from tests.audit.test_lock_audit import lock_of

PY = "int PyInit_x(void) { return 0; }\n"


def refused(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The document of an audit that blocks."""
    assert result.returncode == 1
    document = schemas.document(result, "audit")
    assert document["verdict"] == "block"
    return document


def test_fr_03_a_neutral_name_over_a_cuda_extension(builder: Inside, tmp_path: Path) -> None:
    needs = ["libc10.so", "libtorch.so", "libcudart.so.12", "libcuda.so.1", "libc.so.6"]
    made = library(tmp_path, "common_ops.abi3.so", code=PY, needs=needs[:-1])
    path = wheel(
        tmp_path,
        "sgl-kernel",
        {"sgl_kernel/common_ops.abi3.so": made.read_bytes()},
        version="0.0.4.post2",
        tag="cp39-abi3-manylinux2014_x86_64",
    )
    document = refused(builder("audit", path, "--backend", "rocm", "--json"))
    (target,) = document["targets"]
    assert (target["file"], target["tokens"]) == (path.name, {"cuda": ["hard"]})
    (finding,) = (item for item in target["findings"] if item["severity"] == "error")
    assert (finding["backend"], finding["path"]) == ("cuda", "sgl_kernel/common_ops.abi3.so")
    assert "libcudart.so.12, libcuda.so.1" in finding["evidence"]
    assert "build it from source for rocm" in finding["fix"]
    text = builder("audit", path, "--backend", "rocm").stdout
    assert all(word in text for word in (path.name, "sgl_kernel/common_ops.abi3.so", "libcuda.so.1", "from source"))
    assert builder("audit", path, "--backend", "cuda").returncode == 0


def test_fr_04_two_distributions_own_the_same_paths(builder: Inside, tmp_path: Path) -> None:
    shared = ("triton/__init__.py", "triton/backends/compiler.py")
    files = {
        "vllm": wheel(tmp_path, "vllm", {"vllm/__init__.py": b""}),
        "xgrammar": wheel(tmp_path, "xgrammar", {"xgrammar/__init__.py": b""}),
        "triton": wheel(tmp_path, "triton", dict.fromkeys(shared, b"main"), version="3.3.0"),
        "triton-ascend": wheel(tmp_path, "triton-ascend", dict.fromkeys(shared, b"ascend"), version="3.2.1"),
    }
    requires = {"vllm": ("xgrammar",), "xgrammar": ("triton",)}
    lock = write_lock(lock_of(files, requires, ("vllm", "triton-ascend==3.2.1"), "npu"), tmp_path)
    (finding,) = refused(builder("audit", lock, "--backend", "npu", "--json"))["findings"]
    assert finding["rule"] == "two-owners-of-one-path"
    assert all(path in finding["evidence"] for path in shared)
    assert finding["chain"] == ["vllm", "xgrammar", "triton"]
    assert "let triton-ascend stand in for triton" in finding["fix"]
    text = builder("audit", lock).stdout
    assert all(word in text for word in (*shared, "vllm > xgrammar > triton", "overrides"))


def test_fr_25_a_wheel_for_a_newer_glibc_than_the_image_has(builder: Inside, tmp_path: Path) -> None:
    path = wheel(
        tmp_path,
        "llmd-fs-connector",
        {"llmd_fs_connector/__init__.py": b""},
        version="0.19",
        tag="cp312-cp312-manylinux_2_35_x86_64",
    )
    locked = replace(lock_of({"llmd-fs-connector": path}, {}, ("llmd-fs-connector",), "cuda"), python="3.12")
    old = write_lock(replace(locked, glibc="2.34"), tmp_path)
    (target,) = refused(builder("audit", old, "--json"))["targets"]
    (finding,) = (item for item in target["findings"] if item["severity"] == "error")
    assert finding["rule"] == "newer-glibc-than-the-image"
    assert all(word in finding["evidence"] for word in ("glibc 2.34", "manylinux_2_35_x86_64", "manylinux_2_34"))
    assert "rebuild llmd-fs-connector for manylinux_2_28" in finding["fix"]
    new = write_lock(replace(locked, glibc="2.35"), tmp_path)
    (target,) = schemas.document(builder("audit", new, "--json"), "audit")["targets"]
    assert not any(item["rule"] == "newer-glibc-than-the-image" for item in target["findings"])
    asked = ("audit", "llmd-fs-connector==0.19", "--backend", "cuda", "--python", "3.12", "--json")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    assert builder(*asked, "--glibc", "2.35", env=env).returncode in (0, 1)
    assert "glibc 2.34" in schemas.error(builder(*asked, "--glibc", "2.34", env=env), 2)["what"]


def test_fr_26_two_majors_of_cudnn_that_no_metadata_shows(builder: Inside, tmp_path: Path) -> None:
    code = (
        "void *dlopen(const char *, int);\nint PyInit_x(void) { return 0; }\n"
        'void *one(void) { return dlopen("libcudnn_ops_infer.so.8", 1); }\n'
        'void *two(void) { return dlopen("libcudnn_cnn_infer.so.8", 1); }\n'
    )
    opens = library(tmp_path, "translator.so", code=code).read_bytes()
    own = library(tmp_path, "libcudnn.so.9", soname="libcudnn.so.9").read_bytes()
    torch = ["nvidia-cudnn-cu12==9.1.0.70"]
    files = {
        "torch": wheel(tmp_path, "torch", {"torch/__init__.py": b""}, version="2.5.1", requires=torch),
        "ctranslate2": wheel(tmp_path, "ctranslate2", {"ctranslate2/translator.so": opens}, version="4.4.0"),
        "nvidia-cudnn-cu12": wheel(
            tmp_path, "nvidia-cudnn-cu12", {"nvidia/cudnn/lib/libcudnn.so.9": own}, version="9.1.0.70"
        ),
    }
    lock = lock_of(files, {"torch": ("nvidia-cudnn-cu12",)}, ("torch==2.5.1", "ctranslate2==4.4.0"), "cuda")
    document = refused(builder("audit", write_lock(lock, tmp_path), "--json"))
    (finding,) = (item for item in document["findings"] if item["rule"] == "other-major-of-library")
    assert finding["path"] == "ctranslate2/translator.so"
    assert "ctranslate2 asks for libcudnn" in finding["evidence"]
    assert "major version 9 in nvidia-cudnn-cu12" in finding["evidence"]
    assert "use a build of ctranslate2 for the version that is there" in finding["fix"]
