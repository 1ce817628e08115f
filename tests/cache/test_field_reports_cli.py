"""The verdicts that field reports ask for, as a user gets them; FR-20 is in tests/pipeline/test_warm.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cache import engine_kind
from tests.cache.samples import stated
from tests.conftest import RunBuilder
from tests.schemas import document


def settings(kind: str, **changed: str | None) -> list[str]:
    """`--set` for every property; one that is None is left out."""
    values = {**stated(engine_kind(kind)), **{name.replace("_", "-"): value for name, value in changed.items()}}
    return [part for name, value in values.items() if value for part in ("--set", f"{name}={value}")]


CASES = [
    (
        "FR-17 another capability",
        "tensorrt",
        {"compute_capability": "8.6", "serialization": "228"},
        {"compute_capability": "7.5", "serialization": "228"},
        (1, "miss", [("compute-capability", "7.5", "8.6")]),
    ),
    (
        "FR-17 another serialisation",
        "tensorrt",
        {"compute_capability": "8.6", "serialization": "228"},
        {"compute_capability": "8.6", "serialization": "226"},
        (1, "miss", [("serialization", "226", "228")]),
    ),
    (
        "FR-17 portable, to a newer device",
        "tensorrt",
        {"compute_capability": "8.6", "hardware_compatibility": "ampere-plus"},
        {"compute_capability": "9.0"},
        (0, "usable", [("compute-capability", "9.0", "8.6"), ("hardware-compatibility", "none", "ampere-plus")]),
    ),
    (
        "FR-17 portable, to an older device",
        "tensorrt",
        {"compute_capability": "8.6", "hardware_compatibility": "ampere-plus"},
        {"compute_capability": "7.5", "hardware_compatibility": "ampere-plus"},
        (1, "miss", [("compute-capability", "7.5", "8.6")]),
    ),
    (
        "FR-18 12.1 is not 12.0, and the device is outside the list",
        "triton-nvidia",
        {"compute_capability": "12.0", "torch": "2.9.0", "arch_list": None},
        {"compute_capability": "12.1", "torch": "2.9.0", "arch_list": "sm_90 sm_100 sm_120"},
        (1, "miss", [("arch-list", "sm_90 sm_100 sm_120", "12.1"), ("compute-capability", "12.1", "12.0")]),
    ),
    (
        "FR-14 the runtime is outside the driver's window",
        "neff",
        {"runtime_compat": "6"},
        {"runtime_compat": "2-4"},
        (1, "miss", [("runtime-compat", "2-4", "6-6")]),
    ),
    ("FR-14 the runtime is inside", "neff", {"runtime_compat": "3"}, {"runtime_compat": "2-4"}, (0, "hit", [])),
    (
        "FR-15 a feature the container does not know",
        "neff",
        {"features": "0x100"},
        {"features": "0x800000000000001f"},
        (1, "miss", [("features", "0x800000000000001f", "0x100")]),
    ),
    ("FR-15 what is not known is not guessed", "neff", {"features": "0x100"}, {"features": None}, (4, "unknown", [])),
]


@pytest.mark.parametrize(
    ("kind", "kept", "wanted", "answer"), [one[1:] for one in CASES], ids=[one[0] for one in CASES]
)
def test_the_verdict_is_told(
    run_builder: RunBuilder,
    plan: Path,
    kind: str,
    kept: dict[str, str | None],
    wanted: dict[str, str | None],
    answer: tuple[int, str, list[tuple[str, str, str]]],
) -> None:
    plan.write_bytes(b"an engine of no format that is read here")
    put = run_builder("cache", "put", kind, str(plan), *settings(kind, **kept))
    assert put.returncode == 0, put.stderr
    code, verdict, differs = answer
    done = run_builder("cache", "lookup", kind, *settings(kind, **wanted), "--json")
    found = document(done, "cache-lookup")
    assert (done.returncode, found["verdict"]) == (code, verdict)
    named = {one["property"]: (one["wanted"], one["found"]) for one in found["differs"]}
    if verdict != "unknown":
        assert set(named) == {name for name, _, _ in differs}
    for name, ours, theirs in differs:
        if name != "arch-list":
            assert named[name] == (ours, theirs)
    shown = run_builder("cache", "lookup", kind, *settings(kind, **wanted))
    assert shown.returncode == code
    assert all(name in shown.stdout for name, _, _ in differs)


def test_fr_19_two_pods_have_one_key_and_a_miss_names_the_variable(run_builder: RunBuilder, plan: Path) -> None:
    plan.write_bytes(b"an engine of no format that is read here")
    kind = engine_kind("vllm")
    told = [
        part
        for name, value in stated(kind).items()
        if kind.properties[name].group != "env"
        for part in ("--set", f"{name}={value}")
    ]
    pods = [
        {"VLLM_NIXL_SIDE_CHANNEL_HOST": "198.51.100.7", "HOME": "home-a", "HOSTNAME": "pod-1", "USER": "ada"},
        {"VLLM_NIXL_SIDE_CHANNEL_HOST": "198.51.100.9", "HOME": "home-b", "HOSTNAME": "pod-2", "USER": "eve"},
    ]
    keys = [
        document(run_builder("cache", "key", "vllm", *told, "--env", "--json", env=pod), "cache-key")["key"]
        for pod in pods
    ]
    assert keys[0] == keys[1]
    assert run_builder("cache", "put", "vllm", str(plan), *told, "--env", env=pods[0]).returncode == 0
    assert run_builder("cache", "lookup", "vllm", *told, "--env", env=pods[1]).returncode == 0
    changed = {**pods[1], "VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    done = run_builder("cache", "lookup", "vllm", *told, "--env", "--json", env=changed)
    found = document(done, "cache-lookup")
    assert (done.returncode, found["verdict"]) == (1, "miss")
    assert [one["property"] for one in found["differs"]] == ["VLLM_ATTENTION_BACKEND"]
