"""`builder cache`: the engine cache. Each subcommand has a module, loaded when it is called."""

from __future__ import annotations

import click

from builder.cli.lazy import LazyGroup

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
    "warm": (
        "builder.cli.cache_warm",
        "Compile an image's engines on a node, keep them, and prove that they are used.",
    ),
    "doctor": ("builder.cli.cache_doctor", "Why a program would compile although its engine is kept."),
    "gc": ("builder.cli.cache_gc", "Remove the least recently used engines, and what no engine needs."),
}
"""Subcommand to (module, one-line help). The module's attribute `command` is the click command of that name."""


@click.group("cache", cls=LazyGroup, table=SUBCOMMANDS)
def command() -> None:
    """The engine cache: compiled engines by what makes them valid.

    TensorRT plans, Triton and Inductor caches, NEFF, MXR, OM, OpenVINO blobs and their like are kept under a key made
    of the model, the build's options, the versions of what built them and the device. An engine is found where it is
    valid, and a miss says exactly what differs.
    """
