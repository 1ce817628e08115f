"""`builder pick`: what a node runs."""

from __future__ import annotations

from typing import Any

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import (
    class_name,
    open_reference,
    plain_http_option,
    print_refusal,
    repository_reference,
)
from builder.errors import Refused

__all__ = ["command"]


@click.command("pick", short_help="Print the digest that a node should run.")
@click.argument("repository")
@click.option(
    "--node-class", metavar="N", default=None, help="Name of a node class, or a class file [default: this machine]."
)
@plain_http_option
@shared_options
def command(console: Console, repository: str, node_class: str | None, plain_http: bool) -> int:
    """Print the digest that a node should run.

    REPOSITORY is host/name or oci:DIR. Only an image that a promotion put under the class's tag is picked.
    """
    from builder.release.pick import pick

    reference = repository_reference(repository)
    name = class_name(node_class)
    opened = open_reference(console, reference, plain_http=plain_http)
    try:
        found = pick(opened, name)
    except Refused as error:
        document: dict[str, Any] = {"ref": None, "digest": None, "tags": [], "evidence": [], "node_class": name}
        return print_refusal(console, "pick", error, document)
    console.document(
        {
            "schema": "builder/pick/1",
            "verdict": "picked",
            "ref": str(reference.with_digest(found.digest)),
            "digest": str(found.digest),
            "tags": [name],
            "evidence": [{"digest": str(digest)} for digest in found.evidence],
            "node_class": name,
            "since": found.since,
        },
        lambda: str(found.digest),
    )
    return 0
