"""Every kind: a change of each property makes exactly the difference its row promises."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder import resources
from builder.cache import engine_key, engine_kind, kind_names
from builder.cache.check import check_engine_tables
from builder.cache.judge import judge, verdict_of
from builder.errors import BadInput
from tests.cache.samples import sample, stated

KINDS = {
    "aotinductor": {"device"},
    "cann-op": {"driver"},
    "flashinfer": {"driver-branch"},
    "inductor": {"cpu-level", "multiprocessors", "driver-branch"},
    "jax-xla": {"driver-branch"},
    "mega-cache": {"cpu-level", "multiprocessors", "driver-branch"},
    "mxr": {"device", "driver"},
    "neff": {"driver", "instance"},
    "om": {"driver"},
    "onnxruntime-optimised": {"threads"},
    "onnxruntime-trt": {"device", "device-memory", "driver-branch", "multiprocessors", "hardware-compatibility"},
    "openvino": {"cpu-threads"},
    "tensorrt": {
        *("device", "device-memory", "driver-branch", "multiprocessors"),
        *("optimization-level", "hardware-compatibility", "version-compatible"),
    },
    "tensorrt-rtx": {"device"},
    "torch-tensorrt": {
        *("device", "device-memory", "driver-branch", "multiprocessors"),
        *("hardware-compatibility", "version-compatible"),
    },
    "torchair": {"driver"},
    "triton-amd": {"torch", "driver", "device"},
    "triton-ascend": {"torch", "driver"},
    "triton-nvidia": {"torch", "driver-branch", "multiprocessors", "device"},
    "vllm": {"device", "driver-branch"},
}
"""Kind to the properties whose change leaves an engine usable. Every other one is a miss."""

FORGOTTEN = {
    "aotinductor": {"toolkit"},
    "cann-op": {"cann", "torch-npu", "python", "tuning"},
    "flashinfer": set(),
    "inductor": {"target", "compiler"},
    "jax-xla": set(),
    "mega-cache": {"target", "compiler"},
    "mxr": {"rocm", "precision", "tuning"},
    "neff": set(),
    "om": {"cann"},
    "onnxruntime-optimised": set(),
    "onnxruntime-trt": {"tensorrt", "onnxruntime", "shapes"},
    "openvino": {"target", "driver"},
    "tensorrt": set(),
    "tensorrt-rtx": set(),
    "torch-tensorrt": {"compute-capability", "tensorrt", "torch", "torch-tensorrt", "cuda"},
    "torchair": {"cann", "torch", "torch-npu"},
    "triton-amd": {"rocm"},
    "triton-ascend": {"cann", "bisheng"},
    "triton-nvidia": set(),
    "vllm": {"target"},
}
"""What the systems leave out of their own keys."""

CASES = [(kind, name) for kind in KINDS for name in engine_kind(kind).properties]


def test_every_kind_is_in_these_tables() -> None:
    assert set(KINDS) == set(FORGOTTEN) == set(kind_names())


@pytest.mark.parametrize("name", KINDS)
def test_everything_equal_is_a_hit(name: str) -> None:
    kind = engine_kind(name)
    factors = engine_key(kind, properties=stated(kind)).factors
    assert judge(kind, factors, factors) == ()


@pytest.mark.parametrize(("name", "changed"), CASES)
def test_one_change_makes_exactly_one_difference(name: str, changed: str) -> None:
    kind = engine_kind(name)
    have = engine_key(kind, properties=stated(kind))
    before, after = sample(kind, changed)
    want = engine_key(kind, properties={**stated(kind), changed: after})
    differs = judge(kind, want.factors, have.factors)
    rule = kind.properties[changed].rule
    if rule == "covers":
        assert differs == (), "fewer shapes than the engine has"
        back = judge(kind, have.factors, want.factors)
        assert [one.name for one in back] == [changed]
        assert verdict_of(back) == "miss"
        return
    if rule == "device-listed":
        assert differs == ()
        return
    if rule in ("bits-within", "in-range"):
        differs = judge(kind, have.factors, want.factors)
    assert [one.name for one in differs] == [changed], f"{before} -> {after}"
    assert verdict_of(differs) == ("usable" if changed in KINDS[name] else "miss")
    assert have.digest != want.digest
    (one,) = differs
    assert one.why
    assert one.source
    assert bool(one.cost) == (changed in KINDS[name])


@pytest.mark.parametrize("name", FORGOTTEN)
def test_what_upstream_forgets_is_named(name: str) -> None:
    properties = engine_kind(name).properties.values()
    assert {one.name for one in properties if one.hold == "forgotten"} == FORGOTTEN[name]


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(BadInput, match="unknown engine kind 'tensort'") as caught:
        engine_kind("tensort")
    assert "'tensorrt'" in caught.value.fix


def _tables(tmp_path: Path, old: str, new: str) -> Path:
    root = tmp_path / "matrices"
    shutil.copytree(resources.matrices_dir() / "engines", root / "engines")
    path = root / "engines" / "neff.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('rule = "bits-within"', 'rule = "bits-inside"', "unknown rule 'bits-inside'"),
        ('form = "bits"', 'form = "bitz"', "unknown form 'bitz'"),
        ('node = "target"', 'node = "targte"', "unknown node value 'targte'"),
        ('rule = "bits-within"', 'rule = "version-compatible"', "lacks the property it depends on"),
        ('default = "static"', 'default = " static"', "is spelled 'static'"),
        ('property = "model"', 'property = "weights"', "one row of group model"),
    ],
)
def test_faults_of_a_table_are_named(tmp_path: Path, old: str, new: str, what: str) -> None:
    faults = check_engine_tables(_tables(tmp_path, old, new))
    assert any(what in fault.what for fault in faults), faults


def test_no_table_keys_where_or_for_whom(tmp_path: Path) -> None:
    root = _tables(tmp_path, 'group = "option"', 'group = "env"')
    path = root / "engines" / "neff.toml"
    path.write_text(
        path.read_text(encoding="utf-8").replace('property = "flags"', 'property = "HOME"'), encoding="utf-8"
    )
    assert any("never keyed" in fault.what for fault in check_engine_tables(root))


def test_the_tables_are_faultless() -> None:
    assert check_engine_tables(resources.matrices_dir()) == ()
