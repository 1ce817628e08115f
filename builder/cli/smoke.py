"""`builder smoke`: run the checks inside an image."""

from __future__ import annotations

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import attach_drafts, image_name, open_reference, plain_http_option

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
@click.option("--attach", is_flag=True, help="Attach the report to the image, as evidence for a promotion.")
@plain_http_option
def command(
    console: Console,
    image: str,
    node_class: str | None,
    runner: str,
    timeout: float | None,
    attach: bool,
    plain_http: bool,
) -> int:
    """Run the checks inside an image.

    IMAGE is host/name:tag, @sha256:… or oci:DIR[:tag]. What is checked follows from the image's labels: its backend
    and its lock. Without the device, checks that need it are not run (exit 4) and the image stays a candidate.
    """
    import os

    from builder.names import parse_ref
    from builder.node import node_class as known_class
    from builder.pipeline.smoke import smoke_image
    from builder.pipeline.values import Work
    from builder.smoke.document import report_document, report_text
    from builder.smoke.image import this_arch, which_image
    from builder.store import default_store

    reference = parse_ref(image)
    repository = open_reference(console, reference, plain_http=plain_http, mirrors=not attach)
    report = smoke_image(
        repository,
        which_image(repository, reference),
        name=image,
        arch=this_arch(),
        runner=runner,
        node_class=known_class(node_class) if node_class else None,
        work=Work(store=default_store(os.environ), environ=os.environ, reporter=console, offline=console.offline),
        timeout=timeout,
    )
    if attach:
        from builder.release.statements import smoke_draft

        attach_drafts(console, repository, report.image, smoke_draft(report, name=image_name(reference)))
    console.document(
        report_document(report, reference=image),
        lambda: report_text(report, reference=image, verdict=console.verdict),
    )
    return _EXIT[report.verdict]
