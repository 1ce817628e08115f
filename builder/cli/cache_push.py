"""`builder cache push`: engines to the registry, attached to their image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.cli.cache_options import cache_of, cache_option, entry_document, shown_size
from builder.cli.console import Console, shared_options
from builder.cli.registry_options import (
    image_name,
    key_password,
    open_reference,
    password_option,
    plain_http_option,
)
from builder.errors import BadInput, did_you_mean
from builder.names import Digest, parse_ref

if TYPE_CHECKING:
    from builder.cache import EngineCache, Entry

__all__ = ["chosen", "command"]


@click.command("push", short_help="Attach engines to their image in a registry, signed.")
@click.argument("image")
@click.option("--node-class", required=True, metavar="NAME|FILE", help="The node class that the engines are for.")
@click.option(
    "--sign-key",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="BUILDER_SIGN_KEY",
    help="PEM file of the private key that signs.",
)
@password_option
@click.option("--kind", default=None, help="Push the engines of this kind.")
@click.option("--model", default=None, metavar="DIGEST", help="Push the engines of this model.")
@click.option("--entry", "names", multiple=True, metavar="KEY", help="Push this engine; its key or the start of it.")
@click.option("--model-name", default=None, help="What the bill of materials calls the model [default: model].")
@click.option("--no-sbom", is_flag=True, help="Leave the image's bill of materials as it is.")
@cache_option
@plain_http_option
@shared_options
def command(
    console: Console,
    image: str,
    node_class: str,
    sign_key: Path,
    password_file: Path | None,
    kind: str | None,
    model: str | None,
    names: tuple[str, ...],
    model_name: str | None,
    no_sbom: bool,
    folder: Path | None,
    plain_http: bool,
) -> int:
    """Attach engines to their image in a registry, signed.

    Each engine becomes an artefact of the image, for one node class; a machine of the class finds it with
    `builder cache pull`. Parts that the registry holds are not sent again. The engines and the model they were made
    from are entered in the image's bill of materials, which is attached anew and signed with the same key.
    """
    from builder.cache.push import push
    from builder.node import node_class as load
    from builder.registry import find_image
    from builder.registry.dsse import read_private_key
    from builder.release.engines import bills_of, enter_engines

    key = read_private_key(sign_key, key_password(password_file))
    node = load(node_class)
    entries = chosen(cache := cache_of(folder), kind=kind, model=model, names=names)
    reference = parse_ref(image)
    repository = open_reference(console, reference, plain_http=plain_http)
    digest = find_image(reference, repository).digest
    if not no_sbom:
        bills_of(repository, digest)  # nothing is attached when the document cannot be entered into
    done = push(
        cache, entries, repository, digest, image_name=image_name(reference), node=node, key=key, reporter=console
    )
    sbom = None
    if not no_sbom:
        called = {} if model_name is None else dict.fromkeys(_models(entries), model_name)
        sbom = enter_engines(repository, digest, entries, node_class=node.name, key=key, model_names=called)
    verdict = "there" if all(one.adopted for one in done.engines) else "pushed"
    document = {
        "schema": "builder/cache-push/1",
        "verdict": verdict,
        "ref": str(reference),
        "digest": str(digest),
        "node_class": node.name,
        "engines": [
            {**entry_document(one.entry), "manifest": str(one.manifest), "adopted": one.adopted} for one in done.engines
        ],
        "sent_blobs": done.sent_blobs,
        "sent_bytes": done.sent_bytes,
        "sbom": None if sbom is None else str(sbom),
    }

    def text() -> str:
        lines = [
            f"{'already there' if one.adopted else 'pushed'}: {one.entry.key.kind} {one.entry.name}, "
            f"{shown_size(one.entry.size)}, {one.entry.digest}"
            for one in done.engines
        ]
        lines.append(f"sent {done.sent_blobs} blobs, {shown_size(done.sent_bytes)}, to {reference} for {node.name}")
        lines += [] if sbom is None else [f"bill of materials with the engines: {sbom}"]
        return "\n".join(lines)

    console.document(document, text)
    return 0


def chosen(cache: EngineCache, *, kind: str | None, model: str | None, names: tuple[str, ...]) -> list[Entry]:
    """The entries that a command line names; `BadInput` when it names none, or there is none."""
    from builder.cache import engine_kind

    if kind is None and model is None and not names:
        raise BadInput(
            "which engines are meant?",
            why="a cache may hold those of many models and machines",
            fix="name them by --kind, --model or --entry; builder cache list shows them",
        )
    if kind is not None:
        engine_kind(kind)
    entries = [one for one in cache.entries() if not isinstance(one, BadInput)]
    named = [_named(entries, name) for name in names] if names else entries
    wanted = {one.digest: one for one in named if _fits(one, kind, model)}
    if not wanted:
        raise BadInput(
            f"the cache {cache.store.root} holds no such engine",
            why=", ".join(f"{name} {value}" for name, value in (("kind", kind), ("model", model)) if value),
            fix="builder cache list shows what there is",
        )
    return sorted(wanted.values(), key=lambda one: (one.key.kind, one.digest.hex))


def _named(entries: Sequence[Entry], name: str) -> Entry:
    found = [one for one in entries if one.digest.hex.startswith(name.removeprefix("sha256:").lower())]
    if len(found) != 1:
        raise BadInput(
            f"{len(found) or 'no'} engines have a key that starts with {name!r}",
            fix="write more of the key" if found else did_you_mean(name, [one.digest.hex for one in entries]),
        )
    return found[0]


def _fits(entry: Entry, kind: str | None, model: str | None) -> bool:
    digest = None if model is None else f"sha256:{model.lower().removeprefix('sha256:')}"
    return kind in (None, entry.key.kind) and digest in (None, entry.key.model)


def _models(entries: Sequence[Entry]) -> set[Digest]:
    return {Digest.parse(entry.key.model) for entry in entries if entry.key.model is not None}
