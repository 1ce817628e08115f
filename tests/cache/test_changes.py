"""A changed driver, device target, precision, compiler or model makes exactly the right difference, kind by kind.

Driver and target are changed in the node class, so that what a class says reaches the key; the rest as properties.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.cache import EngineCache, EngineKind, Lookup, engine_key, engine_kind, kind_names
from builder.names import Digest
from builder.node.values import NodeClass
from tests.cache.samples import OTHER_MODEL, sample, stated

CUDA = NodeClass(
    name="cuda-node",
    backend="cuda",
    arch="x86_64",
    device="NVIDIA A10",
    device_arch="sm_86",
    device_memory_mib=24576,
    driver="570.86.15",
    cpu_level="x86-64-v3",
)
ROCM = replace(CUDA, name="rocm-node", backend="rocm", device="MI300X", device_arch="gfx942", driver="6.12.12")
NPU = replace(CUDA, name="npu-node", backend="npu", device="Ascend910B1", device_arch="Ascend910B1", driver="24.1.0")
NEURON = replace(CUDA, name="trn-node", backend="neuron", device="trn2.48xlarge", device_arch="trn2", driver="2.24.7")
CPU = NodeClass(name="cpu-node", backend="cpu", arch="x86_64", device="any", cpu_level="x86-64-v3")

NODES = {
    **dict.fromkeys(kind_names(), CUDA),
    **dict.fromkeys(("mxr", "triton-amd"), ROCM),
    **dict.fromkeys(("cann-op", "om", "torchair", "triton-ascend"), NPU),
    **dict.fromkeys(("onnxruntime-optimised", "openvino"), CPU),
    "neff": NEURON,
}
OTHER_DRIVER = {"cuda": "550.54.14", "rocm": "6.10.5", "npu": "23.0.3", "neuron": "2.21.37", "cpu": None}
OTHER_TARGET = {"cuda": "sm_89", "rocm": "gfx950", "npu": "Ascend310P3", "neuron": "trn1", "cpu": None}

# kind: what another driver makes; another target; the precision's property and what it makes; the compiler's; the model
TABLE = """
aotinductor            hit                  miss target              miss precision   miss torch        miss model
cann-op                usable driver        miss soc                 miss options     miss cann         miss model
flashinfer             usable driver-branch miss compute-capability  -                miss cuda         miss model
inductor               usable driver-branch miss target              miss precision   miss compiler     miss model
jax-xla                usable driver-branch miss target              miss precision   miss jaxlib       miss model
mega-cache             usable driver-branch miss target              miss precision   miss compiler     miss model
mxr                    usable driver        miss gfx                 miss precision   miss rocm         miss model
neff                   usable driver        miss target              miss flags       miss neuronx-cc   miss model
om                     usable driver        miss soc                 miss precision   miss cann         miss model
onnxruntime-optimised  hit                  miss cpu-level           miss precision   miss onnxruntime  miss model
onnxruntime-trt        usable driver-branch miss compute-capability  miss precision   miss tensorrt     miss model
openvino               hit                  miss target              miss precision   miss openvino     miss model
tensorrt               usable driver-branch miss compute-capability  miss precision   miss tensorrt     miss model
tensorrt-rtx           miss driver          miss compute-capability  miss precision   miss tensorrt-rtx miss model
torch-tensorrt         usable driver-branch miss compute-capability  miss precision   miss tensorrt     miss model
torchair               usable driver        miss soc                 miss precision   miss cann         miss model
triton-amd             usable driver        miss gfx                 -                miss rocm         miss model
triton-ascend          usable driver        miss soc                 -                miss bisheng      miss model
triton-nvidia          usable driver-branch miss compute-capability  -                miss ptxas        miss model
vllm                   usable driver-branch miss target              miss config      miss triton       miss model
"""
"""Without a precision: Triton and FlashInfer compile a kernel for each type it is called with, side by side. No driver:
AOTInductor, ONNX Runtime and OpenVINO on a CPU have none. TensorRT for RTX asks for the engine's driver or a newer one.
"""

CHANGES = ("driver", "target", "precision", "compiler", "model")


def rows() -> dict[str, list[tuple[str, str]]]:
    """Kind to verdict and property of each change."""
    found = {}
    for line in TABLE.strip().splitlines():
        kind, *words = line.split()
        pairs = iter(words)
        found[kind] = [(word, "" if word in ("-", "hit") else next(pairs)) for word in pairs]
    return found


ROWS = rows()


def properties(kind: EngineKind) -> dict[str, str]:
    """What a build states; the device is for the node class to say, where it can."""
    told = {name for name, one in kind.properties.items() if one.group == "device" and one.node is not None}
    return {name: value for name, value in stated(kind).items() if name not in told and name != "model"}


def asked(kind: EngineKind, change: str, name: str, cache: EngineCache, engine: Path) -> Lookup:
    node = NODES[kind.name]
    told = properties(kind)
    model = Digest.parse(stated(kind)["model"])
    cache.put(engine_key(kind, model=model, properties=told, node=node), engine)
    if change == "driver":
        node = replace(node, driver=OTHER_DRIVER[node.backend])
    elif change == "target":
        node = replace(node, device_arch=OTHER_TARGET[node.backend])
        if node.backend == "cpu":
            node = replace(node, cpu_level="x86-64-v2")
    elif change == "model":
        model = OTHER_MODEL
    else:
        told[name] = sample(kind, name)[1]
    return cache.lookup(engine_key(kind, model=model, properties=told, node=node))


def test_every_kind_has_its_row() -> None:
    assert tuple(ROWS) == kind_names()
    assert all(len(row) == len(CHANGES) for row in ROWS.values())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ROWS)
def test_exactly_the_right_difference(name: str, change: str, cache: EngineCache, plan: Path) -> None:
    verdict, changed = ROWS[name][CHANGES.index(change)]
    kind = engine_kind(name)
    if verdict == "-":
        assert "precision" not in kind.properties
        return
    answer = asked(kind, change, changed, cache, plan)
    assert answer.verdict == verdict
    if change == "model":
        assert answer.entry is None
        assert answer.nearest == (), "an engine of another model is not near"
        return
    assert [one.name for one in answer.differs] == ([changed] if changed else [])
    for one in answer.differs:
        assert one.wanted != one.found
        assert one.why
        assert one.source
        assert bool(one.cost) == (verdict == "usable")
