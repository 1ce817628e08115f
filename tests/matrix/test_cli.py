"""`builder matrix …` as a process: documents under their schemas, exit codes, readable text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder import resources
from builder.node.classes import class_file_text
from tests.conftest import RunBuilder
from tests.matrix.test_field_reports import RADEON_780M
from tests.schemas import document, error


def test_check_passes(run_builder: RunBuilder) -> None:
    result = run_builder("matrix", "check", "--json")
    assert result.returncode == 0, result.stdout
    assert document(result, "matrix-check")["problems"] == []


def test_check_names_file_row_and_mend(run_builder: RunBuilder, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    shutil.copytree(resources.matrices_dir(), root)
    path = root / "cuda" / "driver-family.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('family = "12"', 'famliy = "12"'), encoding="utf-8")
    classes = root / "nodeclasses" / "cuda.toml"
    text = classes.read_text(encoding="utf-8").replace('backend = "cuda"', 'backend = "cudda"', 1)
    classes.write_text(text, encoding="utf-8")
    result = run_builder("matrix", "check", "--json", "--tables", root)
    assert result.returncode == 1
    found = document(result, "matrix-check")
    assert found["verdict"] == "failed"
    wrong = [problem for problem in found["problems"] if problem["file"] == str(path)]
    assert any(problem["fix"] == "did you mean 'family'?" and problem["line"] for problem in wrong)
    assert any("unknown backend 'cudda'" in problem["what"] for problem in found["problems"])


def test_list_has_every_table_with_its_sources(run_builder: RunBuilder) -> None:
    found = document(run_builder("matrix", "list", "--json"), "matrix-list")
    assert {row["backend"] for row in found["rows"]} >= {*resources.backends(), "hpu", "musa"}
    assert all(row["rows"] and row["sources"] for row in found["rows"])


def test_show_has_every_row_with_its_source(run_builder: RunBuilder) -> None:
    found = document(run_builder("matrix", "show", "--backend", "npu", "--json"), "matrix-show")
    row = next(row for row in found["rows"] if row["cells"].get("set") == "torch-npu-2.13.0")
    assert row["cells"]["packages"] == {"torch-npu": "2.13.0", "torch": "2.13.0"}
    assert "toolkit" not in row["cells"]
    assert row["confidence"] == "measured"
    text = run_builder("matrix", "show", "--backend", "cuda", "--table", "driver-family").stdout
    assert "525.60.13" in text
    assert "[1] NVIDIA CUDA Compatibility" in text
    assert max(map(len, text.splitlines()[:5])) < 320


def test_show_of_an_unknown_table_has_a_hint(run_builder: RunBuilder) -> None:
    found = error(run_builder("matrix", "show", "--backend", "cuda", "--table", "driver-flor", "--json"), 2)
    assert "did you mean 'driver-floor'" in found["fix"]


@pytest.mark.parametrize(
    ("settings", "code", "verdict"),
    [
        (("toolkit=13.0", "driver=580.65.06"), 0, "supported"),
        (("toolkit=13.0", "driver=575.57.08"), 1, "unsupported"),
        (("toolkit=99.0", "driver=580.65.06"), 4, "unknown"),
        (("torch==2.13.0", "python=3.11", "arch=sm_90", "arch=x86_64"), 2, "error"),
    ],
)
def test_explain_answers_by_exit_code(
    run_builder: RunBuilder, settings: tuple[str, ...], code: int, verdict: str
) -> None:
    arguments = [word for setting in settings for word in ("--set", setting)]
    result = run_builder("matrix", "explain", "--backend", "cuda", *arguments, "--json")
    assert result.returncode == code, result.stdout
    found = document(result, "error" if code == 2 else "matrix-explain")
    assert found["verdict"] == verdict


def test_explain_with_a_node_class(run_builder: RunBuilder) -> None:
    arguments = ("--set", "torch=2.6.0+cu124", "--node-class", "rtx5090", "--json")
    found = document(run_builder("matrix", "explain", "--backend", "cuda", *arguments), "matrix-explain")
    assert found["verdict"] == "unsupported"
    assert "framework-target" in {rule["rule"] for rule in found["rules"]}


def test_fr_09_the_override_of_a_class_is_a_warning_and_anybody_elses_a_refusal(
    run_builder: RunBuilder, tmp_path: Path
) -> None:
    path = tmp_path / "radeon-780m.toml"
    path.write_text(class_file_text(RADEON_780M, checked="2026-11-30"), encoding="utf-8")
    asked = ("matrix", "explain", "--backend", "rocm", "--set", "torch=2.9.1+rocm6.4", "--json")
    result = run_builder(*asked, "--node-class", str(path))
    rules = {rule["rule"]: rule for rule in document(result, "matrix-explain")["rules"]}
    assert (result.returncode, rules["hsa-override"]["verdict"]) == (4, "unknown")
    assert rules["hsa-override"]["why"].startswith("warning: node class radeon-780m runs code for gfx1100")
    assert rules["framework-target"]["verdict"] == "supported"
    other = ("--set", "HSA_OVERRIDE_GFX_VERSION=11.0.1")
    assert run_builder(*asked, "--node-class", str(path), *other).returncode == 1
    assert run_builder(*asked, "--set", "arch=gfx1103", "--set", "HSA_OVERRIDE_GFX_VERSION=11.0.0").returncode == 1


def test_explain_reads_well(run_builder: RunBuilder) -> None:
    result = run_builder("matrix", "explain", "--backend", "cuda", "--set", "toolkit=13.0", "--set", "driver=575.57.08")
    lines = result.stdout.splitlines()
    assert lines[0] == "unsupported"
    assert "  unsupported  driver-floor: CUDA 13.0 needs driver >= 580.65.06" in lines[1]
    assert lines[3] == "      fix:    driver >= 580.65.06, or a toolkit 12.x"


@pytest.mark.parametrize("text", ["toolkit", "=12", ""])
def test_a_setting_of_another_form_is_exit_2(run_builder: RunBuilder, text: str) -> None:
    found = error(run_builder("matrix", "explain", "--backend", "cuda", "--set", text, "--json"), 2)
    assert "not of the form KEY=VALUE" in found["why"]


def test_solve(run_builder: RunBuilder) -> None:
    arguments = ("--backend", "npu", "--want", "torch-npu==2.13.0", "--python", "3.11", "--json")
    unknown = run_builder("matrix", "solve", *arguments)
    assert unknown.returncode == 4
    assert document(unknown, "matrix-solve")["verdict"] == "unknown"
    named = run_builder("matrix", "solve", *arguments, "--toolkit", "9.1.0")
    assert named.returncode == 0
    (stack,) = document(named, "matrix-solve")["stacks"]
    assert stack["constraints"] == ["torch-npu==2.13.0", "torch==2.13.0+cpu"]
    none = run_builder("matrix", "solve", "--backend", "cuda", "--want", "torch>=99", "--json")
    assert none.returncode == 1
    assert document(none, "matrix-solve")["stacks"] == []


def test_solve_in_words(run_builder: RunBuilder) -> None:
    result = run_builder("matrix", "solve", "--backend", "cpu", "--want", "torch==2.13.0", "--python", "3.11")
    assert result.stdout.startswith("torch 2.13.0+cpu; Python 3.11\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "cudda"), "unknown backend 'cudda'"),
        (("--backend", "cuda", "--want", "torch=>2"), "is no requirement"),
        (("--backend", "cuda", "--arch", "amd64"), "unknown architecture 'amd64'"),
        (("--backend", "cuda", "--python", "banana"), "python=banana: not a Python version"),
        (("--backend", "cuda", "--toolkit", "banana"), "toolkit=banana: not a version"),
        (("--backend", "cuda", "--node-class", "h10"), "unknown node class 'h10'"),
        (("--backend", "cuda", "--node-class", "mi300x"), "is of backend rocm, not cuda"),
    ],
)
def test_solve_with_a_wrong_question(run_builder: RunBuilder, arguments: tuple[str, ...], message: str) -> None:
    assert message in error(run_builder("matrix", "solve", *arguments, "--json"), 2)["what"]
