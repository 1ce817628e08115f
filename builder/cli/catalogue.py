"""`builder catalogue`: what a repository has for which backend."""

from __future__ import annotations

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import open_reference, plain_http_option, repository_reference
from builder.cli.tabular import columns

__all__ = ["command"]


@click.command("catalogue", short_help="List a repository's images by backend, and publish the list.")
@click.argument("repository")
@click.option("--write", is_flag=True, help="Also put the list into the repository, as an artifact tagged catalogue.")
@plain_http_option
@shared_options
def command(console: Console, repository: str, write: bool, plain_http: bool) -> int:
    """List a repository's images by backend, and publish the list.

    An image index cannot tell backends apart, this list can: backend, toolkit, Python, version, and the node classes
    that run an image. With --write any OCI client can pull it; it is written again by whoever publishes next.
    """
    from builder.release.catalogue import TAG, read_repository, write_catalogue

    reference = repository_reference(repository)
    opened = open_reference(console, reference, plain_http=plain_http)
    written = write_catalogue(opened) if write else None
    entries = written.entries if written else read_repository(opened)
    verdict = "listed" if written is None else "written" if written.moved else "unchanged"
    rows = [entry.to_json() for entry in entries]
    header = ("backend", "toolkit", "python", "version", "tags", "node_classes")
    console.document(
        {
            "schema": "builder/catalogue/1",
            "verdict": verdict,
            "ref": str(reference.with_tag(TAG)) if written else str(reference),
            "digest": str(written.digest) if written else None,
            "images": rows,
        },
        lambda: (
            (
                columns(header, [[_cell(row[key]) for key in header] for row in rows])
                if rows
                else f"no image in {opened}"
            )
            + (f"\n{verdict} {reference.with_tag(TAG)}@{written.digest}" if written else "")
        ),
    )
    return 0


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
