"""`builder rollback`: moves a node class's tag back."""

from __future__ import annotations

from typing import Any

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import (
    class_tag,
    class_tag_document,
    class_tag_options,
    now,
    print_class_tag,
    print_refusal,
    repository_reference,
)
from builder.errors import Refused

__all__ = ["command"]


@click.command("rollback", short_help="Move a node class's tag back to the image before.")
@click.argument("repository")
@class_tag_options
@shared_options
def command(console: Console, /, repository: str, **options: Any) -> int:
    """Move a node class's tag back to the image before.

    REPOSITORY is host/name or oci:DIR. Called again, it goes back one more; the first image is the end of the way.
    """
    from builder.release.evidence import listed_evidence
    from builder.release.promote import rollback

    tag = class_tag(console, repository_reference(repository), **options)
    try:
        done = rollback(tag.repository, tag.name, when=now(), expected=tag.expected, name=tag.image)
    except Refused as error:
        return print_refusal(console, "rollback", error, {**class_tag_document(tag, None, ()), "previous": None})
    print_class_tag(console, "rollback", tag, done, "rolled-back", listed_evidence(tag.repository, done.digest))
    return 0
