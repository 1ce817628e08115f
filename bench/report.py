"""Writes a benchmark's figures, with the conditions they hold under, into docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def conditions() -> str:
    """The machine and the day, in one line."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = " ".join(line.partition(":")[2].split())
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB memory, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}"
    )


def write_section(name: str, body: str, *, document: Path = DOCUMENT) -> None:
    """Replace what stands between the comments `<!-- NAME -->` and `<!-- /NAME -->`; both must be there."""
    text = document.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    replaced, count = pattern.subn(lambda match: f"{match[1]}{body.rstrip()}\n{match[2]}", text)
    if count != 1:
        raise SystemExit(f"{document} has {count} sections named {name}, expected 1")
    document.write_text(replaced, encoding="utf-8")
