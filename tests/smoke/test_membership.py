"""Whether a machine is of a node class: only then is a pass on it evidence for the class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.node.values import NodeClass
from builder.smoke.preflight import node_differences

CPU = NodeClass(name="pool", backend="cpu", arch="x86_64", cpu_level="x86-64-v3")
H100 = NodeClass(
    name="h100", backend="cuda", arch="x86_64", device="H100", device_arch="sm_90", driver="570.211.01", device_count=8
)


def test_a_machine_with_every_stated_cell_is_of_the_class() -> None:
    machine = replace(CPU, name="here", device="Some Processor", kernel="6.1", os="debian 12")
    assert node_differences(CPU, machine) == ()


def test_a_better_processor_is_another_class() -> None:
    (found,) = node_differences(CPU, replace(CPU, cpu_level="x86-64-v4"))
    assert found == "cpu_level is x86-64-v4, pool has x86-64-v3"


def test_what_the_probe_could_not_find_is_not_taken_for_agreement() -> None:
    found = node_differences(H100, replace(H100, driver=None, device=None))
    assert found == ("device is not known here, h100 has H100", "driver is not known here, h100 has 570.211.01")


def test_every_difference_is_told() -> None:
    machine = replace(H100, device_arch="sm_86", driver="550.54.14", device_count=1, arch="aarch64")
    assert len(node_differences(H100, machine)) == 4


@pytest.mark.parametrize(
    ("printed", "member"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H100", True),
        ("NVIDIA H1000", False),
        ("NVIDIA GH200 480GB", False),
    ],
)
def test_a_product_is_found_in_the_name_the_tool_prints(printed: str, member: bool) -> None:
    assert (node_differences(H100, replace(H100, device=printed)) == ()) is member
