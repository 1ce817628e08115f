"""Plain text tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["columns"]

_WIDEST = 44


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header, in columns as wide as they need, long cells cut with an ellipsis."""
    lines = [[_cut(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cut(cell: str) -> str:
    return cell if len(cell) <= _WIDEST else cell[: _WIDEST - 1] + "…"
