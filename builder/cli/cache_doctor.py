"""`builder cache doctor`: why a program would compile although its engine is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.cache_options import cache_of, cache_option, parse_model, parse_pairs
from builder.cli.console import Console, shared_options
from builder.cli.registry_options import open_reference, plain_http_option

if TYPE_CHECKING:
    from builder.pipeline.engine_doctor import KindFindings

__all__ = ["command"]

_EXIT = {"ok": 0, "miss": 1, "unknown": 4}


@click.command("doctor", short_help="Why a program would compile although its engine is kept.")
@click.argument("image", required=False)
@click.option(
    "--kind", "kinds", multiple=True, help="Kind of engine; repeatable [default: what the packages speak for]."
)
@click.option("--node-class", default=None, metavar="NAME|FILE", help="The node class it runs on [default: not known].")
@click.option("--model", metavar="PATH|DIGEST", help="What the engines are of [default: the image].")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A property of the key; repeatable.")
@click.option("--env-var", "variables", multiple=True, metavar="NAME=VALUE", help="Set when it runs; repeatable.")
@click.option("--mount", "mounts", multiple=True, metavar="PATH", help="Mounted when it runs; repeatable.")
@click.option("--read-only", is_flag=True, help="All but the mounts is read-only when it runs.")
@click.option("--user", default="", metavar="USER[:GROUP]", help="The user it runs as [default: the image's].")
@cache_option
@plain_http_option
@shared_options
def command(console: Console, /, image: str | None, folder: Path | None, **options: Any) -> int:
    """Why a program would compile although its engine is kept.

    With IMAGE the image is read, not run: its environment, user, folders and programs, with what --env-var, --mount,
    --read-only and --user say of how it will run. Without, it looks around where it is called, as in a container that
    misses. Exit 0 when nothing stands in the way, 1 when something does, 4 when that cannot be told.
    """
    from builder.cache.doctor import verdict_of_findings
    from builder.cache.looking import Start
    from builder.errors import BadInput
    from builder.names import parse_ref
    from builder.node import node_class
    from builder.pipeline.engine_doctor import Asked, examine_image, examine_machine
    from builder.pipeline.values import Work
    from builder.smoke.image import open_image, this_arch, which_image
    from builder.store import default_store

    wrong = next((one for one in options["mounts"] if not one.startswith("/")), None)
    if wrong is not None:
        raise BadInput(f"--mount {wrong} is no absolute path", fix="name the path as the program sees it")
    asked = Asked(
        kinds=options["kinds"],
        model=parse_model(options["model"]),
        properties=parse_pairs("--set", options["settings"]),
        node=node_class(options["node_class"]) if options["node_class"] else None,
        start=Start(
            env=parse_pairs("--env-var", options["variables"]),
            mounts=options["mounts"],
            read_only=options["read_only"],
            user=options["user"],
        ),
    )
    work = Work(store=default_store(os.environ), environ=os.environ, reporter=console, offline=console.offline)
    digest = None
    if image is None:
        told = [name for name in ("mounts", "read_only", "user") if options[name]]
        if told:
            raise BadInput(
                f"--{told[0].replace('_', '-').removesuffix('s')} without an image",
                why="here the machine itself is looked at, as it is",
                fix="name the image, or leave it out",
            )
        found = examine_machine(asked, cache=cache_of(folder), work=work)
    else:
        reference = parse_ref(image)
        repository = open_reference(console, reference, plain_http=options["plain_http"], mirrors=True)
        arch = asked.node.arch if asked.node else this_arch()
        opened = open_image(repository, which_image(repository, reference), arch=arch, name=image)
        digest = str(opened.digest)
        found = examine_image(opened, repository, asked, arch=arch, cache=cache_of(folder), work=work)
    verdict = verdict_of_findings(finding for one in found for finding in one.findings)
    document = {
        "schema": "builder/cache-doctor/1",
        "verdict": verdict,
        "ref": image,
        "digest": digest,
        "node_class": asked.node.name if asked.node else None,
        "kinds": [_document(one) for one in found],
    }
    console.document(document, lambda: _text(document, console))
    return _EXIT[verdict]


def _document(one: KindFindings) -> dict[str, Any]:
    from builder.cache.doctor import verdict_of_findings

    return {
        "kind": one.kind,
        "verdict": verdict_of_findings(one.findings),
        "findings": [
            {
                "name": item.name,
                "verdict": item.verdict,
                "detail": item.detail,
                "fix": item.fix,
                "source": item.source,
            }
            for item in one.findings
        ],
    }


def _text(document: dict[str, Any], console: Console) -> str:
    words = {"ok": "nothing stands in the way", "miss": "it would compile", "unknown": "cannot be told"}
    lines = []
    for one in document["kinds"]:
        lines.append(f"{one['kind']}: {console.verdict(one['verdict'])}, {words[one['verdict']]}")
        for item in one["findings"]:
            lines.append(
                f"  {console.verdict(item['verdict'])}{' ' * (8 - len(item['verdict']))}"
                f"{item['name']}: {item['detail']}"
            )
            if item["fix"] and item["verdict"] != "ok":
                lines.append(f"          {console.paint(item['fix'], 'dim')}")
    return "\n".join(lines)
