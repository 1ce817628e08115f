"""`builder sign`: signatures over an image's evidence."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import key_password, open_reference, password_option, plain_http_option
from builder.names import parse_ref

__all__ = ["command"]


@click.command("sign", short_help="Sign all evidence of an image with a private key.")
@click.argument("image")
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM file of a private key: Ed25519, ECDSA or RSA.",
)
@password_option
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

    private = read_private_key(key, key_password(password_file))
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
