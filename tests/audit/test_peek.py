"""Requirements judged by a few range requests, when that is enough."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import schemas
from tests.audit.inside import Inside
from tests.lock.indexes import Index, make_wheel, serving


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(Index()) as served:
        yield served


def noise(megabytes: int) -> dict[str, bytes]:
    """Bytes that do not compress well enough to fit into a few blocks."""
    return {"big.bin": random.Random(1).randbytes(megabytes << 20)}  # noqa: S311 - not for secrets


def test_a_requirement_that_blocks_by_metadata_is_not_downloaded(builder: Inside, index: Index, tmp_path: Path) -> None:
    path = index.add(make_wheel(tmp_path, "heavy", "1.0", requires=["nvidia-nccl-cu12"], files=noise(3)))
    env = {"UV_DEFAULT_INDEX": index.url}
    result = builder("audit", "heavy==1.0", "--backend", "rocm", "--json", env=env)
    assert result.returncode == 1
    (target,) = schemas.document(result, "audit")["targets"]
    assert target["tokens"] == {"cuda": ["meta"]}
    assert target["file"] == path.name
    assert [finding["rule"] for finding in target["findings"]] == ["foreign-meta", "not-downloaded"]
    asked = index.fetched(path)
    assert asked.count(None) == 1  # HEAD, for the length
    read = sum(int(b) - int(a) + 1 for h in asked if h for a, b in [h.removeprefix("bytes=").split("-")])
    assert 0 < read <= 3 * (1 << 16)
    full = builder("audit", "heavy==1.0", "--backend", "rocm", "--json", "--full", env=env)
    (target,) = schemas.document(full, "audit")["targets"]
    assert [finding["rule"] for finding in target["findings"]] == ["foreign-meta"]
    # Now it is in the store, and there is nothing to save.
    known = builder("audit", "heavy==1.0", "--backend", "rocm", "--json", env=env)
    assert "not-downloaded" not in known.stdout


@pytest.mark.parametrize("requires", [[], ["nvidia-nccl-cu12; extra == 'cuda'"], ["nvidia-nccl-cu12; os_name == 'nt'"]])
def test_what_metadata_does_not_decide_is_read_in_full(
    builder: Inside, index: Index, tmp_path: Path, requires: list[str]
) -> None:
    path = index.add(make_wheel(tmp_path, "light", "1.0", requires=requires))
    result = builder("audit", "light", "--backend", "rocm", "--json", env={"UV_DEFAULT_INDEX": index.url})
    assert result.returncode == 0
    assert "not-downloaded" not in result.stdout
    assert None in index.fetched(path)[1:]


def test_a_server_without_ranges_and_a_wheel_without_a_hash(builder: Inside, index: Index, tmp_path: Path) -> None:
    index.ranges = False
    index.add(make_wheel(tmp_path, "heavy", "1.0", requires=["nvidia-nccl-cu12"]))
    index.add(make_wheel(tmp_path, "bare", "1.0", requires=["nvidia-nccl-cu12"]), hashed=False)
    for name in ("heavy", "bare"):
        result = builder("audit", name, "--backend", "rocm", "--json", env={"UV_DEFAULT_INDEX": index.url})
        assert result.returncode == 1
        (target,) = schemas.document(result, "audit")["targets"]
        assert [finding["rule"] for finding in target["findings"]] == ["foreign-meta"]
