"""The readers on what the engines themselves write on a CPU: PyTorch, JAX, OpenVINO, ONNX Runtime.

BUILDER_TEST_ENGINES names a Python that has them (torch for CPU, jax, openvino, onnxruntime, onnx); without it one
is made, for which pip must find torch==2.13.0+cpu (an index or folder in its configuration).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from builder.cache.formats import BrokenEngine, read_engine
from builder.cache.formats.torch import artifacts
from builder.cache.formats.values import Blob

pytestmark = [pytest.mark.big, pytest.mark.network]

PACKAGES = ("torch==2.13.0+cpu", "jax[cpu]", "openvino", "onnxruntime", "onnx", "numpy", "setuptools")

INDUCTOR = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
x = torch.ones(2, 8)
with torch.no_grad():
    torch.compile(model)(x)
open("mega.bin", "wb").write(torch.compiler.save_cache_artifacts()[0])
torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path="model.pt2")
"""

JAX = """
import jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", "jax")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.jit(lambda x: jnp.sin(x @ x).sum())(jnp.ones((16, 16))).block_until_ready()
"""

OPENVINO = """
import numpy, openvino
from openvino import opset13 as op
core = openvino.Core()
x = op.parameter([1, 8], numpy.float32)
model = openvino.Model([op.matmul(x, op.constant(numpy.ones((8, 8), numpy.float32)), False, False)], [x], "m")
core.set_property({"CACHE_DIR": "openvino"})
written = core.compile_model(model, "CPU").export_model()
open("exported.blob", "wb").write(written if isinstance(written, bytes) else written.getvalue())
"""

ORT = """
import numpy, onnx, onnxruntime
from onnx import TensorProto, helper
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32, 8, 8])
weights = helper.make_tensor("w", TensorProto.FLOAT, [32, 32, 3, 3], numpy.ones(32 * 32 * 9, numpy.float32))
conv = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
graph = helper.make_graph([conv, helper.make_node("Relu", ["y"], ["z"])], "g", [info("x")], [info("z")], [weights])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model.onnx")
for name, form in (("optimised.onnx", "ONNX"), ("optimised.ort", "ORT")):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = name
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.save_model_format", form)
    onnxruntime.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
"""


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> str:
    given = os.environ.get("BUILDER_TEST_ENGINES")
    if given:
        return given
    folder = tmp_path_factory.mktemp("engines")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def run(python: str, program: str, folder: Path) -> None:
    environment = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run([python, "-c", program], cwd=folder, env=environment, check=True, timeout=600)


def test_what_torch_compiles(engines: str, tmp_path: Path) -> None:
    run(engines, INDUCTOR, tmp_path)
    mega = read_engine(tmp_path / "mega.bin")
    assert mega.format == "torch-mega-cache"
    assert mega.properties["device-type"] == "cpu"
    assert mega.properties["artifacts"] == "aot_autograd:1 inductor:1"
    assert mega.notes == (
        "it holds pickles, which run code when loaded; they import from: builtins, collections, torch",
    )
    folder = read_engine(tmp_path / "inductor")
    assert folder.format == "inductor"
    assert folder.properties["device-type"] == "cpu"
    package = read_engine(tmp_path / "model.pt2")
    assert package.properties["platform"] == f"linux-{platform.machine()}"
    assert package.properties["device-type"] == "cpu"
    assert package.properties["cpu-isa"] == folder.properties["cpu-isa"]
    keys = {item.key for item in artifacts(Blob.of_file(tmp_path / "mega.bin")) if item.kind == "inductor"}
    assert keys == {path.name for path in (tmp_path / "inductor" / "fxgraph").glob("*/*")}
    data = bytearray((tmp_path / "mega.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "mega.bin").write_bytes(data)
    with pytest.raises(BrokenEngine, match="damaged"):
        read_engine(tmp_path / "mega.bin")


def test_what_jax_keeps(engines: str, tmp_path: Path) -> None:
    run(engines, JAX, tmp_path)
    headers = [read_engine(path) for path in sorted((tmp_path / "jax").glob("*-cache"))]
    assert {header.properties["module"] for header in headers} >= {"jit__lambda"}
    for header in headers:
        assert header.properties["triple"].startswith(platform.machine())
        assert header.properties["cpu"]
        assert "part of its key" in header.notes[0]
        assert "sse2" in header.properties["cpu-features"].split(",") or platform.machine() != "x86_64"


def test_what_openvino_compiles(engines: str, tmp_path: Path) -> None:
    run(engines, OPENVINO, tmp_path)
    [cached] = (tmp_path / "openvino").iterdir()
    header, exported = read_engine(cached), read_engine(tmp_path / "exported.blob")
    assert header.properties["openvino"].startswith(header.properties["openvino-release"])
    assert header.properties["cpu-isa"] == exported.properties["cpu-isa"]
    assert exported.properties["device"] == "CPU"


def test_what_onnx_runtime_optimises(engines: str, tmp_path: Path) -> None:
    run(engines, ORT, tmp_path)
    plain, optimised = read_engine(tmp_path / "model.onnx"), read_engine(tmp_path / "optimised.onnx")
    assert "layout" not in plain.properties
    assert "com.microsoft.nchwc:1" in optimised.properties["opsets"].split(",")
    if platform.machine() == "x86_64":
        assert optimised.properties["layout"] == "nchwc"
        assert "cpu-level" in optimised.unknown
    assert read_engine(tmp_path / "optimised.ort").properties["providers"] == "CPUExecutionProvider"
