"""What keeps an engine from being found: each cause alone makes exactly its own finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder import resources
from builder.cache import engine_kind, kind_names
from builder.cache.doctor import (
    Finding,
    Place,
    Surroundings,
    diagnose,
    folder_of,
    judge_engine,
    verdict_of_findings,
)
from builder.cache.folders import load_folders
from builder.cache.switches import Switch, load_switches
from builder.cache.values import Lookup
from builder.errors import BadInput
from tests.cache.samples import key_of

FOLDERS = load_folders(resources.checks_dir() / "engines.toml")
SWITCHES, PROGRAMS = load_switches(resources.checks_dir() / "engine-switches.toml")

GOOD = Place(
    exists=True, files=3, readable=True, writable=True, owner="uid 10, mode 0755", executable=True, free=1 << 40
)
TMP = "/scratch"


def around(kind: str, **changed: object) -> Surroundings:
    """Everything as it should be for one kind, with some of it changed."""
    folder = FOLDERS[kind]
    programs = {one.names[0]: f"/usr/bin/{one.names[0]}" for one in PROGRAMS if kind in one.kinds}
    healthy = Surroundings(
        env={folder.variable: "/engines", **folder.env},
        uid=10,
        user="app",
        home="/home/app",
        temporary=TMP,
        image=False,
        backend="cpu",
        programs=programs,
        places={"/engines": GOOD, TMP: GOOD},
        now=1000.0,
    )
    return replace(healthy, **changed)  # type: ignore[arg-type]


def found(kind: str, where: Surroundings) -> tuple[Finding, ...]:
    """Everything that is not as it should be."""
    all_of_it = diagnose(engine_kind(kind), FOLDERS.get(kind), where, switches=SWITCHES, programs=PROGRAMS)
    return tuple(one for one in all_of_it if one.verdict != "ok")


@pytest.mark.parametrize("kind", FOLDERS)
def test_where_all_is_well_nothing_is_found(kind: str) -> None:
    assert found(kind, around(kind)) == ()


@pytest.mark.parametrize(("kind", "switch"), [(kind, one) for one in SWITCHES for kind in sorted(one.kinds)])
def test_a_switch_is_found_for_each_of_its_kinds(kind: str, switch: Switch) -> None:
    one = switch
    value = one.contains or (one.values[0] if one.values else "1")
    folder = FOLDERS.get(kind)
    where = around(kind) if folder else replace(around("inductor"), env={"TORCHINDUCTOR_VEC_ISA_OK": "1"})
    hits = [
        item
        for item in found(kind, replace(where, env={**where.env, one.variable: value}))
        if item.name == one.variable
    ]
    assert hits
    assert hits[-1].verdict == ("miss" if one.effect == "off" else "warn")
    assert all(item.fix and item.source and one.why in item.detail for item in hits[-1:])


def test_values_that_leave_the_cache_on_are_no_finding() -> None:
    for kind, name, value in (
        ("jax-xla", "JAX_ENABLE_COMPILATION_CACHE", "true"),
        ("cann-op", "ACL_OP_DEBUG_LEVEL", "3"),
        ("triton-nvidia", "TRITON_ALWAYS_COMPILE", "0"),
        ("neff", "NEURON_CC_FLAGS", "--model-type=transformer"),
        ("inductor", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "0"),
    ):
        where = around(kind)
        assert found(kind, replace(where, env={**where.env, name: value})) == (), name


@pytest.mark.parametrize(
    ("kind", "changed", "name", "verdict", "detail"),
    [
        ("inductor", {"/engines": Place(exists=False)}, "folder", "miss", "does not exist"),
        ("inductor", {"/engines": replace(GOOD, files=0)}, "folder", "miss", "is empty"),
        ("inductor", {"/engines": replace(GOOD, readable=False)}, "folder", "miss", "cannot be read by uid 10"),
        ("inductor", {"/engines": replace(GOOD, writable=False)}, "folder", "miss", "locks are made in it"),
        ("jax-xla", {"/engines": replace(GOOD, writable=False)}, "folder", "warn", "compiled in every process anew"),
        ("inductor", {"/engines": replace(GOOD, executable=False)}, "folder", "miss", "noexec"),
        ("inductor", {"/engines": replace(GOOD, free=1 << 20)}, "room", "warn", "1 MiB are left"),
        ("inductor", {"/engines": replace(GOOD, newest=9000.0)}, "clock", "warn", "8000 s ahead of this clock"),
        ("inductor", {TMP: replace(GOOD, writable=False)}, "temporary", "warn", "compilers cannot work"),
        ("inductor", {TMP: Place(exists=False)}, "temporary", "warn", "is not there"),
    ],
)
def test_a_folder_that_is_not_right(kind: str, changed: dict[str, Place], name: str, verdict: str, detail: str) -> None:
    where = around(kind)
    (one,) = found(kind, replace(where, places={**where.places, **changed}))
    assert (one.name, one.verdict) == (name, verdict)
    assert detail in one.detail
    assert one.fix


@pytest.mark.parametrize(
    ("kind", "env", "home", "path", "says"),
    [
        ("inductor", {"TORCHINDUCTOR_CACHE_DIR": "/a"}, "/h", "/a", "TORCHINDUCTOR_CACHE_DIR"),
        ("inductor", {}, "/h", "/scratch/torchinductor_app", ""),
        ("triton-nvidia", {"TRITON_HOME": "/t"}, "/h", "/t/.triton/cache", "TRITON_HOME"),
        ("triton-nvidia", {}, "/h", "/h/.triton/cache", ""),
        ("triton-nvidia", {}, "", "", ""),
        ("vllm", {"XDG_CACHE_HOME": "/x"}, "/h", "/x/vllm", "XDG_CACHE_HOME"),
        ("vllm", {}, "/h", "/h/.cache/vllm", ""),
        ("cann-op", {"ASCEND_CACHE_PATH": "/c"}, "/h", "/c", "ASCEND_CACHE_PATH"),
        ("jax-xla", {}, "/h", "", ""),
    ],
)
def test_where_a_program_looks(kind: str, env: dict[str, str], home: str, path: str, says: str) -> None:
    assert folder_of(FOLDERS[kind], env, home=home, temporary=TMP, user="app") == (path, says)


@pytest.mark.parametrize(
    ("kind", "value", "verdict", "detail"),
    [
        ("inductor", "~/engines", "miss", "no shell expands the ~"),
        ("inductor", "engines", "miss", "depends on the working directory"),
        ("neff", "s3://bucket/engines", "unknown", "a store that is not looked into"),
        ("jax-xla", "", "miss", "JAX_COMPILATION_CACHE_DIR is not set: nothing is kept"),
        ("triton-nvidia", "", "miss", "HOME is not set and the user has no folder"),
    ],
)
def test_a_variable_that_names_no_folder(kind: str, value: str, verdict: str, detail: str) -> None:
    where = around(kind, home="")
    (one,) = found(kind, replace(where, env={**where.env, FOLDERS[kind].variable: value}))
    assert (one.verdict, one.name) == (verdict, "folder")
    assert detail in one.detail


def test_what_a_warm_up_sets_must_be_set() -> None:
    where = around("inductor")
    env = {name: value for name, value in where.env.items() if name != "TORCHINDUCTOR_VEC_ISA_OK"}
    (one,) = found("inductor", replace(where, env=env))
    assert (one.name, one.verdict, one.fix) == ("TORCHINDUCTOR_VEC_ISA_OK", "miss", "set TORCHINDUCTOR_VEC_ISA_OK=1")
    where = around("onnxruntime-trt")
    env = {**where.env, "ORT_TENSORRT_ENGINE_CACHE_ENABLE": "0"}
    (one,) = found("onnxruntime-trt", replace(where, env=env))
    assert (one.name, one.verdict) == ("ORT_TENSORRT_ENGINE_CACHE_ENABLE", "miss")


@pytest.mark.parametrize(
    ("kind", "backend", "verdict", "name"),
    [
        ("inductor", "cpu", "miss", "program g++"),
        ("inductor", "cuda", "warn", "program g++"),
        ("triton-nvidia", "cuda", "warn", "program cc"),
        ("neff", "neuron", "warn", "program neuronx-cc"),
    ],
)
def test_a_slim_image_has_no_compiler(kind: str, backend: str, verdict: str, name: str) -> None:
    (one,) = found(kind, around(kind, programs={}, backend=backend))
    assert (one.name, one.verdict) == (name, verdict)
    assert one.fix


def test_a_compiler_that_a_variable_names_must_be_there() -> None:
    where = around("inductor")
    (one,) = found("inductor", replace(where, env={**where.env, "CXX": "clang++ -v"}))
    assert "CXX names clang++ -v, which is not there" in one.detail
    there = replace(where, env={**where.env, "CXX": "clang++ -v"}, programs={"clang++": "/usr/bin/clang++"})
    assert found("inductor", there) == ()


def test_a_kind_without_a_variable_cannot_be_told() -> None:
    where = around("inductor", programs={})
    (one,) = found("openvino", where)
    assert (one.name, one.verdict) == ("folder", "unknown")
    assert verdict_of_findings([one]) == "unknown"


def test_in_an_image_what_is_not_there_is_new_in_each_container() -> None:
    where = around("inductor", image=True, places={"/engines": Place(exists=False), TMP: GOOD})
    (one,) = found("inductor", where)
    assert "new and empty in each container" in one.detail
    assert "--mount /engines" in one.fix
    assert found("inductor", replace(where, places={"/engines": Place(exists=True, mounted=True), TMP: GOOD})) == ()


def test_a_cache_without_engines_compares_nothing() -> None:
    one = judge_engine(Lookup(verdict="miss", wanted=key_of(engine_kind("neff"))), looked_in="engines")
    assert (one.verdict, verdict_of_findings([one])) == ("warn", "ok")


def test_the_tables_name_known_kinds_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    known = set(kind_names())
    assert all(kinds <= known for kinds in [*(one.kinds for one in SWITCHES), *(one.kinds for one in PROGRAMS)])
    assert len({one.variable for one in SWITCHES}) == len(SWITCHES)
    assert all(one.why and one.source for one in SWITCHES)
    (tmp_path / "table.toml").write_text('programs = []\n[[switches]]\nvariable = "A"\nkinds = []\n', encoding="utf-8")
    with pytest.raises(BadInput, match="A needs one of values, unless, contains"):
        load_switches(tmp_path / "table.toml")
