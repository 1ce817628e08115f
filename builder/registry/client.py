"""One repository of a registry over HTTP (OCI distribution-spec 1.1)."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self
from urllib.parse import urljoin

import httpx

from builder.errors import BadInput
from builder.events import Reporter
from builder.names import Digest, RegistryRef, parse_tag
from builder.registry import referrers as lists
from builder.registry.auth import Authorizer
from builder.registry.docker_config import find_login
from builder.registry.errors import (
    DeletionNotAllowed,
    MissingContent,
    Offline,
    RegistryDenied,
    RegistryRefused,
    RegistryUnreachable,
    TagMoved,
)
from builder.registry.http import ATTEMPTS, Body, Http, backoff, is_loopback, origin, read_all
from builder.registry.manifests import (
    IMAGE_TYPES,
    INDEX_TYPES,
    is_referrers_tag,
    referrer_entry,
    subject_of,
)
from builder.registry.session import Session
from builder.registry.upload import CHUNK_SIZE, begin, upload
from builder.registry.values import BlobSource, Descriptor, FileSource, Manifest
from builder.store import CorruptBlob

__all__ = ["Remote"]

_ACCEPT = ", ".join((*IMAGE_TYPES, *INDEX_TYPES))
_PAGES = 10_000
_SETTLE = 0.2
"""Seconds, at least, before the last look at a tag that was moved."""
_TORN_TAG = frozenset([500])
"""The distribution registry writes a tag's file in two steps; who reads it in between is answered 500 for a moment."""


class Remote:
    """A repository of a registry. Implements `builder.registry.values.Repository`; safe for many threads.

    Use `Remote.open`. Connections are given back when the object goes away, or early by `close`.
    """

    def __init__(self, session: Session, *, reporter: Reporter, chunk_size: int = CHUNK_SIZE) -> None:
        self._session = session
        self._reporter = reporter
        self._chunk_size = chunk_size
        self._present: set[Digest] = set()
        """Blobs seen or put in this repository; a registry does not lose them while it is pushed to."""
        self._no_endpoint = False
        """The registry has no referrers endpoint (seen once, remembered)."""
        self._attaching = threading.Lock()
        self._end = weakref.finalize(self, session.http.close)

    @classmethod
    def open(
        cls,
        reference: RegistryRef,
        *,
        environ: Mapping[str, str],
        offline: bool = False,
        plain_http: bool | None = None,
        reporter: Reporter,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> Self:
        """The repository of a reference; nothing is contacted yet. `transport` wraps or replaces httpx's own."""
        loopback = is_loopback(reference.host)
        if offline and not loopback:
            raise Offline(
                f"{reference.host} is not asked for {reference.repository}",
                why="--offline allows registries on this machine only",
                fix="leave out --offline, or use a layout: oci:DIR",
            )
        plain = loopback if plain_http is None else plain_http
        http = (
            Http(environ=environ, transport=transport)
            if sleep is None
            else Http(environ=environ, transport=transport, sleep=sleep)
        )
        authorizer = Authorizer(
            host=reference.host,
            http=http,
            find=lambda: find_login(reference.host, reference.repository, environ),
            plain_http=plain_http is True,
        )
        session = Session(
            host=reference.host, repository=reference.repository, http=http, authorizer=authorizer, plain_http=plain
        )
        return cls(session, reporter=reporter, chunk_size=chunk_size)

    def __str__(self) -> str:
        return str(self._session)

    @property
    def host(self) -> str:
        """The registry's host, with its port when it has one."""
        return self._session.host

    @property
    def name(self) -> str:
        """The repository's name."""
        return self._session.repository

    @property
    def place(self) -> tuple[str, str] | None:
        """Host and name: blobs can be mounted from here."""
        return self.host, self.name

    def close(self) -> None:
        """Close all connections."""
        self._end()

    # --- reading

    def resolve(self, tag: str) -> Descriptor | None:
        """What the tag points at now; one HEAD where the registry answers it in full."""
        answer = self._session.call(
            "HEAD",
            self._session.url(f"manifests/{tag}"),
            scopes=self._session.scopes("pull"),
            ok=(200, 404),
            headers={"Accept": _ACCEPT},
            also_temporary=_TORN_TAG,
        )
        answer.close()
        if answer.status_code == 404:
            return None
        media_type = _media_type(answer)
        size = answer.headers.get("Content-Length", "")
        try:
            digest = Digest.parse(answer.headers.get("Docker-Content-Digest", ""))
        except BadInput:
            digest = None
        if digest is None or not size.isdigit() or not media_type:
            manifest = self.manifest(tag)
            return None if manifest is None else manifest.descriptor
        return Descriptor(media_type=media_type, digest=digest, size=int(size))

    def manifest(self, reference: Digest | str) -> Manifest | None:
        """The manifest by digest or tag; its bytes are held against the digest asked for, or the one announced."""
        answer = self._session.call(
            "GET",
            self._session.url(f"manifests/{reference}"),
            scopes=self._session.scopes("pull"),
            ok=(200, 404),
            headers={"Accept": _ACCEPT},
            also_temporary=_TORN_TAG,
        )
        raw = read_all(answer)
        if answer.status_code == 404:
            return None
        found = Digest.of(raw)
        announced = answer.headers.get("Docker-Content-Digest", str(found))
        wanted = str(reference) if isinstance(reference, Digest) else announced
        if str(found) != wanted and wanted.startswith("sha256:"):
            raise CorruptBlob(
                f"the manifest {reference} from {self} is damaged",
                why=f"{len(raw)} bytes with the digest {found}, expected {wanted}",
                fix="try again; if it stays, something between here and the registry changes content",
            )
        return Manifest(_media_type(answer) or _own_media_type(raw), raw)

    def has_blob(self, digest: Digest) -> bool:
        """Whether the blob is there."""
        if digest in self._present:
            return True
        answer = self._session.call(
            "HEAD",
            self._session.url(f"blobs/{digest}"),
            scopes=self._session.scopes("pull"),
            ok=(200, 302, 307, 404),
            follow=False,  # a redirect to storage says enough
        )
        answer.close()
        if answer.status_code == 404:
            return False
        self._present.add(digest)
        return True

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        """The blob's bytes, verified; a cut connection is gone on from where it was cut."""
        hasher = hashlib.sha256()
        position = 0
        failures = 0
        while True:
            headers = {"Range": f"bytes={position}-"} if position else {}
            answer = self._session.call(
                "GET",
                self._session.url(f"blobs/{digest}"),
                scopes=self._session.scopes("pull"),
                ok=(200, 206, 404),
                headers=headers,
            )
            if answer.status_code == 404:
                read_all(answer)
                raise MissingContent(f"blob {digest} is not in {self}", fix="push the image again")
            skip = position if answer.status_code == 200 else 0
            before = position
            try:
                for piece in answer.iter_raw():
                    fresh = piece[skip:]
                    skip = max(0, skip - len(piece))
                    if fresh:
                        hasher.update(fresh)
                        position += len(fresh)
                        yield fresh
                break
            except httpx.HTTPError as error:
                failures = 1 if position > before else failures + 1
                if failures >= ATTEMPTS:
                    raise RegistryUnreachable(
                        f"the connection to {self.host} was cut",
                        why=f"after {position} bytes of blob {digest}: {error}",
                    ) from error
                self._session.http.wait(backoff(failures - 1))
                self._reporter.note(f"pull {digest.hex[:12]} was cut, going on after {position} bytes")
            finally:
                answer.close()
        found = Digest(hasher.hexdigest())
        if found != digest:
            raise CorruptBlob(
                f"blob {digest} from {self} is damaged",
                why=f"{position} bytes with the digest {found}",
                fix="push the image again; if it stays, something between here and the registry changes content",
            )

    def tags(self) -> tuple[str, ...]:
        """All tags of images, sorted, every page."""
        return tuple(tag for tag in self._listed_tags() if not is_referrers_tag(tag))

    def referrer_lists(self) -> tuple[Digest, ...]:
        """Subjects whose referrers are listed under a fallback tag here, whether they are there or not."""
        return tuple(Digest.parse(tag.replace("-", ":", 1)) for tag in self._listed_tags() if is_referrers_tag(tag))

    def _listed_tags(self) -> list[str]:
        found: set[str] = set()
        url = self._session.url("tags/list?n=1000")
        for _ in range(_PAGES):
            answer = self._session.call("GET", url, scopes=self._session.scopes("pull"), ok=(200, 404))
            raw = read_all(answer)
            if answer.status_code == 404:
                break
            try:
                page = json.loads(raw)["tags"] or []
                found.update(str(tag) for tag in page)
            except (ValueError, KeyError, TypeError) as error:
                raise RegistryRefused(f"{self} does not list its tags as agreed", why=repr(error)) from error
            following = answer.links.get("next", {}).get("url")
            if not following:
                break
            target = urljoin(url, following)
            if origin(target) != origin(url) or target == url:
                raise RegistryRefused(f"{self} does not list its tags as agreed", why="its next page is elsewhere")
            url = target
        return sorted(found)

    def referrers(self, subject: Digest, *, artifact_type: str | None = None) -> tuple[Descriptor, ...]:
        """What is attached to `subject`, sorted by digest: by the endpoint, else by the fallback tag."""
        listed = None if self._no_endpoint else lists.list_from_endpoint(self._session, subject)
        if listed is None:
            self._no_endpoint = True
            listed = lists.list_fallback(self, subject)
        found = {entry.digest: entry for entry in listed if artifact_type in (None, entry.artifact_type)}
        return tuple(found[digest] for digest in sorted(found))

    # --- writing

    def put_blob(self, descriptor: Descriptor, source: BlobSource, *, mount_from: str | None = None) -> bool:
        """Store a blob unless it is there; a mount that is refused falls back to sending the bytes (FR-29)."""
        if self.has_blob(descriptor.digest):
            return False
        location = None
        if mount_from is not None and mount_from != self.name:
            mounted, location = self._mount(descriptor.digest, mount_from)
            if mounted:
                self._present.add(descriptor.digest)
                return False
        try:
            upload(
                self._session,
                descriptor,
                source,
                location=location,
                reporter=self._reporter,
                chunk_size=self._chunk_size,
            )
        except CorruptBlob as error:
            if isinstance(source, FileSource) and source.immutable:
                raise source.damaged(descriptor.digest) from error
            raise
        self._present.add(descriptor.digest)
        return True

    def put_manifest(self, manifest: Manifest, *, tag: str | None = None) -> Descriptor:
        """Store a manifest under its digest or the tag; list a referrer where the registry does not do it itself."""
        if tag is not None:
            parse_tag(tag)
        listed = self._put(manifest, tag or str(manifest.digest))
        subject = subject_of(manifest)
        if subject is not None and not listed:
            self._list({subject: [referrer_entry(manifest)]})
        return manifest.descriptor

    def put_referrers(self, manifests: Sequence[Manifest]) -> None:
        """Store manifests that have a subject; where the registry does not list them, one write lists all of them."""
        unlisted: dict[Digest, list[Descriptor]] = {}
        for manifest in manifests:
            subject = subject_of(manifest)
            if not self._put(manifest, str(manifest.digest)) and subject is not None:
                unlisted.setdefault(subject, []).append(referrer_entry(manifest))
        self._list(unlisted)

    def _list(self, unlisted: Mapping[Digest, Sequence[Descriptor]]) -> None:
        with self._attaching:
            for subject, entries in unlisted.items():
                lists.add_to_fallback(self, subject, entries, sleep=self._session.http.wait)

    def put_tagged(self, manifest: Manifest, tag: str) -> None:
        """Write a manifest under a tag, whatever the tag points at."""
        self._put(manifest, tag)

    def move_tag(self, tag: str, digest: Digest, *, expected: Digest | None) -> Descriptor:
        """Point the tag at a manifest of this repository. A registry has no conditional write: read, write, look again.

        Another who read the tag before our write has written by the time of the second look, for that waits longer than
        reading and writing took; of two who move a tag at once, all but the last are told so.
        """
        parse_tag(tag)
        manifest = self.manifest(digest)
        if manifest is None:
            raise MissingContent(f"manifest {digest} is not in {self}", fix="publish the image there first")
        started = time.monotonic()
        self._expect(tag, expected)
        self._put(manifest, tag)
        self._expect(tag, digest)
        self._session.http.wait(max(_SETTLE, 3 * (time.monotonic() - started)))
        self._expect(tag, digest)
        return manifest.descriptor

    def _expect(self, tag: str, digest: Digest | None) -> None:
        found = self.resolve(tag)
        now = None if found is None else found.digest
        if now != digest:
            raise TagMoved(tag, repository=str(self), expected=digest, found=now)

    def delete_manifest(self, digest: Digest) -> None:
        """Delete a manifest and with it every tag that names it; one that is not there is no error.

        `DeletionNotAllowed` when the registry does not delete at all (405, or UNSUPPORTED).
        """
        try:
            self._session.done(
                self._session.call(
                    "DELETE",
                    self._session.url(f"manifests/{digest}"),
                    scopes=self._session.scopes("pull", "delete"),
                    ok=(200, 202, 404),
                )
            )
        except RegistryRefused as error:
            if error.status == 405 or "UNSUPPORTED" in error.codes:
                raise DeletionNotAllowed(
                    f"{self.host} does not delete images by its API",
                    why=error.why,
                    fix="let whoever runs it allow deletion (distribution: storage.delete.enabled), or use the "
                    "retention rules of its own",
                ) from error
            raise

    # --- inside

    def _put(self, manifest: Manifest, reference: str) -> bool:
        """PUT the bytes; whether the registry says that it lists the referrer itself (OCI-Subject)."""
        answer = self._session.done(
            self._session.call(
                "PUT",
                self._session.url(f"manifests/{reference}"),
                scopes=self._session.scopes("pull", "push"),
                ok=(200, 201, 202),
                headers={"Content-Type": manifest.media_type},
                body=Body.of(manifest.raw),
            )
        )
        echoed = answer.headers.get("Docker-Content-Digest", str(manifest.digest))
        if echoed != str(manifest.digest):
            raise RegistryRefused(
                f"{self} stored another manifest than it was sent",
                why=f"it says {echoed}, sent was {manifest.digest}",
                fix="push again; if it stays, something between here and the registry changes content",
            )
        return "OCI-Subject" in answer.headers

    def _mount(self, digest: Digest, mount_from: str) -> tuple[bool, str | None]:
        """Whether the blob is mounted now, else the upload session that was opened instead, if any."""
        try:
            answer = begin(self._session, mount=digest, mount_from=mount_from)
        except (RegistryDenied, RegistryRefused) as error:
            self._reporter.detail(f"blob {digest.hex[:12]} cannot be mounted from {mount_from}: {error.why}")
            return False, None
        if answer.status_code == 201:
            return True, None
        return False, self._session.location(answer)


def _media_type(answer: httpx.Response) -> str:
    return str(answer.headers.get("Content-Type", "")).partition(";")[0].strip()


def _own_media_type(raw: bytes) -> str:
    """The media type a manifest names for itself, for a registry that sends none."""
    try:
        return str(json.loads(raw)["mediaType"])
    except (ValueError, KeyError, TypeError) as error:
        raise RegistryRefused("a manifest came without a media type", why="neither header nor body has one") from error
