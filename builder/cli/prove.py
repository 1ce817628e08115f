"""`builder prove`: the static proof of one image for one node class."""

from __future__ import annotations

import os

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import attach_drafts, image_name, open_reference, plain_http_option

__all__ = ["command"]


@click.command("prove", short_help="Prove statically that an image loads on a node class.")
@click.argument("image")
@click.option("--node-class", required=True, help="A known class, or a class file (*.toml) as `node probe` writes it.")
@click.option(
    "--allow",
    multiple=True,
    metavar="GLOB",
    help="Paths in the image whose faults are known and accepted; repeat it. They are listed in the proof.",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment that a set-up script or the orchestrator adds, such as LD_LIBRARY_PATH; repeat it.",
)
@click.option("--attach", is_flag=True, help="Attach the proof to the image, as evidence for a promotion.")
@plain_http_option
@shared_options
def command(
    console: Console,
    image: str,
    node_class: str,
    allow: tuple[str, ...],
    env: tuple[str, ...],
    attach: bool,
    plain_http: bool,
) -> int:
    """Prove statically that an image loads on a node class.

    IMAGE is host/name:tag, host/name@sha256:… or oci:DIR[:tag]. Nothing is run and nothing is unpacked: every library
    is looked up as the loader on the node would, symbol versions, processor level and device code are compared with
    the class. Exit code 0 when proven, 1 when refused, 4 when the class does not say enough.
    """
    from builder.names import parse_ref
    from builder.node.classes import node_class as find_class
    from builder.proof.document import proof_document, proof_text
    from builder.proof.prove import prove
    from builder.registry import find_image
    from builder.store import default_store

    reference = parse_ref(image)
    node = find_class(node_class)
    repository = open_reference(console, reference, plain_http=plain_http, mirrors=not attach)
    proof = prove(
        repository,
        find_image(reference, repository).digest,
        node,
        store=default_store(os.environ),
        reporter=console,
        allow=allow,
        env=_settings(env),
    )
    if attach:
        from builder.release.statements import proof_draft

        attach_drafts(console, repository, proof.image, proof_draft(proof, name=image_name(reference)))
    console.document(
        proof_document(proof, reference=image),
        lambda: proof_text(proof, reference=image, verdict=console.verdict, verbose=console.verbose),
    )
    return {"proven": 0, "refused": 1, "unknown": 4}[proof.answer]


def _settings(env: tuple[str, ...]) -> dict[str, str]:
    from builder.errors import BadInput

    wrong = [item for item in env if not item.partition("=")[0] or "=" not in item]
    if wrong:
        raise BadInput(f"--env {wrong[0]} has no value", fix="write NAME=VALUE")
    return {name: value for name, _, value in (item.partition("=") for item in env)}
