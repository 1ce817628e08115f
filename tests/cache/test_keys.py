"""Keys: one spelling for one thing, exactly the documented digest, nothing of where or for whom."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.cache import Entry, engine_key, engine_kind
from builder.cache.forms import FORMS, spell
from builder.cache.keys import complete_key, missing_factors
from builder.cache.values import EngineKey, canonical_json
from builder.errors import BadInput
from builder.node import node_class
from builder.node.values import NodeClass
from tests.cache.samples import MODEL, key_of, stated

TENSORRT = engine_kind("tensorrt")


def test_the_digest_is_the_documented_one() -> None:
    key = EngineKey("tensorrt", {"b": "2", "a": "ü"})
    text = '{"factors":{"a":"ü","b":"2"},"kind":"tensorrt","schema":"builder/engine-key/1"}'
    assert key.digest.hex == hashlib.sha256(text.encode()).hexdigest()
    first, second = key.to_json()
    assert (first["name"], second["name"]) == ("a", "b")
    assert second["digest"] == "sha256:" + hashlib.sha256(b'{"b":"2"}').hexdigest()


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_order_never_matters(factors: dict[str, str]) -> None:
    shuffled = dict(reversed(factors.items()))
    assert EngineKey("k", factors).digest == EngineKey("k", shuffled).digest
    assert json.loads(canonical_json(factors)) == factors


@pytest.mark.parametrize(
    ("form", "value", "spelled"),
    [
        ("capability", "sm_90a", "9.0"),
        ("capability", "90", "9.0"),
        ("capability", "12.1", "12.1"),
        ("capability", "compute_100", "10.0"),
        ("capabilities", "sm_100, 9.0;8.6 9.0", "8.6 9.0 10.0"),
        ("version", "v10.9.0", "10.9.0"),
        ("version", " 2.9.0+cu128 ", "2.9.0+cu128"),
        ("gfx", "GFX90a:xnack-:sramecc+", "gfx90a:sramecc+:xnack-"),
        ("words", "fp16,int8 fp16", "fp16 int8"),
        ("flags", "--b=1 --a --b=2", "--a --b=2"),
        ("flags", "--name='two words'", "'--name=two words'"),
        ("number", "0x10", "16"),
        ("number", "81_559", "81559"),
        ("bits", "0x00100", "0x100"),
        ("range", "2..4", "2-4"),
        ("range", "6", "6-6"),
        ("switch", "True", "on"),
        ("lower", "NVIDIA  A10", "nvidia a10"),
        ("digest", MODEL.hex.upper(), str(MODEL)),
    ],
)
def test_one_spelling(form: str, value: str, spelled: str) -> None:
    assert spell(form, "x", value) == spelled
    assert spell(form, "x", spelled) == spelled


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("capability", "hopper"),
        ("bits", "many"),
        ("range", "4-2"),
        ("switch", "perhaps"),
        ("gfx", "mi300"),
        ("number", "a lot"),
        ("digest", "md5:00"),
        ("flags", "--a='"),
    ],
)
def test_what_cannot_be_read_is_refused(form: str, value: str) -> None:
    with pytest.raises(BadInput, match="x="):
        spell(form, "x", value)


@given(st.sampled_from(sorted(FORMS)), st.text(max_size=30))
def test_spelling_twice_changes_nothing(form: str, value: str) -> None:
    try:
        once = spell(form, "x", value)
    except BadInput:
        return
    assert not once or spell(form, "x", once) == once


def test_flags_of_dumping_are_left_out() -> None:
    kind = engine_kind("jax-xla")
    plain = key_of(kind, XLA_FLAGS="--xla_gpu_autotune_level=2")
    dumped = key_of(kind, XLA_FLAGS="--xla_dump_to=/tmp/here --xla_gpu_autotune_level=2")
    assert plain.digest == dumped.digest


def test_what_is_not_stated_has_the_default_of_its_row() -> None:
    stated_off, not_stated = key_of(TENSORRT, version_compatible="no"), key_of(TENSORRT, version_compatible=None)
    assert stated_off.digest == not_stated.digest


def test_a_variable_that_is_not_set_is_empty() -> None:
    kind = engine_kind("jax-xla")
    assert key_of(kind, LIBTPU_INIT_ARGS=None).factors["LIBTPU_INIT_ARGS"] == ""


def test_a_node_class_gives_the_device_properties() -> None:
    node = NodeClass(
        name="h100",
        backend="cuda",
        arch="x86_64",
        device="NVIDIA H100 80GB HBM3",
        device_arch="sm_90",
        device_memory_mib=81559,
        driver="570.86.15",
    )
    factors = engine_key(TENSORRT, node=node).factors
    assert factors["compute-capability"] == "9.0"
    assert factors["device"] == "nvidia h100 80gb hbm3"
    assert factors["device-memory"] == "81559"
    assert factors["driver-branch"] == "570"
    assert factors["platform"] == "linux-x86_64"
    assert (
        engine_key(TENSORRT, node=node, properties={"compute-capability": "8.6"}).factors["compute-capability"] == "8.6"
    )


def test_a_cpu_class_gives_its_level() -> None:
    factors = engine_key(engine_kind("inductor"), node=node_class("cpu-x86-64-v3")).factors
    assert (factors["target"], factors["toolkit"], factors["device"]) == ("x86-64-v3", "none", "cpu")


def test_a_key_that_leaves_open_what_decides_is_not_complete() -> None:
    key = engine_key(TENSORRT, model=MODEL, properties={"precision": "fp16"})
    assert set(missing_factors(TENSORRT, key)) == {"compute-capability", "tensorrt", "platform"}
    with pytest.raises(BadInput, match="not complete") as caught:
        complete_key(TENSORRT, key)
    assert "compute-capability" in caught.value.why


def test_an_unknown_property_is_named() -> None:
    with pytest.raises(BadInput, match="no property 'compute-capabilty'") as caught:
        engine_key(TENSORRT, properties={"compute-capabilty": "9.0"})
    assert "'compute-capability'" in caught.value.fix


def test_the_model_given_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="twice"):
        engine_key(TENSORRT, model=MODEL, properties=stated(TENSORRT))


def test_an_entry_document_reads_back() -> None:
    key = key_of(TENSORRT)
    entry = Entry(
        key=key,
        digest=key.digest,
        form="file",
        name="m.plan",
        content=MODEL,
        size=3,
        files=1,
        created="2026-12-01T00:00:00Z",
        tool="1",
    )
    assert Entry.from_json(json.loads(canonical_json(entry.to_json())), "here") == entry


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"schema": "builder/engine-entry/2"}, "of another version of this tool"),
        ({"kind": "vllm"}, "damaged"),
        ({"name": "../m"}, "damaged"),
        ({"content": "sha256:0"}, "not a digest"),
        ({"size": None}, "damaged"),
        ({"form": "pickle"}, "damaged"),
        ({"factors": [{"name": "model", "value": "x"}]}, "damaged"),
    ],
)
def test_a_foreign_or_damaged_document_is_named(change: dict[str, object], what: str) -> None:
    key = key_of(TENSORRT)
    entry = Entry(
        key=key, digest=key.digest, form="file", name="m.plan", content=MODEL, size=3, files=1, created="", tool="1"
    )
    with pytest.raises(BadInput, match=what):
        Entry.from_json({**entry.to_json(), **change}, "here")


def test_an_overridden_device_is_keyed_by_what_compilers_see() -> None:
    """An engine made under the override holds code of the other target: a class without it must not be given that."""
    plain = NodeClass(name="n", backend="rocm", arch="x86_64", device_arch="gfx1103")
    taken = dataclasses.replace(plain, env=("HSA_OVERRIDE_GFX_VERSION=11.0.0",))
    kind = engine_kind("triton-amd")
    found = {node.env: engine_key(kind, node=node).factors for node in (plain, taken)}
    differs = {name for name, value in found[plain.env].items() if found[taken.env][name] != value}
    assert {found[plain.env][name] for name in differs} == {"gfx1103"}
    assert {found[taken.env][name] for name in differs} == {"gfx1100"}
