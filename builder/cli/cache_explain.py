"""`builder cache explain`: why an engine is not found, property by property."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.cache_lookup import EXIT, difference_lines
from builder.cli.cache_options import (
    KeyOptions,
    cache_of,
    cache_option,
    difference_document,
    entry_document,
    key_options,
)
from builder.cli.console import Console, shared_options

__all__ = ["command"]


@click.command("explain", short_help="Why there is none: the nearest engines, property by property.")
@key_options
@cache_option
@click.option(
    "--nearest", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="How many engines to show."
)
@shared_options
def command(console: Console, wanted: KeyOptions, folder: Path | None, nearest: int) -> int:
    """Why there is none: the nearest engines, property by property, with what is equal and where each rule is written.

    The verdict and the exit code are those of lookup.
    """
    from builder.cache.judge import judge
    from builder.cli.tabular import columns

    cache = cache_of(folder)
    key = wanted.key()
    kind = wanted.engine_kind()
    answer = cache.lookup(key, nearest=nearest)
    shown = [one.entry for one in answer.nearest]
    if answer.entry is not None and answer.entry not in shown:
        shown.insert(0, answer.entry)
    judged = [(entry, judge(kind, key.factors, entry.key.factors)) for entry in shown]
    document = {
        "schema": "builder/cache-explain/1",
        "verdict": answer.verdict,
        "key": None if answer.missing else str(key.digest),
        "kind": kind.name,
        "missing": list(answer.missing),
        "entries": [
            {
                "entry": entry_document(entry),
                "differs": [difference_document(one) for one in differs],
                "equal": sorted(name for name, value in key.factors.items() if entry.key.factors.get(name) == value),
            }
            for entry, differs in judged
        ],
        "hints": list(answer.hints),
    }

    def text() -> str:
        lines = [f"{console.verdict(answer.verdict)} {kind.name}"]
        if answer.missing:
            lines.append(f"not stated: {', '.join(answer.missing)}")
        for entry, differs in judged:
            lines += ["", f"{entry.name} {entry.digest}"]
            names = {one.name for one in differs}
            rows = [
                [name, key.factors.get(name, "?"), entry.key.factors.get(name, "?"), "differs" if name in names else ""]
                for name in kind.properties
            ]
            lines.append(columns(("property", "wanted", "found", ""), rows))
            lines += difference_lines(differs)
            lines += [f"    source: {source}" for source in dict.fromkeys(one.source for one in differs if one.source)]
        return "\n".join([*lines, *answer.hints])

    console.document(document, text)
    return EXIT[answer.verdict]
