"""Is the launch right, before the image is judged? Pure: facts of the host in, one sentence or nothing out.

Three things look alike from inside and must be told apart: no device on the machine, a device that the process may
not open, and an image that cannot use it. The first two are `not-run`; only the third is the image's fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from builder.node.values import NodeClass

__all__ = [
    "DeviceNode",
    "device_access",
    "groups_for",
    "node_differences",
    "shared_memory_for",
]

_DEFAULT_SHM = 64 * 2**20
"""Docker's default size of /dev/shm, in bytes."""
_SHM_FOR_SEVERAL = 2**30
"""What collective libraries ask for between several devices, in bytes (FR-34)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceNode:
    """A device node as `stat` sees it."""

    path: str
    uid: int
    gid: int
    mode: int
    """Permission bits alone, 0o660."""


def device_access(nodes: Iterable[DeviceNode], *, uid: int, gids: frozenset[int]) -> str:
    """Why a process with these ids cannot open one of the nodes, with the mend; "" when it can open all (FR-33)."""
    for node in nodes:
        if uid == 0:
            continue
        shift = 6 if uid == node.uid else 3 if node.gid in gids else 0
        if (node.mode >> shift) & 0o6 != 0o6:
            groups = ", ".join(map(str, sorted(gids))) or "none"
            return (
                f"{node.path} belongs to gid {node.gid} with mode {node.mode:04o}, and the process (uid {uid}) has "
                f"groups {groups}: start the container with --group-add {node.gid}"
            )
    return ""


def groups_for(nodes: Iterable[DeviceNode]) -> tuple[int, ...]:
    """The numeric groups a container needs to open the nodes, sorted: names differ between host and image."""
    return tuple(sorted({node.gid for node in nodes if node.gid != 0 and node.mode & 0o060 == 0o060}))


def node_differences(wanted: NodeClass, found: NodeClass) -> tuple[str, ...]:
    """Why results of this machine say nothing about the class; empty when it is of the class.

    Higher is different too: a pass on a newer CPU does not carry over to an older one (FR-32). What the class leaves
    open does not count; what it states and the machine does not tell is no agreement.
    """
    told: list[str] = []
    for name in ("arch", "device", "device_arch", "device_count", "cpu_level", "driver", "firmware"):
        want, have = getattr(wanted, name), getattr(found, name)
        if want is None or want == have or (name == "device" and have is not None and _names(have, want)):
            continue
        told.append(
            f"{name} is not known here, {wanted.name} has {want}"
            if have is None
            else f"{name} is {have}, {wanted.name} has {want}"
        )
    return tuple(told)


def _names(printed: str, product: str) -> bool:
    """Whether a vendor tool's name is that product: `NVIDIA A100-SXM4-80GB` is an `A100`, an `A10` is not."""
    words = re.findall(r"[a-z0-9.]+", printed.lower())
    return all(word in words for word in re.findall(r"[a-z0-9.]+", product.lower()))


def shared_memory_for(*, several: bool) -> int:
    """Size of /dev/shm to start a container with, in bytes: for several devices more than engines give (FR-34)."""
    return _SHM_FOR_SEVERAL if several else _DEFAULT_SHM
