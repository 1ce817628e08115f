"""`builder promote`: moves a node class's tag, on evidence."""

from __future__ import annotations

from typing import Any

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import (
    class_name,
    evidence_documents,
    expect_option,
    image_name,
    now,
    open_reference,
    parse_expected,
    plain_http_option,
    print_refusal,
)
from builder.errors import Refused
from builder.names import parse_ref

__all__ = ["command"]


@click.command("promote", short_help="Move a node class's tag to an image that passed on that class.")
@click.argument("ref")
@click.option("--node-class", required=True, metavar="N", help="Name of a node class, or a class file.")
@click.option(
    "--require",
    multiple=True,
    default=("smoke", "audit", "proof"),
    show_default=True,
    metavar="KIND",
    help="Evidence that must be there: smoke, audit, proof, sbom. May be given several times.",
)
@expect_option
@click.option("--allow-older", is_flag=True, help="Also move to an image older than the one that runs now.")
@plain_http_option
@shared_options
def command(
    console: Console,
    ref: str,
    node_class: str,
    require: tuple[str, ...],
    expect: str | None,
    allow_older: bool,
    plain_http: bool,
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
    name = class_name(node_class)
    expected = parse_expected(expect)
    repository = open_reference(console, reference, plain_http=plain_http)
    digest = find_image(reference, repository).digest
    target = str(reference.with_tag(name))
    try:
        done = promote(
            repository,
            digest,
            name,
            when=now(),
            required=require,
            expected=expected,
            allow_older=allow_older,
            name=image_name(reference),
        )
    except Refused as error:
        missing = error.missing if isinstance(error, PromotionRefused) else ()
        document: dict[str, Any] = {
            "ref": target,
            "digest": str(digest),
            "tags": [],
            "evidence": evidence_documents(listed_evidence(repository, digest)),
            "node_class": name,
            "missing": [{"need": item.need, "why": item.why, "fix": item.fix} for item in missing],
        }
        return print_refusal(console, "promote", error, document)
    verdict = "promoted" if done.moved else "unchanged"
    console.document(
        {
            "schema": "builder/promote/1",
            "verdict": verdict,
            "ref": target,
            "digest": str(done.digest),
            "tags": [name],
            "evidence": evidence_documents(
                piece for piece in listed_evidence(repository, digest) if piece.digest in (*done.evidence, done.record)
            ),
            "node_class": name,
            "previous": str(done.previous) if done.previous else None,
        },
        lambda: f"{verdict} {target}@{done.digest}\nbefore: {done.previous or 'nothing'}",
    )
    return 0
