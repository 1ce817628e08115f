"""Kubernetes labels that select the nodes of a class: those the vendors' own device plug-ins put on nodes.

Sources: NVIDIA GPU feature discovery, ROCm/k8s-device-plugin node labeller, Ascend mind-cluster, Intel device
plug-ins, GKE documentation (TPU node pools), node feature discovery. Label values are at most 63 characters of
letters, digits, `-`, `_` and `.` (Kubernetes, "Labels and Selectors").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType

from builder.names import Platform
from builder.node.values import NodeClass

__all__ = ["labels"]

_TPU_POOLS = MappingProxyType(
    {
        "v4": "tpu-v4-podslice",
        "v5e": "tpu-v5-lite-podslice",
        "v5p": "tpu-v5p-slice",
        "v6e": "tpu-v6e-slice",
    }
)
"""Generation to `cloud.google.com/gke-tpu-accelerator` of multi-host slices (GKE documentation, "Plan TPUs")."""


def labels(node: NodeClass) -> dict[str, str]:
    """Label to value, sorted; only what the class knows. A node of the class carries them when the vendor's device
    plug-in or feature discovery runs there, and `builder/node-class` when an operator set it."""
    found = {
        "builder/node-class": node.name,
        "kubernetes.io/arch": Platform(node.arch).oci_arch,
        "kubernetes.io/os": "linux",
    }
    if node.kernel is not None:
        found["feature.node.kubernetes.io/kernel-version.full"] = node.kernel
    if node.os is not None:
        name, _, version = node.os.partition(" ")
        found["feature.node.kubernetes.io/system-os_release.ID"] = name
        if version:
            found["feature.node.kubernetes.io/system-os_release.VERSION_ID"] = version
    vendor = _VENDORS.get(node.backend)
    if vendor is not None:
        found |= vendor(node)
    return {key: label_value(value) for key, value in sorted(found.items())}


def label_value(text: str) -> str:
    """`text` as a legal label value: other characters become `-`, the ends are letters or digits, at most 63."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("-._")


def _nvidia(node: NodeClass) -> dict[str, str]:
    found: dict[str, str] = {"nvidia.com/gpu.present": "true"}
    if node.device is not None:
        found["nvidia.com/gpu.product"] = node.device
    if node.device_count is not None:
        found["nvidia.com/gpu.count"] = str(node.device_count)
    if node.device_memory_mib is not None:
        found["nvidia.com/gpu.memory"] = str(node.device_memory_mib)
    match = re.fullmatch(r"sm_(\d+)(\d)", node.device_arch or "")
    if match:
        found |= {"nvidia.com/gpu.compute.major": match[1], "nvidia.com/gpu.compute.minor": match[2]}
    if node.driver is not None:
        found["nvidia.com/cuda.driver-version.full"] = node.driver
        parts = node.driver.split(".")
        found |= {
            f"nvidia.com/cuda.driver-version.{k}": v
            for k, v in zip(("major", "minor", "revision"), parts, strict=False)
        }
    return found


def _amd(node: NodeClass) -> dict[str, str]:
    found = {}
    if node.device is not None:
        found["amd.com/gpu.product-name"] = node.device
    if node.device_memory_mib is not None:
        found["amd.com/gpu.vram"] = f"{node.device_memory_mib // 1024}G"
    if node.driver is not None:
        found["amd.com/gpu.driver-version"] = node.driver
    return found


def _ascend(node: NodeClass) -> dict[str, str]:
    chip = node.device_arch or ""
    family = re.match(r"Ascend(910|310P|310B|310)", chip)
    found = {"host-arch": "huawei-arm" if node.arch == "aarch64" else "huawei-x86"}
    if family:
        found["accelerator"] = f"huawei-Ascend{family[1]}"
    if re.match(r"Ascend910B\d", chip) and node.device_count == 8:
        found["accelerator-type"] = "module-910b-8"
    return found


def _intel(node: NodeClass) -> dict[str, str]:
    found = {}
    if node.device is not None:
        found["gpu.intel.com/product"] = node.device
    if node.device_count is not None:
        found["gpu.intel.com/device.count"] = str(node.device_count)
    return found


def _neuron(node: NodeClass) -> dict[str, str]:
    """Instance types have a size (trn2.48xlarge); a bare chip name selects nothing."""
    instance = node.device or ""
    return {"node.kubernetes.io/instance-type": instance} if "." in instance else {}


def _tpu(node: NodeClass) -> dict[str, str]:
    pool = _TPU_POOLS.get(node.device_arch or "")
    return {"cloud.google.com/gke-tpu-accelerator": pool} if pool else {}


_VENDORS: dict[str, Callable[[NodeClass], dict[str, str]]] = {
    "cuda": _nvidia,
    "rocm": _amd,
    "npu": _ascend,
    "neuron": _neuron,
    "tpu": _tpu,
    "xpu": _intel,
}
