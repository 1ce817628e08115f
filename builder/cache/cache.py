"""The engine cache: put, look up, restore, build once. The Python API; the command line calls the same functions."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from builder import __version__
from builder.cache.copying import workers
from builder.cache.incoming import Incoming
from builder.cache.intake import notes, take_tree
from builder.cache.keys import complete_key, missing_factors
from builder.cache.kinds import EngineKind, engine_kind
from builder.cache.locks import NoLocks, holding
from builder.cache.lookup import look_up
from builder.cache.relocate import to_absolute
from builder.cache.store import LAYOUT, EngineStore, EntryGone
from builder.cache.trees import TreeItem, manifest_bytes, parse_manifest
from builder.cache.values import EngineKey, Entry, Failure, ForeignEntry, Lookup
from builder.errors import BadInput, Refused, Where
from builder.store import CorruptBlob, disk_errors, store_root

__all__ = ["EngineCache", "TargetInUse"]


class TargetInUse(Refused):
    """There is something where the engine was to be put."""

    kind = "target-in-use"


class EngineCache:
    """An engine cache in a folder.

    Safe for many threads and processes, on one machine or on a shared file system with locks. Nothing is read until it
    is asked for, and what is read is checked: an engine whose bytes changed is never handed out.
    """

    def __init__(
        self,
        root: Path,
        *,
        durable: bool = True,
        budget: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`root` is made when something is put. `durable`: all is flushed to the disk before an entry appears.

        `budget`: bytes that the cache may take; what is put or pulled through this object makes the least recently used
        engines go as far as it needs, never one that is in use (see `keep_within_budget`).
        """
        self.store = EngineStore(root, durable=durable, clock=clock)
        self.budget = budget
        self._room: int | None = None
        """Bytes that may be added before the cache is measured again; None before it was."""

    @classmethod
    def of_user(
        cls, environment: Mapping[str, str] | None = None, *, durable: bool = True, budget: int | None = None
    ) -> EngineCache:
        """The cache in the user's store ($BUILDER_STORE, else the user cache directory)."""
        root = store_root(os.environ if environment is None else environment) / "engines" / LAYOUT
        return cls(root, durable=durable, budget=budget)

    # --- asking ------------------------------------------------------------------------------------------------------

    def lookup(self, wanted: EngineKey, *, nearest: int = 3) -> Lookup:
        """Whether there is an engine for this; decided from factors alone, no engine is opened.

        hit: an entry with nothing different. usable: one that works, with what differs and what it costs. miss: none,
        with the `nearest` entries and exactly what differs. unknown: whether one fits depends on what is not stated.
        """
        return look_up(self.store, engine_kind(wanted.kind), wanted, nearest=nearest)

    def entries(self) -> Iterator[Entry | BadInput]:
        """Every entry by key; an error in place of one that is damaged or of another version."""
        for key in self.store.all_keys():
            try:
                entry = self.store.entry(key)
            except BadInput as error:
                yield error
            else:
                if entry is not None:
                    yield entry

    def items(self, entry: Entry) -> tuple[TreeItem, ...]:
        """The files of an entry; a single file is one item with the entry's own name."""
        if entry.form == "file":
            return (TreeItem(path=entry.name, kind="file", size=entry.size, digest=entry.content),)
        data = self.store.read_part(entry.content, entry.manifest_size)
        return parse_manifest(data, f"the manifest of {entry.digest}")

    # --- adding ------------------------------------------------------------------------------------------------------

    def put(self, key: EngineKey, source: Path, *, built_at: str = "", replace: bool = False) -> Entry:
        """Keep a file or a folder under a key; returns its entry, or the one that was there first.

        `BadInput` when the key leaves something open that decides, or an entry of another version of this tool is
        there. `built_at` is the path the engine was made under, where that is not `source` itself: the cache folder as
        a container saw it.
        """
        kind = engine_kind(key.kind)
        complete_key(kind, key)
        place = Path(os.path.abspath(source))
        if not replace and (there := self._there(key)) is not None:
            return there
        with Incoming(self.store) as incoming:
            entry = self._taken_in(kind, key, place, built_at or str(place), incoming)
            entry = incoming.publish(entry, replace=replace)
        self.keep_within_budget(entry)
        return entry

    def keep_within_budget(self, added: Entry) -> None:
        """Clear as far as the budget asks after an entry was added, which itself stays, as does what is in use.

        Measuring reads every entry's document, so it is done when half of the room that was left is filled: several
        processes that add at once may exceed the budget for that long. Without a budget nothing happens.
        """
        if self.budget is None:
            return
        size = added.size + added.manifest_size
        if self._room is not None and size <= self._room:
            self._room -= size
            return
        from builder.cache.gc import clear

        with suppress(EntryGone, NoLocks), self.store.held(added):
            left = clear(self, budget=self.budget, timeout=1.0)
            self._room = max(0, self.budget - left.size) // 2

    def _there(self, key: EngineKey) -> Entry | None:
        """The entry of exactly this key; `ForeignEntry` when it is of another version, which is left alone."""
        try:
            return self.store.entry(key.digest)
        except ForeignEntry:
            raise
        except BadInput:
            return None

    def _taken_in(self, kind: EngineKind, key: EngineKey, named: Path, built_at: str, incoming: Incoming) -> Entry:
        try:
            # what is named may be a link, as model hubs and mounted volumes have them; what is inside may not
            source = Path(os.path.realpath(named, strict=True))
            mode = source.lstat().st_mode
        except OSError as error:
            raise BadInput(f"cannot read {named}", why=error.strerror or str(error), fix="check the path") from error
        created = dt.datetime.fromtimestamp(self.store.clock(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if stat.S_ISREG(mode):
            copied = incoming.add_file(source)
            return Entry(
                key=key,
                digest=key.digest,
                form="file",
                name=named.name,
                content=copied.digest,
                size=copied.size,
                files=1,
                created=created,
                tool=__version__,
            )
        if not stat.S_ISDIR(mode):
            raise BadInput(f"{named} is neither a file nor a folder", fix="name the engine file, or its cache folder")
        items, holding_path = take_tree(kind.name, source, built_at, incoming)
        files = [item for item in items if item.kind == "file"]
        if not files:
            raise BadInput(f"{named} is empty", why="there is no engine in it", fix="fill it first, by a warm-up")
        data = manifest_bytes(items)
        return Entry(
            key=key,
            digest=key.digest,
            form="tree",
            name=named.name,
            content=incoming.add_bytes(data),
            manifest_size=len(data),
            size=sum(item.size for item in files),
            files=len(files),
            created=created,
            tool=__version__,
            notes=notes(holding_path),
        )

    def put_failure(self, key: EngineKey, reason: str, *, keep: float = 3600.0) -> Failure:
        """Remember for `keep` seconds that building this failed, so that others do not try the same at once."""
        return self.store.put_failure(key.digest, reason, keep)

    # --- using -------------------------------------------------------------------------------------------------------

    def restore(self, entry: Entry, target: Path, *, used_at: str = "") -> Path:
        """The engine as a file or folder of its own at `target`, every byte checked; whole, or not at all.

        `used_at` is the path it will be seen under, where that is not `target`: paths inside are written for it.
        `TargetInUse` when `target` is there and not an empty folder; `CorruptBlob` when the engine is damaged, which
        removes its entry.
        """
        place = Path(os.path.abspath(target))
        if place.is_symlink() or (place.exists() and not (place.is_dir() and not any(place.iterdir()))):
            raise TargetInUse(
                f"{target} is there already",
                why="an engine mixed into other files is neither",
                fix="name a path that does not exist, or an empty folder",
                where=Where(file=str(target)),
            )
        with self.store.held(entry), self._dropping(entry):
            self.store.touch(entry)
            with disk_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}."))
            try:
                made = scratch / "engine"
                self._write_out(entry, made, used_at or str(place))
                with disk_errors(place):
                    if place.is_dir() and entry.form == "file":
                        place.rmdir()
                    made.replace(place)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return place

    def _write_out(self, entry: Entry, made: Path, used_at: str) -> None:
        if entry.form == "file":
            self.store.copy_part(entry.content, entry.size, made, executable=False)
            return
        items = self.items(entry)
        with disk_errors(made):
            made.mkdir()
            for folder in sorted(
                {made / item.path if item.kind == "folder" else (made / item.path).parent for item in items}
            ):
                folder.mkdir(parents=True, exist_ok=True)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers()) as pool:
            for _ in pool.map(lambda item: self._write_item(item, made, used_at), items):
                pass

    def _write_item(self, item: TreeItem, made: Path, used_at: str) -> None:
        target = made / item.path
        if item.kind == "link":
            with disk_errors(target):
                target.symlink_to(item.target)
        elif item.digest is not None and item.paths:
            data = to_absolute(self.store.read_part(item.digest, item.size), method=item.paths, used_at=used_at)
            with disk_errors(target):
                target.write_bytes(data)
                target.chmod(0o755 if item.executable else 0o644)
        elif item.digest is not None:
            self.store.copy_part(item.digest, item.size, target, executable=item.executable)

    @contextmanager
    def using(self, entry: Entry) -> Iterator[Path]:
        """A path to read the engine from, checked, and kept from being evicted while the context lasts.

        A single file is read where it is kept (read-only, named by its digest); a tree is restored to a folder that
        lasts as long as the context.
        """
        if entry.form == "tree":
            with tempfile.TemporaryDirectory(prefix="engine.") as folder:
                yield self.restore(entry, Path(folder) / entry.name)
            return
        with self.store.held(entry):
            with self._dropping(entry):
                fault = self.store.check_part(entry.content, entry.size, set_aside=True)
                if fault:
                    raise CorruptBlob(f"engine {entry.name} is damaged", why=fault, fix="build it again")
            self.store.touch(entry)
            yield self.store.part_path(entry.content)

    @contextmanager
    def _dropping(self, entry: Entry) -> Iterator[None]:
        """Remove an entry whose parts turn out to be damaged, so that the next lookup is a miss."""
        try:
            yield
        except CorruptBlob:
            self.store.drop(entry)
            raise

    # --- one builds, others wait -------------------------------------------------------------------------------------

    @contextmanager
    def building(self, key: EngineKey, *, timeout: float | None = 3600.0) -> Iterator[Entry | None]:
        """Be the one who builds this key: others wait here, at most `timeout` seconds (`LockTimeout`).

        Gives the entry when somebody built it meanwhile, else None: then build, and `put`. The lock ends with the
        process, however that ends.
        """
        path = self.store.root / "locks" / f"{key.digest.hex}.lock"
        with holding(path, exclusive=True, timeout=timeout, what=f"the build of {key.kind} {key.digest}"):
            yield self._there(key)

    def get_or_build(
        self, key: EngineKey, build: Callable[[Path], Path], *, timeout: float | None = 3600.0, built_at: str = ""
    ) -> Entry:
        """The entry of a key, or one that suits it; built by `build` when there is none, once for all who ask.

        `build` gets an empty folder and returns what it made there, a file or a folder. A failure of it is for its
        caller; it is not remembered unless `put_failure` is called.
        """
        found = self.lookup(key, nearest=0)
        if found.entry is not None and found.verdict in ("hit", "usable"):
            return found.entry
        with self.building(key, timeout=timeout) as entry:
            if entry is not None:
                return entry
            with tempfile.TemporaryDirectory(prefix="engine.") as folder:
                return self.put(key, build(Path(folder)), built_at=built_at)

    def missing(self, key: EngineKey) -> tuple[str, ...]:
        """What the key must state before an engine can be kept under it."""
        return missing_factors(engine_kind(key.kind), key)
