"""`builder gc`: clear away what nobody needs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import plain_http_option
from builder.errors import BadInput
from builder.names import LayoutRef

if TYPE_CHECKING:
    from builder.store import Removed

__all__ = ["command"]

_SHOWN = 20
"""Lines of text for each place; the JSON lists all."""


@click.command("gc", short_help="Clear away what nobody needs, in the store, in layouts or in registries.")
@click.argument("places", nargs=-1, metavar="[REPOSITORY]...")
@click.option(
    "--unused",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Of the store, remove what was not used for so long.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the N newest tagged images of each backend [default: all; a registry wants it said].",
)
@click.option(
    "--min-age",
    type=click.FloatRange(min=0),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="Leave what is younger: a build may be about to use it.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
@click.option("--delete", is_flag=True, help="In a registry, delete; without it this only says what would go.")
@plain_http_option
@shared_options
def command(
    console: Console,
    places: tuple[str, ...],
    unused: float,
    keep: int | None,
    min_age: float,
    dry_run: bool,
    delete: bool,
    plain_http: bool,
) -> int:
    """Clear away what nobody needs, in the store, in layouts or in registries.

    Without REPOSITORY it is the store: left-overs of interrupted commands, and what was not used for --unused. In a
    layout (oci:DIR) it is images without a tag, bytes that nothing points at, and images beyond --keep; in a registry
    (host/name) tagged images beyond --keep. Images that were promoted stay, and what is attached to an image goes and
    stays with it.
    """
    from builder.cli.registry_options import open_reference, repository_reference
    from builder.registry.client import Remote
    from builder.registry.layout import Layout
    from builder.release.retention import clear_layout, clear_registry
    from builder.store import Store, store_root

    now = time.time()
    references = [repository_reference(text) for text in places]
    for reference in references:
        if not isinstance(reference, LayoutRef):
            if keep is None:
                raise BadInput(
                    f"how many images of {reference} are to stay?",
                    why="in a registry nothing is cleared but what is beyond a number",
                    fix="say it: --keep N, for each backend",
                )
            dry_run = dry_run or not delete
        elif not (reference.path / "oci-layout").is_file():
            raise BadInput(
                f"{reference.path} holds no layout",
                why="it has no file oci-layout" if reference.path.is_dir() else "there is no such folder",
                fix="name the folder after oci:, as `builder build --to` was told",
            )
    cleared: list[tuple[str, tuple[Removed, ...]]] = []
    if not references:
        store = Store(store_root(os.environ))
        removed = store.collect(unused=unused * 86400, min_age=min_age * 3600, now=now, dry_run=dry_run)
        cleared.append((str(store.root), removed))
    for reference in references:
        if isinstance(reference, LayoutRef):
            removed = clear_layout(Layout(reference.path), keep=keep, min_age=min_age * 3600, now=now, dry_run=dry_run)
        else:
            opened = open_reference(console, reference, plain_http=plain_http)
            if not isinstance(opened, Remote) or keep is None:
                raise ValueError("a registry was named, with a number")
            removed = clear_registry(opened, keep=keep, reporter=console, dry_run=dry_run)
        cleared.append((str(reference), removed))
    console.document(
        {
            "schema": "builder/gc/1",
            "verdict": "done",
            "dry_run": dry_run,
            "freed": sum(item.size for _, removed in cleared for item in removed),
            "places": [
                {
                    "place": place,
                    "removed": [{"name": item.name, "size": item.size, "why": item.why} for item in removed],
                }
                for place, removed in cleared
            ],
        },
        lambda: "\n".join(line for place, removed in cleared for line in _lines(place, removed, dry_run)),
    )
    return 0


def _lines(place: str, removed: tuple[Removed, ...], dry_run: bool) -> list[str]:
    size = sum(item.size for item in removed)
    lines = [f"{item.size / 1e6:9.1f} MB  {item.name}: {item.why}" for item in removed[:_SHOWN]]
    if len(removed) > _SHOWN:
        lines.append(f"… and {len(removed) - _SHOWN} more (--json lists all)")
    would = "would be removed from" if dry_run else "removed from"
    return [*lines, f"{len(removed)} thing{'' if len(removed) == 1 else 's'}, {size / 1e6:.1f} MB, {would} {place}"]
