"""The keys that the loader takes, asked of the loader itself."""

from __future__ import annotations

from pathlib import Path

from builder.errors import BadInput
from builder.project.load import load_project

NONSENSE = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
"""No key is like this one, so the loader's hint lists all it knows."""


def known_keys(scratch: Path) -> dict[str, set[str]]:
    """Table name (`""`: top level) to its keys, from the hints that the loader gives for an unknown key."""
    tables = ("image", "warmup", "audit", "backend.npu")
    text = f"{NONSENSE} = 1\n" + "".join(f"[{table}]\n{NONSENSE} = 1\n" for table in tables)
    path = scratch / "unknown.toml"
    path.write_text(text)
    try:
        load_project(path)
    except BadInput as error:
        hints = {
            str(fault.where.key).removesuffix(NONSENSE).rstrip("."): fault.fix
            for fault in error.faults
            if fault.where is not None and str(fault.where.key).endswith(NONSENSE)
        }
    else:
        raise AssertionError("the loader took an unknown key")
    return {table: set(hint.removeprefix("known: ").split(", ")) for table, hint in hints.items()}
