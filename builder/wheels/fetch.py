"""Fill the wheelhouse: every locked wheel into the store, in parallel, resumable, verified while it streams.

A download is received in the store's tmp/ under the name of the digest it must have, so that an interrupted one is
taken up where it stopped, by whichever process comes next. The file is locked (flock) while one process writes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import httpx

from builder.errors import OutsideFailed, Where
from builder.events import Advance, Reporter
from builder.names import Digest
from builder.store import CorruptBlob, Store, disk_errors
from builder.wheels.archive import UnsafeWheel
from builder.wheels.settings import IndexSettings, without_credentials
from builder.wheels.transport import IndexUnreachable, Temporary, check_status, open_client, retrying, transport_fault
from builder.wheels.values import Wheelhouse, WheelSource

__all__ = ["MissingWheels", "fetch", "receive", "sound_wheels"]

_CHUNK = 1 << 20
_LARGEST = 32 << 30
"""No wheel is longer than this, in bytes; a stream that goes on is cut off."""


class MissingWheels(OutsideFailed):
    """Offline, and the store lacks some of the locked wheels."""

    kind = "missing-wheels"


class _Progress:
    """Counts each byte once, however often a download is taken up again."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self.seen = 0

    def at(self, position: int) -> None:
        if position > self.seen:
            self._advance(position - self.seen)
            self.seen = position


class _StoppedError(Exception):
    """Another download failed or the user interrupted; this one gives up and keeps what it has."""


def fetch(
    wheels: Iterable[WheelSource],
    store: Store,
    *,
    reporter: Reporter,
    settings: IndexSettings,
    environ: Mapping[str, str],
    offline: bool = False,
    jobs: int = 8,
    arrived: Callable[[WheelSource], None] = lambda wheel, /: None,
) -> Wheelhouse:
    """The wheels of a lock (pass `lock.packages`) in the store, each verified against its digest.

    `arrived` is called with each wheel that is in the store, by the thread that fetched it, while others still arrive;
    first with those that need no fetching.

    Raises `MissingWheels` (offline), `IndexUnreachable`, `CorruptBlob` or `NoRoom`; finished wheels stay in the store
    and unfinished ones in its tmp/, so a second call goes on from there.
    """
    wanted = tuple(wheels)
    missing = [wheel for wheel in wanted if not store.has(wheel.sha256, size=wheel.size)]
    if missing and offline:
        names = ", ".join(wheel.file for wheel in missing)
        raise MissingWheels(
            f"{len(missing)} of {len(wanted)} wheels are not in the store",
            why=f"--offline uses the store alone, and it lacks {names}",
            fix="run once without --offline, or copy the store of a machine that has them",
            where=Where(file=str(store.root)),
        )
    absent = {wheel.sha256 for wheel in missing}
    for wheel in wanted:
        if wheel.sha256 not in absent:
            arrived(wheel)
    if missing:
        _fetch_all(missing, store, reporter, settings, environ, jobs, arrived)
    return Wheelhouse(files={wheel.file: store.path(wheel.sha256) for wheel in wanted})


def _fetch_all(
    missing: list[WheelSource],
    store: Store,
    reporter: Reporter,
    settings: IndexSettings,
    environ: Mapping[str, str],
    jobs: int,
    arrived: Callable[[WheelSource], None],
) -> None:
    stop = threading.Event()

    def one(wheel: WheelSource) -> None:
        receive(client, wheel.url, store, digest=wheel.sha256, size=wheel.size, advance=advance, stop=stop)
        arrived(wheel)

    # The largest first: the last download to end decides when all are done.
    missing.sort(key=lambda wheel: -(wheel.size or 0))
    total = sum(wheel.size or 0 for wheel in missing) if all(wheel.size for wheel in missing) else None
    title = f"fetching {len(missing)} wheels" if len(missing) > 1 else f"fetching {missing[0].file}"
    with (
        open_client(settings, environ) as client,
        reporter.task(title, total=total) as advance,
        ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="fetch") as pool,
    ):
        futures: list[Future[None]] = [pool.submit(one, wheel) for wheel in missing]
        try:
            _done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
        if waiting:
            stop.set()
            pool.shutdown(cancel_futures=True)
        failures = [
            error for future in futures if future.done() and not future.cancelled() and (error := future.exception())
        ]
        real = [error for error in failures if not isinstance(error, _StoppedError)]
        if real:
            raise real[0]


def receive(
    client: httpx.Client,
    url: str,
    store: Store,
    *,
    digest: Digest | None,
    size: int | None = None,
    advance: Advance = lambda amount, /: None,
    stop: threading.Event | None = None,
) -> Digest:
    """One file into the store, unless it is there with that `size`. Without a digest it is hashed as received."""
    progress = _Progress(advance)
    name = digest.hex if digest is not None else hashlib.sha256(url.encode()).hexdigest()
    with store.partial(f"{name}.whl.part") as path, _locked(path) as file:
        if digest is not None and store.has(digest, size=size):
            _discard(path)
            return digest
        with disk_errors(path):
            if urlsplit(url).scheme == "file":
                found = _copy(url, file, progress, stop)
            else:
                found = retrying(lambda: _download(client, url, file, path, digest, progress, stop))
            if digest is not None and found != digest:
                _discard(path)
                raise CorruptBlob(
                    f"{without_credentials(url)} is not the file that was locked",
                    why=f"its digest is {found}, expected {digest}",
                    fix="try again; if it stays, the index serves another file than was locked: make a new lock",
                )
            file.flush()
            store.adopt(path, found, verified=True)
            _discard(path)
        return found


@contextmanager
def sound_wheels(wheels: Iterable[WheelSource], store: Store) -> Iterator[None]:
    """While wheels are read: one that turns out damaged is either so at its index, or was damaged in the store since.

    The store's copy is removed in the second case, which `CorruptBlob` says, so that running again fetches it.
    """
    try:
        yield
    except UnsafeWheel as error:
        damaged = [wheel.file for wheel in wheels if store.drop_damaged(wheel.sha256)]
        if not damaged:
            raise
        raise CorruptBlob(
            f"the store's copy of {', '.join(damaged)} was damaged",
            why=f"its bytes changed after they were verified ({error.why})",
            fix="it is removed: run again to fetch it anew, and check the disk",
            where=Where(file=str(store.root)),
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file, opened for reading and writing, held by this process alone."""
    while True:
        with disk_errors(path), path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held the lock before may have moved or removed the file; then this is not the file of that name.
            try:
                same = path.stat().st_ino == os.fstat(file.fileno()).st_ino
            except FileNotFoundError:
                same = False
            if same:
                yield file
                return


def _copy(url: str, file: IO[bytes], progress: _Progress, stop: threading.Event | None) -> Digest:
    # A copy, not a hard link: the store must not change when its owner writes to the original.
    source = Path(unquote(urlsplit(url).path))
    hasher = hashlib.sha256()
    file.truncate(0)
    try:
        original = source.open("rb")
    except OSError as error:
        raise IndexUnreachable(
            f"cannot read {source}",
            why=error.strerror or str(error),
            fix="bring the find-links folder back, or make a new lock",
            where=Where(file=str(source)),
        ) from error
    with original:
        while piece := original.read(_CHUNK):
            _go_on(stop)
            hasher.update(piece)
            progress.at(file.tell() + len(piece))
            file.write(piece)
    return Digest(hasher.hexdigest())


def _download(
    client: httpx.Client,
    url: str,
    file: IO[bytes],
    path: Path,
    digest: Digest | None,
    progress: _Progress,
    stop: threading.Event | None,
) -> Digest:
    """One attempt, from where the partial file ends. Raises `Temporary` when another attempt may go on."""
    etag = _etag_path(path)
    have = file.seek(0, os.SEEK_END)
    before = max(have, progress.seen)
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        try:
            headers["If-Range"] = etag.read_text(encoding="ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            # Without a validator the server may send the tail of another file; the digest tells, when there is one.
            if digest is None:
                have = 0
                del headers["Range"]
    try:
        with client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416:
                # The partial file is as long as the whole, or longer: its digest decides.
                return _finish(file, etag, digest, url)
            check_status(response)
            if response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                hasher = _hash_so_far(file)
            else:
                have = 0
                file.truncate(0)
                hasher = hashlib.sha256()
                tag = response.headers.get("ETag", "")
                if tag.startswith('"') and tag.isascii():
                    etag.write_text(tag, encoding="ascii")
                else:
                    etag.unlink(missing_ok=True)
            resumed = have > 0
            progress.at(have)
            size = have
            for piece in response.iter_raw():
                _go_on(stop)
                hasher.update(piece)
                file.write(piece)
                size += len(piece)
                progress.at(size)
                if size > _LARGEST:
                    raise CorruptBlob(
                        f"{without_credentials(url)} does not end", why=f"more than {_LARGEST} bytes came"
                    )
    except httpx.TransportError as error:
        file.flush()
        raise Temporary(transport_fault(url, error), progress=progress.seen > before) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise IndexUnreachable(f"cannot fetch {without_credentials(url)}", why=str(error)) from error
    found = Digest(hasher.hexdigest())
    if resumed and digest is not None and found != digest:
        # The two halves may be of different files; start over once before calling the file corrupt.
        file.truncate(0)
        etag.unlink(missing_ok=True)
        raise Temporary(IndexUnreachable(f"{without_credentials(url)} changed while it was fetched"), 0)
    return found


def _finish(file: IO[bytes], etag: Path, digest: Digest | None, url: str) -> Digest:
    found = Digest(_hash_so_far(file).hexdigest())
    if digest is None or found != digest:
        file.truncate(0)
        etag.unlink(missing_ok=True)
        raise Temporary(IndexUnreachable(f"{without_credentials(url)} changed while it was fetched"), 0)
    return found


def _hash_so_far(file: IO[bytes]) -> hashlib._Hash:
    file.seek(0)
    hasher = hashlib.sha256()
    while piece := file.read(_CHUNK):
        hasher.update(piece)
    return hasher


def _discard(path: Path) -> None:
    """Remove a partial file and what is known about it."""
    path.unlink(missing_ok=True)
    _etag_path(path).unlink(missing_ok=True)


def _etag_path(path: Path) -> Path:
    return path.with_name(path.name + ".etag")


def _go_on(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise _StoppedError
