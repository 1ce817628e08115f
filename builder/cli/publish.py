"""`builder publish`: an image and its evidence, under a version tag that does not move."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import (
    evidence_documents,
    existing_file,
    open_reference,
    plain_http_option,
    print_refusal,
)
from builder.errors import BadInput
from builder.names import parse_ref

if TYPE_CHECKING:
    from builder.release.evidence import FileKind

__all__ = ["command"]


@click.command("publish", short_help="Publish an image and its evidence under its version tag.")
@click.argument("image")
@click.option("--to", required=True, metavar="REF", help="Where to: host/name[:tag] or oci:DIR[:tag]; tag as IMAGE's.")
@existing_file("--sbom", help="CycloneDX JSON file to attach.")
@existing_file("--audit", help="Audit statement (in-toto JSON) to attach.")
@existing_file(
    "--smoke", help="Smoke statement (in-toto JSON) to attach; may be given for each node class.", multiple=True
)
@existing_file(
    "--proof", help="Proof statement (in-toto JSON) to attach; may be given for each node class.", multiple=True
)
@plain_http_option
@shared_options
def command(
    console: Console,
    image: str,
    to: str,
    sbom: Path | None,
    audit: Path | None,
    smoke: tuple[Path, ...],
    proof: tuple[Path, ...],
    plain_http: bool,
) -> int:
    """Publish an image and its evidence under its version tag.

    IMAGE is a registry reference or a local layout. What is attached to it goes along; the files given are attached
    too, when they are about this very image. A tag that names another image already is not moved.
    """
    from builder.registry import find_image
    from builder.release.evidence import draft_from_file, listed_evidence
    from builder.release.publish import TagTaken, publish
    from builder.release.tags import refuse_class_tag

    source_ref, target_ref = parse_ref(image), parse_ref(to)
    source = open_reference(console, source_ref, plain_http=plain_http, mirrors=True)
    target = open_reference(console, target_ref, plain_http=plain_http)
    found = find_image(source_ref, source)
    if target_ref.digest is not None and target_ref.digest != found.digest:
        raise BadInput(
            f"{to} is another image than {image}",
            why=f"{image} is {found.digest}",
            fix="leave the digest out of --to",
        )
    tag = target_ref.tag or source_ref.tag
    if tag is None:
        raise BadInput(f"no tag to publish {image} under", fix=f"write it: --to {to}:VERSION")
    refuse_class_tag(tag)
    files: list[tuple[FileKind, Path]] = [("smoke", path) for path in smoke]
    files += [("proof", path) for path in proof]
    if audit is not None:
        files.insert(0, ("audit", audit))
    if sbom is not None:
        files.insert(0, ("sbom", sbom))
    drafts = [draft_from_file(path, kind, found.digest) for kind, path in files]
    ref = str(target_ref.with_tag(tag))
    try:
        done = publish(source=source, digest=found.digest, target=target, tag=tag, drafts=drafts, reporter=console)
    except TagTaken as error:
        document = {"ref": ref, "digest": str(found.digest), "tags": [], "evidence": []}
        return print_refusal(console, "publish", error, document)
    attached = listed_evidence(target, done.digest)
    verdict = "adopted" if done.adopted else "published"
    console.document(
        {
            "schema": "builder/publish/1",
            "verdict": verdict,
            "ref": ref,
            "digest": str(done.digest),
            "tags": [tag],
            "evidence": evidence_documents(attached),
            "sent_blobs": done.sent_blobs,
            "sent_bytes": done.sent_bytes,
        },
        lambda: (
            f"{verdict} {ref}@{done.digest}\n"
            f"sent {done.sent_blobs} blobs, {done.sent_bytes} bytes; "
            f"attached: {', '.join(sorted(piece.kind for piece in attached)) or 'nothing'}"
        ),
    )
    return 0
