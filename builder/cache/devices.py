"""What a node class says of a machine, in the words of engine properties."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builder.node.values import NodeClass

__all__ = ["DEVICE_VALUES"]


def _capability(node: NodeClass) -> str | None:
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", node.device_arch or "")
    return f"{match[1]}.{match[2]}" if match else None


def _target(node: NodeClass) -> str | None:
    """What compilers make code for: the target that the runtime reports, which an override of the class changes."""
    return node.device_arch and node.code_target


def _gfx(node: NodeClass) -> str | None:
    target = _target(node) or ""
    return target if target.startswith("gfx") else None


def _branch(node: NodeClass) -> str | None:
    """570 of 570.86.15."""
    match = re.match(r"\d+", node.driver or "")
    return match[0] if match else None


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


DEVICE_VALUES: Mapping[str, Callable[[NodeClass], str | None]] = MappingProxyType(
    {
        "capability": _capability,
        "gfx": _gfx,
        "target": _target,
        "target-or-cpu": lambda node: node.cpu_level if node.backend == "cpu" else _target(node),
        "device-or-cpu": lambda node: "cpu" if node.backend == "cpu" else node.device,
        "toolkit-of-cpu": lambda node: "none" if node.backend == "cpu" else None,
        "device": lambda node: node.device,
        "driver": lambda node: node.driver,
        "driver-branch": _branch,
        "firmware": lambda node: node.firmware,
        "memory": lambda node: _number(node.device_memory_mib),
        "count": lambda node: _number(node.device_count),
        "cpu-level": lambda node: node.cpu_level,
        "machine": lambda node: node.arch,
        "platform": lambda node: f"linux-{node.arch}",
        "glibc": lambda node: node.glibc,
    }
)
"""Names of the column `node` of matrices/engines, each with the value of a node class; None when it is not known."""
