"""Auditing any number of wheels in bounded memory and disk: each is judged, written down and forgotten."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypeVar

import httpx
from packaging.requirements import Requirement

from builder.audit.audit import Rules, Terms, audit_wheel, judged_facts
from builder.audit.environment import marker_environment
from builder.audit.peek import peek
from builder.audit.policy import AuditException
from builder.audit.requirement import find_wheel
from builder.audit.sources import Fit, Source
from builder.audit.values import TargetAudit
from builder.errors import BuilderError, OutsideFailed
from builder.names import Digest
from builder.store import NoRoom, Store, disk_errors
from builder.wheels.fetch import receive
from builder.wheels.settings import IndexSettings

__all__ = ["Question", "Sweeper", "in_order"]

_AHEAD = 3
"""Sources taken for each worker before the oldest has its result: enough to keep all busy behind a large wheel."""

S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What every wheel of a sweep is asked."""

    backend: str
    fit: Fit
    exceptions: tuple[AuditException, ...] = ()
    translations: tuple[str, ...] = ()
    today: date
    full: bool = False
    """Read wheels that block by their metadata too."""
    record: bool = False
    """Hold every member's hash against RECORD; of wheels that are read, not of those whose facts are known."""

    def digest(self, *, newest: bool) -> str:
        """Names everything of it that decides a verdict or which wheels are chosen, besides backend and tables."""
        counting = [
            (item.package, item.rule, item.reason, item.expires.isoformat(), self.today <= item.expires)
            for item in self.exceptions
        ]
        fit = (self.fit.python, self.fit.arch, self.fit.glibc)
        value = [fit, counting, self.translations, self.full, self.record, newest]
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


class Sweeper:
    """Judges one source after another; safe to call from several threads.

    Wheels of an index are not kept: only what was seen in them is, in the store, so that no wheel is read twice.
    """

    def __init__(
        self,
        question: Question,
        *,
        rules: Rules,
        store: Store,
        client: httpx.Client,
        settings: IndexSettings,
        offline: bool,
    ) -> None:
        self._question = question
        self._rules = rules
        self._store = store
        self._client = client
        self._settings = settings
        self._offline = offline
        self._terms = Terms(
            backend=question.backend,
            environment=marker_environment(question.fit.python, question.fit.arch),
            exceptions=question.exceptions,
            translations=question.translations,
            today=question.today,
        )

    def judge(self, source: Source) -> TargetAudit | BuilderError:
        """The audit of a source's wheel, or why it cannot be told; raises `NoRoom`, which holds for all others too."""
        try:
            if source.fault is not None:
                return source.fault
            if source.path is not None:
                return self._read(source.path, source.file, None)
            if source.requirement:
                return self._required(source.requirement)
            return self._offered(source.url, source.file, source.sha256)
        except NoRoom:
            raise
        except BuilderError as error:
            return error
        except OSError as error:
            return OutsideFailed(f"cannot read {source.target}", why=error.strerror or str(error))

    def _required(self, text: str) -> TargetAudit:
        fit = self._question.fit
        link = find_wheel(
            Requirement(text),
            self._client,
            settings=self._settings,
            python=fit.python,
            arch=fit.arch,
            glibc=fit.glibc,
            offline=self._offline,
        )
        return self._offered(link.url, link.file, Digest(link.sha256) if link.sha256 else None)

    def _offered(self, url: str, file: str, digest: Digest | None) -> TargetAudit:
        """By what is known of it, else by its metadata, else by reading it."""
        if digest is not None:
            facts = self._rules.scanner.known(file, digest=digest, store=self._store)
            if facts is not None:
                return judged_facts(facts, digest, self._terms, self._rules)
            if self._store.has(digest):
                return self._read(self._store.path(digest), file, digest)
        if self._offline and url.startswith("http"):
            raise OutsideFailed(f"{file} is not in the store", why="--offline uses the store alone")
        if digest is not None and not self._question.full and url.startswith("http"):
            early = peek(self._client, url, file, digest, self._terms, self._rules)
            if early is not None:
                return early
        return self._fetched(url, file, digest)

    def _fetched(self, url: str, file: str, digest: Digest | None) -> TargetAudit:
        with disk_errors(self._store.root), self._store.scratch("sweep-") as folder:
            scratch = Store(folder)
            found = receive(self._client, url, scratch, digest=digest)
            return self._read(scratch.path(found), file, found)

    def _read(self, path: Path, file: str, digest: Digest | None) -> TargetAudit:
        return audit_wheel(
            path,
            file,
            self._terms,
            store=self._store,
            digest=digest,
            rules=self._rules,
            record=self._question.record,
        )


def in_order(work: Callable[[S], R], items: Iterable[S], *, jobs: int | None = None) -> Iterator[tuple[S, R]]:
    """Each item with its result, in order, worked on by threads; few are under way at a time."""
    workers = jobs or os.cpu_count() or 1
    under_way: deque[tuple[S, Future[R]]] = deque()
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sweep") as pool:
        try:
            for item in items:
                under_way.append((item, pool.submit(work, item)))
                if len(under_way) >= workers * _AHEAD:
                    first, future = under_way.popleft()
                    yield first, future.result()
            while under_way:
                first, future = under_way.popleft()
                yield first, future.result()
        finally:
            pool.shutdown(cancel_futures=True)
