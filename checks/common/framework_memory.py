"""How much memory the framework sees on its device; the least that counts is the option `bytes` (default: any)."""

from __future__ import annotations

import sys


def check(options):
    """Passed when the framework tells the device's memory and it is at least what is asked for."""
    frameworks = sys.modules["__main__"].load("common/frameworks.py")
    try:
        measures = frameworks.open_framework(options).memory()
    except frameworks.NoDevice as error:
        return "failed", {}, str(error)
    total = measures.get("device_memory_bytes")
    if total is None:
        return "not-run", measures, f"{options['framework']['module']} does not tell the memory of this device"
    if total < int(options.get("bytes", 1)):
        return "failed", measures, f"the device has {total} bytes, {options['bytes']} are needed"
    return "passed", measures, ""
