"""Bad input as a user meets it: what is wrong is named, nothing of it is loaded, and the rest goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.cache import EngineCache
from tests.conftest import RunBuilder
from tests.schemas import document, error

MODEL = "sha256:" + "1" * 64
TENSORRT = (
    *("tensorrt", "--set", "tensorrt=10.9.0", "--set", "precision=fp16"),
    *("--node-class", "h100", "--model", MODEL, "--cache", "engines"),
)
TRITON = (
    *("triton-nvidia", "--set", "triton=3.5.0", "--set", "ptxas=12.8"),
    *("--node-class", "h100", "--model", MODEL, "--cache", "engines"),
)


@pytest.fixture
def kept(run_builder: RunBuilder, tmp_path: Path) -> EngineCache:
    """A plan and a folder of kernels in the cache `engines`."""
    (tmp_path / "model.plan").write_bytes(b"a plan of no format that is read here")
    (tmp_path / "kernels").mkdir()
    for name in ("one", "two"):
        (tmp_path / "kernels" / f"{name}.bin").write_bytes(name.encode() * 100)
    assert run_builder("cache", "put", *put(TENSORRT, "model.plan")).returncode == 0
    assert run_builder("cache", "put", *put(TRITON, "kernels")).returncode == 0
    return EngineCache(tmp_path / "engines")


def put(wanted: tuple[str, ...], path: str) -> tuple[str, ...]:
    return wanted[0], path, *wanted[1:]


def entry_file(cache: EngineCache, kind: str) -> Path:
    return next(
        path
        for path in (cache.store.root / "entries").rglob("*.json")
        if json.loads(path.read_text(encoding="utf-8"))["kind"] == kind
    )


def part_with(cache: EngineCache, content: bytes) -> Path:
    return next(path for path, _ in cache.store.parts() if content in path.read_bytes())


def test_a_corrupt_blob(run_builder: RunBuilder, kept: EngineCache, tmp_path: Path) -> None:
    part = part_with(kept, b"a plan")
    part.chmod(0o644)
    part.write_bytes(b"another plan that somebody else wrote")
    found = error(run_builder("cache", "lookup", *TENSORRT, "--to", "out.plan", "--json"), 3)
    assert found["what"].endswith("of the engine cache is damaged")
    assert found["why"].startswith("it has 37 bytes with the digest sha256:")
    assert found["fix"].startswith("build the engine again; the damaged part is kept in damaged/")
    assert not (tmp_path / "out.plan").exists()
    assert run_builder("cache", "lookup", *TENSORRT).returncode == 1, "it is a miss from then on"
    assert run_builder("cache", "lookup", *TRITON, "--to", "out").returncode == 0, "others are as they were"


@pytest.mark.parametrize("how", ["gone", "short"])
def test_a_truncated_tree(run_builder: RunBuilder, kept: EngineCache, tmp_path: Path, how: str) -> None:
    part = part_with(kept, b"twotwo")
    part.chmod(0o644)
    if how == "gone":
        part.unlink()
    else:
        part.write_bytes(b"twotwo")
    found = error(run_builder("cache", "lookup", *TRITON, "--to", "out", "--json"), 3)
    assert found["what"].endswith("is not there" if how == "gone" else "is damaged")
    assert found["fix"].startswith("build the engine again")
    assert not (tmp_path / "out").exists(), "half of a tree is worse than none"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".out")) == []


def test_a_foreign_version_of_a_key(run_builder: RunBuilder, kept: EngineCache) -> None:
    path = entry_file(kept, "tensorrt")
    text = path.read_text(encoding="utf-8").replace("builder/engine-entry/1", "builder/engine-entry/2")
    path.write_text(text, encoding="utf-8")
    done = run_builder("cache", "lookup", *TENSORRT, "--json")
    found = document(done, "cache-lookup")
    assert (done.returncode, found["verdict"]) == (1, "miss")
    [hint] = found["hints"]
    assert hint.startswith("there is an entry of this very key that cannot be used: ")
    assert hint.endswith(
        "is of another version of this tool: its schema is 'builder/engine-entry/2', "
        "this version reads 'builder/engine-entry/1'"
    )
    told = error(run_builder("cache", "put", *put(TENSORRT, "model.plan"), "--json"), 2)
    assert told["what"].endswith("is of another version of this tool")
    assert told["fix"] == "read it with that version; it stays where it is"
    assert run_builder("cache", "verify", "--cache", "engines").returncode == 0, "another version is no damage"
    assert run_builder("cache", "gc", "--budget", "1", "--cache", "engines").returncode == 0
    assert path.read_text(encoding="utf-8") == text, "another version's entry and its parts are left alone"
    assert part_with(kept, b"a plan").is_file()


def test_a_damaged_document(run_builder: RunBuilder, kept: EngineCache) -> None:
    path = entry_file(kept, "tensorrt")
    path.write_text("{", encoding="utf-8")
    found = document(run_builder("cache", "lookup", *TENSORRT, "--json"), "cache-lookup")
    assert found["verdict"] == "miss"
    assert "is damaged: it is no JSON" in found["hints"][0]
    done = run_builder("cache", "verify", "--cache", "engines")
    assert done.returncode == 1
    assert "is damaged: it is no JSON" in done.stdout


def test_a_clock_that_went_backwards(run_builder: RunBuilder, kept: EngineCache) -> None:
    """A failure and a use that lie in the future: neither counts."""
    other = (*TENSORRT, "--set", "plugins=nms:1")
    assert run_builder("cache", "put", *other, "--failed", "out of memory", "--keep", "1").returncode == 0
    remembered = document(run_builder("cache", "lookup", *other, "--json"), "cache-lookup")
    assert remembered["failure"]["reason"] == "out of memory"
    [path] = (kept.store.root / "failures").rglob("*.json")
    value = json.loads(path.read_text(encoding="utf-8"))
    ahead = {**value, "created": value["created"] + 10**6, "expires": value["expires"] + 10**6}
    path.write_text(json.dumps(ahead), encoding="utf-8")
    assert document(run_builder("cache", "lookup", *other, "--json"), "cache-lookup")["failure"] is None
    assert run_builder("cache", "lookup", *TENSORRT).returncode == 0


@pytest.fixture
def read_only(kept: EngineCache) -> Iterator[EngineCache]:
    """The cache behind a read-only bind mount, which root cannot write through either."""
    root = str(kept.store.root)
    if subprocess.run(["mount", "--bind", root, root], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        yield kept
    finally:
        subprocess.run(["umount", root], check=True)


def test_a_read_only_store(run_builder: RunBuilder, read_only: EngineCache, tmp_path: Path) -> None:
    assert run_builder("cache", "lookup", *TENSORRT, "--to", "out.plan").returncode == 0
    assert (tmp_path / "out.plan").read_bytes() == (tmp_path / "model.plan").read_bytes()
    for arguments in (
        ("put", *put((*TENSORRT, "--set", "plugins=nms:1"), "model.plan")),
        ("gc", "--budget", "1", "--cache", "engines"),
    ):
        found = error(run_builder("cache", *arguments, "--json"), 3)
        assert found["what"].startswith("cannot write")
        assert found["why"] == "Read-only file system"
        assert found["fix"]
    assert run_builder("cache", "list", "--cache", "engines").returncode == 0
    assert run_builder("cache", "verify", "--cache", "engines").returncode == 0


def test_a_full_disk(run_builder: RunBuilder, full_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "large.plan").write_bytes(bytes(2 << 20))
    arguments = put(TENSORRT[:-1], "large.plan")
    found = error(run_builder("cache", "put", *arguments, str(full_disk / "engines"), "--json"), 3)
    assert found["what"].startswith("disk full while writing")
    assert found["fix"]
    assert list(EngineCache(full_disk / "engines").store.parts()) == []
    (tmp_path / "small.plan").write_bytes(b"small")
    again = put(TENSORRT[:-1], "small.plan")
    assert run_builder("cache", "put", *again, str(full_disk / "engines")).returncode == 0, "nothing was left behind"


def test_two_versions_of_this_tool_share_a_store(run_builder: RunBuilder, kept: EngineCache) -> None:
    """An entry that a newer version wrote beside ours is named and stays; ours are found as before."""
    path = entry_file(kept, "triton-nvidia")
    theirs = json.loads(path.read_text(encoding="utf-8"))
    (path.parent / ("0" * 62 + ".json")).write_text(
        json.dumps({**theirs, "schema": "builder/engine-entry/9"}), encoding="utf-8"
    )
    assert run_builder("cache", "lookup", *TENSORRT).returncode == 0
    listed = run_builder("cache", "list", "--cache", "engines")
    assert listed.returncode == 0
    assert "is of another version of this tool" in listed.stdout + listed.stderr
    assert run_builder("cache", "gc", "--unused", "0", "--cache", "engines").returncode == 0
    assert (path.parent / ("0" * 62 + ".json")).is_file()
