"""`builder cache gc`: remove the least recently used engines."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.cache_options import cache_of, cache_option, note_no_cache, parse_bytes, shown_size
from builder.cli.console import Console, shared_options

__all__ = ["command"]


@click.command("gc", short_help="Remove the least recently used engines, and what no engine needs.")
@cache_option
@click.option("--budget", default=None, metavar="SIZE", help="Remove engines until the rest fits, e.g. 50GB.")
@click.option(
    "--unused", type=click.FloatRange(min=0), default=None, metavar="DAYS", help="Remove what was not used for so long."
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for others who add engines at this moment.",
)
@click.option("--dry-run", is_flag=True, help="Say which engines would go, and remove nothing.")
@shared_options
def command(
    console: Console, folder: Path | None, budget: str | None, unused: float | None, wait: float, dry_run: bool
) -> int:
    """Remove the least recently used engines, and what no engine needs: parts, left-overs of processes that died.

    Without --budget and --unused no engine goes. What is in use stays, and is named.
    """
    from builder.cache.gc import clear

    cache = cache_of(folder)
    note_no_cache(console, cache)
    cleared = clear(
        cache,
        budget=None if budget is None else parse_bytes(budget),
        unused=None if unused is None else unused * 86400,
        dry_run=dry_run,
        timeout=wait,
    )
    document = {
        "schema": "builder/cache-gc/1",
        "verdict": "done",
        "cache": str(cache.store.root),
        "dry_run": dry_run,
        "removed": [{"name": one.name, "size": one.size, "why": one.why} for one in cleared.removed],
        "kept": [{"name": name, "why": why} for name, why in cleared.kept],
        "entries": cleared.entries,
        "size": cleared.size,
    }

    def text() -> str:
        lines = [f"{shown_size(one.size):>10}  {one.name}: {one.why}" for one in cleared.removed]
        lines += [f"kept {name}: {why}" for name, why in cleared.kept]
        return "\n".join([*lines, f"{cleared.entries} engines left, {shown_size(cleared.size)}"])

    console.document(document, text)
    return 0
