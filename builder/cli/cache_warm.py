"""`builder cache warm`: compile an image's engines on a node, keep them, and prove that they are used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.cache_options import cache_of, cache_option, entry_document, parse_model, parse_pairs, shown_size
from builder.cli.console import Console, shared_options
from builder.cli.registry_options import open_reference, plain_http_option

if TYPE_CHECKING:
    from builder.cache.warm import Pass
    from builder.pipeline.warm import Warmed

__all__ = ["command"]

_EXIT = {"warmed": 0, "failed": 1, "not-run": 4}


@click.command("warm", short_help="Compile an image's engines on a node, keep them, and prove that they are used.")
@click.argument("image")
@click.option("--node-class", default=None, metavar="NAME|FILE", help="What this machine must be [default: as it is].")
@click.option("--kind", default=None, help="Kind of engine [default: the one the image's lock speaks for].")
@click.option("--variable", default=None, metavar="NAME", help="Variable in which the program looks for the folder.")
@click.option("--model", metavar="PATH|DIGEST", help="What the engines are of [default: this very image].")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A property of the key; repeatable.")
@click.option("--env-var", "variables", multiple=True, metavar="NAME=VALUE", help="Set for the program; repeatable.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes at once.")
@click.option(
    "--requests",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=None,
    help="A file of requests, one a line; the program finds it by BUILDER_REQUESTS.",
)
@click.option("--sample", type=click.IntRange(1), default=None, help="So many of the requests [default: all].")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=None, help="Most seconds for a pass.")
@click.option("--runner", type=click.Choice(["builtin", "docker"]), default="builtin", show_default=True)
@click.option("--replace", is_flag=True, help="Replace the engine that is kept under this key.")
@cache_option
@plain_http_option
@shared_options
def command(console: Console, /, image: str, folder: Path | None, **options: Any) -> int:
    """Compile an image's engines on a node, keep them, and prove that they are used.

    The image's warmup runs twice without a network. The first pass starts with an empty folder, and what it compiled is
    kept in the cache. The second starts with that engine restored elsewhere: it must read it and compile nothing, else
    nothing is kept (exit 1). On a machine that is not of the node class nothing runs (exit 4).
    """
    from builder.names import parse_ref
    from builder.node import node_class
    from builder.pipeline.values import Work
    from builder.pipeline.warm import warm_image
    from builder.smoke.image import open_image, this_arch, which_image
    from builder.store import default_store

    reference = parse_ref(image)
    repository = open_reference(console, reference, plain_http=options["plain_http"], mirrors=True)
    opened = open_image(repository, which_image(repository, reference), arch=this_arch(), name=image)
    warmed = warm_image(
        opened,
        kind=options["kind"],
        variable=options["variable"],
        model=parse_model(options["model"]),
        properties=parse_pairs("--set", options["settings"]),
        environment=parse_pairs("--env-var", options["variables"]),
        node_class=node_class(options["node_class"]) if options["node_class"] else None,
        workers=options["workers"],
        requests=_requests(options["requests"], options["sample"]),
        timeout=options["timeout"],
        runner=options["runner"],
        replace=options["replace"],
        cache=cache_of(folder),
        work=Work(store=default_store(os.environ), environ=os.environ, reporter=console, offline=console.offline),
    )
    document = _document(warmed, image, str(opened.digest), options["runner"])
    console.document(document, lambda: _text(document, console))
    return _EXIT[document["verdict"]]


def _requests(path: Path | None, count: int | None) -> tuple[str, ...] | None:
    from builder.cache.warm import sampled
    from builder.errors import BadInput

    if path is None:
        if count is not None:
            raise BadInput(
                "--sample without --requests", why="there is nothing to draw from", fix="add --requests FILE"
            )
        return None
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no text", why=str(error), fix="write one request a line, in UTF-8") from error
    if not lines:
        raise BadInput(f"{path} is empty", why="there is nothing to warm up with", fix="write one request a line")
    return sampled(lines, count)


def _document(warmed: Warmed, image: str, digest: str, runner: str) -> dict[str, Any]:
    report = warmed.report
    return {
        "schema": "builder/cache-warm/1",
        "verdict": report.verdict if report else "not-run",
        "ref": image,
        "digest": digest,
        "node_class": warmed.node_class,
        "runner": runner,
        "kind": warmed.kind,
        "key": str(report.key.digest) if report else None,
        "entry": entry_document(report.entry) if report and report.entry else None,
        "first": _pass(report.first) if report else None,
        "second": _pass(report.second) if report and report.second else None,
        "environment": dict(warmed.environment),
        "why": report.why if report else warmed.not_run,
        "fix": report.fix if report else "run it on a machine of that class, or leave --node-class out",
    }


def _pass(one: Pass) -> dict[str, Any]:
    return {
        "seconds": round(one.seconds, 3),
        "compiled": len(one.compiled),
        "read": one.read,
        "elsewhere": len(one.elsewhere),
    }


def _text(document: dict[str, Any], console: Console) -> str:
    lines = [
        f"{name} pass: {one['seconds']:.1f} s, {one['compiled']} compiled, {one['read']} read"
        for name in ("first", "second")
        if (one := document[name]) is not None
    ]
    verdict = f"{document['kind']} on {document['node_class']}: {console.verdict(document['verdict'])}"
    if document["entry"] is not None:
        entry, first, second = document["entry"], document["first"], document["second"]
        settings = " ".join(f"{name}={value}" for name, value in document["environment"].items())
        lines += [
            f"{verdict}, {first['seconds'] / max(second['seconds'], 0.001):.1f} times sooner",
            f"{entry['files']} file{'s' * (entry['files'] != 1)}, {shown_size(entry['size'])}: {entry['key']}",
            f"to be set where it is used: {settings}",
        ]
    else:
        lines += [verdict, f"  why:   {document['why']}", f"  fix:   {document['fix']}"]
    return "\n".join(lines)
