"""The check programs themselves: what they conclude from what they see. Their real runs are in test_run.py."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from builder import resources

Matrix = list[list[float]]


def program(path: str) -> ModuleType:
    """A check program as a module."""
    file = resources.checks_dir() / path
    spec = importlib.util.spec_from_file_location(f"check_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_program(path: str, options: dict[str, Any], *before: str) -> dict[str, Any]:
    """A check program as an image runs it; its result line."""
    command = [sys.executable, "-B", resources.checks_dir() / "run.py", "name", path, json.dumps(options)]
    done = subprocess.run([*before, *map(str, command)], capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert set(found) == {"name", "verdict", "measures", "detail"}
    return found


# --- matmul


class Framework:
    """A framework that computes with Python's floats, and then does something to the product."""

    def __init__(self, spoil: Callable[[Matrix], Matrix]) -> None:
        self.spoil = spoil

    def matmul(self, left: Matrix, right: Matrix) -> tuple[Matrix, float]:
        columns = list(zip(*right, strict=True))
        product = [[float(sum(a * b for a, b in zip(row, col, strict=True))) for col in columns] for row in left]
        return self.spoil(product), 0.001


def changed(row: int, column: int, by: float) -> Callable[[Matrix], Matrix]:
    def spoil(product: Matrix) -> Matrix:
        if len(product) > row:
            product[row][column] += by
        return product

    return spoil


def test_a_right_product_passes() -> None:
    verdict, measures, detail = program("common/matmul.py").examine(Framework(lambda product: product), 64)
    assert (verdict, detail) == ("passed", "")
    assert measures == {"matmul_seconds": 0.001, "matmul_rows": 64}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (changed(0, 0, 1.0), "element (0, 0)"),
        (changed(32, 28, 0.001), "element (32, 28)"),
        (changed(63, 63, 1.0), "row 63 of the 64 x 64 product"),
        (lambda product: [list(column) for column in zip(*product, strict=True)], "shape 29 x 33"),
        (lambda product: [[0.0 for _ in row] for row in product], "element"),
        (lambda product: [[float("nan") for _ in row] for row in product], "element"),
        (lambda product: [[float(int(x / 8) * 8) for x in row] for row in product], "element"),
    ],
)
def test_a_wrong_product_fails_where_it_is_wrong(spoil: Callable[[Matrix], Matrix], words: str) -> None:
    verdict, _, detail = program("common/matmul.py").examine(Framework(spoil), 64)
    assert verdict == "failed"
    assert words in detail


def test_the_numbers_are_exact_in_short_floats() -> None:
    matmul = program("common/matmul.py")
    values = {value for row in matmul.matrix(64, 64, 3) for value in row}
    assert values == set(range(-4, 5)), "bfloat16 and TF32 hold these exactly"
    assert 4 * 4 * 512 < 2**24, "float32 holds every sum exactly"


# --- devices


@pytest.fixture
def nodes(tmp_path: Path) -> str:
    (tmp_path / "thing0").touch(mode=0o600)
    (tmp_path / "control").touch(mode=0o600)
    return str(tmp_path)


def test_no_device_is_not_run(nodes: str) -> None:
    options = {"backend": "odd", "nodes": [[f"{nodes}/thing*", f"{nodes}/absent"], [f"{nodes}/other"]]}
    found = run_program("common/device_nodes.py", options)
    assert found["verdict"] == "not-run"
    assert "no odd device" in found["detail"]


def test_a_device_with_its_library_passes(nodes: str) -> None:
    options = {
        "backend": "odd",
        "nodes": [["/absent"], [f"{nodes}/thing*", f"{nodes}/control"]],
        "libraries": ["libc.so.6"],
    }
    found = run_program("common/device_nodes.py", options)
    assert (found["verdict"], found["measures"]) == ("passed", {"device_nodes": 2})


def test_a_device_without_its_library_is_a_fault_of_the_launch(nodes: str) -> None:
    options = {"backend": "odd", "nodes": [[f"{nodes}/thing*"]], "libraries": ["libnone.so.9"]}
    found = run_program("common/device_nodes.py", options)
    assert found["verdict"] == "not-run"
    assert "libnone.so.9 is not in the container" in found["detail"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_fr_33_a_device_that_may_not_be_opened_is_no_fault_of_the_image(nodes: str, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    (tmp_path / "thing0").chmod(0o660)
    os.chown(tmp_path / "thing0", 0, 992)
    options = {"backend": "rocm", "nodes": [[f"{nodes}/thing*"]]}
    command = (
        "import os, sys; os.setgroups([44]); os.setgid(1000); os.setuid(1000); os.execv(sys.argv[1], sys.argv[1:])"
    )
    python = next((path for path in ("/usr/bin/python3", sys.executable) if Path(path).exists()), sys.executable)
    done = subprocess.run(
        [
            *(sys.executable, "-c", command, python, "-B", str(resources.checks_dir() / "run.py")),
            *("device", "common/device_nodes.py", json.dumps(options)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "not-run"
    assert found["detail"].endswith("has groups 44, 1000: start the container with --group-add 992")


# --- cpu and memory


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("", "x86-64-v1"),
        ("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx f16c", "x86-64-v2"),
        ("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave", "x86-64-v3"),
    ],
)
def test_the_cpu_level_is_the_one_all_of_whose_features_are_there(flags: str, level: str) -> None:
    cpu = program("common/cpu.py")
    _, found = cpu.read_cpuinfo(
        f"processor\t: 0\nmodel name\t: X\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t: avx512f\n"
    )
    assert cpu.cpu_level(found) == level


def test_memory_is_checked_or_told_to_be_too_small() -> None:
    assert run_program("common/memory.py", {"bytes": 1 << 20})["verdict"] == "passed"
    found = run_program("common/memory.py", {"bytes": 1 << 60})
    assert found["verdict"] == "not-run"


# --- the harness


def test_whatever_a_program_raises_is_its_answer(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("print('noise')\ndef check(options):\n    raise KeyError('lost')\n")
    found = run_program(os.path.relpath(tmp_path / "odd.py", resources.checks_dir()), {})
    assert found == {"name": "name", "verdict": "failed", "measures": {}, "detail": "KeyError: 'lost'"}


def test_programs_run_on_old_interpreters_too() -> None:
    """Images may have another Python than this one: nothing newer than 3.9 may be in the programs."""
    import ast

    for path in sorted(resources.checks_dir().rglob("*.py")):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
