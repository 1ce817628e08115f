"""`builder verify`: an image and its evidence, checked where they lie."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import open_reference, plain_http_option
from builder.errors import BadInput, did_you_mean
from builder.names import parse_ref

__all__ = ["command"]


@click.command("verify", short_help="Check every byte of an image and all its evidence.")
@click.argument("image")
@click.option(
    "--require",
    metavar="KIND",
    multiple=True,
    help="Evidence that must be attached: sbom, audit, provenance, smoke, proof, promotion, or none "
    "[default: sbom, audit and provenance].",
)
@click.option(
    "--key",
    "keys",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    envvar="BUILDER_KEYS",
    help="PEM file of a public key: all required evidence must be signed by one of these keys.",
)
@plain_http_option
@shared_options
def command(console: Console, image: str, require: tuple[str, ...], keys: tuple[Path, ...], plain_http: bool) -> int:
    """Check every byte of an image and all its evidence.

    Manifest, configuration and layers are read and held against their digests and diff ids; evidence must be whole and
    about this very image, and the SBOM must agree with the provenance. With --key, DSSE signatures are checked.
    """
    from builder.registry import find_image
    from builder.registry.dsse import read_key
    from builder.release.verify import KINDS, NEEDED, verify

    for kind in require:
        if kind not in (*KINDS, "none"):
            raise BadInput(f"unknown kind of evidence {kind!r}", fix=did_you_mean(kind, (*KINDS, "none")))
    required = tuple(kind for kind in require if kind != "none") if require else NEEDED
    public = [read_key(path) for path in keys]
    reference = parse_ref(image)
    repository = open_reference(console, reference, plain_http=plain_http)
    digest = find_image(reference, repository).digest
    found = verify(repository, digest, required=required, keys=public, reporter=console)
    console.document(
        {
            "schema": "builder/verify/1",
            "verdict": found.verdict,
            "ref": str(reference),
            "digest": str(digest),
            "signatures": "checked" if public else "not-checked",
            "checks": [
                {"name": check.name, "verdict": check.verdict, "detail": check.detail} for check in found.checks
            ],
        },
        lambda: "\n".join(
            [
                *(f"{console.verdict(check.verdict):<7} {check.name}: {check.detail}" for check in found.checks),
                f"{reference} {digest}: {console.verdict(found.verdict)}"
                + ("" if public else "; signatures were not checked (--key)"),
            ]
        ),
    )
    return 0 if found.verdict == "ok" else 1
