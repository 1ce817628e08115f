"""`builder lock` as people and scripts call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.lock.values import parse_moment
from tests import schemas
from tests.conftest import RunBuilder

PROJECT = """\
name = "ranker"
version = "1.0.0"
python = "3.11"
requirements = ["torch-npu==2.13.0"]
base = "debian:bookworm"

[image]
entrypoint = ["python"]

[backend.npu]
requirements = []
"""
MEND = PROJECT.replace("requirements = []", 'requirements = ["torch==2.13.0+cpu"]')
NEWEST = "2026-11-30"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the project of the trap."""
    (tmp_path / "builder.toml").write_text(PROJECT)
    return tmp_path


@pytest.mark.network
def test_the_trap_then_the_mend_then_fresh_then_stale(folder: Path, run_builder: RunBuilder) -> None:
    path, requirements = folder / "pylock.npu.toml", folder / "requirements.npu.txt"
    asked = ("lock", "--backend", "npu", "--exclude-newer", NEWEST)

    refused = run_builder(*asked, "--json")
    document = schemas.document(refused, "lock")
    assert (refused.returncode, document["verdict"]) == (1, "refused")
    assert document["blocked"][0]["chain"] == ["torch-npu", "torch"]
    assert "torch==2.13.0+cpu" in document["blocked"][0]["fix"]
    assert sum(item["package"].startswith(("nvidia-", "cuda-")) for item in document["blocked"]) == 18
    assert sum(item["installed"] or 0 for item in document["blocked"]) > 3 * 10**9
    assert not path.exists()
    assert not requirements.exists()
    text = run_builder(*asked).stdout
    assert "pulls in 18 nvidia packages" in text
    assert "chain: torch-npu > torch > nvidia-" in text
    assert "torch==2.13.0+cpu" in text

    (folder / "builder.toml").write_text(MEND)
    locked = run_builder(*asked, "--json")
    document = schemas.document(locked, "lock")
    assert (locked.returncode, document["verdict"], document["path"]) == (0, "locked", str(path))
    assert len(document["packages"]) == 13
    assert document["blocked"] == []
    assert document["exclude_newer"] == "2026-11-30T00:00:00Z"
    before = path.read_bytes(), requirements.read_bytes()

    again = run_builder("lock", "--backend", "npu", "--json")
    assert (again.returncode, schemas.document(again, "lock")["verdict"]) == (0, "fresh")
    assert (path.read_bytes(), requirements.read_bytes()) == before
    checked = run_builder("lock", "--backend", "npu", "--check", "--offline", "--json")
    assert (checked.returncode, schemas.document(checked, "lock")["verdict"]) == (0, "fresh")

    (folder / "builder.toml").write_text(MEND.replace('cpu"]', 'cpu", "numpy<3"]'))
    stale = run_builder("lock", "--backend", "npu", "--check", "--offline", "--json")
    document = schemas.document(stale, "lock")
    assert (stale.returncode, document["verdict"]) == (1, "stale")
    assert document["stale"] == ["requirement 'numpy<3' is new"]
    assert (path.read_bytes(), requirements.read_bytes()) == before


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--backend", "npuu"], 2, "npu"),
        (["--backend", "npu", "--check"], 2, "no lock"),
        (["--backend", "npu", "--check", "--upgrade"], 2, "exclude each other"),
        (["--backend", "npu", "--exclude-newer", "yesterday"], 2, "not a time"),
        (["--backend", "npu", "--node-class", "nowhere"], 2, "node class"),
        ([], 2, "--backend"),
    ],
)
def test_wrong_questions(folder: Path, run_builder: RunBuilder, args: list[str], code: int, said: str) -> None:
    fault = schemas.error(run_builder("lock", *args, "--json"), code)
    assert said in f"{fault['what']} {fault['why']} {fault['fix']}"
    assert not (folder / "pylock.npu.toml").exists()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30", "2026-11-30T00:00:00Z"),
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00Z"),
        ("2026-11-30T12:00:00.9+02:00", "2026-11-30T10:00:00Z"),
        ("2026-11-30 12:00", "2026-11-30T12:00:00Z"),
    ],
)
def test_times(text: str, moment: str) -> None:
    assert parse_moment(text) == moment
