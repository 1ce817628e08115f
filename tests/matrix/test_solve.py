"""The stacks the solver offers, and what it says of the rest."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder import resources
from builder.errors import BadInput
from builder.matrix import Solution, Stack, Verdict, load_tables, solve
from builder.matrix.versions import within
from builder.matrix.wants import meets
from builder.node import NodeClass, node_class

TABLES = load_tables()
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def solved(
    backend: str,
    *want: str,
    python: str | None = "3.11",
    arch: str = "x86_64",
    toolkit: str | None = None,
    node: NodeClass | None = None,
    allow_unknown: bool = False,
) -> Solution:
    return solve(
        TABLES,
        backend=backend,
        python=python,
        arch=arch,
        node_class=node,
        toolkit=toolkit,
        want=[Requirement(text) for text in want],
        allow_unknown=allow_unknown,
    )


def first(backend: str, *want: str, python: str | None = "3.11", toolkit: str | None = None) -> Stack:
    return solved(backend, *want, python=python, toolkit=toolkit).stacks[0]


@pytest.mark.parametrize(
    ("backend", "want", "toolkit", "name", "cell"),
    [
        # by AMD's compatibility matrix, Intel's support matrix, and the manifest of the Neuron SDK
        ("rocm", "onnxruntime", "7.1", "onnxruntime", "1.23.1"),
        ("rocm", "onnxruntime-rocm>=1.20", "7.1", "onnxruntime-rocm", "1.23.1"),
        ("rocm", "jax", "10.0", "jax", "0.11.0"),
        ("rocm", "jax<0.11", "10.0", "jax", "0.10.2"),
        ("hpu", "vllm", "1.21.0", "vllm", "0.7.2"),
        ("neuron", "neuronx-distributed", "2.31.1", "neuronx-distributed", "0.19.28492"),
    ],
)
def test_what_only_the_list_of_a_release_names(backend: str, want: str, toolkit: str, name: str, cell: str) -> None:
    stack = first(backend, want, python=None, toolkit=toolkit)
    assert stack.frameworks[name] == cell
    assert f"{name}=={cell}" in stack.constraints
    (why,) = [reason for reason in stack.why if reason.cell == name]
    assert why.why.startswith("goes with it: ")


@pytest.mark.parametrize(
    ("backend", "want", "verdict", "rule"),
    [
        ("rocm", "onnxruntime==1.14.1", "unsupported", "release-members"),  # a closed list: of ROCm 6.0 alone
        ("rocm", "jax>=99", "unknown", "companion"),
        ("hpu", "vllm==0.7.3", "unsupported", "gaudi-vllm"),
        ("musa", "sglang", "unknown", "companion"),
    ],
)
def test_what_no_release_lists_is_told(backend: str, want: str, verdict: Verdict, rule: str) -> None:
    solution = solved(backend, want, python=None, toolkit={"rocm": "7.1", "hpu": "1.21.0"}.get(backend))
    assert not solution.stacks
    (found,) = [one for one in solution.refused[0].rules if one.rule == rule]
    assert (found.verdict, found.fix != "") == (verdict, True)


def test_wants_nobody_knows_are_told_and_restrict_nothing() -> None:
    solution = solved("rocm", "torch", "flask>=3", "onnxruntime")
    assert solution.stacks
    assert solution.not_judged == ("flask",)


def with_driver(name: str, driver: str) -> NodeClass:
    return dataclasses.replace(node_class(name), driver=driver)


@pytest.mark.parametrize("backend", resources.backends())
def test_every_backend_has_generations_and_a_reason_for_each_cell(backend: str) -> None:
    """Of the makers without published tables there are few, and MUSA's toolkits are not told."""
    few = {"corex": 2, "musa": 2}
    solution = solved(backend, python=None, allow_unknown=backend == "musa")
    assert len({stack.constraints for stack in solution.stacks}) >= few.get(backend, 3)
    for stack in solution.stacks:
        cells = {reason.cell for reason in stack.why}
        assert {*stack.frameworks, "python"} <= cells
        assert stack.backend == backend
        assert (stack.unknown == ()) == (backend != "musa")
        assert all(reason.why and reason.source for reason in stack.why)
        for line in stack.constraints:
            assert Requirement(line)
        for pin in stack.indexes:
            assert "{" not in pin.index


def test_cpu_takes_the_labelled_build_from_the_cpu_index() -> None:
    stack = first("cpu", "torch==2.13.0", "onnxruntime>=1.20")
    assert stack.constraints == ("torch==2.13.0+cpu",)
    assert stack.frameworks == {"torch": "2.13.0+cpu"}
    assert [(pin.index, "torch" in pin.packages) for pin in stack.indexes] == [(CPU_INDEX, True)]
    assert stack.toolkit is None
    assert stack.base is None


def test_without_a_framework_the_newest_stack_is_chosen_and_unknown_names_restrict_nothing() -> None:
    assert solved("cpu").stacks == solved("cpu", "onnxruntime", "requests==2.0").stacks
    assert first("cpu").frameworks == {"torch": "2.15.0+cpu"}


def test_the_mend_of_the_trap_is_a_constraint() -> None:
    """torch-npu 2.13.0 alone pulls the CUDA torch of the default index; the stack binds torch to the CPU build."""
    stack = first("npu", "torch-npu==2.13.0", toolkit="9.1.0")
    assert stack.constraints == ("torch-npu==2.13.0", "torch==2.13.0+cpu")
    assert [(pin.index, "torch" in pin.packages) for pin in stack.indexes] == [(CPU_INDEX, True)]
    assert "torch-npu" not in stack.indexes[0].packages


def test_on_aarch64_the_unlabelled_build_is_taken_from_the_cpu_index() -> None:
    stack = solved("npu", "torch-npu==2.13.0", toolkit="9.1.0", arch="aarch64").stacks[0]
    assert stack.constraints == ("torch-npu==2.13.0", "torch==2.13.0")
    assert stack.indexes[0].index == CPU_INDEX


def test_a_toolkit_no_source_gives_is_unknown_never_invented() -> None:
    refused = solved("npu", "torch-npu==2.13.0")
    assert refused.stacks == ()
    nearest = refused.refused[0]
    assert (nearest.name, nearest.verdict) == ("torch-npu-2.13.0", "unknown")
    assert "no source says which CANN" in nearest.rules[0].why
    assert "--allow-unknown" in nearest.rules[0].fix
    (stack,) = solved("npu", "torch-npu==2.13.0", allow_unknown=True).stacks
    assert stack.toolkit is None
    assert "no source says which CANN" in stack.unknown[0]
    (named,) = solved("npu", "torch-npu==2.13.0", toolkit="9.1.0").stacks
    assert (named.toolkit, named.unknown) == ("9.1.0", ())


def test_a_set_of_no_known_toolkit_is_not_put_with_one_that_others_are_listed_with() -> None:
    found = solved("npu", toolkit="8.5.0")
    assert [stack.frameworks["torch-npu"] for stack in found.stacks] == [
        "2.9.0",
        "2.8.0.post2",
        "2.7.1.post2",
        "2.6.0.post5",
    ]
    (newest,) = [one for one in found.refused if one.name == "torch-npu-2.14.0"]
    assert newest.verdict == "unknown"
    assert "no source says whether CANN 8.5.0 goes with" in newest.rules[0].why
    assert solved("npu", "torch==2.12.0", toolkit="8.5.0").stacks == ()


def test_what_a_source_vouches_for_goes_before_what_is_let_pass() -> None:
    stacks = solved("npu", allow_unknown=True).stacks
    unknown = [bool(stack.unknown) for stack in stacks]
    assert unknown == sorted(unknown)
    assert True in unknown
    assert first("npu", "torch==2.9.0", toolkit="8.5.0").frameworks["torch-npu"] == "2.9.0"


def test_a_labelled_want_is_met_by_the_labelled_build() -> None:
    assert first("npu", "torch==2.9.0+cpu").frameworks["torch"] == "2.9.0+cpu"
    assert first("cuda", "torch==2.13.0").constraints == ("torch==2.13.0",)
    assert first("cuda", "torch==2.13.0").indexes == ()
    labelled = first("cuda", "torch==2.13.0+cu130")
    assert labelled.constraints == ("torch==2.13.0+cu130",)
    assert labelled.indexes[0].index == "https://download.pytorch.org/whl/cu130"


def test_a_named_toolkit_chooses_the_variant_and_its_index() -> None:
    stack = first("cuda", "torch==2.13.0", toolkit="12.6")
    assert stack.constraints == ("torch==2.13.0+cu126",)
    assert stack.indexes[0].index == "https://download.pytorch.org/whl/cu126"
    assert stack.toolkit == "12.6"
    assert stack.runtime.env["NVIDIA_REQUIRE_CUDA"] == "cuda>=12.6"


def test_stacks_are_newest_first() -> None:
    lead = [stack.frameworks["torch"].partition("+")[0] for stack in solved("cuda", python=None).stacks]
    assert lead[0] == "2.15.0"
    assert lead == sorted(lead, key=lambda text: [int(part) for part in text.split(".")], reverse=True)


def test_an_uncertain_row_needs_allow_unknown() -> None:
    assert all("rocm10.0" not in stack.frameworks["torch"] for stack in solved("rocm", "torch").stacks)
    assert any("rocm10.0" in stack.frameworks["torch"] for stack in solved("rocm", "torch", allow_unknown=True).stacks)


def test_the_node_s_device_decides_between_builds() -> None:
    assert first("cuda", "torch==2.13.0").toolkit == "13.0"
    volta = solved("cuda", "torch<2.12", node=node_class("v100"))
    assert "sm_70" in volta.stacks[0].archs
    blackwell = solved("cuda", "torch==2.6.0", node=node_class("rtx5090"))
    assert blackwell.stacks == ()
    assert {rule.rule for refusal in blackwell.refused for rule in refusal.rules} >= {"framework-target"}
    assert solved("rocm", "torch", node=node_class("mi355x")).stacks[0].archs.count("gfx950") == 1


def test_the_node_s_driver_decides_between_toolkits() -> None:
    stack = solved("cuda", "torch==2.13.0", node=with_driver("h100", "570.124.06")).stacks[0]
    assert stack.toolkit == "12.6"
    old = solved("cuda", "torch==2.13.0", node=with_driver("h100", "450.80.02"))
    assert old.stacks == ()
    assert {rule.rule for rule in old.refused[0].rules} >= {"driver-floor"}


def test_a_requirement_the_runtime_would_refuse_refuses_the_stack() -> None:
    """FR-05: the image's NVIDIA_REQUIRE_CUDA is stricter than minor-version compatibility."""
    solution = solved("cuda", "torch==2.8.0", toolkit="12.8", node=with_driver("rtx3090", "550.144.03"))
    assert solution.stacks == ()
    (rule,) = [rule for rule in solution.refused[0].rules if rule.rule == "require-cuda"]
    assert "cuda>=12.8" in rule.why
    assert "550.144.03 offers 12.4" in rule.why
    assert "minor-version compatibility does not lift that" in rule.why


def test_a_driver_nobody_knows_is_said_to_be_unchecked() -> None:
    stack = solved("cuda", "torch", node=node_class("h100")).stacks[0]
    assert any(reason.cell == "driver" and "not checked" in reason.why for reason in stack.why)


def test_a_node_of_another_backend_cannot_be_asked() -> None:
    with pytest.raises(BadInput, match="node class mi300x is of backend rocm, not cuda"):
        solved("cuda", node=node_class("mi300x"))


def test_a_companion_binds_the_versions_it_was_made_with() -> None:
    stack = first("npu", "vllm-ascend==0.23.0")
    assert stack.frameworks["torch-npu"] == "2.10.0.post4"
    assert stack.frameworks["torch"] == "2.10.0+cpu"
    assert stack.frameworks["vllm"] == "0.23.0"
    assert stack.toolkit == "9.1.0"
    tensorrt = first("cuda", "torch-tensorrt")
    assert "torch-tensorrt==2.14.*" in tensorrt.constraints
    assert tensorrt.frameworks["torch"].startswith("2.14.")
    assert (tensorrt.toolkit or "").startswith("13.")


def test_a_release_without_an_upper_bound_is_not_the_way_out() -> None:
    """vllm 0.2.5 asks for `torch >=2.1.1`: a resolver takes it with any torch to come, the tables do not."""
    absurd = solved("cuda", "torch==2.15.0", "vllm==0.2.5")
    assert not absurd.stacks
    assert absurd.refused[0].name == "torch-2.15.0-cu132"
    assert "torch >=2.1.1,<2.2" in absurd.refused[0].rules[0].why
    assert not solved("cuda", "torch==2.15.0", "vllm").stacks
    newest = first("cuda", "vllm")
    assert (newest.frameworks["torch"], newest.frameworks["vllm"]) == ("2.14.0", "0.33.0")
    assert not solved("npu", "torch==2.12.0", "vllm-ascend").stacks


def test_what_is_wanted_together_stands_together_or_not_at_all() -> None:
    by_plugin = first("npu", "vllm==0.15.0")
    assert by_plugin.frameworks["vllm-ascend"] == "0.15.0rc1"
    assert first("npu", "vllm-ascend", python=None).python == "3.12", "the plug-in's Pythons bind the stack's"
    both = first("tpu", "jax", "torch-xla", python=None)
    assert both.frameworks["libtpu"] == "0.0.17.*", "the newest release of each that agree on libtpu"
    refused = solved("tpu", "jax==0.12.0", "torch-xla==2.9.0", python=None)
    assert not refused.stacks
    assert "an image for each" in refused.refused[0].rules[0].fix
    assert not solved("npu", "vllm-ascend==0.28.0rc1").stacks, "of that release only the date is known"


def test_vendor_bases_are_named_where_the_wheels_need_them() -> None:
    assert first("npu", "torch-npu==2.9.0", toolkit="8.5.0").base == "quay.io/ascend/cann:8.5.0-910b-ubuntu22.04-py3.11"
    lite = solved("npu", "torch-npu==2.9.0", toolkit="8.5.0", node=node_class("ascend-310p3")).stacks[0]
    assert lite.base == "quay.io/ascend/cann:8.5.0-310p-ubuntu22.04-py3.11"
    missing = first("npu", "torch-npu==2.12.0", python="3.13")
    assert missing.base is None
    assert any(reason.cell == "base" and "no image of the vendor is known" in reason.why for reason in missing.why)
    neuron = first("neuron", "torch-neuronx==2.9.0.2.15.32035", python="3.12", toolkit="2.31.1")
    assert neuron.base == "public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.31.1-ubuntu24.04"


def test_a_pattern_of_toolkits_becomes_a_release_that_is_known() -> None:
    stack = first("npu", "torch-npu==2.12.0.post2")
    assert stack.toolkit == "9.1.0"
    assert any("within 9.1.*" in reason.why for reason in stack.why)


def test_python_and_architecture_refuse() -> None:
    assert solved("cuda", "torch==2.15.0", python="3.10").stacks == ()
    assert solved("tpu", "torch-tpu", arch="aarch64").stacks == ()
    assert solved("tpu", "jax==0.12.0", python="3.11").stacks == ()
    assert solved("tpu", "jax==0.12.0", python="3.12").stacks[0].constraints == (
        "jax==0.12.0",
        "jaxlib==0.12.0",
        "libtpu==0.0.50.*",
    )


def test_markers_are_read_for_the_target() -> None:
    assert first("cpu", "torch==2.13.0; python_version < '3.12'").frameworks["torch"] == "2.13.0+cpu"
    assert first("cpu", "torch==2.13.0; python_version >= '3.12'").frameworks["torch"] == "2.15.0+cpu"
    assert first("cpu", "torch==2.13.0; platform_machine == 'aarch64'").frameworks["torch"] == "2.15.0+cpu"


def test_no_answer_tells_the_nearest_misses_first() -> None:
    solution = solved("cuda", "torch>=2.99")
    assert solution.stacks == ()
    assert solution.refused[0].name == "torch-2.15.0-cu132"
    assert "torch>=2.99 is asked for" in solution.refused[0].rules[0].why


def test_a_toolkit_for_a_backend_without_one_cannot_be_asked() -> None:
    with pytest.raises(BadInput, match="backend cpu has no toolkit"):
        solved("cpu", toolkit="1.0")


def test_the_same_question_has_the_same_answer_in_another_process() -> None:
    program = (
        "from builder.matrix import *; print([repr(solve(load_tables(), backend=b)) for b in load_tables().names])"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("cell", "bounds", "label", "met"),
    [
        ("2.13.0+cpu", "==2.13.0", None, True),
        ("2.13.0", "==2.13.0+cpu", None, False),
        ("2.13.0", "==2.13.0+cu130", "cu130", True),
        ("2.13.*", "==2.13.1", None, True),
        ("2.13.*", ">=2.9", None, True),
        ("2.13.*", "<2.13", None, False),
        (">=0.0.50", "==0.0.49", None, False),
        (">=0.0.50", "==0.0.52", None, True),
        ("2.12.0.post2", ">=2.12", None, True),
    ],
)
def test_wants_against_cells(cell: str, bounds: str, label: str | None, met: bool) -> None:
    assert meets(cell, SpecifierSet(bounds), label=label) is met


def test_frameworks_keep_their_constraints() -> None:
    for backend in TABLES.names:
        for stack in solved(backend, python=None).stacks:
            bounds = {Requirement(line).name: str(Requirement(line).specifier) for line in stack.constraints}
            for name, version in stack.frameworks.items():
                assert name in bounds
                assert version.endswith("*") or within(version, bounds[name])


def test_a_package_that_only_some_sets_hold_is_no_riddle_for_the_rest() -> None:
    found = solved("dtk", "vllm", python=None)
    assert [stack.frameworks["vllm"] for stack in found.stacks] == ["0.18.1"]
    assert {rule.why for one in found.refused for rule in one.rules} >= {"no table says which vllm goes with DTK 26.04"}


def test_bounds_of_a_limit_are_no_version_of_a_constraint() -> None:
    for stack in solved("cuda", "jax").stacks:
        assert not any("==>" in constraint for constraint in stack.constraints)


@pytest.mark.parametrize(
    ("backend", "wants", "settings", "newest"),
    [
        ("cuda", ["torch==2.9.1"], {"toolkit": "12.9"}, {"torch": "2.9.1+cu129"}),
        (
            "cuda",
            ["torch", "torch-tensorrt"],
            {},
            {"torch": "2.14.1", "torch-tensorrt": "2.14.*", "tensorrt": "11.1.*"},
        ),
        ("rocm", ["torch"], {"toolkit": "7.2"}, {"torch": "2.14.1+rocm7.2"}),
        ("npu", ["torch-npu"], {"toolkit": "9.0.0"}, {"torch-npu": "2.10.0", "torch": "2.10.0+cpu"}),
        ("tpu", ["jax"], {"python": "3.11"}, {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.*"}),
        ("tpu", ["torch-xla", "jax"], {"python": "3.10"}, {"torch-xla": "2.8.1", "jax": "0.6.2", "libtpu": "0.0.17.*"}),
        ("xpu", ["torch"], {}, {"torch": "2.13.*"}),
        ("maca", ["vllm"], {"python": None}, {"torch": "2.8.0", "vllm": "0.21.0"}),
        ("mlu", ["torch"], {"python": "3.10"}, {"torch-mlu": "1.22.0+torch2.4.0", "torch": "2.4.0+cpu"}),
    ],
)
def test_the_newest_stack_is_that_of_the_makers_tables(
    backend: str, wants: list[str], settings: dict[str, str | None], newest: dict[str, str]
) -> None:
    asked = {"python": settings.get("python", "3.12"), "toolkit": settings.get("toolkit")}
    stack = solved(backend, *wants, python=asked["python"], toolkit=asked["toolkit"]).stacks[0]
    assert {name: stack.frameworks.get(name) for name in newest} == newest


@pytest.mark.parametrize(
    ("backend", "wants", "settings", "why"),
    [
        ("cuda", ["torch==2.9.1"], {"python": "3.9"}, "3.9 is asked for"),
        ("cuda", ["vllm", "torch>=2.15"], {}, "does not go with vllm"),
        ("cuda", ["torch>=3"], {}, "torch>=3 is asked for; this set has torch 2.15.0"),
        ("rocm", ["torch==2.9.1"], {"toolkit": "7.1"}, "torch==2.9.1 is asked for"),
        ("npu", ["torch==2.9.0"], {"toolkit": "8.5.0", "python": "3.13"}, "3.13 is asked for"),
        ("tpu", ["torch-tpu", "torch==2.15.1"], {}, "torch==2.15.1 is asked for"),
        ("tpu", ["torch-tpu"], {"arch": "aarch64"}, "wheels for x86_64 only"),
        ("xpu", ["torch==2.14.0"], {}, "no source says which oneAPI goes with"),
        ("hpu", ["torch"], {"toolkit": "1.9.0"}, "Gaudi software 1.9.0 is asked for"),
    ],
)
def test_the_nearest_miss_is_told_with_source_and_mend(
    backend: str, wants: list[str], settings: dict[str, str], why: str
) -> None:
    found = solved(
        backend,
        *wants,
        python=settings.get("python", "3.12"),
        arch=settings.get("arch", "x86_64"),
        toolkit=settings.get("toolkit"),
    )
    assert found.stacks == ()
    assert why in found.refused[0].rules[0].why
    for refused in found.refused:
        for rule in refused.rules:
            assert all((rule.why, rule.source, rule.fix)), (refused.name, rule)
