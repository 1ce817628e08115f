"""The user's content-addressed store: wheels, Debian packages and finished layers, shared by all projects.

Layout under the root (default: the user cache directory, or BUILDER_STORE):

    sha256/<2 hex>/<62 hex>      a blob, named by the digest of its bytes, never changed after it appears
    derived/<kind>/<key>.json    facts computed from a blob, keyed by what they depend on (.bin: other than JSON)
    tmp/                         files being written; renamed into place when complete and verified
    lock                         held, shared, by every command that uses the store; alone by the one that clears it

A file appears under its final name only after its bytes are complete, verified and flushed (`os.replace` after
`fsync`), so a crash or Ctrl-C leaves at most a file in tmp/.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import platformdirs

from builder.errors import OutsideFailed, Refused, Where
from builder.names import Digest

__all__ = [
    "CorruptBlob",
    "NoRoom",
    "Removed",
    "Store",
    "StoreInUse",
    "default_store",
    "last_used",
    "store_root",
    "write_atomic",
]


class CorruptBlob(OutsideFailed):
    """The bytes received or found are not the bytes that the digest names."""

    kind = "corrupt-blob"


class NoRoom(OutsideFailed):
    """The disk is full or read-only."""

    kind = "no-room"


class StoreInUse(Refused):
    """Another command uses the store, so nothing of it may be removed."""

    kind = "store-in-use"


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """Something that was cleared away, or would be."""

    name: str
    """Path below the store or layout, or the digest of an image."""
    size: int
    """Bytes that it took."""
    why: str


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's write errors into `NoRoom` or `OutsideFailed`, naming the path."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(
                f"disk full while writing {path}",
                why=str(error.strerror),
                fix="free some space, or point BUILDER_STORE elsewhere",
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
            raise NoRoom(
                f"cannot write {path}", why=str(error.strerror), fix="make the folder writable, or choose another"
            ) from error
        raise


def write_atomic(path: Path, data: bytes) -> None:
    """Write a whole file so that readers see the old or the new bytes, never a part."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


class Store:
    """Content-addressed files under one root. Safe for many processes; readers need no lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fresh: set[Digest] = set()

    def fresh(self, digest: Digest) -> bool:
        """Whether this object stored the blob itself, so that its bytes were hashed a moment ago."""
        return digest in self._fresh

    def path(self, digest: Digest) -> Path:
        """Where the blob is, or would be."""
        return self.root / "sha256" / digest.hex[:2] / digest.hex[2:]

    def has(self, digest: Digest, *, size: int | None = None) -> bool:
        """Whether the blob is here. Its bytes were verified when it was stored; with `size`, its length is now."""
        try:
            status = self.path(digest).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(status.st_mode) and size in (None, status.st_size)

    def drop_damaged(self, digest: Digest) -> bool:
        """Read the blob once more, and remove it when its bytes are no longer those that were verified."""
        path = self.path(digest)
        if not self.has(digest) or Digest.of_file(path) == digest:
            return False
        with disk_errors(path):
            path.unlink(missing_ok=True)
        return True

    @contextmanager
    def partial(self, name: str = "") -> Iterator[Path]:
        """A path in tmp/ for bytes being received; removed unless `adopt` moved it away.

        With a name the file is kept on failure, so that a later call with the same name can resume it.
        """
        folder = self.root / "tmp"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if name:
                path = folder / re.sub(r"[^A-Za-z0-9._-]", "_", name)
            else:
                handle, made = tempfile.mkstemp(dir=folder)
                os.close(handle)
                path = Path(made)
        try:
            yield path
        finally:
            if not name:
                path.unlink(missing_ok=True)

    @contextmanager
    def scratch(self, prefix: str) -> Iterator[Path]:
        """An empty folder in tmp/, beside the blobs so that they can be linked into it; removed at the end."""
        folder = self.root / "tmp"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            path = Path(tempfile.mkdtemp(dir=folder, prefix=prefix))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def adopt(self, path: Path, digest: Digest, *, verified: bool = False) -> Path:
        """Move a complete file into the store under its digest; `CorruptBlob` (file removed) when bytes differ.

        `verified=True` is for a caller that hashed the very bytes while writing them.
        """
        if not verified:
            found = Digest.of_file(path)
            if found != digest:
                path.unlink(missing_ok=True)
                raise CorruptBlob(
                    f"{path.name} is not the file that was asked for",
                    why=f"its digest is {found}, expected {digest}",
                    fix="try again; if it stays, the index serves another file than was locked: make a new lock",
                    where=Where(file=str(path)),
                )
        target = self.path(digest)
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.chmod(0o444)
            path.replace(target)
        self._fresh.add(digest)
        return target

    def add_bytes(self, chunks: Iterable[bytes]) -> tuple[Digest, int]:
        """Store a stream; returns its digest and length in bytes."""
        with self.partial() as path:
            hasher = hashlib.sha256()
            size = 0
            with disk_errors(path), path.open("wb") as file:
                for chunk in chunks:
                    hasher.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
            digest = Digest(hasher.hexdigest())
            self.adopt(path, digest, verified=True)
            return digest, size

    def open(self, digest: Digest) -> IO[bytes]:
        """The blob, opened for reading; `FileNotFoundError` when absent."""
        return self.path(digest).open("rb")

    def derived(self, kind: str, key: str) -> Any | None:
        """The JSON value stored under (kind, key), or None. A damaged file counts as absent."""
        try:
            return json.loads(self._derived_path(kind, key).read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def put_derived(self, kind: str, key: str, value: Mapping[str, Any]) -> None:
        """Remember a JSON object computed from blobs; the key must name everything it depends on, versions included."""
        write_atomic(self._derived_path(kind, key), json.dumps(value, sort_keys=True, separators=(",", ":")).encode())

    def derived_bytes(self, kind: str, key: str) -> bytes | None:
        """The bytes stored under (kind, key), or None. Whether they are whole is for their reader to check."""
        try:
            return self._derived_path(kind, key, "bin").read_bytes()
        except FileNotFoundError:
            return None

    def put_derived_bytes(self, kind: str, key: str, data: bytes) -> None:
        """Remember bytes computed from files; the key must name everything they depend on, versions included."""
        write_atomic(self._derived_path(kind, key, "bin"), data)

    def derived_files(self, kind: str, prefix: str = "") -> tuple[tuple[str, Path], ...]:
        """(hash of the key, file) of the values of a kind whose hash begins so, by hash."""
        folder = self._derived_path(kind, "").parent
        return tuple((path.stem, path) for path in _listed(folder, f"{prefix}*.json"))

    def take_derived(self, kind: str, name: str, data: bytes) -> bool:
        """Keep a value that another store has under this hash of its key; False when there is one already.

        It is not flushed: what a crash leaves damaged counts as absent.
        """
        if re.fullmatch(r"[0-9a-f]{64}", name) is None:
            raise ValueError(f"bad name {name!r}")
        path = self._derived_path(kind, "").parent / f"{name}.json"
        if path.exists():
            return False
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{name}.")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        return True

    def hold(self) -> None:
        """Keep everything in the store from being cleared as long as this object lives; waits while it is cleared.

        A store that cannot be written has no lock; nobody can remove anything from it either.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        weakref.finalize(self, os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_SH)

    def collect(self, *, unused: float, min_age: float, now: float, dry_run: bool = False) -> tuple[Removed, ...]:
        """Remove what interrupted commands left, and what was not used for `unused` seconds; it can be had again.

        Left-overs younger than `min_age` seconds stay, so that a download can be resumed. `StoreInUse` while any
        command uses the store.
        """
        if not self.root.is_dir():
            return ()
        with disk_errors(self.root), (self.root / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreInUse(
                    f"the store {self.root} is in use",
                    why="another command works with it at this moment",
                    fix="try again when it is done",
                ) from None
            found = [
                *(_stale(path, min_age, now, "left by an interrupted command") for path in _listed(self.root / "tmp")),
                *(_stale(path, unused, now, "not used") for path in _listed(self.root / "sha256", "*/*")),
                *(_stale(path, unused, now, "not used") for path in _listed(self.root / "derived", "*/*")),
            ]
            doomed = [item for item in found if item is not None]
            if not dry_run:
                for path, _, _ in doomed:
                    _remove(path)
        return tuple(Removed(name=str(path.relative_to(self.root)), size=size, why=why) for path, size, why in doomed)

    def _derived_path(self, kind: str, key: str, form: str = "json") -> Path:
        if re.fullmatch(r"[a-z0-9-]+", kind) is None:
            raise ValueError(f"bad kind {kind!r}")
        return self.root / "derived" / kind / f"{hashlib.sha256(key.encode()).hexdigest()}.{form}"


def default_store(environ: Mapping[str, str]) -> Store:
    """The store of this user: $BUILDER_STORE, else the platform's user cache directory; held."""
    store = Store(store_root(environ))
    store.hold()
    return store


def store_root(environ: Mapping[str, str]) -> Path:
    """Where the store of this user is, or would be."""
    chosen = environ.get("BUILDER_STORE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("builder")


def last_used(path: Path) -> float:
    """When a file was read, written, linked or renamed last, in seconds since the epoch.

    Linux notes a read at least once a day (mount option relatime); where it does not, a file looks older than it is.
    """
    status = path.lstat()
    return max(status.st_atime, status.st_mtime, status.st_ctime)


def _listed(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern)) if folder.is_dir() else []


def _stale(path: Path, age: float, now: float, why: str) -> tuple[Path, int, str] | None:
    """Path, bytes and reason, when nothing in it was touched for `age` seconds."""
    inside = [path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())]
    if max(last_used(item) for item in inside) > now - age:
        return None
    return path, sum(item.lstat().st_size for item in inside if not item.is_dir() or item.is_symlink()), why


def _remove(path: Path) -> None:
    """A file, or a folder with whatever modes an unpacked image has in it."""
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        return
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o700)
    shutil.rmtree(path)
