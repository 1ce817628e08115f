"""`builder cache verify`: digest every byte again."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.cache_options import cache_of, cache_option, note_no_cache
from builder.cli.console import Console, shared_options

__all__ = ["command"]


@click.command("verify", short_help="Digest every byte of the kept engines again.")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@cache_option
@click.option("--drop", is_flag=True, help="Remove what is damaged, so that a lookup misses; the parts are set aside.")
@shared_options
def command(console: Console, keys: tuple[str, ...], folder: Path | None, drop: bool) -> int:
    """Digest every byte of the kept engines again; without KEY (sha256:…) all of them. Exit code 1 when one is damaged.

    Entries of another version of this tool are named and left alone.
    """
    from builder.cache.verify import verify
    from builder.names import Digest

    cache = cache_of(folder)
    note_no_cache(console, cache)
    checked, found = verify(cache, [Digest.parse(key) for key in keys] if keys else None, drop=drop)
    damaged = [one for one in found if not one.foreign]
    verdict = "failed" if damaged else "ok"
    document = {
        "schema": "builder/cache-verify/1",
        "verdict": verdict,
        "cache": str(cache.store.root),
        "checked": checked,
        "damage": [{"entry": one.entry, "what": one.what} for one in damaged],
        "foreign": [{"entry": one.entry, "what": one.what} for one in found if one.foreign],
        "dropped": drop,
    }
    lines = [f"{one.entry}: {one.what}" for one in found]
    console.document(document, lambda: "\n".join([*lines, f"{console.verdict(verdict)} {checked} engines digested"]))
    return 1 if damaged else 0
