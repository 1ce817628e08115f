"""Run an image's checks on this machine, as evidence for a node class when the machine is of that class."""

from __future__ import annotations

from datetime import UTC, datetime

from builder import resources
from builder.errors import CannotTell
from builder.image.labels import read_labels
from builder.matrix import load_backend
from builder.names import Arch, Digest
from builder.node import NodeClass, probe
from builder.pipeline.values import Work
from builder.registry.values import Repository
from builder.smoke.image import open_image
from builder.smoke.run import run_smoke
from builder.smoke.runners import open_runner
from builder.smoke.values import SmokeReport

__all__ = ["smoke_image"]


def smoke_image(
    repository: Repository,
    reference: Digest | str,
    *,
    name: str,
    arch: Arch,
    runner: str,
    node_class: NodeClass | None,
    work: Work,
    timeout: float | None = None,
) -> SmokeReport:
    """The checks that the labels of one image call for, run here and now; `timeout` bounds each, in seconds."""
    image = open_image(repository, reference, arch=arch, name=name)
    backend = load_backend(read_labels(image.labels, image=name).backend)
    return run_smoke(
        image,
        checks=resources.checks_dir(),
        runner=open_runner(runner, environ=work.environ, store=work.store, reporter=work.reporter),
        run=backend.spec.runtime.run,
        reporter=work.reporter,
        started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        backend=node_class.backend if node_class else None,
        node_class=node_class,
        machine=_this_machine(node_class, work) if node_class else None,
        timeout=timeout,
    )


def _this_machine(wanted: NodeClass, work: Work) -> NodeClass | None:
    """This machine as a class of that backend; None when it cannot be described, which the report then says."""
    try:
        return probe(wanted.backend, work.environ)
    except CannotTell as error:
        work.reporter.detail(str(error))
        return None
