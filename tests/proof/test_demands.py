"""What objects ask of processor, device and driver, and the three answers."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping

import pytest

from builder.matrix.load import load_backend
from builder.node.values import NodeClass
from builder.proof.demands import cpu_needs, device_coverage, driver_need
from builder.proof.elf import read_object
from builder.proof.objects import DeviceCode, ElfObject
from builder.proof.ranges import BytesRanges
from builder.proof.values import DeviceCoverage, DriverNeed, Weight
from tests.proof.trees import Tree


def required(path: str) -> tuple[Weight, str]:
    return "required", ""


def optional(path: str) -> tuple[Weight, str]:
    return "optional", "opened on demand"


def node(**facts: str) -> NodeClass:
    values: dict[str, str] = {"name": "n", "backend": "cuda", **facts}
    return NodeClass(
        name=values["name"],
        backend=values["backend"],
        arch="x86_64",
        device_arch=values.get("device_arch"),
        driver=values.get("driver"),
        cpu_level=values.get("cpu_level"),
    )


def fatbin(*entries: tuple[str, int, str]) -> bytes:
    """A fat binary with these programs: kind (`sm` or `compute`), number, suffix."""
    body = b""
    for kind, number, suffix in entries:
        flags = {"": 0, "a": 0x100000, "f": 0x200000}[suffix]
        body += struct.pack(
            "<HHIQIIHHIIIQ", {"compute": 1, "sm": 2}[kind], 0x101, 64, 16, 0, 0, 0, 0, number, 0, 0, flags
        ).ljust(64, b"\0")
        body += b"\0" * 16
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_targets_are_read_from_the_file(tree: Tree) -> None:
    tree.library("/opt/liba.so")
    data = tree.path("/opt/liba.so").read_bytes()
    code = fatbin(("sm", 80, ""), ("sm", 90, "a"), ("compute", 90, "")) + b"pad" + fatbin(("sm", 100, "f"))
    found = read_object(BytesRanges(data + code))
    assert found is not None
    assert found.device == DeviceCode(sm=("sm_100f", "sm_80", "sm_90a"), ptx=("compute_90",))


def test_the_level_a_file_declares(tree: Tree) -> None:
    levels = {}
    for level in ("v2", "v3", "v4"):
        tree.library(f"/opt/{level}.so", flags=["-Wl,-z,x86-64-" + level])
        found = read_object(BytesRanges(tree.path(f"/opt/{level}.so").read_bytes()))
        assert found is not None
        levels[level] = found.isa_level
    assert levels == {"v2": 2, "v3": 3, "v4": 4}


def shared(*, level: int = 0, **device: tuple[str, ...]) -> list[tuple[str, ElfObject]]:
    return [("/a.so", ElfObject(machine=62, bits=64, kind="shared", isa_level=level, device=DeviceCode(**device)))]


def test_fr_32_a_processor_without_avx2() -> None:
    (need,) = cpu_needs(shared(level=3), node(cpu_level="x86-64-v2"), required)
    assert (need.answer, need.why) == ("refused", "needs x86-64-v3, the node has x86-64-v2")
    (need,) = cpu_needs(shared(level=3), node(cpu_level="x86-64-v4"), required)
    assert need.answer == "proven"
    (need,) = cpu_needs(shared(level=3), node(), required)
    assert need.answer == "unknown"
    assert "does not say its cpu_level" in need.why
    assert cpu_needs(shared(level=1), node(), required) == ()
    (need,) = cpu_needs(shared(level=3), node(cpu_level="x86-64-v2"), optional)
    assert (need.answer, need.why) == (
        "proven",
        "needs x86-64-v3, the node has x86-64-v2 (optional: opened on demand)",
    )


def covered(device: str | None, sm: tuple[str, ...] = (), ptx: tuple[str, ...] = ()) -> DeviceCoverage:
    facts = {} if device is None else {"device_arch": device}
    (found,) = device_coverage(shared(sm=sm, ptx=ptx), node(**facts), load_backend("cuda"), required)
    return found


CU124 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


def test_fr_08_a_build_older_than_the_card() -> None:
    assert covered("sm_120", CU124).answer == "refused"
    l4 = covered("sm_89", CU124)
    assert (l4.answer, l4.by, l4.why) == ("proven", ("sm_86",), "sm_86 runs on sm_89")


@pytest.mark.parametrize(
    ("device", "sm", "ptx", "answer"),
    [
        ("sm_120", CU124, ("compute_90",), "proven"),
        ("sm_80", (), ("compute_90",), "refused"),
        ("sm_100", ("sm_90a",), ("compute_90a",), "refused"),
        ("sm_103", ("sm_100f",), (), "proven"),
        ("sm_120", ("sm_80", "sm_100f"), (), "refused"),
        (None, CU124, (), "unknown"),
    ],
)
def test_cubins_and_ptx(device: str | None, sm: tuple[str, ...], ptx: tuple[str, ...], answer: str) -> None:
    assert covered(device, sm, ptx).answer == answer


def test_ptx_is_said_to_be_slow_at_first() -> None:
    assert "compiles compute_90 when it is first used" in covered("sm_120", CU124, ("compute_90",)).why


def test_kernels_for_one_architecture_only_are_chosen_by_the_code() -> None:
    found = covered("sm_120", ("sm_90a",))
    assert (found.answer, found.weight) == ("proven", "optional")
    assert "only variants for single architectures" in found.why


def test_amd_names_and_nvidia_names_are_never_compared() -> None:
    found = device_coverage(
        shared(sm=CU124), node(backend="rocm", device_arch="gfx942"), load_backend("rocm"), required
    )
    assert found == ()


def test_rocm_targets() -> None:
    rocm = load_backend("rocm")
    code = shared(gfx=("gfx90a:xnack-", "gfx11-generic"))
    answers = {
        device: device_coverage(code, node(backend="rocm", device_arch=device), rocm, required)[0].answer
        for device in ("gfx90a", "gfx1103", "gfx942")
    }
    assert answers == {"gfx90a": "proven", "gfx1103": "proven", "gfx942": "refused"}


def test_an_override_of_the_class_is_in_the_proof() -> None:
    rocm = load_backend("rocm")
    code = shared(gfx=("gfx1030", "gfx1100"))
    plain = node(backend="rocm", device_arch="gfx1103")
    (found,) = device_coverage(code, plain, rocm, required)
    assert found.answer == "refused"
    taken = dataclasses.replace(plain, env=("HSA_OVERRIDE_GFX_VERSION=11.0.0",))
    (found,) = device_coverage(code, taken, rocm, required)
    assert (found.answer, found.by) == ("proven", ("gfx1100",))
    assert found.why == "gfx1100; the device is gfx1103, its node class overrides that at its operator's risk"
    useless = dataclasses.replace(plain, env=("HSA_OVERRIDE_GFX_VERSION=11.0.3",))
    assert device_coverage(code, useless, rocm, required)[0].answer == "refused"


def driver(version: str | None, toolkit: str | None = "12.8", env: Mapping[str, str] | None = None) -> DriverNeed:
    facts = {} if version is None else {"driver": version}
    return driver_need(load_backend("cuda"), node(**facts), toolkit=toolkit, toolkit_source="label", env=env or {})


def test_a_driver_that_is_new_enough() -> None:
    found = driver("570.124.06")
    assert found.answer == "proven"
    assert all(rule.source for rule in found.rules)


def test_a_driver_of_an_older_major() -> None:
    assert driver("470.57.02").answer == "refused"


def test_facts_that_are_missing() -> None:
    assert driver(None).answer == "unknown"
    assert "the node class does not say its own" in driver(None).why
    assert driver("570.124.06", toolkit=None).answer == "unknown"


def test_fr_05_the_container_runtime_is_stricter_than_the_driver() -> None:
    assert driver("550.144.03").answer == "proven"
    found = driver("550.144.03", env={"NVIDIA_REQUIRE_CUDA": "cuda>=12.8"})
    assert found.answer == "refused"
    (rule,) = [rule for rule in found.rules if rule.rule == "require-cuda"]
    assert "offers CUDA 12.4" in rule.why
    assert driver("570.124.06", env={"NVIDIA_REQUIRE_CUDA": "cuda>=12.8"}).answer == "proven"


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("cuda>=12.8 driver>=550,driver<551", "proven"),  # an alternative holds
        ("cuda>=12.8 driver>=535,driver<536", "refused"),
        ("cuda>=12.8 brand=tesla,driver>=550,driver<551", "unknown"),  # the class does not say its brand
        ("cuda => 12.8", "unknown"),  # nobody can read that
    ],
)
def test_whole_expressions_are_judged(asked: str, answer: str) -> None:
    found = driver("550.144.03", env={"NVIDIA_REQUIRE_CUDA": asked})
    assert found.answer == answer
    assert any(rule.rule == "require-cuda" and asked in rule.why for rule in found.rules)
    assert driver("550.144.03", env={"NVIDIA_REQUIRE_CUDA": asked, "NVIDIA_DISABLE_REQUIRE": "1"}).answer == "proven"


def test_a_backend_without_a_driver() -> None:
    found = driver_need(load_backend("cpu"), node(backend="cpu"), toolkit=None, toolkit_source="", env={})
    assert found.answer == "proven"
