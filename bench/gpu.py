"""Engines of an NVIDIA device through the cache: Inductor, Triton and TensorRT, cold, kept, restored elsewhere, found.

    python bench/gpu.py --python VENV/bin/python [--rounds N] [--write]

VENV holds torch for CUDA, its triton, and tensorrt where that is to be measured. Each engine is compiled by a process
with an empty folder, kept, looked up, restored into another folder and used there by another process with another HOME
and temporary folder: that one must compile nothing, and its answer must be right. Then the same engine is asked for by
a node class with another compute capability, which must be a miss that names it, and by one with another driver branch,
which must be usable at a cost. `--write` puts the figures into docs/benchmarks.md. Exit 1 when something of this does
not hold, 4 where no NVIDIA device is found: nothing is measured then.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from report import conditions, write_section

sys.path.insert(0, str(Path(__file__).parent.parent))

from builder import resources
from builder.cache import EngineCache, EngineKey, engine_key, engine_kind
from builder.cache.folders import load_folders
from builder.cache.told import confirmed_key
from builder.errors import BuilderError
from builder.names import Digest
from builder.node import NodeClass, probe

_START = """
import json, os, pathlib, sys, time
begin = time.perf_counter()
import torch
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False
width = 256
x = torch.randn(8, width, device="cuda")
"""

_END = """
torch.cuda.synchronize()
done = time.perf_counter()
assert torch.allclose(answer, wanted, atol=1e-2, rtol=1e-2), "the compiled answer is another"
print(json.dumps({"import": imported - begin, "first": done - imported, "versions": versions}))
"""

_INDUCTOR = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


import triton
model = torch.nn.Sequential(*(Block() for _ in range(12))).eval().cuda()
with torch.no_grad():
    wanted = model(x)
torch.cuda.synchronize()
versions = {"torch": torch.__version__, "toolkit": torch.version.cuda, "triton": triton.__version__}
imported = time.perf_counter()
with torch.no_grad():
    answer = torch.compile(model)(x)
"""

_TRITON = """
import subprocess
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import get_ptxas


@triton.jit
def softmax(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(source + row * columns + at, mask=inside, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(target + row * columns + at, value / tl.sum(value, axis=0), mask=inside)


wanted = x.softmax(-1)
answer = torch.empty_like(x)
torch.cuda.synchronize()
try:
    assembler = get_ptxas()
except TypeError:  # older Tritons ask for the capability
    assembler = get_ptxas(torch.cuda.get_device_capability()[0] * 10)
program = getattr(assembler, "path", None) or assembler[0]
told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
line = [line for line in told.splitlines() if "release" in line][-1]
versions = {"triton": triton.__version__, "ptxas": line.partition("release ")[1] + line.partition("release ")[2]}
imported = time.perf_counter()
softmax[(x.shape[0],)](x, answer, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_TENSORRT = """
import numpy
import tensorrt

path = pathlib.Path(os.environ["ENGINE_FOLDER"], "model.plan")
logger = tensorrt.Logger(tensorrt.Logger.ERROR)
weights = [numpy.random.default_rng(n).standard_normal((width, width), numpy.float32) / 16 for n in range(12)]
wanted = x
for one in weights:
    wanted = torch.relu(wanted @ torch.from_numpy(one).cuda())
torch.cuda.synchronize()
versions = {"tensorrt": tensorrt.__version__}
imported = time.perf_counter()
if not path.exists():
    builder = tensorrt.Builder(logger)
    # batches are explicit: a flag of version 8, the only way since version 10
    flag = getattr(tensorrt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    old = int(tensorrt.__version__.split(".")[0]) < 10
    network = builder.create_network(1 << int(flag) if old and flag is not None else 0)
    tensor = network.add_input("x", tensorrt.float32, (8, width))
    none = tensorrt.MatrixOperation.NONE
    for one in weights:
        constant = network.add_constant((width, width), tensorrt.Weights(one)).get_output(0)
        product = network.add_matrix_multiply(tensor, none, constant, none).get_output(0)
        tensor = network.add_activation(product, tensorrt.ActivationType.RELU).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, 1 << 28)
    config.clear_flag(tensorrt.BuilderFlag.TF32)
    path.write_bytes(bytes(builder.build_serialized_network(network, config)))
engine = tensorrt.Runtime(logger).deserialize_cuda_engine(path.read_bytes())
context = engine.create_execution_context()
answer = torch.empty_like(x)
context.set_tensor_address("x", x.data_ptr())
context.set_tensor_address("y", answer.data_ptr())
assert context.execute_async_v3(torch.cuda.current_stream().cuda_stream), "the engine did not run"
"""

FOLDERS = load_folders(resources.checks_dir() / "engines.toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """One engine to measure."""

    kind: str
    library: str
    """What must be installed."""
    program: str
    variable: str
    env: Mapping[str, str]
    options: Mapping[str, str]
    """Options of the build, as properties of the kind."""
    capability: str
    """The property that another compute capability changes."""


ENGINES = (
    Engine(
        kind="inductor",
        library="triton",
        program=_START + _INDUCTOR + _END,
        variable=FOLDERS["inductor"].variable,
        env=FOLDERS["inductor"].env,
        options={},
        capability="target",
    ),
    Engine(
        kind="triton-nvidia",
        library="triton",
        program=_START + _TRITON + _END,
        variable=FOLDERS["triton-nvidia"].variable,
        env=FOLDERS["triton-nvidia"].env,
        options={},
        capability="compute-capability",
    ),
    Engine(
        kind="tensorrt",
        library="tensorrt",
        program=_START + _TENSORRT + _END,
        variable="ENGINE_FOLDER",
        env={},
        options={"precision": "fp32", "shapes": "8x256"},
        capability="compute-capability",
    ),
)

Run = Callable[[Engine, Path, Path], Mapping[str, Any]]
"""Runs an engine's program with a folder and a HOME of its own; gives its figures."""


def run(python: str) -> Run:
    """Processes of this Python."""

    def one(engine: Engine, folder: Path, home: Path) -> Mapping[str, Any]:
        folder.mkdir(parents=True, exist_ok=True)
        (home / "temporary").mkdir(parents=True)
        # not with -c: Triton reads the source of its kernels from their file
        program = home / "program.py"
        program.write_text(engine.program, encoding="utf-8")
        environ = {
            name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME")
        }
        environ |= {"HOME": str(home), "TMPDIR": str(home / "temporary"), "USER": home.name, **engine.env}
        environ[engine.variable] = str(folder)
        done = subprocess.run(
            [python, str(program)], env=environ, cwd=home, capture_output=True, text=True, check=False, timeout=1800
        )
        if done.returncode:
            raise SystemExit(f"{engine.kind}: {done.stderr}")
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return figures

    return one


def key_of(engine: Engine, versions: Mapping[str, str], node: NodeClass) -> EngineKey:
    """The key of an engine on a node."""
    return engine_key(
        engine_kind(engine.kind),
        model=Digest.of(engine.program.encode()),
        properties={**versions, **engine.options},
        node=node,
        environment=engine.env,
    )


def other_capability(node: NodeClass) -> NodeClass:
    """The same node with another compute capability."""
    return replace(node, device_arch="sm_90" if node.device_arch == "sm_89" else "sm_89")


def other_driver(node: NodeClass) -> NodeClass:
    """The same node with a driver of another branch."""
    branch = int((node.driver or "550").split(".")[0])
    return replace(node, driver=f"{branch + 5}.10")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What came of one engine; times in seconds."""

    kind: str
    versions: Mapping[str, str]
    cold: float
    warmed: float
    restored: float
    """Looking up and restoring."""
    size: int
    compiled: int
    """Files that the second process made or changed."""
    verdict: str
    capability: str
    """What was said of another capability."""
    driver: str
    """What was said of another driver branch."""
    faults: tuple[str, ...]


def measure(engine: Engine, start: Run, node: NodeClass, root: Path) -> Row:
    """One engine in an empty folder."""
    first = start(engine, root / "here" / "engines", root / "here" / "ada")
    cache = EngineCache(root / "cache")
    key = confirmed_key(key_of(engine, first["versions"], node), root / "here" / "engines")
    entry = cache.put(key, root / "here" / "engines")
    begin = time.perf_counter()
    hit = cache.lookup(key_of(engine, first["versions"], node))
    place = cache.restore(entry, root / "elsewhere" / "deep" / "engines")
    restored = time.perf_counter() - begin
    before = _files(place)
    second = start(engine, place, root / "elsewhere" / "grace")
    compiled = sum(before.get(name) != digest for name, digest in _files(place).items())
    capability = cache.lookup(key_of(engine, first["versions"], other_capability(node)))
    driver = cache.lookup(key_of(engine, first["versions"], other_driver(node)))
    told = [one.name for one in capability.differs if one.blocks]
    faults = [
        fault
        for fault, holds in (
            (f"the lookup was {hit.verdict}, not a hit", hit.verdict == "hit"),
            (f"the second process made {compiled} files", compiled == 0),
            (
                f"another capability was {capability.verdict}, by {', '.join(told)}",
                capability.verdict == "miss" and told == [engine.capability],
            ),
            (
                f"another driver branch was {driver.verdict}",
                driver.verdict == "usable" and [one.name for one in driver.differs] == ["driver-branch"],
            ),
        )
        if not holds
    ]
    return Row(
        kind=engine.kind,
        versions=first["versions"],
        cold=first["first"],
        warmed=second["first"],
        restored=restored,
        size=entry.size,
        compiled=compiled,
        verdict=hit.verdict,
        capability=f"{capability.verdict}: {', '.join(told)}",
        driver=f"{driver.verdict}: {', '.join(one.name for one in driver.differs)}",
        faults=tuple(faults),
    )


def _files(folder: Path) -> dict[str, Digest]:
    """Every file that is no lock."""
    return {
        str(path.relative_to(folder)): Digest.of_file(path)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".lock", ".pid") and "__pycache__" not in path.parts
    }


def text(rounds: list[list[Row]], absent: Mapping[str, str], node: NodeClass) -> str:
    """The section of docs/benchmarks.md."""
    lines = [
        (
            f"{conditions()}; {node.device}, {node.device_arch}, driver {node.driver}; "
            f"median of {max(map(len, rounds), default=0)} rounds; load {os.getloadavg()[0]:.1f}."
        ),
        "",
        (
            "| engine | versions | empty folder | restored | times sooner | looked up and restored | MB "
            "| compiled again | another capability | another driver branch |"
        ),
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for rows in rounds:
        last = rows[-1]
        cold, warmed, restored = (
            statistics.median(times)
            for times in zip(*((one.cold, one.warmed, one.restored) for one in rows), strict=True)
        )
        versions = ", ".join(f"{name} {value}" for name, value in last.versions.items())
        lines.append(
            f"| {last.kind} | {versions} | {cold:.2f} s | {warmed:.2f} s | {cold / warmed:.1f} | {restored:.2f} s "
            f"| {last.size / 1e6:.1f} | {max(one.compiled for one in rows)} | {last.capability} | {last.driver} |"
        )
    lines += [f"| {kind} | not run: {why} | | | | | | | | |" for kind, why in absent.items()]
    return "\n".join(lines)


def device() -> NodeClass | None:
    """This machine's device; None with a word on stderr when there is none."""
    try:
        return probe("cuda")
    except BuilderError as error:
        print(f"not run: no NVIDIA device ({error.what})", file=sys.stderr)
        return None


def has(python: str, library: str) -> bool:
    """Whether a Python finds a library."""
    question = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    return subprocess.run([python, "-c", question], check=False).returncode == 0


def main() -> int:
    """Measure, print, and write when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python that has torch for CUDA")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    node = device()
    if node is None:
        return 4
    absent = {one.kind: f"no {one.library} in that Python" for one in ENGINES if not has(options.python, one.library)}
    with tempfile.TemporaryDirectory(prefix="builder-bench-") as scratch:
        rounds = [
            [
                measure(engine, run(options.python), node, Path(scratch) / engine.kind / str(number))
                for number in range(options.rounds)
            ]
            for engine in ENGINES
            if engine.kind not in absent
        ]
    body = text(rounds, absent, node)
    print(body)
    if options.write:
        write_section("gpu", body)
    faults = [f"{row.kind}: {fault}" for rows in rounds for row in rows for fault in row.faults]
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults or not rounds else 0


if __name__ == "__main__":
    sys.exit(main())
