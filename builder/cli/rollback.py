"""`builder rollback`: moves a node class's tag back."""

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
    repository_reference,
)
from builder.errors import Refused

__all__ = ["command"]


@click.command("rollback", short_help="Move a node class's tag back to the image before.")
@click.argument("repository")
@click.option("--node-class", required=True, metavar="N", help="Name of a node class, or a class file.")
@expect_option
@plain_http_option
@shared_options
def command(console: Console, repository: str, node_class: str, expect: str | None, plain_http: bool) -> int:
    """Move a node class's tag back to the image before.

    REPOSITORY is host/name or oci:DIR. Called again, it goes back one more; the first image is the end of the way.
    """
    from builder.release.evidence import listed_evidence
    from builder.release.promote import rollback

    reference = repository_reference(repository)
    name = class_name(node_class)
    expected = parse_expected(expect)
    opened = open_reference(console, reference, plain_http=plain_http)
    target = str(reference.with_tag(name))
    try:
        done = rollback(opened, name, when=now(), expected=expected, name=image_name(reference))
    except Refused as error:
        document: dict[str, Any] = {
            "ref": target,
            "digest": None,
            "tags": [],
            "evidence": [],
            "node_class": name,
            "previous": None,
        }
        return print_refusal(console, "rollback", error, document)
    console.document(
        {
            "schema": "builder/rollback/1",
            "verdict": "rolled-back",
            "ref": target,
            "digest": str(done.digest),
            "tags": [name],
            "evidence": evidence_documents(listed_evidence(opened, done.digest)),
            "node_class": name,
            "previous": str(done.previous),
        },
        lambda: f"rolled back {target}@{done.digest}\nbefore: {done.previous}",
    )
    return 0
