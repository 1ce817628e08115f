"""`builder init`: a first project file."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.console import Console, shared_options

__all__ = ["command"]


@click.command("init", short_help="Write a commented builder.toml for the project at hand.")
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@shared_options
def command(console: Console, folder: Path) -> int:
    """Write a commented builder.toml for the project at hand.

    Fills in what the pyproject.toml or requirements files of FOLDER [default: here] say, and explains the rest in
    comments. Nothing is overwritten.
    """
    from builder.project.init import write_project

    path, found = write_project(folder)
    for rejected in found.rejected:
        console.note(f"left out {rejected.file}: {rejected.reason}")
    document = {
        "schema": "builder/init/1",
        "verdict": "written",
        "path": str(path),
        "requirements_files": list(found.requirement_files),
        "left_out": [{"file": rejected.file, "reason": rejected.reason} for rejected in found.rejected],
    }
    more = "" if found.requirement_files else "name your requirements in it, then "
    console.document(document, lambda: f"{path} written\nnext: {more}builder lock --backend cpu")
    return 0
