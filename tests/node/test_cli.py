"""`builder node …` as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunBuilder
from tests.schemas import document, error


def test_probe_prints_a_class_file_that_can_be_used(run_builder: RunBuilder, tmp_path: Path) -> None:
    environment = {"BUILDER_NODE_DEVICE": "NVIDIA L4", "BUILDER_NODE_DRIVER": "570.124.06", "BUILDER_NODE_NAME": "mine"}
    result = run_builder("node", "probe", "--backend", "cuda", env=environment)
    assert result.returncode == 0, result.stderr
    (tmp_path / "mine.toml").write_text(result.stdout, encoding="utf-8")
    shown = document(run_builder("node", "show", "mine.toml", "--json"), "node-show")["node"]
    assert (shown["name"], shown["device_arch"], shown["driver"]) == ("mine", "sm_89", "570.124.06")
    solved = run_builder(
        "matrix", "solve", "--backend", "cuda", "--want", "torch==2.13.0", "--node-class", "mine.toml", "--json"
    )
    assert document(solved, "matrix-solve")["stacks"][0]["toolkit"] == "12.6"


def test_probe_as_a_document(run_builder: RunBuilder) -> None:
    node = document(run_builder("node", "probe", "--backend", "cpu", "--json"), "node-probe")["node"]
    assert node["backend"] == "cpu"
    assert node["cpu_level"]


def test_a_probe_that_fails_says_why(run_builder: RunBuilder, tmp_path: Path) -> None:
    path = tmp_path / "bin" / "nvidia-smi"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\necho "NVIDIA-SMI has failed because it couldn\'t communicate"\nexit 9\n')
    path.chmod(0o755)
    found = error(run_builder("node", "probe", "--json", env={"PATH": f"{path.parent}:/usr/bin:/bin"}), 4)
    assert (found["kind"], found["what"]) == ("cannot-tell", "the NVIDIA driver does not answer")
    assert "has failed" in found["why"]


def test_list_and_show(run_builder: RunBuilder) -> None:
    nodes = document(run_builder("node", "list", "--backend", "npu", "--json"), "node-list")["nodes"]
    assert {node["backend"] for node in nodes} == {"npu"}
    text = run_builder("node", "list").stdout
    assert text.splitlines()[0].split() == ["name", "backend", "arch", "device", "device_arch", "cpu_level"]
    shown = run_builder("node", "show", "h100").stdout
    assert "driver             not known" in shown


def test_labels(run_builder: RunBuilder) -> None:
    found = document(run_builder("node", "labels", "h100", "--json"), "node-labels")
    assert found["labels"]["nvidia.com/gpu.compute.major"] == "9"
    assert "kubernetes.io/arch=amd64\n" in run_builder("node", "labels", "h100").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "h10"), "unknown node class 'h10'"),
        (("list", "--backend", "cudda"), "unknown backend 'cudda'"),
        (("show", "nothing.toml"), "nothing.toml is not a file"),
    ],
)
def test_wrong_questions(run_builder: RunBuilder, arguments: tuple[str, ...], message: str) -> None:
    assert message in error(run_builder("node", *arguments, "--json"), 2)["what"]
