"""`builder promote`: moves a node class's tag, on evidence."""

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
)
from builder.errors import Refused
from builder.names import parse_ref

__all__ = ["command"]


@click.command("promote", short_help="Move a node class's tag to an image that passed on that class.")
@click.argument("ref")
@click.option(
    "--require",
    multiple=True,
    default=("smoke", "audit", "proof"),
    show_default=True,
    metavar="KIND",
    help="Evidence that must be there: smoke, audit, proof, sbom. May be given several times.",
)
@click.option("--allow-older", is_flag=True, help="Also move to an image older than the one that runs now.")
@class_tag_options
@shared_options
def command(
    console: Console,
    /,
    ref: str,
    require: tuple[str, ...],
    allow_older: bool,
    **options: Any,
) -> int:
    """Move a node class's tag to an image that passed on that class.

    The registry must hold passed checks and a proof of this very digest on this very class, and an audit that does
    not block; what is missing is listed otherwise. The move is recorded beside the image, for `builder rollback`.
    """
    from builder.registry import find_image
    from builder.release.evidence import listed_evidence
    from builder.release.promote import promote
    from builder.release.values import PromotionRefused

    reference = parse_ref(ref)
    tag = class_tag(console, reference, **options)
    digest = find_image(reference, tag.repository).digest
    try:
        done = promote(
            tag.repository,
            digest,
            tag.name,
            when=now(),
            required=require,
            expected=tag.expected,
            allow_older=allow_older,
            name=tag.image,
        )
    except Refused as error:
        missing = error.missing if isinstance(error, PromotionRefused) else ()
        document = {
            **class_tag_document(tag, digest, listed_evidence(tag.repository, digest)),
            "missing": [{"need": item.need, "why": item.why, "fix": item.fix} for item in missing],
        }
        return print_refusal(console, "promote", error, document)
    rests_on = (*done.evidence, done.record)
    evidence = (piece for piece in listed_evidence(tag.repository, digest) if piece.digest in rests_on)
    print_class_tag(console, "promote", tag, done, "promoted" if done.moved else "unchanged", evidence)
    return 0
