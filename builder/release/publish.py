"""Publishing: an image, what is attached to it, and a version tag that never moves again."""

from __future__ import annotations

from collections.abc import Sequence

from builder.errors import Refused
from builder.events import Reporter
from builder.names import Digest, parse_tag
from builder.registry.copy import copy
from builder.registry.errors import TagMoved
from builder.registry.values import Repository
from builder.release.evidence import attach
from builder.release.values import Draft, Published

__all__ = ["TagTaken", "publish"]


class TagTaken(Refused):
    """A version tag names another image already; version tags do not move."""

    kind = "tag-taken"

    def __init__(self, tag: str, *, repository: str, digest: Digest, found: Digest) -> None:
        super().__init__(
            f"tag {tag!r} of {repository} is taken",
            why=f"it is the image {found}, not {digest}, and a published version stays what it is",
            fix="raise the project's version, or publish under another tag",
        )


def publish(
    *,
    source: Repository,
    digest: Digest,
    target: Repository,
    tag: str | None,
    drafts: Sequence[Draft] = (),
    referrers: bool = True,
    reporter: Reporter,
    workers: int = 4,
) -> Published:
    """Copy an image with everything attached to it, attach `drafts`, and tag it last.

    The tag appears only when all else is there. A tag that points at this digest is adopted, one that points elsewhere
    is `TagTaken` before anything is sent. `source` and `target` may be one repository. Without `referrers`, what is
    attached to the image stays behind.
    """
    found = None
    if tag is not None:
        parse_tag(tag)
        found = target.resolve(tag)
        if found is not None and found.digest != digest:
            raise TagTaken(tag, repository=str(target), digest=digest, found=found.digest)
    sent_blobs = sent_bytes = 0
    subject = found
    elsewhere = source is not target and referrers
    if subject is None or (elsewhere and source.referrers(digest)):
        copied = copy(source, target, digest, referrers=elsewhere, reporter=reporter, workers=workers)
        subject, sent_blobs, sent_bytes = copied.descriptor, copied.sent_blobs, copied.sent_bytes
    attached = attach(target, subject, drafts)
    if tag is not None and found is None:
        try:
            target.move_tag(tag, digest, expected=None)
        except TagMoved as error:
            if error.found != digest:
                raise TagTaken(tag, repository=str(target), digest=digest, found=error.found or digest) from error
    return Published(
        digest=digest,
        tag=tag,
        evidence=attached,
        sent_blobs=sent_blobs,
        sent_bytes=sent_bytes,
        adopted=found is not None,
    )
