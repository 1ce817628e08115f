"""`builder cache pull`: the engines of an image for this machine, as far as they are missing here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.cache_options import (
    cache_of,
    cache_option,
    check_properties,
    difference_document,
    entry_document,
    parse_pairs,
    shown_size,
)
from builder.cli.console import Console, shared_options
from builder.cli.registry_options import open_reference, plain_http_option
from builder.errors import BadInput
from builder.names import parse_ref

if TYPE_CHECKING:
    from builder.cache import Difference, Entry
    from builder.cache.pull import Found
    from builder.cache.statement import Listed

__all__ = ["command"]


@click.command("pull", short_help="Fetch an image's engines for a node class, as far as they are missing.")
@click.argument("image")
@click.option(
    "--node-class", default=None, metavar="NAME|FILE", help="The node class [default: what this machine is probed as]."
)
@click.option(
    "--key",
    "keys",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    envvar="BUILDER_KEYS",
    help="PEM file of a public key: engines must be signed by one of these keys.",
)
@click.option("--kind", default=None, help="Fetch engines of this kind only.")
@click.option("--model", default=None, metavar="DIGEST", help="Fetch engines of this model only.")
@click.option(
    "--entry", "names", multiple=True, metavar="KEY", help="Fetch this engine only; its key or the start of it."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --kind: leave engines that do not suit this property, e.g. torch=2.13.0; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be fetched.")
@cache_option
@plain_http_option
@shared_options
def command(
    console: Console,
    image: str,
    node_class: str | None,
    keys: tuple[Path, ...],
    kind: str | None,
    model: str | None,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    dry_run: bool,
    folder: Path | None,
    plain_http: bool,
) -> int:
    """Fetch an image's engines for a node class, as far as they are missing.

    What is signed by none of the keys is named and nothing of it is fetched, nor of what does not suit --set. Of the
    others only the parts are fetched that the cache lacks; an engine appears in it whole or not at all, and a broken
    pull goes on where it was.
    """
    from builder.cache.pull import find, lacking, pull, unsuited
    from builder.node import node_class as load
    from builder.node import probe
    from builder.registry import find_image
    from builder.registry.dsse import read_key
    from builder.registry.errors import MissingContent
    from builder.store import CorruptBlob

    if not keys:
        raise BadInput(
            "no key to hold signatures against",
            why="engines are code: only what somebody vouches for is fetched",
            fix="name the public key of who pushes engines: --key FILE, or BUILDER_KEYS",
        )
    stated = parse_pairs("--set", settings)
    if stated and kind is None:
        raise BadInput("--set without --kind", why="every kind has properties of its own", fix="add --kind KIND")
    check_properties(kind, stated)
    public = [read_key(path) for path in keys]
    node = probe(None) if node_class is None else load(node_class)
    cache = cache_of(folder)
    reference = parse_ref(image)
    repository = open_reference(console, reference, plain_http=plain_http)
    digest = find_image(reference, repository).digest
    wanted_model = None if model is None else f"sha256:{model.lower().removeprefix('sha256:')}"
    starts = tuple(f"sha256:{name.lower().removeprefix('sha256:')}" for name in names)

    def wanted(one: Listed) -> bool:
        return (
            kind in (None, one.kind)
            and wanted_model in (None, one.model)
            and (not starts or one.key.startswith(starts))
        )

    found = find(repository, digest, node=node, keys=public, wanted=wanted)
    engines: list[dict[str, Any]] = []
    refused: list[tuple[Found, str]] = []
    left: list[tuple[Entry, tuple[Difference, ...]]] = []
    for one in found:
        if one.told is None:
            refused.append((one, one.problem))
            continue
        if blocking := unsuited(one.told.entry, stated):
            left.append((one.told.entry, blocking))
            continue
        try:
            parts = lacking(cache, one.told)
            told = {"parts": len(parts), "bytes": sum(part.size for part in parts)}
            verdict = "there" if cache.store.entry(one.told.entry.digest) is not None else "missing"
            if verdict == "missing" and not dry_run:
                done = pull(cache, repository, one.told, reporter=console)
                verdict, told = "there" if done.kept else "pulled", {"parts": done.parts, "bytes": done.size}
        except (BadInput, CorruptBlob, MissingContent) as error:
            refused.append((one, f"{error.what}: {error.why}"))
            continue
        engines.append({**entry_document(one.told.entry), "verdict": verdict, "signers": list(one.signers), **told})
    verdicts = {one["verdict"] for one in engines}
    verdict = "pulled" if "pulled" in verdicts else "missing" if "missing" in verdicts else "there"
    if not engines:
        verdict = "refused" if refused else "miss"
    document = {
        "schema": "builder/cache-pull/1",
        "verdict": verdict,
        "ref": str(reference),
        "digest": str(digest),
        "node_class": node.name,
        "engines": engines,
        "refused": [
            {"manifest": str(one.listed.manifest), "kind": one.listed.kind, "key": one.listed.key, "why": why}
            for one, why in refused
        ],
        "unsuited": [
            {"key": str(entry.digest), "kind": entry.key.kind, "differs": [difference_document(one) for one in differs]}
            for entry, differs in left
        ],
    }

    def text() -> str:
        words = {"pulled": "fetched", "there": "already there", "missing": "would be fetched"}
        lines = [
            f"{words[one['verdict']]}: {one['kind']} {one['name']} {one['key']} "
            f"({one['parts']} parts, {shown_size(one['bytes'])})"
            for one in engines
        ]
        lines += [f"refused: {one.listed.kind} {one.listed.key}: {why}" for one, why in refused]
        lines += [
            f"left: {entry.key.kind} {entry.name} {entry.digest}: "
            + "; ".join(f"{one.name} is {one.found}, wanted {one.wanted}" for one in differs)
            for entry, differs in left
        ]
        if not found:
            lines.append(f"{console.verdict('miss')} {reference} has no engines for {node.name}")
        return "\n".join(lines)

    console.document(document, text)
    return 0 if engines else 1
