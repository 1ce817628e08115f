"""Public field reports FR-05 to FR-16 as the tables and rules answer them; those of the lock stand in tests/lock."""

from __future__ import annotations

import dataclasses

import pytest
from packaging.requirements import Requirement

from builder.matrix import Explanation, RuleVerdict, Verdict, explain, load_backend, load_tables, parse_question, solve
from builder.matrix.require import met, parse_requirement
from builder.node import NodeClass


def ask(backend: str, **settings: str) -> Explanation:
    loaded = load_backend(backend)
    return explain(loaded, parse_question({key.replace("_", "-"): value for key, value in settings.items()}, loaded))


def rule(answer: Explanation, name: str) -> RuleVerdict:
    (found,) = [one for one in answer.rules if one.rule == name]
    return found


def test_fr_05_the_check_of_the_container_runtime_is_stricter_than_minor_version_compatibility() -> None:
    answer = ask("cuda", driver="550.144.03", toolkit="12.8", NVIDIA_REQUIRE_CUDA="cuda>=12.8")
    assert answer.verdict == "unsupported"
    assert rule(answer, "driver-floor").verdict == "supported"
    refused = rule(answer, "require-cuda")
    assert refused.verdict == "unsupported"
    assert "offers CUDA 12.4" in refused.why
    assert "minor-version compatibility does not lift that" in refused.why
    assert refused.fix == "driver 570 or newer, or a build for CUDA 12.4"
    assert ask("cuda", driver="570.26", NVIDIA_REQUIRE_CUDA="cuda>=12.8").verdict == "supported"
    without_image = ask("cuda", driver="550.144.03", toolkit="12.8")
    assert without_image.verdict == "supported"
    (note,) = without_image.notes
    assert note.startswith("require-cuda: the verdict is on toolkit and driver alone, no image was named")
    assert (
        "the image asks NVIDIA_REQUIRE_CUDA=cuda>=12.8, driver 550.144.03 offers 12.4: the container is refused" in note
    )


def test_fr_06_a_tag_published_again_asks_for_a_newer_driver() -> None:
    host = {"driver": "450.80.02", "cuda": "11.0", "brand": "tesla"}
    assert met(parse_requirement("cuda>=11.8 brand=tesla,driver>=450,driver<451"), host)
    assert met(parse_requirement("cuda>=11.8 brand=tesla,driver>=470,driver<471"), host) is False


@pytest.mark.parametrize(
    ("device", "verdict"), [("GeForce RTX 3060", "unsupported"), ("NVIDIA H100 80GB HBM3", "supported")]
)
def test_fr_07_forward_compatibility_is_for_data_centre_gpus(device: str, verdict: Verdict) -> None:
    answer = ask("cuda", toolkit="12.9", driver="570.211.01", device=device, cuda_compat="575")
    found = rule(answer, "forward-compatibility")
    assert (answer.verdict, found.verdict) == (verdict, verdict)
    if verdict == "unsupported":
        assert found.fix == "a build for CUDA <= 12.8 without cuda-compat-12-9, or a newer driver"


def test_fr_07_where_it_works_it_lifts_the_floor_of_another_major() -> None:
    assert ask("cuda", toolkit="13.0", driver="570.211.01", device="H100").verdict == "unsupported"
    lifted = ask("cuda", toolkit="13.0", driver="570.211.01", device="H100", cuda_compat_13_0="13.0")
    assert lifted.verdict == "supported"
    assert "but cuda-compat-13-0 works above driver branch 570" in rule(lifted, "driver-floor").why


@pytest.mark.parametrize(("device", "verdict"), [("RTX 5090", "unsupported"), ("L4", "supported")])
def test_fr_08_device_code_for_the_card(device: str, verdict: Verdict) -> None:
    answer = ask("cuda", torch="2.6.0+cu124", device=device, driver="570.124.06")
    found = rule(answer, "framework-target")
    assert (answer.verdict, found.verdict) == (verdict, verdict)
    if verdict == "unsupported":
        assert found.fix == "a set with sm_120: torch-2.7.0-cu128", "a cu128 build, the nearest there is"
        older = ask("cuda", torch="2.7.0+cu128", device=device, driver="565.57.01")
        assert rule(older, "device-driver").fix == "driver >= 570.26"


def test_fr_09_an_override_is_never_support() -> None:
    same = ask("rocm", torch="2.9.1+rocm6.4", arch="gfx1103", HSA_OVERRIDE_GFX_VERSION="11.0.3")
    assert rule(same, "framework-target").verdict == "unsupported"
    assert "the override has no effect" in rule(same, "hsa-override").why
    assert "HSA_OVERRIDE_GFX_VERSION=11.0.0, which AMD does not support: at their risk, for that node class only" in (
        rule(same, "framework-target").fix
    )
    other = rule(ask("rocm", torch="2.9.1+rocm6.4", arch="gfx1103", HSA_OVERRIDE_GFX_VERSION="11.0.0"), "hsa-override")
    assert other.verdict == "unsupported"
    assert "for one node class at the operator's risk and recorded there, never inside an image" in other.why


RADEON_780M = NodeClass(
    name="radeon-780m",
    backend="rocm",
    arch="x86_64",
    device="Radeon 780M",
    device_arch="gfx1103",
    env=("HSA_OVERRIDE_GFX_VERSION=11.0.0",),
)


def test_fr_09_an_operator_may_take_the_risk_for_one_class() -> None:
    tables = load_tables()
    want = (Requirement("torch==2.9.1+rocm6.4"),)
    refused = solve(tables, backend="rocm", node_class=dataclasses.replace(RADEON_780M, env=()), want=want)
    assert not refused.stacks
    (asked,) = [one for one in refused.refused if one.name == "torch-2.9.1-rocm6.4"]
    assert {(one.rule, one.verdict) for one in asked.rules} == {("framework-target", "unsupported")}

    taken = solve(tables, backend="rocm", node_class=RADEON_780M, want=want)
    (asked,) = [one for one in taken.refused if one.name == "torch-2.9.1-rocm6.4"]
    (found,) = asked.rules
    assert (found.rule, found.verdict) == ("hsa-override", "unknown")
    assert found.why.startswith("warning: node class radeon-780m runs code for gfx1100 on gfx1103")
    (stack,) = solve(tables, backend="rocm", node_class=RADEON_780M, want=want, allow_unknown=True).stacks
    assert stack.unknown == (found.why,)  # recorded in the lock and the labels; the image itself sets nothing
    assert "HSA_OVERRIDE_GFX_VERSION" not in stack.runtime.env


@pytest.mark.parametrize(
    ("override", "rules"), [("11.0.3", {"framework-target", "hsa-override"}), ("9.4.0", {"framework-target"})]
)
def test_fr_09_an_override_that_helps_nothing_stays_refused(override: str, rules: set[str]) -> None:
    node = dataclasses.replace(RADEON_780M, env=(f"HSA_OVERRIDE_GFX_VERSION={override}",))
    want = (Requirement("torch==2.9.1+rocm6.4"),)
    found = solve(load_tables(), backend="rocm", node_class=node, want=want, allow_unknown=True)
    assert not found.stacks
    (asked,) = [one for one in found.refused if one.name == "torch-2.9.1-rocm6.4"]
    assert {one.rule for one in asked.rules if one.verdict == "unsupported"} == rules


def test_fr_10_amd_parts_are_never_read_as_sm_tags() -> None:
    for arch in ("gfx1151", "gfx1201"):
        assert ask("rocm", torch="2.14.0+rocm7.2", arch=arch).verdict == "supported"
        assert rule(ask("cuda", torch="2.13.0", arch=arch), "framework-target").verdict == "unsupported"
    named = rule(ask("cuda", torch="2.13.0", device="Radeon AI PRO R9700"), "device-known")
    assert (named.verdict, named.fix) == ("unsupported", "--backend rocm")
    assert "is gfx1201, a device of backend rocm" in named.why


def test_fr_11_a_plug_in_belongs_to_one_torch() -> None:
    found = rule(ask("npu", toolkit="8.5.0", torch="2.12.0", torch_npu="2.8.0.post2"), "framework-set")
    assert (found.verdict, found.fix) == ("unsupported", "torch==2.8.0")


def test_fr_12_the_labelled_build_satisfies_both_pins() -> None:
    assert (
        rule(ask("npu", torch="2.9.0", torch_npu="2.9.0", arch="x86_64"), "framework-label").fix == "torch==2.9.0+cpu"
    )
    assert ask("npu", torch="2.9.0+cpu", torch_npu="2.9.0", arch="x86_64").verdict == "supported"
    assert ask("npu", torch="2.9.0", torch_npu="2.9.0", arch="aarch64").verdict == "supported"


def test_fr_13_the_base_is_of_the_chip_of_the_node() -> None:
    node = NodeClass(name="duo", backend="npu", arch="aarch64", device="Atlas 300I Duo", device_arch="Ascend310P3")
    wants = [Requirement("torch-npu==2.9.0")]
    (stack,) = solve(load_tables(), backend="npu", python="3.11", node_class=node, want=wants).stacks
    assert stack.base is not None
    assert "-310p-" in stack.base


def test_fr_14_the_runtime_id_is_outside_what_the_driver_supports() -> None:
    found = rule(ask("neuron", runtime_compat_id="6", driver_compat_ids="2-4", device="inf1.6xlarge"), "runtime-compat")
    assert (found.verdict, found.why) == (
        "unsupported",
        "the runtime's compatibility id is 6, the driver supports 2 to 4",
    )
    assert ask("neuron", runtime_compat_id="4", driver_compat_ids="2-4").verdict == "supported"


def test_fr_15_a_feature_bit_the_runtime_does_not_know() -> None:
    found = rule(ask("neuron", neff_features="0x100", runtime_neff_features="0x800000000000001f"), "neff-features")
    assert found.verdict == "unsupported"
    assert "0x100 is not inside" in found.why
    assert ask("neuron", neff_features="0x11", runtime_neff_features="0x800000000000001f").verdict == "supported"


def test_fr_16_one_plug_in_for_each_framework_release() -> None:
    assert ask("tpu", framework_pjrt_api="0.40", plugin_pjrt_api="0.47").verdict == "unsupported"
    assert rule(ask("tpu", torch_xla="2.9.0", libtpu="0.0.24"), "framework-set").verdict == "unsupported"
    split = rule(ask("tpu", torch_xla="2.9.0", jax="0.7.1"), "shared-packages")
    assert (split.verdict, split.fix) == ("unsupported", "an image for each")
    assert ask("tpu", torch_tpu="0.2.0", jax="0.12.0").verdict == "supported"
