"""Processes that die at any moment lose nothing that was committed and tear nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import runpy, sys
sys.path.append(sys.argv.pop(1))  # at the end: the checkout must not hide the package under test
runpy.run_module("tests.cache.stress", run_name="__main__")
"""


def stress(folder: Path, *, workers: int, operations: int, seconds: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, ROOT, folder, str(workers), str(operations), str(seconds)],
        capture_output=True,
        text=True,
        timeout=seconds + 120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def judge(result: dict[str, Any], *, workers: int, operations: int) -> None:
    assert result["torn"] == []
    assert result["lost"] == []
    assert result["wrong"] == []
    assert result["damage"] == []
    assert result["stuck"] == [], "a deadlock, or a machine too slow for the time limit"
    assert result["failed"] == []
    assert result["left"] == []
    assert result["operations"] == workers * operations
    assert result["kills"] >= workers
    assert result["checked"] > 0


def test_killed_at_random(tmp_path: Path) -> None:
    judge(stress(tmp_path, workers=4, operations=60, seconds=120), workers=4, operations=60)


@pytest.mark.big
def test_sixteen_processes_of_a_thousand_operations(tmp_path: Path) -> None:
    judge(stress(tmp_path, workers=16, operations=1000, seconds=1800), workers=16, operations=1000)
