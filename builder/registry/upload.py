"""Sending one blob: in one piece when it is small, in chunks when it is large, going on where a cut upload stopped.

Source: distribution-spec, "Pushing blobs" (monolithic, chunked) and "Resume a chunked upload".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import httpx

from builder.events import Advance, Reporter
from builder.names import Digest
from builder.registry.errors import RegistryBusy, RegistryRefused, RegistryUnreachable
from builder.registry.http import ATTEMPTS, Body, backoff
from builder.registry.session import Session
from builder.registry.values import BlobSource, Descriptor
from builder.store import CorruptBlob

__all__ = ["CHUNK_SIZE", "begin", "upload"]

CHUNK_SIZE = 64 << 20
"""Bytes. Blobs up to this size go in one request; larger ones in chunks of it, so that a cut costs one chunk."""


_LOST_CODES = frozenset(["BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID", "RANGE_INVALID"])
"""With these a registry says that the session is of no more use (distribution-spec, "Error Codes")."""


class _Sequential:
    """The bytes of a blob from any offset, verified as a whole when the end is reached.

    Chunks follow one another, so one pass suffices; going back opens the source again and reads up to the offset.
    """

    def __init__(self, descriptor: Descriptor, source: BlobSource, advance: Advance) -> None:
        self._descriptor = descriptor
        self._source = source
        self._advance = advance
        self._reported = 0
        self._restart()

    def _restart(self) -> None:
        self._stream = self._source()
        self._rest = b""
        self._position = 0
        self._hasher = hashlib.sha256()

    def take(self, offset: int, length: int) -> Iterator[bytes]:
        """`length` bytes from `offset` on; `CorruptBlob` when the source has other bytes than the digest names."""
        if offset < self._position:
            self._restart()
        for _ in self._pieces(offset - self._position):
            pass
        for piece in self._pieces(length):
            fresh = max(0, self._position - self._reported)
            self._reported += fresh
            self._advance(min(fresh, len(piece)))
            yield piece

    def _pieces(self, length: int) -> Iterator[bytes]:
        """The next `length` bytes; what a chunk of the source has beyond them is kept for the next call."""
        size = self._descriptor.size
        while length:
            if not self._rest:
                self._rest = next(self._stream, b"")
                if not self._rest:
                    self._fail(f"it ends after {self._position} of {size} bytes")
            piece, self._rest = self._rest[:length], self._rest[length:]
            length -= len(piece)
            self._hasher.update(piece)
            self._position += len(piece)
            if self._position == size:
                found = Digest(self._hasher.hexdigest())
                if self._rest or found != self._descriptor.digest:
                    self._fail(f"its bytes have the digest {found}" if not self._rest else f"more than {size} bytes")
            yield piece

    def _fail(self, why: str) -> None:
        raise CorruptBlob(
            f"blob {self._descriptor.digest} is damaged where it is read from",
            why=why,
            fix="build or fetch the image again",
        )


def begin(session: Session, *, mount: Digest | None = None, mount_from: str | None = None) -> httpx.Response:
    """Open an upload session (202 with its Location), or mount a blob of another repository (201)."""
    query = f"?{urlencode({'mount': str(mount), 'from': mount_from}, safe=':/')}" if mount_from else ""
    return session.done(
        session.call(
            "POST",
            session.url(f"blobs/uploads/{query}"),
            scopes=session.scopes("pull", "push", mount_from=mount_from),
            ok=(201, 202),
            body=Body.of(b""),
        )
    )


def upload(
    session: Session,
    descriptor: Descriptor,
    source: BlobSource,
    *,
    location: str | None = None,
    reporter: Reporter,
    chunk_size: int = CHUNK_SIZE,
) -> None:
    """Send the blob. `location` is an upload session that is open already.

    A cut connection or temporary code is followed by a question for what has arrived, and going on from there; a
    registry that cannot say gets the blob from the start. `ATTEMPTS` failures without progress end it.
    """
    with reporter.task(f"push {descriptor.digest.hex[:12]}", total=descriptor.size) as advance:
        sending = _Upload(session, descriptor, source, advance, chunk_size)
        failures, reached = 0, 0
        while True:
            try:
                if location is None:
                    location = session.location(begin(session))
                    sending.offset = 0
                sending.run(location)
            except (RegistryUnreachable, RegistryBusy, _Lost) as error:
                failures = 1 if sending.offset > reached else failures + 1
                reached = max(reached, sending.offset)
                if failures >= ATTEMPTS:
                    if isinstance(error, _Lost):
                        raise error.cause from error
                    raise
                session.http.wait(backoff(failures - 1))
                if sending.arrived():
                    return
                location = None if isinstance(error, _Lost) else sending.resume()
                said = f"going on after {sending.offset} bytes" if location else "from the start"
                reporter.note(f"push {descriptor.digest.hex[:12]} was cut, {said}")
            else:
                return


class _Lost(Exception):
    """The registry no longer knows the upload session: begin another."""

    def __init__(self, cause: RegistryRefused) -> None:
        super().__init__(cause.what)
        self.cause = cause


class _Upload:
    def __init__(
        self, session: Session, descriptor: Descriptor, source: BlobSource, advance: Advance, chunk_size: int
    ) -> None:
        self._session = session
        self._descriptor = descriptor
        self._bytes = _Sequential(descriptor, source, advance)
        self._chunk_size = chunk_size
        self._scopes = session.scopes("pull", "push")
        self._location = ""
        self.offset = 0
        """Bytes the registry has confirmed."""

    def run(self, location: str) -> None:
        """Send all that is missing and close the session."""
        self._location = location
        size = self._descriptor.size
        if self.offset == 0 and size <= self._chunk_size:
            self._finish(Body(size, lambda: self._bytes.take(0, size)))
            return
        while self.offset < size:
            self._patch(min(self._chunk_size, size - self.offset))
        self._finish(Body.of(b""))

    def resume(self) -> str | None:
        """Where to go on, with `offset` set to what has arrived; None when the registry cannot say."""
        try:
            answer = self._session.done(
                self._session.call("GET", self._location, scopes=self._scopes, ok=(200, 202, 204))
            )
        except RegistryRefused:
            return None
        self.offset = self._end(answer) or 0
        return self._session.location(answer) if answer.headers.get("Location") else self._location

    def arrived(self) -> bool:
        """Whether the blob is complete in the registry (the answer that said so may have been cut)."""
        url = self._session.url(f"blobs/{self._descriptor.digest}")
        answer = self._session.call("HEAD", url, scopes=self._scopes, ok=(200, 307, 302, 404), follow=False)
        answer.close()
        return answer.status_code != 404

    def _patch(self, length: int) -> None:
        start = self.offset
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Range": f"{start}-{start + length - 1}",
        }
        answer = self._send("PATCH", self._location, Body(length, lambda: self._bytes.take(start, length)), headers)
        self._location = self._session.location(answer)
        end = self._end(answer)
        self.offset = start + length if end is None else end
        if not start < self.offset <= start + length:
            raise RegistryRefused(
                f"{self._session} lost count of an upload",
                why=f"after bytes {start} to {start + length - 1} it says it has {self.offset}",
            )
        minimum = answer.headers.get("OCI-Chunk-Min-Length", "")
        if minimum.isdigit():
            self._chunk_size = max(self._chunk_size, int(minimum))

    def _finish(self, body: Body) -> None:
        joint = "&" if urlsplit(self._location).query else "?"
        url = f"{self._location}{joint}{urlencode({'digest': str(self._descriptor.digest)}, safe=':')}"
        answer = self._send("PUT", url, body, {"Content-Type": "application/octet-stream"})
        echoed = answer.headers.get("Docker-Content-Digest")
        if echoed and echoed != str(self._descriptor.digest):
            raise RegistryRefused(
                f"{self._session} stored other bytes than it was sent",
                why=f"it says {echoed}, sent were {self._descriptor.digest}",
                fix="push again; if it stays, something between here and the registry changes content",
            )

    def _send(self, method: str, url: str, body: Body, headers: dict[str, str]) -> httpx.Response:
        try:
            return self._session.done(
                self._session.call(
                    method, url, scopes=self._scopes, ok=(201, 202, 204), body=body, headers=headers, attempts=1
                )
            )
        except RegistryRefused as error:
            if error.status in (404, 416) or not _LOST_CODES.isdisjoint(error.codes):
                raise _Lost(error) from error
            raise

    @staticmethod
    def _end(answer: httpx.Response) -> int | None:
        """Bytes that have arrived, from the Range field `0-<last>`; None when it does not say.

        An upload without a byte is `0-0`, the same as with one: then one byte may be sent twice, so it counts as none.
        """
        found = re.fullmatch(r"(?:bytes[= ])?0-([0-9]+)", answer.headers.get("Range", ""))
        if found is None:
            return None
        return int(found[1]) + 1 if int(found[1]) else 0
