"""`builder sign`: signatures over an image's evidence."""

from __future__ import annotations

import os
from pathlib import Path

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import existing_file, open_reference, plain_http_option
from builder.errors import BadInput, where_path
from builder.names import parse_ref

__all__ = ["command"]

_PASSWORD = "BUILDER_KEY_PASSWORD"  # noqa: S105 - the name of a variable


@click.command("sign", short_help="Sign all evidence of an image with a private key.")
@click.argument("image")
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM file of a private key: Ed25519, ECDSA or RSA.",
)
@existing_file("--password-file", help=f"File with the key's password in its first line [default: {_PASSWORD}].")
@plain_http_option
@shared_options
def command(console: Console, image: str, key: Path, password_file: Path | None, plain_http: bool) -> int:
    """Sign all evidence of an image with a private key.

    One DSSE envelope for each piece is attached to the image; `builder verify --key` with the public key holds them
    against the evidence. What the key signed before is not signed again. Check an image before you sign it.
    """
    from builder.registry import find_image
    from builder.registry.dsse import read_private_key
    from builder.release.signing import sign

    private = read_private_key(key, _password(password_file))
    reference = parse_ref(image)
    repository = open_reference(console, reference, plain_http=plain_http)
    digest = find_image(reference, repository).digest
    done = sign(repository, digest, private)
    fresh = sum(item.fresh for item in done)
    verdict = "signed" if fresh else "unchanged"
    console.document(
        {
            "schema": "builder/sign/1",
            "verdict": verdict,
            "ref": str(reference),
            "digest": str(digest),
            "key": private.public.ways[0].keyid,
            "evidence": [
                {
                    "image": str(item.image),
                    "kind": item.piece.kind,
                    "digest": str(item.piece.digest),
                    "signature": str(item.envelope),
                    "fresh": item.fresh,
                }
                for item in done
            ],
        },
        lambda: "\n".join(
            [
                *(f"{'signed' if item.fresh else 'before':<7} {item.piece.kind}: {item.piece.digest}" for item in done),
                f"{verdict} {reference}@{digest}: {fresh} of {len(done)} pieces of evidence",
            ]
        ),
    )
    return 0


def _password(path: Path | None) -> bytes | None:
    if path is None:
        text = os.environ.get(_PASSWORD)
        return text.encode() if text else None
    try:
        return path.read_bytes().split(b"\n", 1)[0].rstrip(b"\r") or None
    except OSError as error:
        raise BadInput(f"cannot read {path}", why=str(error.strerror), where=where_path(path)) from error
