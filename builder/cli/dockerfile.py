"""`builder dockerfile`: print the Dockerfile of one backend, or write it with everything it needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.cli.console import Console, project_option, shared_options

if TYPE_CHECKING:
    from builder.image.dockerfile import Dockerfile
    from builder.image.values import ImagePlan
    from builder.pipeline.values import Work
    from builder.project import Project

__all__ = ["command", "locked_plan", "write_build_context"]


@click.command()
@shared_options
@project_option
@click.option("--backend", required=True, help="Backend, e.g. cuda.")
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    default=None,
    help="Also write it to this new folder, with its whole context: wheels, application and a built-in base to load.",
)
def command(console: Console, project: Path | None, backend: str, folder: Path | None) -> int:
    """Print the Dockerfile of one backend.

    It follows from the project file and the lock alone; nothing is fetched unless --write asks for the wheels. A lock
    that no longer fits the project file is used as it is, and said to be stale.
    """
    from builder.image.dockerfile import build_line, context_document, public_base, render, run_line

    plan, stale = locked_plan(console, project, backend)
    image, note = public_base(plan.lock.base)
    made = render(plan, base_image=image, base_note=note)
    if folder is not None:
        write_build_context(console, plan, made, folder)
    document = {
        "schema": "builder/dockerfile/1",
        "verdict": "ok",
        "backend": backend,
        "stale": list(stale),
        "dockerfile": made.text,
        "context": context_document(made.context),
        "build": build_line(plan),
        "run": run_line(plan),
    }
    console.document(document, lambda: made.text)
    return 0


def locked_plan(console: Console, project: Path | None, backend: str) -> tuple[ImagePlan, tuple[str, ...]]:
    """What is known of a locked backend's image without fetching a wheel, and why its lock is stale, if it is."""
    import os

    from builder.errors import BadInput, where_path
    from builder.image.values import Wheelhouse
    from builder.lock.files import lock_path, read_lock
    from builder.names import parse_backend
    from builder.pipeline.build import plan_image
    from builder.pipeline.values import Work
    from builder.project import find_project, load_project
    from builder.store import default_store

    loaded = load_project(find_project(project or Path.cwd()))
    path = lock_path(loaded.root, parse_backend(backend))
    lock = read_lock(path)
    if lock.backend != backend:
        raise BadInput(
            f"{path.name} is not the lock of {backend}",
            why=f"it says that it is for {lock.backend}",
            fix=f"delete it, and lock with builder lock --backend {backend}",
            where=where_path(path),
        )
    work = Work(store=default_store(os.environ), environ=os.environ, reporter=console, offline=console.offline)
    stale = _stale(loaded, backend, work)
    for reason in stale:
        console.note(f"{path.name} is stale: {reason}")
    if stale:
        console.note(f"renew it with builder lock --backend {backend}")
    return plan_image(loaded, lock, Wheelhouse(files={}), work), stale


def _stale(project: Project, backend: str, work: Work) -> tuple[str, ...]:
    from builder.errors import CannotTell, Refused
    from builder.pipeline.lock import lock_project

    try:
        return lock_project(project, backend, work=work, check=True).stale
    except (CannotTell, Refused) as error:
        return (f"{error.what}: {error.why}",)


def write_build_context(console: Console, plan: ImagePlan, made: Dockerfile, folder: Path) -> None:
    """Fetch the wheels and write a new folder that Docker can build."""
    import os
    from dataclasses import replace
    from functools import partial

    from builder.errors import BadInput
    from builder.image.base_layers import base_image
    from builder.image.docker import base_archive, write_context
    from builder.registry.open import open_repository
    from builder.store import default_store
    from builder.wheels.fetch import fetch
    from builder.wheels.settings import read_index_settings

    if folder.exists():
        raise BadInput(f"{folder} is there already", why="a build context is written whole", fix="name a new folder")
    store = default_store(os.environ)
    wheels = fetch(
        plan.lock.packages,
        store,
        reporter=console,
        settings=read_index_settings(os.environ),
        environ=os.environ,
        offline=console.offline,
    )
    write_context(replace(plan, wheelhouse=wheels), made, folder)
    console.note(f"wrote {folder}")
    if plan.lock.base.packages or plan.lock.base.reference.startswith("oci:"):
        base = base_image(
            plan.lock.base,
            plan.lock.arch,
            store,
            console,
            offline=console.offline,
            open_repository=partial(
                open_repository, environ=os.environ, offline=console.offline, mirrors=True, reporter=console
            ),
        )
        archive = folder / "base.tar"
        with archive.open("wb") as file:
            for chunk in base_archive(plan.lock, base):
                file.write(chunk)
        console.note(f"load the base first: docker load --input {archive}")
