"""Is the backend's device here, and may this process open it? Standard library only; no framework is touched.

Options:

    nodes         alternatives; each is a list of glob patterns that must all match: [["/dev/kfd", "/dev/dri/renderD*"]]
    pci-vendor    vendor id that a /dev/dri node must have, e.g. "0x1002": another maker's card is not taken for it
    libraries     shared libraries that the node's driver brings into the container, e.g. ["libcuda.so.1"]

No device, or one that the launch does not let through, is `not-run`: neither is the image's fault (FR-33).
"""

from __future__ import annotations

import ctypes
import glob
import os
from pathlib import Path


def check(options):
    """Passed when the device nodes of one alternative are there, can be opened, and the driver's libraries load."""
    vendor = options.get("pci-vendor")
    found = []
    for patterns in options["nodes"]:
        groups = [[path for path in sorted(glob.glob(pattern)) if is_vendor(path, vendor)] for pattern in patterns]
        if all(groups):
            found = [path for group in groups for path in group]
            break
    if not found:
        wanted = " or ".join(" and ".join(patterns) for patterns in options["nodes"])
        return "not-run", {"device_nodes": 0}, f"no {options['backend']} device in the container: no {wanted}"
    measures = {"device_nodes": len(found)}
    closed = [path for path in found if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return "not-run", measures, told_access(closed[0])
    missing = [name for name in options.get("libraries", ()) if not loads(name)]
    if missing:
        return (
            "not-run",
            measures,
            f"the driver's {', '.join(missing)} is not in the container: the run line that brings it was not used",
        )
    return "passed", measures, ", ".join(found)


def is_vendor(path, vendor):
    """Whether a DRM node belongs to this PCI vendor; other nodes are named after their vendor already."""
    if vendor is None or not path.startswith("/dev/dri/"):
        return True
    try:
        return Path("/sys/class/drm", Path(path).name, "device/vendor").read_text(encoding="ascii").strip() == vendor
    except OSError:
        return False


def told_access(path):
    """One sentence on who may open the node and who asks."""
    status = os.stat(path)
    groups = ", ".join(map(str, sorted({os.getgid(), *os.getgroups()})))
    return (
        f"{path} belongs to gid {status.st_gid} with mode {status.st_mode & 0o7777:04o}, and this process (uid "
        f"{os.getuid()}) has groups {groups}: start the container with --group-add {status.st_gid}"
    )


def loads(library):
    """Whether the dynamic linker finds the library and all it needs."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
