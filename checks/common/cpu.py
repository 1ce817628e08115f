"""Which CPU this is: cores the process may use, and its level in the x86-64 psABI (v1 … v4) or the Arm features.

Option `level`: the least level the image needs, when something says so; a lower machine fails with its name (FR-32).
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

# x86-64 psABI, "Micro-Architecture Levels", in the names /proc/cpuinfo uses.
_LEVELS = (
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)


def check(options):
    """Passed when the CPU could be read and is of the level asked for."""
    machine = platform.machine()
    model, flags = read_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    level = cpu_level(flags) if machine == "x86_64" else machine
    measures = {"cpu_level": level, "cpu_model": model, "cpu_cores": len(os.sched_getaffinity(0))}
    wanted = options.get("level")
    if wanted and level < wanted:
        return "failed", measures, f"the image needs {wanted}, this CPU is {level} ({model})"
    return "passed", measures, ""


def read_cpuinfo(text):
    """Model name and feature flags of the first processor."""
    fields = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields.get("model name", ""), set(fields.get("flags", fields.get("Features", "")).split())


def cpu_level(flags):
    """The highest level whose features, and those of the levels below, are all there."""
    level = "x86-64-v1"
    for name, needed in _LEVELS:
        if not needed <= flags:
            break
        level = name
    return level
