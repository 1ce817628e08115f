"""`builder gc`: free the disk of what nobody needs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from builder.cli.console import Console, shared_options
from builder.errors import BadInput
from builder.names import LayoutRef

if TYPE_CHECKING:
    from builder.store import Removed

__all__ = ["command"]

_SHOWN = 20
"""Lines of text for each place; the JSON lists all."""


@click.command("gc", short_help="Free the disk of what nobody needs, in the store or in layouts.")
@click.argument("layouts", nargs=-1, metavar="[LAYOUT]...")
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
    help="Of each layout, keep the N newest tagged images [default: all].",
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
@shared_options
def command(
    console: Console, layouts: tuple[str, ...], unused: float, keep: int | None, min_age: float, dry_run: bool
) -> int:
    """Free the disk of what nobody needs, in the store or in layouts.

    Without LAYOUT (oci:DIR) it is the store: left-overs of interrupted commands, and what was not used for --unused.
    In a layout it is images without a tag, and bytes that nothing points at. Images that were promoted stay, and
    what is attached to an image goes and stays with it.
    """
    from builder.cli.registry_options import repository_reference
    from builder.registry.layout import Layout
    from builder.release.retention import clear_layout
    from builder.store import Store, store_root

    now = time.time()
    references = [repository_reference(text) for text in layouts]
    for reference in references:
        if not isinstance(reference, LayoutRef):
            raise BadInput(
                f"{reference} is not a layout",
                why="a registry clears its own storage",
                fix="use the registry's own retention rules there",
            )
        if not (reference.path / "oci-layout").is_file():
            raise BadInput(
                f"{reference.path} holds no layout",
                why="it has no file oci-layout" if reference.path.is_dir() else "there is no such folder",
                fix="name the folder after oci:, as `builder build --to` was told",
            )
    places: list[tuple[str, tuple[Removed, ...]]] = []
    if not references:
        store = Store(store_root(os.environ))
        removed = store.collect(unused=unused * 86400, min_age=min_age * 3600, now=now, dry_run=dry_run)
        places.append((str(store.root), removed))
    for reference in references:
        if isinstance(reference, LayoutRef):
            removed = clear_layout(Layout(reference.path), keep=keep, min_age=min_age * 3600, now=now, dry_run=dry_run)
            places.append((str(reference), removed))
    console.document(
        {
            "schema": "builder/gc/1",
            "verdict": "done",
            "dry_run": dry_run,
            "freed": sum(item.size for _, removed in places for item in removed),
            "places": [
                {
                    "place": place,
                    "removed": [{"name": item.name, "size": item.size, "why": item.why} for item in removed],
                }
                for place, removed in places
            ],
        },
        lambda: "\n".join(line for place, removed in places for line in _lines(place, removed, dry_run)),
    )
    return 0


def _lines(place: str, removed: tuple[Removed, ...], dry_run: bool) -> list[str]:
    size = sum(item.size for item in removed)
    lines = [f"{item.size / 1e6:9.1f} MB  {item.name}: {item.why}" for item in removed[:_SHOWN]]
    if len(removed) > _SHOWN:
        lines.append(f"… and {len(removed) - _SHOWN} more (--json lists all)")
    would = "would be removed from" if dry_run else "removed from"
    return [*lines, f"{len(removed)} things, {size / 1e6:.1f} MB, {would} {place}"]
