"""The Job and the matrix of docs/audit-sweep.md, by running their scripts against a real index and a registry."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path

from tests.audit.test_ci import environment
from tests.lock.indexes import Index, make_wheel, serving

__all__ = ["environment"]

PAGE = (Path(__file__).parents[2] / "docs/audit-sweep.md").read_text(encoding="utf-8")
JOB, MATRIX = re.findall(r"(?s)```yaml\n(.*?)```", PAGE)


def scripts(text: str) -> list[str]:
    """Block scalars, without their indentation."""
    found = re.finditer(r"(?m)^( *)- (?:run: )?\|\n((?:\1 {2,}.*\n)+)", text)
    return [textwrap.dedent(match[2]) for match in found]


def run(script: str, environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-ec", script], env=dict(environment), cwd=folder, capture_output=True, text=True, check=False
    )


def offered(index: Index, folder: Path) -> None:
    for number in range(8):
        requires = ["nvidia-nccl-cu12"] if number == 3 else []
        index.add(make_wheel(folder, f"p{number}", "1.0", requires=requires))


def test_the_kubernetes_job(environment: dict[str, str], registry_host: str, tmp_path: Path) -> None:
    (script,) = scripts(JOB)
    names = set(re.findall(r"name: ([A-Z_]+),", JOB))
    given = {"PARTS": "2", "BACKEND": "cpu", "RESULTS": str(tmp_path / "results")}
    given["FACTS"] = f"{registry_host}/audit/job-{tmp_path.name.lower()}"
    with serving(Index()) as index:
        offered(index, tmp_path / "w")
        given["INDEX"] = f"{index.url}/"
        for pod in range(2):
            own = {**given, "BUILDER_STORE": str(tmp_path / f"pod{pod}")}
            assert own.keys() == names
            result = run(script, {**environment, **own, "JOB_COMPLETION_INDEX": str(pod)}, tmp_path)
            assert result.returncode == 0, result.stderr
    (merge,) = re.findall(r"`(builder audit merge [^`]+)`\.", PAGE)
    joined = run(merge.replace("/results", given["RESULTS"]), environment, tmp_path)
    assert joined.returncode == 1
    assert joined.stdout.endswith("block: 8 wheels for cpu in 2 parts: 1 block, 7 ok\n")


def test_the_matrix(environment: dict[str, str], registry_host: str, tmp_path: Path) -> None:
    sweep, join = scripts(MATRIX)
    (listed,) = re.findall(r"part: \[(.*)\]", MATRIX)
    parts = listed.split(", ")
    with serving(Index()) as index:
        offered(index, tmp_path / "w")
        given = {"INDEX": f"{index.url}/", "FACTS": f"{registry_host}/audit/matrix-{tmp_path.name.lower()}"}
        for part in parts[:2]:
            own = {"PART": part, "PARTS": str(len(parts)), "BUILDER_STORE": str(tmp_path / part)}
            assert run(sweep, {**environment, **given, **own}, tmp_path).returncode == 0
    result = run(join, environment, tmp_path)
    assert result.returncode == 4
    assert "2 of 4 parts are missing" in result.stderr
