"""Node classes: the known ones, class files, what a probe makes of facts, and labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput, CannotTell
from builder.matrix import load_backend
from builder.matrix.products import device_row
from builder.node import NodeClass, labels, load_node_classes, node_class, probe
from builder.node.classes import check_node_classes, class_file_text
from builder.node.host import HostFacts
from builder.node.labels import label_value
from builder.node.nvidia_smi import Gpu, NvidiaFacts
from builder.node.probe import describe, overrides_of

HOST = HostFacts(
    arch="x86_64",
    cpu="Some CPU",
    cpu_level="x86-64-v3",
    cpus=8,
    memory_mib=64000,
    kernel="6.8.0-45-generic",
    os="ubuntu 22.04",
    glibc="2.35",
    runtime="docker 27.3.1",
)
H100 = Gpu(name="NVIDIA H100 80GB HBM3", memory_mib=81559, compute_capability="9.0", vbios="96.00.74.00.01")


def test_every_backend_has_classes_and_names_are_tags() -> None:
    nodes = load_node_classes()
    assert {node.backend for node in nodes} == set(resources.backends())
    for node in nodes:
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", node.name)
        assert node.source
    assert check_node_classes(resources.matrices_dir()) == ()


def test_targets_of_classes_are_those_of_the_device_tables() -> None:
    for node in load_node_classes():
        backend = load_backend(node.backend)
        if backend.rows("device") and node.device_arch is not None:
            row = device_row(backend, node.device_arch)
            assert row is not None, node
            assert row.text("target") == node.device_arch


@pytest.mark.parametrize(
    ("name", "target"),
    [("h100", "sm_90"), ("mi300x", "gfx942"), ("ascend-910b", "Ascend910B1"), ("trn2", "trn2"), ("tpu-v5e", "v5e")],
)
def test_classes_by_name(name: str, target: str) -> None:
    assert node_class(name).device_arch == target


def test_an_unknown_class_has_a_hint() -> None:
    with pytest.raises(BadInput) as caught:
        node_class("h10")
    assert "did you mean 'h100'" in caught.value.fix


def test_a_probe_of_nvidia_facts() -> None:
    node = describe("cuda", HOST, NvidiaFacts(driver="580.65.06", gpus=(H100,) * 8), {})
    assert node == NodeClass(
        name="h100-80gb-hbm3",
        backend="cuda",
        arch="x86_64",
        device="NVIDIA H100 80GB HBM3",
        device_arch="sm_90",
        device_count=8,
        device_memory_mib=81559,
        driver="580.65.06",
        firmware="96.00.74.00.01",
        kernel="6.8.0-45-generic",
        os="ubuntu 22.04",
        glibc="2.35",
        cpu_level="x86-64-v3",
        runtime="docker 27.3.1",
        source="probe",
    )


def test_a_tool_too_old_for_the_capability_is_helped_by_the_device_table() -> None:
    gpu = Gpu(name="Tesla T4", memory_mib=15109, compute_capability=None, vbios=None)
    assert describe("cuda", HOST, NvidiaFacts(driver="470.223.02", gpus=(gpu,)), {}).device_arch == "sm_75"


def test_a_device_nobody_knows_has_no_target() -> None:
    gpu = Gpu(name="Voodoo 2", memory_mib=12, compute_capability=None, vbios=None)
    assert describe("cuda", HOST, NvidiaFacts(driver="470.223.02", gpus=(gpu,)), {}).device_arch is None


def test_the_environment_wins() -> None:
    overrides = overrides_of({"BUILDER_NODE_DRIVER": "570.86.10", "BUILDER_NODE_DEVICE_COUNT": "4", "PATH": "/bin"})
    node = describe("cuda", HOST, NvidiaFacts(driver="580.65.06", gpus=(H100,)), overrides)
    assert (node.driver, node.device_count) == ("570.86.10", 4)
    assert node.source == "probe; set by the environment: device_count, driver"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"BUILDER_NODE_DRIVR": "1"}, "did you mean 'driver'"),
        ({"BUILDER_NODE_DEVICE_COUNT": "many"}, "is no whole number"),
    ],
)
def test_wrong_overrides_are_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        overrides_of(environment)
    assert message in str(caught.value)


def test_other_devices_are_described_by_the_environment_or_not_at_all() -> None:
    with pytest.raises(CannotTell, match="there is no probe for rocm devices"):
        probe("rocm", {})
    node = probe("rocm", {"BUILDER_NODE_DEVICE": "AMD Instinct MI300X", "BUILDER_NODE_DRIVER": "6.4.3"})
    assert (node.device_arch, node.driver, node.name) == ("gfx942", "6.4.3", "instinct-mi300x")


def test_this_machine_is_a_cpu_node() -> None:
    node = probe("cpu", {})
    assert node.backend == "cpu"
    assert node.name.startswith("cpu-")
    assert node.device_memory_mib


def test_an_unknown_backend_cannot_be_probed() -> None:
    with pytest.raises(BadInput, match="unknown backend 'cudda'"):
        probe("cudda", {})


def test_a_class_file_reads_back_as_the_same_class(tmp_path: Path) -> None:
    node = describe("cuda", HOST, NvidiaFacts(driver="580.65.06", gpus=(H100,)), {})
    path = tmp_path / "mine.toml"
    path.write_text(class_file_text(node, checked="2026-11-30"), encoding="utf-8")
    assert node_class(str(path)) == node


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is not a table"),
        ('kind = "nodeclass"\n', "is not a table"),
    ],
)
def test_a_class_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        node_class(str(path))
    with pytest.raises(BadInput, match="is not a file"):
        node_class(str(tmp_path / "other.toml"))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("HSA_OVERRIDE_GFX_VERSION", "not of the form NAME=VALUE"),
        ("1A=x", "not of the form NAME=VALUE"),
        ("LD_PRELOAD=/opt/lib.so", "decides which files a program loads"),
        ("PATH=/opt/bin", "decides which files a program loads"),
        ("PYTHONPATH=/opt", "decides which files a program loads"),
    ],
)
def test_an_environment_a_class_cannot_have(tmp_path: Path, item: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    good = NodeClass(
        name="mine", backend="rocm", arch="x86_64", env=("HSA_OVERRIDE_GFX_VERSION=11.0.0",), source="by hand"
    )
    text = class_file_text(good, checked="2026-11-30")
    path.write_text(text, encoding="utf-8")
    assert node_class(str(path)) == good
    assert good.environment == {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}
    other = tmp_path / "other.toml"
    other.write_text(text.replace(good.env[0], item), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        node_class(str(other))
    assert re.search(message, caught.value.why)


def test_labels_are_those_the_vendors_put_on_nodes() -> None:
    node = describe("cuda", HOST, NvidiaFacts(driver="580.65.06", gpus=(H100,) * 8), {})
    assert labels(node) == {
        "builder/node-class": "h100-80gb-hbm3",
        "feature.node.kubernetes.io/kernel-version.full": "6.8.0-45-generic",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "22.04",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "nvidia.com/cuda.driver-version.full": "580.65.06",
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/cuda.driver-version.minor": "65",
        "nvidia.com/cuda.driver-version.revision": "06",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    }


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("mi300x", "amd.com/gpu.product-name", "Instinct-MI300X"),
        ("ascend-910b3", "accelerator", "huawei-Ascend910"),
        ("ascend-910b3", "host-arch", "huawei-arm"),
        ("tpu-v5e", "cloud.google.com/gke-tpu-accelerator", "tpu-v5-lite-podslice"),
        ("pvc", "gpu.intel.com/product", "Data-Center-GPU-Max"),
        ("gh200", "kubernetes.io/arch", "arm64"),
    ],
)
def test_labels_of_other_vendors(name: str, key: str, value: str) -> None:
    assert labels(node_class(name))[key] == value


def test_every_label_value_is_legal() -> None:
    for node in load_node_classes():
        for value in labels(node).values():
            assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value), (node.name, value)
    assert label_value("x" * 62 + " (y)") == "x" * 62


def test_names_alone_are_those_of_the_classes() -> None:
    assert resources.node_class_names() == {node.name for node in load_node_classes()}
