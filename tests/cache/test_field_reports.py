"""FR-14, FR-15, FR-17, FR-18, FR-19: the verdicts that these reports ask for."""

from __future__ import annotations

from pathlib import Path

from builder.cache import EngineCache, engine_key, engine_kind
from tests.cache.samples import MODEL, key_of, stated

TENSORRT = engine_kind("tensorrt")
NEFF = engine_kind("neff")


def test_fr_17_another_capability_is_a_miss_that_names_it(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(TENSORRT, compute_capability="8.6", serialization="228"), plan)
    answer = cache.lookup(key_of(TENSORRT, compute_capability="7.5", serialization="228"))
    assert answer.verdict == "miss"
    assert [(one.name, one.wanted, one.found) for one in answer.differs] == [("compute-capability", "7.5", "8.6")]


def test_fr_17_another_serialisation_is_a_miss_that_names_it(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(TENSORRT, compute_capability="8.6", serialization="228"), plan)
    answer = cache.lookup(key_of(TENSORRT, compute_capability="8.6", serialization="226"))
    assert answer.verdict == "miss"
    assert [(one.name, one.wanted, one.found) for one in answer.differs] == [("serialization", "226", "228")]


def test_fr_17_a_portable_engine_answers_ampere_and_later_only(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(TENSORRT, compute_capability="8.6", hardware_compatibility="ampere-plus"), plan)
    newer = cache.lookup(key_of(TENSORRT, compute_capability="9.0"))
    assert newer.verdict == "usable"
    assert {one.name for one in newer.differs} == {"compute-capability", "hardware-compatibility"}
    assert all(one.cost for one in newer.differs)
    older = cache.lookup(key_of(TENSORRT, compute_capability="7.5"))
    assert older.verdict == "miss"
    assert older.differs[0].name == "compute-capability"


def test_fr_18_a_near_capability_is_a_miss_and_the_device_is_warned_of(cache: EngineCache, plan: Path) -> None:
    kind = engine_kind("triton-nvidia")
    cache.put(key_of(kind, compute_capability="12.0", torch="2.9.0", arch_list=None), plan)
    wanted = key_of(kind, compute_capability="12.1", torch="2.9.0", arch_list="sm_90 sm_100 sm_120")
    answer = cache.lookup(wanted)
    assert answer.verdict == "miss"
    found = {one.name: one for one in answer.differs}
    assert set(found) == {"compute-capability", "arch-list"}
    assert (found["compute-capability"].wanted, found["compute-capability"].found) == ("12.1", "12.0")
    assert found["compute-capability"].blocks
    assert not found["arch-list"].blocks
    assert "PTX" in found["arch-list"].why
    assert "compared with a reference" in found["arch-list"].cost


def test_fr_18_even_its_own_engine_warns_of_a_device_outside_the_list(cache: EngineCache, plan: Path) -> None:
    kind = engine_kind("triton-nvidia")
    key = key_of(kind, compute_capability="12.1", arch_list="sm_90 sm_100 sm_120")
    cache.put(key, plan)
    answer = cache.lookup(key)
    assert answer.verdict == "usable"
    assert [one.name for one in answer.differs] == ["arch-list"]


def test_fr_19_address_and_home_are_not_in_the_key() -> None:
    kind = engine_kind("vllm")
    values = {name: value for name, value in stated(kind).items() if kind.properties[name].group != "env"}
    a = engine_key(
        kind,
        properties={**values, "vllm": "0.20.1", "target": "sm_90"},
        environment={"VLLM_NIXL_SIDE_CHANNEL_HOST": "198.51.100.7", "HOME": "home-a", "HOSTNAME": "pod-1"},
    )
    b = engine_key(
        kind,
        properties={**values, "vllm": "0.20.1", "target": "sm_90"},
        environment={"HOME": "home-b", "USER": "other", "VLLM_NIXL_SIDE_CHANNEL_HOST": "198.51.100.9"},
    )
    assert a.digest == b.digest


def test_fr_19_a_miss_names_the_variable_that_changed(cache: EngineCache, plan: Path) -> None:
    kind = engine_kind("vllm")
    values = {name: value for name, value in stated(kind).items() if kind.properties[name].group != "env"}
    cache.put(engine_key(kind, properties=values, environment={"VLLM_ATTENTION_BACKEND": "FLASH_ATTN"}), plan)
    wanted = engine_key(kind, properties=values, environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    answer = cache.lookup(wanted)
    assert answer.verdict == "miss"
    (one,) = answer.differs
    assert (one.name, one.wanted, one.found) == ("VLLM_ATTENTION_BACKEND", "FLASHINFER", "FLASH_ATTN")


def test_fr_14_a_runtime_outside_the_drivers_window_is_a_miss(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(NEFF, runtime_compat="6"), plan)
    answer = cache.lookup(key_of(NEFF, runtime_compat="2-4"))
    assert answer.verdict == "miss"
    assert [(one.name, one.wanted, one.found) for one in answer.differs] == [("runtime-compat", "2-4", "6-6")]
    assert cache.lookup(key_of(NEFF, runtime_compat="2-6")).verdict == "hit"


def test_fr_15_an_unknown_feature_bit_is_a_miss_before_anything_is_loaded(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(NEFF, features="0x100"), plan)
    answer = cache.lookup(key_of(NEFF, features="0x800000000000001f"))
    assert answer.verdict == "miss"
    assert [(one.name, one.wanted, one.found) for one in answer.differs] == [
        ("features", "0x800000000000001f", "0x100")
    ]
    assert cache.lookup(key_of(NEFF, features="0x11f")).verdict == "hit"


def test_fr_15_what_the_runtime_supports_is_not_guessed(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(NEFF, features="0x100"), plan)
    answer = cache.lookup(key_of(NEFF, features=None))
    assert answer.verdict == "unknown"
    assert answer.missing == ("features",)
    assert answer.wanted.model == str(MODEL)
