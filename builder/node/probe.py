"""Describe this machine as a node class: facts first, then what the environment overrides.

Every field can be set by an environment variable, BUILDER_NODE_ and the field's name in capitals (BUILDER_NODE_DRIVER,
BUILDER_NODE_DEVICE, BUILDER_NODE_DEVICE_ARCH …): for machines that cannot be probed, and for planning one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import fields

from builder.errors import BadInput, CannotTell, did_you_mean
from builder.matrix import load_backend
from builder.matrix.products import device_row
from builder.names import parse_backend
from builder.node.host import HostFacts, machine_arch, read_host
from builder.node.nvidia_smi import NvidiaFacts, read_nvidia
from builder.node.values import NodeClass

__all__ = ["OVERRIDES", "describe", "overrides_of", "probe"]

_PREFIX = "BUILDER_NODE_"

OVERRIDES = tuple(field.name for field in fields(NodeClass) if field.name not in ("source", "cdi"))
"""Fields that BUILDER_NODE_<FIELD> sets."""

_COUNTS = ("device_count", "device_memory_mib")


def overrides_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The overrides of an environment; `BadInput` for a field there is not, or a count that is no number."""
    found = {}
    for key, value in environment.items():
        if not key.startswith(_PREFIX) or not value:
            continue
        field = key.removeprefix(_PREFIX).lower()
        if field not in OVERRIDES:
            raise BadInput(f"{key} sets no field of a node class", fix=did_you_mean(field, OVERRIDES))
        if field in _COUNTS and not value.isdecimal():
            raise BadInput(f"{key}={value!r} is no whole number", fix="e.g. 8")
        found[field] = value
    return found


def probe(backend: str | None = None, environment: Mapping[str, str] | None = None) -> NodeClass:
    """This machine as a node class; `CannotTell` says what a probe could not find, and why.

    Without `backend`: cuda where nvidia-smi is on PATH, else cpu.
    """
    overrides = overrides_of(os.environ if environment is None else environment)
    wanted = backend or overrides.get("backend") or ("cuda" if shutil.which("nvidia-smi") else "cpu")
    parse_backend(wanted)
    host = read_host(overrides)
    nvidia = None
    if wanted == "cuda" and not {"driver", "device"} <= overrides.keys():
        nvidia = read_nvidia()
    elif wanted not in ("cpu", "cuda") and not {"device", "device_arch"} & overrides.keys():
        raise CannotTell(
            f"there is no probe for {wanted} devices",
            why="only CPUs and, through nvidia-smi, NVIDIA devices are probed",
            fix=f"set {_PREFIX}DEVICE or {_PREFIX}DEVICE_ARCH, or choose a class of `builder node list`",
        )
    return describe(wanted, host, nvidia, overrides)


def describe(backend: str, host: HostFacts, nvidia: NvidiaFacts | None, overrides: Mapping[str, str]) -> NodeClass:
    """The node class of these facts; overrides win over what was found. Pure, but for the device tables it reads."""
    device = overrides.get("device")
    memory: int | None = host.memory_mib if backend == "cpu" else None
    count: int | None = None
    driver = firmware = target = None
    if backend == "cpu":
        device = device or host.cpu
    elif nvidia is not None:
        first = nvidia.gpus[0]
        device = device or first.name
        memory, count, driver, firmware = first.memory_mib, len(nvidia.gpus), nvidia.driver, first.vbios
        if first.compute_capability is not None:
            target = "sm_" + first.compute_capability.replace(".", "")
    if target is None and device is not None and backend != "cpu":
        row = device_row(load_backend(backend), device)
        target = row.text("target") if row is not None else None
    target = overrides.get("device_arch") or target
    level = overrides.get("cpu_level") or host.cpu_level
    return NodeClass(
        name=overrides.get("name") or _name(backend, device, target, level),
        backend=backend,
        arch=machine_arch(overrides["arch"]) if "arch" in overrides else host.arch,
        device=device,
        device_arch=target,
        device_count=int(overrides["device_count"]) if "device_count" in overrides else count,
        device_memory_mib=int(overrides["device_memory_mib"]) if "device_memory_mib" in overrides else memory,
        driver=overrides.get("driver") or driver,
        firmware=overrides.get("firmware") or firmware,
        kernel=overrides.get("kernel") or host.kernel,
        os=overrides.get("os") or host.os,
        glibc=overrides.get("glibc") or host.glibc,
        cpu_level=level,
        runtime=overrides.get("runtime") or host.runtime,
        source="probe" + (f"; set by the environment: {', '.join(sorted(overrides))}" if overrides else ""),
    )


def _name(backend: str, device: str | None, target: str | None, level: str | None) -> str:
    """A tag: `cpu-x86-64-v3`, `h100-80gb-hbm3`, `gfx942`."""
    if backend == "cpu":
        return f"cpu-{level}" if level else "cpu"
    text = re.sub(r"^(nvidia|amd|intel|huawei)\s+", "", (device or target or backend).lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")
