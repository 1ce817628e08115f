"""Does the framework see the device that the node has? Option `framework`: module and device."""

from __future__ import annotations

import sys


def check(options):
    """Passed when the framework names at least one device. The device nodes are there (an earlier check), so seeing
    none is the image's fault."""
    frameworks = sys.modules["__main__"].load("common/frameworks.py")
    try:
        names = frameworks.open_framework(options).devices()
    except frameworks.NoDevice as error:
        return "failed", {}, str(error)
    if not names:
        return "failed", {"devices": 0}, "the framework sees no device, though the machine has one"
    return "passed", {"devices": len(names), "device": str(names[0])}, ""
