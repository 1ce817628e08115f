"""`build --plan` and `max-size`, on a real base."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunBuilder
from tests.e2e.index import Index
from tests.schemas import document

QUICK = ("--no-proof", "--no-smoke")


@pytest.mark.network
def test_a_plan_is_what_is_then_built_and_a_budget_refuses_with_names(
    run_builder: RunBuilder, project: Path, index: Index
) -> None:
    index.add("e2e_plain", "1.0", requires=("e2e-large",))
    index.add("e2e_large", "2.0", padding=3 << 20)
    command = ["build", "--backend", "cpu", "--json"]
    planned = run_builder(*command, "--plan", env=index.environment(), cwd=project)
    assert planned.returncode == 0, planned.stderr
    found = document(planned, "build")
    assert (found["verdict"], found["image"], [step["name"] for step in found["steps"]]) == ("planned", None, ["lock"])
    assert not (project / "dist").exists()
    text = run_builder("build", "--backend", "cpu", "--plan", env=index.environment(), cwd=project).stdout
    assert "e2e-large 2.0" in text
    assert f"{len(found['plan']['layers'])} of at most 127 layers" in text

    built = document(run_builder(*command, *QUICK, env=index.environment(), cwd=project), "build")
    assert [row["title"] for row in built["image"]["layers"]] == [row["title"] for row in found["plan"]["layers"]]
    assert built["budget"] is None
    (tag,) = built["tags"]
    verified = document(run_builder("verify", f"oci:dist/image:{tag}", "--json", cwd=project), "verify")
    assert (verified["verdict"], verified["digest"]) == ("ok", built["image"]["digest"])
    assert {"sbom", "audit", "provenance", "materials"} <= {check["name"] for check in verified["checks"]}

    text = (project / "builder.toml").read_text()
    (project / "builder.toml").write_text(text + '[backend.cpu]\nmax-size = "1 GB"\n')
    kept = document(run_builder(*command, *QUICK, env=index.environment(), cwd=project), "build")
    assert (kept["verdict"], kept["image"]["digest"]) == ("built", built["image"]["digest"])
    assert kept["steps"][0]["verdict"] == "fresh"

    (project / "builder.toml").write_text(text + '[backend.cpu]\nmax-size = "2.5 MB"\n')
    refused = run_builder(*command, *QUICK, "--to", "oci:small:1", env=index.environment(), cwd=project)
    found = document(refused, "build")
    assert (refused.returncode, found["verdict"], found["tags"]) == (1, "refused", [])
    assert "e2e-large 2.0" in [row["title"] for row in found["budget"]["largest"][:2]]
    assert '"org.opencontainers.image.ref.name"' not in (project / "small/index.json").read_text()
    told = run_builder("build", "--backend", "cpu", *QUICK, "--to", "oci:small:1", env=index.environment(), cwd=project)
    assert (told.returncode, "more than its max-size" in told.stdout) == (1, True)
