"""What is attached to a manifest in a registry: the referrers endpoint, and the fallback tag where it is missing.

Source: distribution-spec, "Listing Referrers" and "Pushing Manifests with Subject" (Referrers Tag Schema).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import urljoin

from builder.names import Digest
from builder.registry.errors import RegistryRefused
from builder.registry.http import backoff, origin, read_all
from builder.registry.manifests import canonical_json, parse_index, referrers_tag
from builder.registry.session import Session
from builder.registry.values import Descriptor, Manifest, MediaType

__all__ = ["add_to_fallback", "list_fallback", "list_from_endpoint"]

_PAGES = 1000
_ROUNDS = 200
_SETTLE = 0.2
"""Seconds, at least, between the two looks that must both find an entry."""


class Tagged(Protocol):
    """Reads and writes manifests under tags; a `Remote`."""

    def manifest(self, reference: Digest | str) -> Manifest | None:
        """The manifest under a tag or digest; None only when the registry says that there is none."""

    def put_tagged(self, manifest: Manifest, tag: str) -> None:
        """Write a manifest under a tag."""


def list_from_endpoint(session: Session, subject: Digest) -> tuple[Descriptor, ...] | None:
    """All referrers by the endpoint, every page; None when the registry has no such endpoint (404)."""
    found: list[Descriptor] = []
    url = session.url(f"referrers/{subject}")
    for _ in range(_PAGES):
        answer = session.call(
            "GET", url, scopes=session.scopes("pull"), ok=(200, 404), headers={"Accept": MediaType.INDEX}
        )
        raw = read_all(answer)
        if answer.status_code == 404:
            return None
        page = parse_index(Manifest(answer.headers.get("Content-Type", "").partition(";")[0].strip(), raw))
        if page is None:
            raise RegistryRefused(
                f"{session} does not list referrers as agreed", why="its answer is no OCI image index"
            )
        found += page
        following = answer.links.get("next", {}).get("url")
        if not following:
            return tuple(found)
        target = urljoin(url, following)
        if origin(target) != origin(url) or target == url:
            raise RegistryRefused(f"{session} does not list referrers as agreed", why="its next page is elsewhere")
        url = target
    raise RegistryRefused(f"{session} does not stop listing referrers", why=f"more than {_PAGES} pages")


def list_fallback(tagged: Tagged, subject: Digest) -> tuple[Descriptor, ...]:
    """The entries under the fallback tag; none when the tag is absent or holds anything but an index."""
    return _read(tagged, subject) or ()


def _read(tagged: Tagged, subject: Digest) -> tuple[Descriptor, ...] | None:
    """The entries; None when the tag holds something else than an index."""
    manifest = tagged.manifest(referrers_tag(subject))
    return () if manifest is None else parse_index(manifest)


def add_to_fallback(
    tagged: Tagged,
    subject: Digest,
    entries: Sequence[Descriptor],
    *,
    sleep: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Put entries into the fallback index so that they stay there, whoever else writes (FR-31).

    A registry has no conditional write, so: read, merge, write, read back, and again until all entries are found twice,
    with a pause between that is longer than reading and writing took. Another writer that had read the index before our
    write has written by then, and if that lost our entries, the second look sees it.
    """
    tag = referrers_tag(subject)
    settled = False
    window = _SETTLE
    for number in range(_ROUNDS):
        started = clock()
        present = _current(tagged, subject)
        if {entry.digest for entry in entries} <= {other.digest for other in present}:
            if settled:
                return
            settled = True
            sleep(window)
            continue
        settled = False
        if number:
            sleep(backoff(min(number, 4)) / 4)
            present = _current(tagged, subject)
        merged = {other.digest: other for other in (*present, *entries)}
        listed = [merged[digest].to_json() for digest in sorted(merged)]
        index = canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": listed})
        tagged.put_tagged(Manifest(MediaType.INDEX, index), tag)
        window = max(window, 3 * (clock() - started))
    raise RegistryRefused(
        f"the list of referrers of {subject} did not keep our entries",
        why=f"others overwrote tag {tag} {_ROUNDS} times while {len(entries)} were added",
        fix="run it again: entries that are there are kept",
    )


def _current(tagged: Tagged, subject: Digest) -> tuple[Descriptor, ...]:
    """The entries to merge with; `RegistryRefused` rather than overwriting something that is no list of referrers."""
    entries = _read(tagged, subject)
    if entries is None:
        raise RegistryRefused(
            f"nothing can be attached to {subject} in this repository",
            why=f"the tag {referrers_tag(subject)}, where referrers are listed, holds something that is no OCI index",
            fix="move that tag away",
        )
    return entries
