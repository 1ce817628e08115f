"""What changed between two audits, for people: one block a package."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from builder.audit.compare import Change, Comparison

__all__ = ["diff_text"]


def diff_text(comparison: Comparison, *, paint: Callable[[str], str] = str) -> str:
    """Added things after `+`, removed ones after `-`; a summary line at the end."""
    lines = [line for change in comparison.changes for line in _change(change, paint)]
    worse = sum(change.worse for change in comparison.changes)
    number = len(comparison.changes)
    packages = "1 package differs" if number == 1 else f"{number} packages differ"
    if not number:
        return "ok: nothing differs"
    verdict = f"{worse} worse for {comparison.backend}" if worse else f"none worse for {comparison.backend}"
    return "\n".join([*lines, "", f"{paint(comparison.level)}: {packages}, {verdict}"])


def _change(change: Change, paint: Callable[[str], str]) -> Iterator[str]:
    old = f"{change.old.name} {change.old.version}" if change.old else "absent"
    new = f"{change.new.name} {change.new.version}" if change.new else "absent"
    levels = " -> ".join(paint(side.level) for side in (change.old, change.new) if side)
    yield f"{old} -> {new}  ({levels})"
    for turn in change.turns:
        yield f"  {turn.aspect}"
        yield from (f"    + {word}" for word in turn.added)
        yield from (f"    - {word}" for word in turn.removed)
