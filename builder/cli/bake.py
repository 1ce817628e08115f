"""`builder bake`: all backends of a project, for tools that build many images at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.cli.console import Console, project_option, shared_options
from builder.cli.dockerfile import locked_plan, write_build_context
from builder.errors import BadInput

if TYPE_CHECKING:
    from builder.image.bake import BakeTarget
    from builder.image.values import ImagePlan
    from builder.project import Project

__all__ = ["command"]


@click.command("bake", short_help="Write docker-bake.hcl and a GitHub matrix for all locked backends.")
@click.option("--backend", "backends", multiple=True, help="Only this backend; may be repeated [default: all locked].")
@click.option("--to", metavar="REPOSITORY", help="Where images go: host/name [default: the project's registry].")
@click.option("--matrix", is_flag=True, help="Print the GitHub matrix, in one line, instead of docker-bake.hcl.")
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    default=None,
    help="Write docker-bake.hcl and each backend's whole build context to this new folder.",
)
@project_option
@shared_options
def command(
    console: Console,
    backends: tuple[str, ...],
    to: str | None,
    matrix: bool,
    folder: Path | None,
    project: Path | None,
) -> int:
    """Write docker-bake.hcl and a GitHub matrix for all locked backends.

    Both follow from the project file and the locks alone; nothing is fetched unless --write asks for the contexts.
    """
    from builder.image.bake import bake_hcl, github_matrix
    from builder.project import find_project, load_project

    loaded = load_project(find_project(project or Path.cwd()))
    chosen = _backends(loaded, backends)
    locked = [locked_plan(console, loaded.path, backend) for backend in chosen]
    plans = [plan for plan, _ in locked]
    targets = [_target(loaded, plan, to) for plan in plans]
    text = bake_hcl(targets)
    rows = github_matrix(targets)
    if folder is not None:
        _write(console, plans, targets, folder, text)
    stale = {backend: list(reasons) for backend, (_, reasons) in zip(chosen, locked, strict=True) if reasons}
    console.document(
        {"schema": "builder/bake/1", "verdict": "ok", "bake": text, "matrix": rows, "stale": stale},
        lambda: json.dumps(rows, separators=(",", ":")) if matrix else text,
    )
    return 0


def _backends(project: Project, asked: tuple[str, ...]) -> tuple[str, ...]:
    from builder import resources
    from builder.lock.files import lock_path
    from builder.names import parse_backend

    if asked:
        return tuple(dict.fromkeys(parse_backend(backend) for backend in asked))
    found = tuple(backend for backend in resources.backends() if lock_path(project.root, backend).is_file())
    if not found:
        raise BadInput(
            "no backend of this project is locked",
            why=f"there is no pylock.<backend>.toml in {project.root}",
            fix="builder lock --backend B, for each backend",
        )
    return found


def _target(project: Project, plan: ImagePlan, to: str | None) -> BakeTarget:
    from builder.image.bake import BakeTarget
    from builder.lock.files import lock_path
    from builder.names import LayoutRef, parse_ref
    from builder.pipeline.build import target_for

    chosen = parse_ref(to) if to else None
    if chosen is not None and chosen.tag is not None:
        raise BadInput(
            f"{to} names a tag", why="each backend has a tag of its own", fix="give the repository alone, host/name"
        )
    reference, tag = target_for(project, plan.lock, chosen)
    root = project.root.resolve()
    if isinstance(reference, LayoutRef) and reference.path.resolve().is_relative_to(root):
        reference = LayoutRef(reference.path.resolve().relative_to(root))  # the same on every runner
    written = str(reference.with_tag(tag))
    backend = plan.lock.backend
    return BakeTarget(
        backend=backend,
        arch=plan.lock.arch,
        toolkit=plan.lock.toolkit,
        lock=lock_path(project.root, backend).name,
        reference=written,
        name=f"{project.name}:{tag}" if isinstance(reference, LayoutRef) else written,
        context=backend,
        node_classes=project.options(backend).node_classes,
    )


def _write(console: Console, plans: list[ImagePlan], targets: list[BakeTarget], folder: Path, text: str) -> None:
    from builder.image.dockerfile import public_base, render

    if folder.exists():
        raise BadInput(f"{folder} is there already", why="build contexts are written whole", fix="name a new folder")
    folder.mkdir(parents=True)
    for plan, target in zip(plans, targets, strict=True):
        image, note = public_base(plan.lock.base)
        made = render(plan, base_image=image, base_note=note)
        write_build_context(console, plan, made, folder / target.context)
    (folder / "docker-bake.hcl").write_text(text, encoding="utf-8")
    console.note(f"wrote {folder / 'docker-bake.hcl'}")
