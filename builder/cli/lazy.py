"""A group of commands whose modules are imported only when one is asked for, so that the others cost nothing."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from builder.errors import BadInput, did_you_mean

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """`table` is command to (module, one-line help); the module's attribute `command` is the click command."""

    def __init__(self, *arguments: Any, table: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None when there is none of that name."""
        if cmd_name not in self._table:
            return None
        module = self._table[cmd_name][0]
        command = importlib.import_module(module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.command is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; `BadInput` with the closest names when there is none."""
        if args and not args[0].startswith("-") and args[0] not in self._table:
            group = f"{self.name} " if ctx.parent is not None else ""
            raise BadInput(f"unknown command {group + args[0]!r}", fix=did_you_mean(args[0], self._table))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, from the table: no module is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
