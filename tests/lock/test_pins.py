"""Which bounds and pins bind, and what a resolver's complaint names."""

from __future__ import annotations

import pytest

from builder.lock.pins import applied, asked_labels, labels_demanded, mentioned, pin_of, unlabelled_pins
from builder.matrix.values import IndexPin

PINS = (
    IndexPin(index="https://cpu", packages=("torch", "torchvision")),
    IndexPin(index="https://jax", packages=("jax-plugin",)),
)
BOUNDS = ("torch==2.13.0+cpu", "torchvision==0.28.0+cpu", "jax-plugin==0.5", "numpy<3")


@pytest.mark.parametrize(
    ("requirements", "also", "constraints", "pinned"),
    [
        (["sentence-transformers"], [], (), set()),
        (["Torch>=2"], [], BOUNDS[:2], {"torch", "torchvision"}),
        (["torchvision", "numpy"], [], (*BOUNDS[:2], "numpy<3"), {"torch", "torchvision"}),
        (["jax_plugin[x]; python_version>'3'"], [], ("jax-plugin==0.5",), {"jax-plugin"}),
        (["torch-npu"], ["torch"], (), {"torch", "torchvision"}),
    ],
)
def test_what_the_project_names_binds(
    requirements: list[str], also: list[str], constraints: tuple[str, ...], pinned: set[str]
) -> None:
    found = applied(requirements, BOUNDS, PINS, also=also)
    assert found.constraints == constraints
    assert set(found.pins) == pinned


def test_pins_are_known_whether_they_bind_or_not() -> None:
    assert pin_of("torchvision", PINS) == "https://cpu"
    assert pin_of("numpy", PINS) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Because pytorch-triton-rocm was not found in the package registry and all", ("pytorch-triton-rocm",)),
        ("Because there is no version of torch==2.13.0+rocm7.2 and all versions", ("torch",)),
        ("Because there are no versions of torch and torch-npu==2.13.0 depends on torch", ("torch",)),
        ("Because all versions of torch have no usable wheels", ()),
        ("No matching distribution found for torch==2.9.0+cpu", ("torch",)),
        ("torchaudio was not found in the package registry", ()),
    ],
)
def test_what_could_not_be_found(text: str, names: tuple[str, ...]) -> None:
    assert mentioned(text, ["torch", "pytorch-triton-rocm", "triton"]) == names


def test_versions_with_labels_that_are_asked_for() -> None:
    text = "Because there is no version of torch==2.9.0+cpu and torch-npu==2.9.0 depends on torch==2.9.0+cpu, we"
    assert labels_demanded(text, ["torch", "torchvision"]) == {"torch": "2.9.0+cpu"}
    assert labels_demanded("there is no version of torch==2.9.0 and", ["torch"]) == {}
    assert labels_demanded("there is no version of torch==2.9.0+cu128.", ["torch"]) == {"torch": "2.9.0+cu128"}


def test_labels_count_as_asked_for_only_when_spelled_out() -> None:
    assert asked_labels(["torch==2.13.0+cpu", "numpy==2", "a>=1"]) == {"torch"}


def test_pins_without_the_stacks_label_are_pointed_out() -> None:
    found = unlabelled_pins(["torch==2.13.0", "torchvision==0.28.0+cpu", "numpy==2"], BOUNDS)
    assert found == (("torch==2.13.0", "torch==2.13.0+cpu"),)
