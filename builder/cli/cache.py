"""`builder cache`: the engine cache. Each subcommand has a module, loaded when it is called."""

from __future__ import annotations

import importlib

import click

from builder.errors import BadInput, did_you_mean

__all__ = ["SUBCOMMANDS", "command"]

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "key": ("builder.cli.cache_key", "What makes an engine valid here: its properties, and the key they give."),
    "lookup": ("builder.cli.cache_lookup", "Is there an engine for this? hit, usable, miss or unknown."),
    "explain": ("builder.cli.cache_explain", "Why there is none: the nearest engines, property by property."),
    "put": ("builder.cli.cache_put", "Keep an engine, or remember that building it failed."),
    "list": ("builder.cli.cache_list", "List the engines that are kept."),
    "verify": ("builder.cli.cache_verify", "Digest every byte of the kept engines again."),
    "inspect": ("builder.cli.cache_inspect", "What an engine says about itself, without loading it."),
    "push": ("builder.cli.cache_push", "Attach engines to their image in a registry, signed."),
    "pull": ("builder.cli.cache_pull", "Fetch an image's engines for a node class, as far as they are missing."),
    "gc": ("builder.cli.cache_gc", "Remove the least recently used engines, and what no engine needs."),
}
"""Subcommand to (module, one-line help). The module's attribute `command` is the click command of that name."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        found = importlib.import_module(SUBCOMMANDS[cmd_name][0]).command
        if not isinstance(found, click.Command):
            raise TypeError(f"{SUBCOMMANDS[cmd_name][0]}.command is not a click command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in SUBCOMMANDS:
            raise BadInput(f"unknown command cache {args[0]!r}", fix=did_you_mean(args[0], SUBCOMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in SUBCOMMANDS.items()])


@click.group("cache", cls=_LazyGroup)
def command() -> None:
    """The engine cache: compiled engines by what makes them valid.

    TensorRT plans, Triton and Inductor caches, NEFF, MXR, OM, OpenVINO blobs and their like are kept under a key made
    of the model, the build's options, the versions of what built them and the device. An engine is found where it is
    valid, and a miss says exactly what differs.
    """
