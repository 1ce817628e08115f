"""What an engine says about itself fills in its key, and holds what was stated against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cache import EngineCache, engine_key, engine_kind
from builder.cache.formats import FILE_FORMATS, TREE_FORMATS, BrokenEngine, read_engine
from builder.cache.kinds import kind_names
from builder.cache.told import FORMAT_KINDS, confirmed, told_factors
from builder.errors import BadInput
from builder.names import Digest
from tests.cache.formats import samples
from tests.conftest import RunBuilder
from tests.schemas import document, error

MODEL = Digest.of(b"model")
STATED = {"neuronx-cc": "2.21.0", "target": "trn1", "torch-neuronx": "2.9.0"}


def written(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def test_formats_and_kinds_exist() -> None:
    assert FORMAT_KINDS.keys() <= FILE_FORMATS.keys() | TREE_FORMATS.keys()
    assert {kind for kinds in FORMAT_KINDS.values() for kind in kinds} <= set(kind_names())


@pytest.mark.parametrize(
    ("kind", "name", "data", "expected"),
    [
        ("neff", "m.neff", samples.neff(features=0x1F), {"features": "0x1f", "neff-version": "2.0"}),
        ("tensorrt", "m.plan", samples.plan(), {"tensorrt": "10.9.0.34"}),
        ("mxr", "m.mxr", samples.mxr(), {"format": "8", "migraphx": "2.13.0.dev+17558d32", "gfx": "gfx942"}),
        ("om", "m.om", samples.om(), {"soc": "ascend910b1", "cann": "8.2.RC1", "format": "0x20000000"}),
        ("openvino", "m.blob", samples.openvino(), {"device": "cpu", "openvino": "2026.4.1-22982-e213a147257"}),
        ("flashinfer", "k.cubin", samples.cuda_elf(90), {"compute-capability": "9.0"}),
        ("aotinductor", "m.pt2", samples.aoti(), {"target": "sm_90", "platform": "linux-x86_64"}),
        ("mega-cache", "m.bin", samples.mega_cache({"pgo": []}), {"container": "1"}),
        ("jax-xla", samples.JAX_NAME, samples.jax(), {"compression": "zlib"}),
    ],
)
def test_factors_that_the_bytes_state(
    tmp_path: Path, kind: str, name: str, data: bytes, expected: dict[str, str]
) -> None:
    assert told_factors(kind, read_engine(written(tmp_path, name, data))) == expected


def test_what_is_not_stated_is_filled_in(tmp_path: Path) -> None:
    path = written(tmp_path, "m.neff", samples.neff(features=0x1F))
    assert confirmed("neff", STATED, path) == {"features": "0x1f", "neff-version": "2.0"}
    assert confirmed("neff", {**STATED, "features": "0x1f"}, path) == {"neff-version": "2.0"}


def test_what_is_stated_otherwise_is_refused_with_both_values(tmp_path: Path) -> None:
    path = written(tmp_path, "m.mxr", samples.mxr(gfx=0x4C))
    with pytest.raises(BadInput, match="is not the engine it is said to be") as caught:
        confirmed("mxr", {"gfx": "gfx90a", "format": "7"}, path)
    text = str(caught.value)
    assert "gfx is stated as gfx90a, and the engine itself says gfx942" in text
    assert "format is stated as 7" in text


@pytest.mark.parametrize("gfx", ["gfx942", "gfx942:sramecc+:xnack-"])
def test_more_detail_is_no_contradiction(tmp_path: Path, gfx: str) -> None:
    path = written(tmp_path, "m.mxr", samples.mxr(gfx=0x4C))
    assert "gfx" not in confirmed("mxr", {"gfx": gfx, "migraphx": "2.13.0"}, path)


def test_a_shorter_number_is_a_contradiction(tmp_path: Path) -> None:
    path = written(tmp_path, "m.plan", samples.plan(version=(10, 9, 0, 34)))
    with pytest.raises(BadInput):
        confirmed("tensorrt", {"tensorrt": "10"[:1]}, path)
    assert confirmed("tensorrt", {"tensorrt": "10.9"}, path) == {}


def test_a_folder_for_several_devices_states_none_and_must_hold_the_stated_one(tmp_path: Path) -> None:
    for number, capability in enumerate((90, 120)):
        for place, data in samples.triton(f"K{number}", arch=capability, binary=samples.cuda_elf(capability)).items():
            (tmp_path / "cache" / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "cache" / place).write_bytes(data)
    folder = tmp_path / "cache"
    assert "compute-capability" not in told_factors("triton-nvidia", read_engine(folder))
    assert confirmed("triton-nvidia", {"compute-capability": "9.0", "triton": "3.6.0"}, folder) == {}
    with pytest.raises(BadInput) as caught:
        confirmed("triton-nvidia", {"compute-capability": "12.1"}, folder)
    assert "stated as 12.1, and the engine itself says 9.0 12.0" in str(caught.value)


def test_a_damaged_engine_is_not_kept_and_an_unknown_format_is_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(BrokenEngine):
        confirmed("neff", STATED, written(tmp_path, "m.neff", samples.neff()[:1000]))
    assert confirmed("neff", STATED, written(tmp_path, "m.dat", b"something else")) == {}
    assert confirmed("neff", STATED, written(tmp_path, "m.plan", samples.plan())) == {}


def test_fr_15_a_newer_compilers_file_is_a_miss_for_the_container(tmp_path: Path) -> None:
    """The feature bits come from the file, the mask from the container's SDK: decided before anything is deployed."""
    path = written(tmp_path, "m.neff", samples.neff(features=0x100))
    cache = EngineCache(tmp_path / "cache")
    kind = engine_kind("neff")
    cache.put(engine_key(kind, model=MODEL, properties={**STATED, **confirmed("neff", STATED, path)}), path)
    container = {**STATED, "features": "0x800000000000001f", "neff-version": "2.0"}
    answer = cache.lookup(engine_key(kind, model=MODEL, properties=container))
    assert answer.verdict == "miss"
    assert [(one.name, one.found) for one in answer.differs if one.blocks] == [("features", "0x100")]


def test_fr_14_the_runtime_of_the_image_against_the_window_of_the_driver(tmp_path: Path) -> None:
    path = written(tmp_path, "m.neff", samples.neff())
    cache = EngineCache(tmp_path / "cache")
    kind = engine_kind("neff")
    stated = {**STATED, "runtime-compat": "6"}
    cache.put(engine_key(kind, model=MODEL, properties={**stated, **confirmed("neff", stated, path)}), path)
    node = {**STATED, "features": "0x0", "neff-version": "2.0"}
    old = cache.lookup(engine_key(kind, model=MODEL, properties={**node, "runtime-compat": "2-4"}))
    assert (old.verdict, [one.name for one in old.differs if one.blocks]) == ("miss", ["runtime-compat"])
    new = cache.lookup(engine_key(kind, model=MODEL, properties={**node, "runtime-compat": "4-6"}))
    assert new.verdict in ("hit", "usable")


def test_what_an_engine_says_of_its_use_is_told_when_it_is_kept(run_builder: RunBuilder, tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    tuned = samples.jax(tuning="/home/app/jax/xla_gpu_per_fusion_autotune_cache_dir")
    written(tmp_path / "jax", samples.JAX_NAME, tuned)
    stated = ("--set", "jax=0.10.2", "--set", "jaxlib=0.10.2", "--node-class", "cpu-x86-64-v3", "--model", str(MODEL))
    done = run_builder("cache", "put", "jax-xla", "jax", *stated, "--cache", "c", "--json")
    factors = {one["name"]: one["value"] for one in document(done, "cache-put")["entry"]["factors"]}
    assert factors["compression"] == "zlib"
    assert "JAX finds it under the path of the folder it was made in alone" in done.stderr


def test_what_is_put_gets_its_bytes_factors_and_another_engine_is_refused(
    run_builder: RunBuilder, tmp_path: Path
) -> None:
    written(tmp_path, "m.neff", samples.neff(features=0x1F))
    stated = [item for name, value in STATED.items() for item in ("--set", f"{name}={value}")]
    base = ("cache", "put", "neff", "m.neff", "--model", str(MODEL), "--cache", "c", *stated, "--json")
    kept = document(run_builder(*base), "cache-put")
    factors = {one["name"]: one["value"] for one in kept["entry"]["factors"]}
    assert (factors["features"], factors["neff-version"]) == ("0x1f", "2.0")
    other = error(run_builder(*base, "--set", "features=0x3"), 2)
    assert "features is stated as 0x3, and the engine itself says 0x1f" in other["why"]
