"""`builder build`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from builder.cli.console import Console, project_option, shared_options

__all__ = ["command"]


@click.command("build")
@click.option("--backend", required=True, help="Backend of the image, e.g. cuda.")
@click.option(
    "--engine", type=click.Choice(["oci", "docker", "buildah"]), default="oci", show_default=True, help="Who assembles."
)
@click.option(
    "--to",
    metavar="REF",
    help="host/name[:tag] or oci:DIR[:tag] [default: the project's registry, else oci:dist/image].",
)
@click.option(
    "--node-class", metavar="N", help="Node class the image is for; its checks count for N only on such a machine."
)
@click.option(
    "--devices", is_flag=True, help="Give the node class's devices to the build steps of docker (CDI) or buildah."
)
@click.option(
    "--runner", type=click.Choice(["builtin", "docker"]), help="Who runs the checks [default: the engine's own]."
)
@click.option(
    "--compile-bytecode/--no-compile-bytecode",
    default=None,
    help="Compile the wheels' Python files, by the base's own Python, into layers of their own [default: off].",
)
@click.option(
    "--compression",
    type=click.Choice(["gzip", "zstd"]),
    help="How new layers are compressed; zstd needs Docker 23 or containerd 1.5 [default: gzip].",
)
@click.option(
    "--estargz/--no-estargz",
    default=None,
    help="Layers that a runtime with a stargz snapshotter starts before they are pulled [default: off].",
)
@click.option("--locked", is_flag=True, help="Refuse a missing or stale lock instead of renewing it.")
@click.option("--upgrade", is_flag=True, help="Forget the locked versions and take the newest.")
@click.option(
    "--allow-unknown", is_flag=True, help="Let pass what the tables do not know; recorded in the image's labels."
)
@click.option("--move-tag", is_flag=True, help="Let a version tag in a registry move to this image.")
@click.option("--plain-http", is_flag=True, help="Speak http to a registry that is not on loopback.")
@click.option("--plan", is_flag=True, help="Lock, show the layers that there would be, and make nothing else.")
@click.option("--no-proof", is_flag=True, help="Leave the proof for the node classes out.")
@click.option("--no-smoke", is_flag=True, help="Leave the smoke test out; the image stays a candidate for promotion.")
@click.option("--no-publish", is_flag=True, help="Stop before tagging; the image is kept in dist/image by its digest.")
@project_option
@shared_options
def command(console: Console, /, **options: Any) -> int:
    """Lock, audit, assemble, prove, smoke-test and publish an image.

    Exit code 0: built, and every check passed. 1: refused, nothing was tagged. 4: the image is there as a candidate,
    because a check could not run on this machine or the tables do not know enough.
    """
    from builder.names import parse_backend, parse_ref
    from builder.node import node_class
    from builder.pipeline.build import BuildOptions, build
    from builder.pipeline.values import Work
    from builder.project import find_project, load_project
    from builder.store import default_store

    backend = parse_backend(options["backend"])
    project = load_project(find_project(options["project"] or Path()))
    project = project.with_layers(
        compression=options["compression"], estargz=options["estargz"], bytecode=options["compile_bytecode"]
    )
    outcome = build(
        project,
        backend,
        options=BuildOptions(
            engine=options["engine"],
            to=parse_ref(options["to"]) if options["to"] else None,
            node_class=node_class(options["node_class"]) if options["node_class"] else None,
            devices=options["devices"],
            runner=options["runner"],
            locked=options["locked"],
            upgrade=options["upgrade"],
            allow_unknown=options["allow_unknown"],
            proof=not options["no_proof"],
            smoke=not options["no_smoke"],
            publish=not options["no_publish"],
            plan=options["plan"],
            move_tag=options["move_tag"],
            plain_http=True if options["plain_http"] else None,
        ),
        work=Work(store=default_store(os.environ), environ=os.environ, reporter=console, offline=console.offline),
    )
    from builder.pipeline.document import build_document, build_text

    console.document(build_document(outcome), lambda: build_text(outcome, verdict=console.verdict))
    return {"built": 0, "refused": 1, "candidate": 4, "planned": 0}[outcome.verdict]
