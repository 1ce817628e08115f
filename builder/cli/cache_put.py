"""`builder cache put`: keep an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from builder.cli.cache_options import (
    KeyOptions,
    cache_of,
    cache_option,
    entry_document,
    key_options,
    parse_bytes,
    shown_size,
)
from builder.cli.console import Console, shared_options
from builder.errors import BadInput

__all__ = ["command"]


@click.command("put", short_help="Keep an engine, or remember that building it failed.")
@key_options
@click.argument("source", type=click.Path(path_type=Path), required=False)
@cache_option
@click.option(
    "--built-at",
    default="",
    metavar="PATH",
    help="The path it was made under, where that is not SOURCE: as the container saw its cache folder.",
)
@click.option("--replace", is_flag=True, help="Replace the engine that is there [default: the first one stays].")
@click.option(
    "--durable/--no-durable",
    default=True,
    show_default=True,
    help="Flush all of it to the disk first, so that it outlives a loss of power.",
)
@click.option("--budget", default=None, metavar="SIZE", help="Then clear the cache to this size, e.g. 50GB.")
@click.option("--failed", default=None, metavar="REASON", help="Remember that building it failed; without SOURCE.")
@click.option(
    "--keep",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="HOURS",
    help="How long a failure is remembered.",
)
@shared_options
def command(
    console: Console,
    wanted: KeyOptions,
    source: Path | None,
    folder: Path | None,
    built_at: str,
    replace: bool,
    durable: bool,
    budget: str | None,
    failed: str | None,
    keep: float,
) -> int:
    """Keep SOURCE, a file or a folder, as an engine of KIND; or remember that building it failed.

    Everything that decides must be stated: an engine kept without would be found where it is wrong. What the engine's
    own bytes say is filled in, and an engine that says something else than was stated is refused. Where the format
    holds absolute paths they are made relative, and written anew where the engine is restored.
    """
    from builder.cache.keys import complete_key
    from builder.cache.told import confirmed_key, header_of

    if (source is None) == (failed is None):
        raise BadInput("either SOURCE or --failed", why="an engine is kept, or its failure", fix="give one of them")
    stated = wanted.key()
    key = complete_key(
        wanted.engine_kind(), confirmed_key(stated, source) if source is not None and source.exists() else stated
    )
    limit = None if budget is None else parse_bytes(budget)
    cache = cache_of(folder, durable=durable)
    if source is None:
        failure = cache.put_failure(key, failed or "", keep=keep * 3600)
        document: dict[str, Any] = {
            "schema": "builder/cache-put/1",
            "verdict": "remembered",
            "key": str(key.digest),
            "entry": None,
            "expires": failure.expires,
            "removed": 0,
        }
        console.document(document, lambda: f"remembered for {keep:g} h: {key.digest}")
        return 0
    before = cache.lookup(key, nearest=0).entry
    entry = cache.put(key, source, built_at=built_at, replace=replace)
    header = header_of(key.kind, source)
    for note in () if header is None else header.notes:
        console.note(f"note: {note}")
    removed = 0
    if limit is not None:
        from builder.cache.gc import clear

        removed = len(clear(cache, budget=limit).removed)
    there = before is not None and before.digest == entry.digest and not replace
    document = {
        "schema": "builder/cache-put/1",
        "verdict": "there" if there else "done",
        "key": str(key.digest),
        "entry": entry_document(entry),
        "expires": None,
        "removed": removed,
    }

    def text() -> str:
        lines = [
            f"{'already there' if there else 'kept'}: {entry.name}, {_files(entry.files)}, {shown_size(entry.size)}"
        ]
        return "\n".join([*lines, str(entry.digest), *(f"note: {note}" for note in entry.notes)])

    console.document(document, text)
    return 0


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
