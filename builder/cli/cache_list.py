"""`builder cache list`: the engines that are kept."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.cache_options import cache_of, cache_option, entry_document, note_no_cache, shown_size
from builder.cli.console import Console, shared_options

__all__ = ["command"]


@click.command("list", short_help="List the engines that are kept.")
@click.option("--kind", default=None, help="Of one kind [default: all].")
@cache_option
@shared_options
def command(console: Console, kind: str | None, folder: Path | None) -> int:
    """List the engines that are kept, with what they are for; what cannot be read is named."""
    from builder.cache import engine_kind
    from builder.cli.tabular import columns
    from builder.errors import BadInput

    if kind is not None:
        engine_kind(kind)
    cache = cache_of(folder)
    note_no_cache(console, cache)
    found = list(cache.entries())
    entries = [one for one in found if not isinstance(one, BadInput) and kind in (None, one.key.kind)]
    entries.sort(key=lambda one: (one.key.kind, one.created, one.digest.hex))
    unreadable = [one for one in found if isinstance(one, BadInput)]
    document = {
        "schema": "builder/cache-list/1",
        "verdict": "ok",
        "cache": str(cache.store.root),
        "entries": [entry_document(one) for one in entries],
        "unreadable": [{"what": one.what, "why": one.why} for one in unreadable],
    }

    def text() -> str:
        rows = [
            [one.key.kind, one.name, shown_size(one.size), str(one.files), one.created, one.digest.hex[:16]]
            for one in entries
        ]
        table = columns(("kind", "name", "size", "files", "created", "key"), rows)
        return "\n".join([table, *(f"cannot be read: {one.what}: {one.why}" for one in unreadable)])

    console.document(document, text)
    return 0
