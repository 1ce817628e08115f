"""Allocates main memory, writes a pattern to every page and reads it back. Option `bytes`: how much."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = 4096


def check(options):
    """Passed when the memory held what was written; not-run when the machine has less than the check asks for."""
    wanted = int(options.get("bytes", 256 * 2**20))
    shared = os.statvfs("/dev/shm")
    measures = {
        "memory_bytes": limit(),
        "shm_bytes": shared.f_frsize * shared.f_blocks,
        "memory_checked_bytes": wanted,
    }
    if measures["memory_bytes"] < wanted:
        return "not-run", measures, f"the container has {measures['memory_bytes']} bytes, the check wants {wanted}"
    block = bytearray(wanted)
    for page in range(0, wanted, _PAGE):
        block[page] = (page // _PAGE * 31 + 7) & 0xFF
    for page in range(0, wanted, _PAGE):
        if block[page] != (page // _PAGE * 31 + 7) & 0xFF:
            return "failed", measures, f"byte {page} does not hold what was written"
    return "passed", measures, ""


def limit():
    """Memory the container may use: the machine's, or less where a control group says so, in bytes."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            found = min(found, int(text))
    return found
