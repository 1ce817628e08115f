"""`--compile-bytecode`, `--estargz` and `--compression` from the command line to a verified, running image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.image.estargz import TOC_ANNOTATION
from builder.names import Digest
from builder.registry.layout import Layout
from tests.conftest import RunBuilder
from tests.e2e.index import Index
from tests.schemas import document


def rows(project: Path, digest: str) -> list[dict[str, Any]]:
    manifest = Layout(project / "dist/image").manifest(Digest.parse(digest))
    assert manifest is not None
    layers: list[dict[str, Any]] = json.loads(manifest.raw)["layers"]
    return layers


@pytest.mark.network
def test_layers_are_packed_as_asked_for_and_the_image_runs_all_the_same(
    run_builder: RunBuilder, project: Path, index: Index
) -> None:
    index.add("e2e_plain", "1.0")
    command = ["build", "--backend", "cpu", "--json", "--no-proof"]
    lazy = run_builder(*command, "--compile-bytecode", "--estargz", env=index.environment(), cwd=project)
    found = document(lazy, "build")
    assert [layer["title"] for layer in found["image"]["layers"]][-2].startswith("bytecode of ")
    assert all(TOC_ANNOTATION in row["annotations"] for row in rows(project, found["image"]["digest"]))
    steps = {step["name"]: step["verdict"] for step in found["steps"]}
    assert "failed" not in steps.values()
    verified = document(run_builder("verify", f"oci:dist/image:{found['tags'][0]}", "--json", cwd=project), "verify")
    assert verified["verdict"] == "ok"

    text = (project / "builder.toml").read_text()
    (project / "builder.toml").write_text(text.replace("[image]\n", '[image]\ncompression = "zstd"\n', 1))
    packed = run_builder(*command, "--to", "oci:dist/image:zstd", env=index.environment(), cwd=project)
    found = document(packed, "build")
    assert {row["mediaType"].rpartition("+")[2] for row in rows(project, found["image"]["digest"])} == {"zstd"}
    verified = document(run_builder("verify", "oci:dist/image:zstd", "--json", cwd=project), "verify")
    assert verified["verdict"] == "ok"

    both = run_builder(*command, "--estargz", env=index.environment(), cwd=project)
    assert both.returncode == 2
    assert "eStargz layers cannot be compressed by zstd" in both.stdout
    other = run_builder(*command, "--engine", "buildah", env=index.environment(), cwd=project)
    assert (other.returncode, "--engine oci" in other.stdout) == (2, True)
