"""`builder smoke`: run the checks inside an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from builder.cli.console import Console, shared_options

if TYPE_CHECKING:
    from builder.node import NodeClass

__all__ = ["command"]

_EXIT = {"passed": 0, "failed": 1, "not-run": 4}


@click.command()
@shared_options
@click.argument("image")
@click.option("--node-class", default=None, help="Record the result for this node class: a name or a class file.")
@click.option(
    "--runner",
    type=click.Choice(["builtin", "docker"]),
    default="builtin",
    show_default=True,
    help="builtin needs neither a daemon nor root; docker can hand over what an engine's plug-ins bring (--gpus).",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=None, help="Most seconds for a check.")
def command(console: Console, image: str, node_class: str | None, runner: str, timeout: float | None) -> int:
    """Run the checks inside an image.

    IMAGE is host/name:tag, @sha256:… or oci:DIR[:tag]. What is checked follows from the image's labels: its backend
    and its lock. Without the device, checks that need it are not run (exit 4) and the image stays a candidate.
    """
    import datetime as dt
    import os

    from builder import resources
    from builder.image.labels import read_labels
    from builder.matrix.load import load_backend
    from builder.names import parse_ref
    from builder.node.classes import node_class as known_class
    from builder.registry.open import open_repository
    from builder.smoke.document import report_document, report_text
    from builder.smoke.image import open_image, this_arch, which_image
    from builder.smoke.run import run_smoke
    from builder.smoke.runners import open_runner
    from builder.store import default_store

    reference = parse_ref(image)
    repository = open_repository(reference, environ=os.environ, offline=console.offline, reporter=console)
    wanted = known_class(node_class) if node_class else None
    opened = open_image(repository, which_image(repository, reference), arch=this_arch(), name=image)
    backend = load_backend(read_labels(opened.labels, image=image).backend)
    report = run_smoke(
        opened,
        checks=resources.checks_dir(),
        runner=open_runner(runner, environ=os.environ, store=default_store(os.environ), reporter=console),
        run=backend.spec.runtime.run,
        reporter=console,
        started=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        backend=wanted.backend if wanted else None,
        node_class=wanted,
        machine=_this_machine(wanted) if wanted else None,
        timeout=timeout,
    )
    console.document(
        report_document(report, reference=image),
        lambda: report_text(report, reference=image, verdict=console.verdict),
    )
    return _EXIT[report.verdict]


def _this_machine(wanted: NodeClass) -> NodeClass | None:
    """This machine as a class of that backend; None when it cannot be described, which the report then says."""
    from builder.errors import CannotTell
    from builder.node import probe

    try:
        return probe(wanted.backend)
    except CannotTell:
        return None
