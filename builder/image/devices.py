"""Devices for the steps of a build: which ones, and how each engine is told, or why it cannot be.

Sources: CDI SPEC.md ("vendor.com/class=name"); BuildKit docs/cdi.md (devices of RUN since 0.20, entitlement `device`);
Docker docs "Container Device Interface" (buildx 0.22, Docker 27); buildah pull request 5443 (CDI names of --device,
released with 1.36).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from builder.errors import BadInput, Refused
from builder.matrix.values import Runtime
from builder.node.values import NodeClass

__all__ = ["CDI_SYNTAX", "build_devices", "buildah_devices", "buildx_devices", "is_cdi"]

CDI_SYNTAX = "docker/dockerfile:1-labs"
"""The Dockerfile frontend that knows `RUN --device` (BuildKit docs, dockerfile 1.14-labs)."""

_CDI = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*=[A-Za-z0-9][A-Za-z0-9._:-]*")
_BUILDAH_CDI = (1, 36)
_BUILDX_CDI = (0, 22)
_ENGINE_CDI = (27, 0)


def is_cdi(name: str) -> bool:
    """Whether this is a qualified CDI name, `vendor.com/class=name`, rather than a device node."""
    return _CDI.fullmatch(name) is not None


def build_devices(node: NodeClass, runtime: Runtime) -> tuple[str, ...]:
    """The devices of a class: the CDI names it says, else the device nodes of its backend; `Refused` for neither."""
    found = node.cdi or runtime.run.devices
    if not found:
        raise Refused(
            f"no device of node class {node.name} is known for a build",
            why=f"the class names no CDI devices, and {node.backend} has no device nodes in the tables",
            fix='add the names to a class file of yours, for example cdi = ["vendor.com/class=all"]',
        )
    for name in found:
        if not (is_cdi(name) or re.fullmatch(r"/dev/[A-Za-z0-9._/-]+(:[^:\s]+){0,2}", name)):
            raise BadInput(
                f"not a device: {name!r}",
                why="a device is a CDI name or a node below /dev",
                fix="write vendor.com/class=name or /dev/NAME",
            )
    return found


def buildah_devices(devices: Sequence[str], version: str) -> tuple[str, ...]:
    """Arguments of `buildah build`; `Refused` for CDI names in a version that takes them for paths."""
    named = [device for device in devices if is_cdi(device)]
    if named and _numbers(version) < _BUILDAH_CDI:
        raise Refused(
            f"buildah {version} cannot give {named[0]} to a build",
            why=f"CDI names came with buildah {_dotted(_BUILDAH_CDI)}",
            fix="use a newer buildah, or name device nodes (/dev/…) in the node class instead",
        )
    return tuple(f"--device={device}" for device in devices)


def buildx_devices(devices: Sequence[str], *, build_with: str, buildx: str, engine: str) -> tuple[str, ...]:
    """Arguments of `docker buildx build`, beside `RUN --device` in the Dockerfile; `Refused` where there is no way."""
    nodes = [device for device in devices if not is_cdi(device)]
    if nodes:
        raise Refused(
            f"docker cannot give {nodes[0]} to a build",
            why="docker build knows devices by CDI names only",
            fix=f"write a CDI specification for {nodes[0]} and name it in the node class, or use --engine buildah",
        )
    if build_with != "buildx" or _numbers(buildx) < _BUILDX_CDI or _numbers(engine) < _ENGINE_CDI:
        found = f"buildx {buildx}" if build_with == "buildx" else "no buildx"
        raise Refused(
            f"this docker cannot give {devices[0]} to a build",
            why=f"that takes buildx {_dotted(_BUILDX_CDI)} and Docker {_dotted(_ENGINE_CDI)}; "
            f"here are {found} and Docker {engine}",
            fix="use newer ones, or --engine buildah",
        )
    return tuple(f"--allow=device={device}" for device in devices)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)
