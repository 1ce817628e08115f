"""Renews what the documentation takes from the code: `python -m tests.renew`.

The tests call the same functions and compare, so that a page which says something else than the code does fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from builder.cli.main import cli
from builder.matrix import load_tables
from builder.matrix.load import load_table_file
from builder.matrix.pages import backend_page, engines_page, index_page

DOCS = Path(__file__).parent.parent / "docs"
WIDTH = 100


def main() -> int:
    """Renew every generated part."""
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")
    return 0


def generated() -> dict[Path, str]:
    """Each page with generated parts, and the text it should have."""
    page = DOCS / "cli.md"
    return {
        page: replace_section(page.read_text(encoding="utf-8"), "commands", command_reference()),
        DOCS / "decisions" / "README.md": decision_index(),
        **matrix_pages(),
    }


def matrix_pages() -> dict[Path, str]:
    """The tables as pages: one a backend, one with the engine kinds, and an index with the common ones."""
    tables = load_tables()
    common = tuple(load_table_file(path) for path in sorted((tables.root / "common").glob("*.toml")))
    folder = DOCS / "matrix"
    pages = {folder / f"{name}.md": backend_page(tables.backend(name)) for name in tables.names}
    engines = tuple(load_table_file(path) for path in sorted((tables.root / "engines").glob("*.toml")))
    return {folder / "README.md": index_page(tables, common), folder / "engines.md": engines_page(engines), **pages}


def replace_section(text: str, name: str, body: str) -> str:
    """`text` with what stands between `<!-- NAME -->` and `<!-- /NAME -->` replaced."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    replaced, count = pattern.subn(lambda match: f"{match[1]}{body}{match[2]}", text)
    if count != 1:
        raise ValueError(f"{count} sections named {name}, expected 1")
    return replaced


def command_reference() -> str:
    """The help of every command and subcommand as Markdown."""
    return "".join(
        f"### {' '.join(path)}\n\n```text\n{_help(command, path)}\n```\n\n"
        for path, command in _walk(cli, ("builder",))
    )


def _walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _walk(child, (*path, name))


def _help(command: click.Command, path: tuple[str, ...]) -> str:
    context: click.Context | None = None
    for name in path[:-1]:
        context = click.Context(click.Group(name), info_name=name, parent=context)
    settings = {**command.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}
    own = click.Context(command, info_name=path[-1], parent=context, **settings)
    return "\n".join(line.rstrip() for line in command.get_help(own).splitlines())


def decision_index() -> str:
    """docs/decisions/README.md: the pages in order of their number, each with its title."""
    lines = [
        "# Decisions",
        "",
        "What was chosen over what, and why. One page each; a page is replaced, not rewritten.",
        "",
    ]
    for page in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{page.stem.partition('-')[0]}]({page.name}): {title}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
