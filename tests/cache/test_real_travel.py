"""A real engine made on one machine, pushed, pulled by another and used there: loaded, and nothing compiled.

The engines are those of tests.cache.formats.test_real_engines, on a CPU.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from builder import resources
from builder.cache import EngineCache, engine_key, engine_kind
from builder.cache.folders import load_folders
from builder.cache.pull import find, pull, suiting
from builder.cache.push import push
from builder.events import SilentReporter
from builder.names import Digest
from builder.node.values import NodeClass
from builder.registry.layout import Layout
from tests.cache.formats.test_real_engines import engines
from tests.cache.registry import image, sign_pair

pytestmark = [pytest.mark.big, pytest.mark.network]
__all__ = ["engines"]

QUIET = SilentReporter()
V4 = NodeClass(name="cpu-v4", backend="cpu", arch="x86_64", cpu_level="x86-64-v4")
V3 = replace(V4, name="cpu-v3", cpu_level="x86-64-v3")

JAX = """
import collections, sys
import jax, jax.numpy as jnp
seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event]))
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
jax.jit(lambda x: jnp.sin(x @ x).sum())(jnp.ones((16, 16))).block_until_ready()
print(seen["/jax/compilation_cache/cache_hits"], seen["/jax/compilation_cache/cache_misses"])
"""

OPENVINO = """
import sys
import numpy, openvino
from openvino import opset13 as op
core = openvino.Core()
x = op.parameter([1, 8], numpy.float32)
model = openvino.Model([op.matmul(x, op.constant(numpy.ones((8, 8), numpy.float32)), False, False)], [x], "m")
core.set_property({"CACHE_DIR": sys.argv[1]})
print(core.compile_model(model, "CPU").get_property("LOADED_FROM_CACHE"), 0)
"""

INDUCTOR = """
import os, sys
os.environ["TORCHINDUCTOR_CACHE_DIR"] = sys.argv[1]
import torch
from torch._dynamo.utils import counters
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Softmax(-1)).eval()
x = torch.ones(2, 8)
with torch.no_grad():
    assert torch.allclose(torch.compile(model)(x), model(x), atol=1e-5)
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""

ORT = """
import pathlib, sys
import numpy, onnx, onnxruntime
from onnx import TensorProto, helper
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32, 8, 8])
weights = helper.make_tensor("w", TensorProto.FLOAT, [32, 32, 3, 3], numpy.ones(32 * 32 * 9, numpy.float32))
conv = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
graph = helper.make_graph([conv, helper.make_node("Relu", ["y"], ["z"])], "g", [info("x")], [info("z")], [weights])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
optimised = pathlib.Path(sys.argv[1])
there = optimised.exists()
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
if there:
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
else:
    options.optimized_model_filepath = str(optimised)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
providers = ["CPUExecutionProvider"]
session = onnxruntime.InferenceSession(str(optimised) if there else model, options, providers=providers)
x = numpy.random.default_rng(0).random((1, 32, 8, 8), numpy.float32)
wanted = onnxruntime.InferenceSession(model, providers=providers).run(None, {"x": x})[0]
assert numpy.allclose(session.run(None, {"x": x})[0], wanted, atol=1e-4)
print(int(there), int(not there))
"""

INDUCTOR_ENV = load_folders(resources.checks_dir() / "engines.toml")["inductor"].env
KEYED = {name: value for name, value in INDUCTOR_ENV.items() if name in engine_kind("inductor").properties}

CASES = {
    "inductor": (INDUCTOR, {"torch": "2.13.0", **KEYED}),
    "onnxruntime-optimised": (
        ORT,
        {"onnxruntime": "1.32.0", "level": "all", "providers": "CPUExecutionProvider", "precision": "fp32"},
    ),
    "jax-xla": (JAX, {"jax": "0.10.2", "jaxlib": "0.10.2", "platform-version": "cpu", "topology": "cpu"}),
    "openvino": (OPENVINO, {"openvino": "2026.4.1", "device": "cpu"}),
}


def run(python: str, program: str, folder: Path, home: Path) -> list[str]:
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [python, "-c", program, folder],
        env={
            **INDUCTOR_ENV,
            "HOME": str(home),
            "TMPDIR": str(home),
            "USER": home.name,
            "PATH": "/usr/bin:/bin",
        },
        cwd=home,
        check=True,
        capture_output=True,
        text=True,
        timeout=900,
    )
    return done.stdout.split()


MEGA = """
import pathlib, sys
import torch
from torch._dynamo.utils import counters
file = pathlib.Path(sys.argv[1])
if file.exists():
    torch.compiler.load_cache_artifacts(file.read_bytes())
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
with torch.no_grad():
    torch.compile(model)(torch.ones(2, 8))
if not file.exists():
    file.write_bytes(torch.compiler.save_cache_artifacts()[0])
seen = counters["aot_autograd"]
print(seen["autograd_cache_hit"], seen["autograd_cache_miss"])
"""


def travelled(tmp_path: Path, kind: str, properties: dict[str, str], made: Path) -> Path:
    """Where another machine restores the engine: kept, pushed, found, pulled, looked up, restored."""
    key = engine_key(engine_kind(kind), model=Digest.of(b"model"), properties=properties, node=V4)
    ours, theirs = EngineCache(tmp_path / "ours"), EngineCache(tmp_path / "theirs")
    entry = ours.put(key, made)
    registry = Layout(tmp_path / "registry")
    app = image(registry)
    private, public = sign_pair(tmp_path / "keys")
    push(ours, [entry], registry, app, image_name="app", node=V4, key=private, reporter=QUIET)
    [best] = suiting(find(registry, app, node=V4, keys=[public]), key)
    pull(theirs, registry, best.told, reporter=QUIET)
    found = theirs.lookup(key)
    assert found.verdict == "hit"
    assert found.entry is not None
    return theirs.restore(found.entry, tmp_path / "elsewhere" / "cache")


@pytest.mark.parametrize("name", CASES)
def test_what_one_machine_compiled_another_loads(engines: str, tmp_path: Path, name: str) -> None:
    program, properties = CASES[name]
    made = tmp_path / "made"
    first = run(engines, program, made, tmp_path / "home-a")
    assert first[0] in ("0", "False")
    hits, misses = run(engines, program, travelled(tmp_path, name, properties, made), tmp_path / "home-b")
    assert hits not in ("0", "False")
    assert misses == "0"


def test_a_mega_cache_of_one_machine_is_loaded_by_another(engines: str, tmp_path: Path) -> None:
    made = tmp_path / "made.bin"
    assert run(engines, MEGA, made, tmp_path / "home-a") == ["0", "1"]
    place = travelled(tmp_path, "mega-cache", {"torch": "2.13.0"}, made)
    assert run(engines, MEGA, place, tmp_path / "home-b") == ["1", "0"]


@pytest.mark.parametrize("name", CASES)
def test_nothing_crosses_to_a_processor_of_a_lower_level(engines: str, tmp_path: Path, name: str) -> None:
    program, properties = CASES[name]
    made = tmp_path / "made"
    run(engines, program, made, tmp_path / "home")
    kind = engine_kind(name)
    cache = EngineCache(tmp_path / "cache")

    higher, lower = (engine_key(kind, model=Digest.of(b"model"), properties=properties, node=node) for node in (V4, V3))
    cache.put(higher, made)
    answer = cache.lookup(lower)
    assert answer.verdict == "miss"
    level = "cpu-level" if name == "onnxruntime-optimised" else "target"
    assert [one.name for one in answer.differs if one.blocks] == [level]
    assert cache.lookup(higher).verdict == "hit"


def test_a_mega_cache_does_not_cross_either(engines: str, tmp_path: Path) -> None:
    made = tmp_path / "made.bin"
    run(engines, MEGA, made, tmp_path / "home")
    kind = engine_kind("mega-cache")
    cache = EngineCache(tmp_path / "cache")
    model = Digest.of(b"model")
    higher, lower = (engine_key(kind, model=model, properties={"torch": "2.13.0"}, node=node) for node in (V4, V3))
    cache.put(higher, made)
    answer = cache.lookup(lower)
    assert (answer.verdict, answer.entry) == ("miss", None)
    assert [one.name for one in answer.differs if one.blocks] == ["target"]


@pytest.mark.parametrize("name", CASES)
def test_moving_home_user_and_place_keeps_the_hit(engines: str, tmp_path: Path, name: str) -> None:
    """FR-19, with the real program: another HOME, user, temporary folder and place, and nothing is compiled."""
    program, properties = CASES[name]
    made = tmp_path / "made"
    run(engines, program, made, tmp_path / "ada")
    key = engine_key(engine_kind(name), model=Digest.of(b"model"), properties=properties, node=V4)
    cache = EngineCache(tmp_path / "cache")
    place = cache.restore(cache.put(key, made), tmp_path / "another" / "place" / "made")
    hits, misses = run(engines, program, place, tmp_path / "grace")
    assert (hits in ("0", "False"), misses) == (False, "0")
