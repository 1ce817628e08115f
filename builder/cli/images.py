"""`builder images`: what a repository holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import (
    evidence_documents,
    open_reference,
    plain_http_option,
    repository_reference,
)

if TYPE_CHECKING:
    from builder.release.values import ImageRow

__all__ = ["command"]


@click.command("images", short_help="List the images of a repository and their evidence.")
@click.argument("repository")
@plain_http_option
@shared_options
def command(console: Console, repository: str, plain_http: bool) -> int:
    """List the images of a repository and their evidence.

    REPOSITORY is host/name or oci:DIR. Verdicts are shown as the evidence is listed; `builder promote` reads and
    verifies it.
    """
    from builder.release.pick import images

    reference = repository_reference(repository)
    opened = open_reference(console, reference, plain_http=plain_http)
    with console.task("images", unit="images") as advance:
        rows = images(opened)
        advance(len(rows))
    console.document(
        {
            "schema": "builder/images/1",
            "verdict": "listed" if rows else "empty",
            "ref": str(reference),
            "images": [
                {
                    "ref": str(reference.with_digest(row.digest)),
                    "digest": str(row.digest),
                    "tags": list(row.tags),
                    "evidence": evidence_documents(row.evidence),
                }
                for row in rows
            ],
        },
        lambda: "\n".join(line for row in rows for line in _lines(console, row)) or f"no images in {reference}",
    )
    return 0


def _lines(console: Console, row: ImageRow) -> list[str]:
    lines = [f"{', '.join(row.tags)}  {row.digest}"]
    for piece in row.evidence:
        verdict = piece.summary.get("verdict", "")
        about = " ".join(
            value for key, value in piece.summary.items() if key not in ("verdict", "components", "sequence")
        )
        lines.append(f"  {piece.kind:<9} {console.verdict(verdict) if verdict else '':<9} {about}".rstrip())
    return lines
