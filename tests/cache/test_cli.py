"""`builder cache …` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cache.formats.samples import plan
from tests.cache.test_cache import triton_cache
from tests.conftest import RunBuilder
from tests.schemas import document, error

MODEL = "a" * 64
H100 = ("--node-class", "h100", "--model", MODEL, "--set", "tensorrt=10.9.0", "--set", "precision=fp16")


@pytest.fixture
def kept(run_builder: RunBuilder, tmp_path: Path) -> str:
    """The key of a plan that is kept for an H100."""
    (tmp_path / "m.plan").write_bytes(b"plan" * 1000)
    found = document(run_builder("cache", "put", "tensorrt", "m.plan", *H100, "--json"), "cache-put")
    assert found["verdict"] == "done"
    return str(found["key"])


def test_key_says_what_is_missing_and_then_the_key(run_builder: RunBuilder) -> None:
    shown = run_builder("cache", "key", "tensorrt", "--json")
    assert shown.returncode == 4
    found = document(shown, "cache-key")
    assert (found["verdict"], found["key"]) == ("unknown", None)
    assert set(found["missing"]) == {"model", "compute-capability", "tensorrt", "platform", "precision"}
    complete = run_builder("cache", "key", "tensorrt", *H100, "--json")
    assert complete.returncode == 0, complete.stderr
    assert document(complete, "cache-key")["key"].startswith("sha256:")
    assert "version-compatible" in run_builder("cache", "key", "tensorrt", *H100).stdout


def test_hit_then_usable_then_miss(run_builder: RunBuilder, kept: str, tmp_path: Path) -> None:
    hit = run_builder("cache", "lookup", "tensorrt", *H100, "--to", "out/m.plan", "--json")
    assert hit.returncode == 0, hit.stderr
    found = document(hit, "cache-lookup")
    assert (found["verdict"], found["key"], found["differs"]) == ("hit", kept, [])
    assert Path(found["path"]).read_bytes() == b"plan" * 1000
    usable = run_builder("cache", "lookup", "tensorrt", *H100, "--set", "device=NVIDIA H100 PCIe", "--json")
    assert usable.returncode == 0
    (one,) = document(usable, "cache-lookup")["differs"]
    assert (one["property"], one["wanted"], one["found"]) == ("device", "nvidia h100 pcie", "h100")
    assert one["cost"]
    exact = run_builder("cache", "lookup", "tensorrt", *H100, "--set", "device=other", "--exact")
    assert exact.returncode == 1
    miss = run_builder("cache", "lookup", "tensorrt", *H100, "--set", "compute-capability=8.6", "--json")
    assert miss.returncode == 1
    assert [one["property"] for one in document(miss, "cache-lookup")["differs"]] == ["compute-capability"]


def test_unknown_has_its_own_exit_code(run_builder: RunBuilder, kept: str) -> None:
    result = run_builder(
        "cache", "lookup", "tensorrt", "--model", MODEL, "--set", "precision=fp16", "--set", "tensorrt=10.9.0", "--json"
    )
    assert result.returncode == 4
    found = document(result, "cache-lookup")
    assert found["verdict"] == "unknown"
    assert "compute-capability" in found["missing"]
    assert found["entry"]["key"] == kept
    assert "not stated" in run_builder("cache", "lookup", "tensorrt", "--model", MODEL).stdout


def test_explain_shows_every_property(run_builder: RunBuilder, kept: str) -> None:
    result = run_builder("cache", "explain", "tensorrt", *H100, "--set", "compute-capability=8.0", "--json")
    assert result.returncode == 1
    found = document(result, "cache-explain")
    (near,) = found["entries"]
    assert near["entry"]["key"] == kept
    assert {"model", "tensorrt", "precision"} <= set(near["equal"])
    text = run_builder("cache", "explain", "tensorrt", *H100, "--set", "compute-capability=8.0").stdout
    assert "source:" in text
    assert "tensorrt" in text


def test_list_verify_gc(run_builder: RunBuilder, kept: str, tmp_path: Path) -> None:
    (entry,) = document(run_builder("cache", "list", "--json"), "cache-list")["entries"]
    assert entry["key"] == kept
    assert "m.plan" in run_builder("cache", "list", "--kind", "tensorrt").stdout
    assert "m.plan" not in run_builder("cache", "list", "--kind", "vllm").stdout
    good = run_builder("cache", "verify", kept, "--json")
    assert good.returncode == 0
    assert document(good, "cache-verify")["checked"] == 1
    part = next((tmp_path / "store" / "engines" / "v1" / "sha256").glob("*/*"))
    part.chmod(0o644)
    part.write_bytes(b"bad")
    bad = run_builder("cache", "verify", "--drop", "--json")
    assert bad.returncode == 1
    assert document(bad, "cache-verify")["damage"][0]["entry"] == kept
    assert run_builder("cache", "lookup", "tensorrt", *H100).returncode == 1
    found = document(run_builder("cache", "gc", "--budget", "1MB", "--json"), "cache-gc")
    assert (found["entries"], found["size"]) == (0, 0)


def test_budget_of_put_and_gc(run_builder: RunBuilder, kept: str, tmp_path: Path) -> None:
    (tmp_path / "n.plan").write_bytes(b"more" * 1000)
    put = run_builder(
        "cache", "put", "tensorrt", "n.plan", *H100, "--set", "plugins=nms:1", "--budget", "5kB", "--json"
    )
    assert document(put, "cache-put")["removed"] > 0
    dry = document(run_builder("cache", "gc", "--unused", "0", "--dry-run", "--json"), "cache-gc")
    assert len(dry["removed"]) == 1
    assert "0 engines left" in run_builder("cache", "gc", "--unused", "0").stdout


def test_a_tree_for_a_container(run_builder: RunBuilder, tmp_path: Path) -> None:
    made = triton_cache(tmp_path / "volume")
    group = made / "KQ7AQ" / "__grp__add.json"
    group.write_text(group.read_text().replace(str(made), "/home/app/.triton/cache"))
    options = ["--model", MODEL, "--node-class", "h100", "--set", "triton=3.5.0", "--set", "ptxas=12.8"]
    put = run_builder(
        "cache", "put", "triton-nvidia", "volume", *options, "--built-at", "/home/app/.triton/cache", "--json"
    )
    assert document(put, "cache-put")["entry"]["files"] == 4, put.stderr
    again = run_builder("cache", "put", "triton-nvidia", "volume", *options, "--json")
    assert document(again, "cache-put")["verdict"] == "there"
    got = run_builder("cache", "lookup", "triton-nvidia", *options, "--to", "warm", "--used-at", "/cache")
    assert got.returncode == 0, got.stderr
    paths = json.loads((tmp_path / "warm" / "KQ7AQ" / "__grp__add.json").read_text())["child_paths"]
    assert paths["add.cubin"] == "/cache/KQ7AQ/add.cubin"


def test_a_failure_is_remembered(run_builder: RunBuilder) -> None:
    put = run_builder("cache", "put", "tensorrt", *H100, "--failed", "out of memory", "--json")
    assert document(put, "cache-put")["verdict"] == "remembered"
    miss = run_builder("cache", "lookup", "tensorrt", *H100, "--json")
    assert miss.returncode == 1
    assert document(miss, "cache-lookup")["failure"]["reason"] == "out of memory"
    assert "failed lately: out of memory" in run_builder("cache", "lookup", "tensorrt", *H100).stdout


def test_home_user_and_host_do_not_matter(run_builder: RunBuilder, kept: str, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path / "other"), "USER": "somebody", "HOSTNAME": "pod-2", "LC_ALL": "C"}
    moved = run_builder("cache", "lookup", "tensorrt", *H100, "--env", "--json", env=environment)
    assert document(moved, "cache-lookup")["verdict"] == "hit"


def test_the_model_may_be_files(run_builder: RunBuilder, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / ".git").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "blob").write_bytes(b"weights")
    (folder / "model.safetensors").symlink_to("blob")

    def model() -> str:
        found = document(run_builder("cache", "key", "tensorrt", "--model", "model", "--json"), "cache-key")
        return str(next(one["value"] for one in found["factors"] if one["name"] == "model"))

    first = model()
    (folder / ".git" / "index").write_bytes(b"changes")
    assert model() == first
    (folder / "blob").write_bytes(b"other weights")
    assert model() != first


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("key", "tensort"), "unknown engine kind 'tensort'"),
        (("key", "tensorrt", "--set", "precison=fp16"), "tensorrt engines have no property 'precison'"),
        (("key", "tensorrt", "--set", "precision"), "--set 'precision' is not of the form NAME=VALUE"),
        (("key", "tensorrt", "--set", "precision=a", "--set", "precision=b"), "--set precision is given twice"),
        (("key", "tensorrt", "--node-class", "h100", "--probe"), "--node-class and --probe are given together"),
        (("key", "tensorrt", "--model", "nothing"), "cannot read nothing"),
        (("put", "tensorrt", *H100), "either SOURCE or --failed"),
        (("put", "tensorrt", "nothing", *H100), "cannot read"),
        (("put", "tensorrt", "m.plan", "--model", MODEL), "the key of this tensorrt engine is not complete"),
        (("gc", "--budget", "plenty"), "not a size: 'plenty'"),
        (("verify", "x"), "not a digest: 'x'"),
        (("lokup", "tensorrt"), "unknown command 'cache lokup'"),
    ],
)
def test_wrong_questions_are_named(run_builder: RunBuilder, arguments: tuple[str, ...], what: str) -> None:
    assert what in error(run_builder("cache", *arguments, "--json"), 2)["what"]


def test_what_the_file_says_does_not_hide_it(run_builder: RunBuilder, tmp_path: Path) -> None:
    """A plan whose header is read when it is kept is found by the same words it was kept with."""
    (tmp_path / "m.plan").write_bytes(plan())
    words = ("--node-class", "h100", "--model", MODEL, "--set", "tensorrt=10.9.0.34", "--set", "precision=fp16")
    put = document(run_builder("cache", "put", "tensorrt", "m.plan", *words, "--json"), "cache-put")
    assert put["verdict"] == "done"
    found = run_builder("cache", "lookup", "tensorrt", *words, "--json")
    assert document(found, "cache-lookup")["verdict"] == "hit"


@pytest.mark.parametrize("command", ["list", "verify", "gc"])
def test_a_cache_that_is_not_there_is_said_to_be_so(run_builder: RunBuilder, tmp_path: Path, command: str) -> None:
    done = run_builder("cache", command, "--cache", "misspelled")
    assert done.returncode == 0
    assert done.stderr.strip() == "there is no cache at misspelled: nothing was ever kept there"
    assert not (tmp_path / "misspelled").exists()


def test_a_lookup_loads_no_room_it_does_not_need() -> None:
    """The compatibility tables and the registry take longer to load than a lookup takes."""
    program = """
import sys
from builder.cli.main import run
run(["cache", "lookup", "tensorrt", "--set", "precision=fp16", "--cache", "none", "--quiet"])
loaded = sorted({name.split(".")[1] for name in sys.modules if name.startswith("builder.")})
print(" ".join(loaded), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) <= {"cache", "cli", "errors", "events", "names", "resources", "store"}
