"""Warm the engines of an image on this machine, as one of a node class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from builder import resources
from builder.cache import EngineCache, engine_key
from builder.cache.folders import EngineFolder, load_folders
from builder.cache.image import choose_kind, compiler_of, image_properties
from builder.cache.warm import TARGET, WarmReport, Warmup, warm
from builder.errors import BadInput
from builder.image.labels import read_labels
from builder.matrix import load_backend
from builder.names import Digest
from builder.node import NodeClass, probe
from builder.pipeline.values import Work
from builder.smoke.preflight import node_differences
from builder.smoke.runners import open_runner
from builder.smoke.values import RunnableImage

__all__ = ["Warmed", "warm_image"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Warmed:
    """What `warm_image` came to."""

    kind: str
    node_class: str
    report: WarmReport | None
    """None when this machine is not of the class: nothing was run."""
    not_run: str = ""
    """Why nothing was run."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a program must find in its environment to use the engines; the folder is the one of the warm-up."""


def warm_image(
    image: RunnableImage,
    *,
    kind: str | None,
    variable: str | None,
    model: Digest | None,
    properties: Mapping[str, str],
    environment: Mapping[str, str],
    node_class: NodeClass | None,
    workers: int,
    requests: Sequence[str] | None,
    timeout: float | None,
    runner: str,
    replace: bool,
    cache: EngineCache,
    work: Work,
) -> Warmed:
    """Run the image's warmup twice and keep what the first run compiled (`builder.cache.warm`).

    What is not stated comes from the image: versions from its lock, the compiler from a look inside, and the image
    itself for the model, so that an engine is of this very image. `variable` names the folder for a program that reads
    it under another name than the kind's own. `requests` are handed to the program, one a line. `environment` goes to
    it and, where the kind names a variable, into the key.
    """
    facts = read_labels(image.labels, image=image.name)
    if facts.warmup is None:
        raise BadInput(
            f"{image.name} has nothing to warm up with",
            why="its project has no warmup",
            fix='write [warmup] command = ["python", "…"] in the project file, and build the image again',
        )
    folders = load_folders(resources.checks_dir() / "engines.toml")
    if variable is not None:
        if kind is None:
            raise BadInput("--variable without --kind", why="it names the folder of one kind", fix="add --kind KIND")
        folders[kind] = EngineFolder(variable=variable, env=folders[kind].env if kind in folders else {})
    chosen = choose_kind(kind, facts, folders.keys())
    machine = probe(facts.backend, work.environ)
    wanted = node_class or machine
    if wanted.backend != facts.backend:
        raise BadInput(
            f"{image.name} is for {facts.backend}, and {wanted.name} is a class of {wanted.backend} nodes",
            fix=f"see builder node list --backend {facts.backend}",
        )
    if differences := node_differences(wanted, machine):
        return Warmed(
            kind=chosen.name,
            node_class=wanted.name,
            report=None,
            not_run=f"this machine is not {wanted.name}: {'; '.join(differences)}",
        )
    folder = folders[chosen.name]
    given = {**wanted.environment, **environment}
    backend = load_backend(facts.backend)
    opened = open_runner(runner, environ=work.environ, store=work.store, reporter=work.reporter)
    with opened.open(image, run=backend.spec.runtime.run) as container:
        told = {**image_properties(chosen, facts), **compiler_of(chosen, container)}
        key = engine_key(
            chosen,
            model=None if "model" in properties else model or image.digest,
            properties={**told, **properties},
            node=wanted,
            environment={**image.env, **folder.env, **given},
        )
        with work.store.scratch("warm-") as scratch:
            asked = None
            if requests is not None:
                asked = scratch / "requests"
                asked.write_text("".join(f"{line}\n" for line in requests), encoding="utf-8")
            work.reporter.note(f"two passes of {' '.join(facts.warmup.command)}")
            report = warm(
                container,
                Warmup(
                    command=facts.warmup.command,
                    timeout=timeout or facts.warmup.timeout,
                    workers=workers,
                    env=given,
                    requests=asked,
                ),
                folder,
                key,
                cache=cache,
                scratch=scratch,
                replace=replace,
            )
    return Warmed(
        kind=chosen.name,
        node_class=wanted.name,
        report=report,
        environment={folder.variable: TARGET, **folder.env, **given},
    )
