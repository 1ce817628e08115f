"""bench/gpu.py as far as it goes without a device: its answer then, its keys, its programs, and its flow."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from builder.cache.keys import missing_factors
from builder.cache.kinds import engine_kind
from builder.node import node_class

BENCH = Path(__file__).parent.parent.parent / "bench"
NODE = replace(node_class("h100"), driver="570.86.15")
VERSIONS = {
    "inductor": {"torch": "2.9.0", "toolkit": "12.8", "triton": "3.5.0"},
    "triton-nvidia": {"triton": "3.5.0", "ptxas": "release 12.8, V12.8.93"},
    "tensorrt": {"tensorrt": "10.9.0.34"},
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("gpu", BENCH / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu", module)
    spec.loader.exec_module(module)
    return module


def test_without_a_device_nothing_is_measured_and_that_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "gpu.py"), "--python", sys.executable],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(BENCH.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert done.stderr.startswith("not run: no NVIDIA device")
    assert done.stdout == ""


def test_every_key_is_complete(gpu: ModuleType) -> None:
    assert {one.kind for one in gpu.ENGINES} == set(VERSIONS)
    for engine in gpu.ENGINES:
        ast.parse(engine.program)
        key = gpu.key_of(engine, VERSIONS[engine.kind], NODE)
        assert missing_factors(engine_kind(engine.kind), key) == ()


def runner(*, compiles_twice: bool) -> Any:
    """In the place of a process: compiles what is not there, as the programs do."""

    def start(engine: Any, folder: Path, home: Path) -> Mapping[str, Any]:
        folder.mkdir(parents=True, exist_ok=True)
        engine_file = folder / "engine.bin"
        there = engine_file.exists()
        if not there or compiles_twice:
            engine_file.write_bytes(str(home).encode())
        return {"first": 0.5 if there else 8.0, "import": 1.0, "versions": VERSIONS[engine.kind]}

    return start


def test_the_flow_keeps_finds_and_tells_apart(gpu: ModuleType, tmp_path: Path) -> None:
    rows = []
    for engine in gpu.ENGINES:
        row = gpu.measure(engine, runner(compiles_twice=False), NODE, tmp_path / engine.kind)
        assert row.faults == (), row.kind
        assert (row.verdict, row.capability) == ("hit", f"miss: {engine.capability}")
        assert row.driver == "usable: driver-branch"
        rows.append([row])
    body = gpu.text(rows, {"other": "no library in that Python"}, NODE)
    assert "| triton-nvidia | triton 3.5.0, ptxas release 12.8, V12.8.93 | 8.00 s | 0.50 s | 16.0 |" in body
    assert "| other | not run: no library in that Python |" in body


def test_a_second_process_that_compiles_is_a_fault(gpu: ModuleType, tmp_path: Path) -> None:
    row = gpu.measure(gpu.ENGINES[0], runner(compiles_twice=True), NODE, tmp_path)
    assert row.faults == ("the second process made 1 files",)
