"""What of a backend's devices is on this machine, as `stat` sees it."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from builder.smoke.preflight import DeviceNode

__all__ = ["device_nodes"]


def device_nodes(patterns: Iterable[str]) -> tuple[DeviceNode, ...]:
    """The device nodes matching these absolute glob patterns, sorted; a folder such as /dev/dri gives its nodes."""
    found: dict[str, DeviceNode] = {}
    for pattern in patterns:
        for path in Path("/").glob(pattern.lstrip("/")):
            for node in path.iterdir() if path.is_dir() else (path,):
                try:
                    status = node.stat()
                except OSError:
                    continue
                if stat.S_ISCHR(status.st_mode):
                    found[str(node)] = DeviceNode(
                        path=str(node), uid=status.st_uid, gid=status.st_gid, mode=stat.S_IMODE(status.st_mode)
                    )
    return tuple(found[path] for path in sorted(found))
