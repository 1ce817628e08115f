"""`builder copy`: an image as it is, from anywhere to anywhere."""

from __future__ import annotations

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import evidence_documents, open_reference, plain_http_option, print_refusal
from builder.errors import BadInput
from builder.names import parse_ref

__all__ = ["command"]


@click.command("copy", short_help="Copy an image and its evidence between registries and layouts.")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--no-referrers", is_flag=True, help="Leave behind what is attached to the image.")
@click.option("--move-tag", is_flag=True, help="Let the tag at DST move from another image to this one.")
@plain_http_option
@shared_options
def command(console: Console, source: str, target: str, no_referrers: bool, move_tag: bool, plain_http: bool) -> int:
    """Copy an image and its evidence between registries and layouts.

    SRC and DST are registry references or layouts; an index is copied with all its images. The digest stays the same.
    DST takes SRC's tag unless it names one; a SRC that is named by digest alone is copied without a tag.
    """
    from builder.registry import find_image
    from builder.registry.errors import TagMoved
    from builder.release.evidence import listed_evidence
    from builder.release.publish import TagTaken, publish
    from builder.release.tags import refuse_class_tag, refuse_promoted_tag

    source_ref, target_ref = parse_ref(source), parse_ref(target)
    origin = open_reference(console, source_ref, plain_http=plain_http, mirrors=True)
    place = open_reference(console, target_ref, plain_http=plain_http)
    found = find_image(source_ref, origin)
    if target_ref.digest is not None and target_ref.digest != found.digest:
        raise BadInput(
            f"{target} is another image than {source}", why=f"{source} is {found.digest}", fix="leave the digest out"
        )
    tag = target_ref.tag or source_ref.tag
    ref = str(target_ref.with_tag(tag) if tag else target_ref.with_digest(found.digest))
    if tag:
        refuse_class_tag(tag)
        refuse_promoted_tag(tag, origin, found.digest)
    before = place.resolve(tag) if tag else None
    if before is not None and tag:
        refuse_promoted_tag(tag, place, before.digest)
    moves = move_tag and before is not None and before.digest != found.digest
    try:
        done = publish(
            source=origin,
            digest=found.digest,
            target=place,
            tag=None if moves else tag,
            referrers=not no_referrers,
            reporter=console,
        )
        if moves and tag and before is not None:
            place.move_tag(tag, found.digest, expected=before.digest)
    except (TagTaken, TagMoved) as error:
        return print_refusal(
            console, "copy", error, {"ref": ref, "digest": str(found.digest), "tags": [], "evidence": []}
        )
    attached = listed_evidence(place, done.digest)
    verdict = "present" if done.adopted and not done.sent_blobs else "copied"
    console.document(
        {
            "schema": "builder/copy/1",
            "verdict": verdict,
            "ref": ref,
            "digest": str(done.digest),
            "tags": [tag] if tag else [],
            "evidence": evidence_documents(attached),
            "sent_blobs": done.sent_blobs,
            "sent_bytes": done.sent_bytes,
        },
        lambda: (
            f"{verdict} {ref}\n{done.digest}\nsent {done.sent_blobs} blobs, {done.sent_bytes} bytes; "
            f"attached: {', '.join(sorted(piece.kind for piece in attached)) or 'nothing'}"
        ),
    )
    return 0
