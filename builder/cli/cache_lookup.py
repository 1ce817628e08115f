"""`builder cache lookup`: is there an engine for this?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.cache_options import (
    KeyOptions,
    cache_of,
    cache_option,
    difference_document,
    entry_document,
    key_options,
)
from builder.cli.console import Console, shared_options

if TYPE_CHECKING:
    from builder.cache import Difference, Lookup

__all__ = ["EXIT", "command", "difference_lines", "lookup_document"]

EXIT = {"hit": 0, "usable": 0, "miss": 1, "unknown": 4}


@click.command("lookup", short_help="Is there an engine for this? hit, usable, miss or unknown.")
@key_options
@cache_option
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    default=None,
    help="Put the engine there when it is a hit or usable: a path that does not exist, or an empty folder.",
)
@click.option("--used-at", default="", metavar="PATH", help="The path a container will see it under [default: --to].")
@click.option("--exact", is_flag=True, help="Take a hit only; usable counts as a miss.")
@shared_options
def command(
    console: Console, wanted: KeyOptions, folder: Path | None, to: Path | None, used_at: str, exact: bool
) -> int:
    """Is there an engine for this? hit, usable, miss or unknown.

    hit: nothing differs. usable: it works, and what differs is said with what it costs. miss: nothing fits, and the
    nearest engines are listed with exactly what differs. unknown: it depends on something that is not stated. Decided
    from the factors alone; no engine is opened before it is put somewhere, and then every byte is checked.
    """
    cache = cache_of(folder)
    answer = cache.lookup(wanted.key())
    verdict = "miss" if exact and answer.verdict == "usable" else answer.verdict
    path = None
    if answer.entry is not None and verdict in ("hit", "usable"):
        if to is not None:
            path = cache.restore(answer.entry, to, used_at=used_at)
        elif answer.entry.form == "file":
            path = cache.store.part_path(answer.entry.content)
    document = lookup_document(answer, verdict, path)
    console.document(document, lambda: _text(console, answer, verdict, path))
    return EXIT[verdict]


def lookup_document(answer: Lookup, verdict: str, path: Path | None) -> dict[str, Any]:
    """The document `builder/cache-lookup/1`."""
    return {
        "schema": "builder/cache-lookup/1",
        "verdict": verdict,
        "key": None if answer.missing else str(answer.wanted.digest),
        "kind": answer.wanted.kind,
        "entry": entry_document(answer.entry) if answer.entry else None,
        "differs": [difference_document(one) for one in answer.differs],
        "path": str(path) if path else None,
        "missing": list(answer.missing),
        "nearest": [
            {"entry": entry_document(one.entry), "differs": [difference_document(item) for item in one.differs]}
            for one in answer.nearest
        ],
        "failure": {"reason": answer.failure.reason, "expires": answer.failure.expires} if answer.failure else None,
        "hints": list(answer.hints),
    }


def difference_lines(differs: tuple[Difference, ...], *, indent: str = "  ") -> list[str]:
    """Two lines a difference: what it is, and what it means or costs."""
    lines = []
    for one in differs:
        wanted = "not known" if one.wanted is None else one.wanted or "(empty)"
        found = "not known" if one.found is None else one.found or "(empty)"
        lines.append(
            f"{indent}{one.name}: wanted {wanted}, found {found}{'' if one.hold == 'hard' else f' [{one.hold}]'}"
        )
        lines.append(f"{indent}    {one.why}")
        if one.cost:
            lines.append(f"{indent}    cost: {one.cost}")
    return lines


def _text(console: Console, answer: Lookup, verdict: str, path: Path | None) -> str:
    lines = [f"{console.verdict(verdict)} {answer.wanted.kind}"]
    if answer.entry is not None and verdict in ("hit", "usable"):
        lines[0] += f" {answer.entry.name} {answer.entry.digest}"
        lines += difference_lines(answer.differs)
        lines += [f"  note: {note}" for note in answer.entry.notes]
        if path is not None:
            lines.append(f"  path: {path}")
        return "\n".join(lines)
    if answer.missing:
        lines.append(f"  not stated: {', '.join(answer.missing)}")
    if answer.failure is not None:
        lines.append(f"  building this failed lately: {answer.failure.reason}")
    for near in answer.nearest:
        lines.append(f"  nearest: {near.entry.name} {near.entry.digest}")
        lines += difference_lines(near.differs, indent="    ")
    lines += [f"  {hint}" for hint in answer.hints]
    return "\n".join(lines)
