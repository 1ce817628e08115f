"""The first answer of a compiled model with an empty engine cache and with a warmed one: twelve Inductor blocks.

    python bench/warm.py --python VENV/bin/python [--rounds N] [--write]

VENV holds torch (2.13.0+cpu or another build for this machine), and a C++ compiler is on the PATH. Each round starts
three processes: one as torch is installed, with an empty folder; one with an empty folder and the environment that
`builder cache warm` sets (checks/engines.toml), whose folder is kept; and one whose folder was restored from this
tool's cache into another place, with another HOME, user and host name. Each has a temporary folder of its own, as each
container has. On a machine with a GPU the model goes there.
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import conditions, write_section

sys.path.insert(0, str(Path(__file__).parent.parent))

from builder import resources
from builder.cache import EngineCache, Entry, engine_key, engine_kind
from builder.cache.folders import load_folders
from builder.cache.told import confirmed_key
from builder.names import Digest
from builder.node import probe

PROGRAM = """
import json, os, time
begin = time.perf_counter()
import torch
from torch._dynamo.utils import counters

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.blocks = torch.nn.Sequential(*(Block(width) for _ in range(blocks)))

    def forward(self, x):
        return self.blocks(x).softmax(-1)


model = Model(256, 12).eval().to(device)
x = torch.randn(8, 256, device=device)
imported, worked = time.perf_counter(), sum(os.times()[:4])
with torch.no_grad():
    wanted = model(x)
    answer = torch.compile(model)(x)
first = time.perf_counter()
assert torch.allclose(answer, wanted, atol=1e-4), "the compiled answer is another"
print(json.dumps({
    "import": imported - begin,
    "first": first - imported,
    "work": sum(os.times()[:4]) - worked,
    "hits": counters["inductor"]["fxgraph_cache_hit"],
    "misses": counters["inductor"]["fxgraph_cache_miss"],
    "torch": torch.__version__,
    "device": device,
}))
"""


FOLDER = load_folders(resources.checks_dir() / "engines.toml")["inductor"]


def run(python: str, folder: Path, home: Path, host: str, *, env: Mapping[str, str]) -> dict[str, Any]:
    """One process; its own figures."""
    temporary = home / "temporary"
    temporary.mkdir(parents=True)
    done = subprocess.run(
        [python, "-c", PROGRAM],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "USER": home.name,
            "HOSTNAME": host,
            "TMPDIR": str(temporary),
            FOLDER.variable: str(folder),
            **env,
        },
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Three processes; times in seconds."""

    plain: dict[str, Any]
    """Without this tool."""
    cold: dict[str, Any]
    """The first pass of a warm-up."""
    warmed: dict[str, Any]
    put: float
    restored: float
    """Looking up and restoring."""
    verdict: str
    entry: Entry


def measure(python: str, root: Path) -> Round:
    """One round in an empty folder."""
    here, there = root / "here", root / "elsewhere" / "deep"
    plain = run(python, root / "plain" / "engines", root / "plain" / "eve", "nil", env={})
    cold = run(python, here / "engines", here / "ada", "one", env=FOLDER.env)
    cache = EngineCache(here / "cache")
    key = engine_key(
        engine_kind("inductor"),
        model=Digest.of(PROGRAM.encode()),
        properties={"torch": cold["torch"]},
        node=probe(cold["device"]),
        environment=FOLDER.env,
    )
    begin = time.perf_counter()
    entry = cache.put(confirmed_key(key, here / "engines"), here / "engines")
    put = time.perf_counter() - begin
    begin = time.perf_counter()
    verdict = cache.lookup(entry.key).verdict
    cache.restore(entry, there / "engines")
    restored = time.perf_counter() - begin
    warmed = run(python, there / "engines", there / "grace", "two", env=FOLDER.env)
    return Round(plain=plain, cold=cold, warmed=warmed, put=put, restored=restored, verdict=verdict, entry=entry)


def text(rounds: list[Round], load: float) -> str:
    """The section of docs/benchmarks.md."""
    last = rounds[-1]
    plain, cold, warmed = last.plain, last.cold, last.warmed

    def row(what: str, *parts: str) -> str:
        without, first, full = (
            statistics.median(sum(figures[part] for part in parts) for figures in side)
            for side in zip(*((one.plain, one.cold, one.warmed) for one in rounds), strict=True)
        )
        return f"| {what} | {without:.2f} s | {first:.2f} s | {full:.2f} s | {without / full:.1f} |"

    put, restored = (
        statistics.median(times) for times in zip(*((one.put, one.restored) for one in rounds), strict=True)
    )
    lines = [
        f"{conditions()}; torch {cold['torch']} on {cold['device']}; median of {len(rounds)} rounds; load {load:.1f}.",
        "",
        "| what | empty cache | first pass of a warm-up | warmed cache | times sooner |",
        "| --- | ---: | ---: | ---: | ---: |",
        row("first answer (target: 4 times sooner)", "first"),
        row("its processor time, with that of compilers", "work"),
        row("with the start of the program", "import", "first"),
        (
            f"| graphs found, compiled | {plain['hits']}, {plain['misses']} | {cold['hits']}, {cold['misses']} "
            f"| {warmed['hits']}, {warmed['misses']} | |"
        ),
        "",
        f"The engine: {last.entry.files} files, {last.entry.size / 1e6:.1f} MB, kept in {put:.2f} s.",
        f"Looked up ({last.verdict}) and restored in {restored:.2f} s.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="a Python that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="builder-bench-") as scratch:
        root = Path(scratch)
        run(options.python, root / "nothing", root / "first", "zero", env={})  # torch's own files into the page cache
        rounds = [measure(options.python, root / str(number)) for number in range(options.rounds)]
    body = text(rounds, load)
    print(body)
    if options.write:
        write_section("warm", body)


if __name__ == "__main__":
    main()
