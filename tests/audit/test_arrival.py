"""Wheels of a lock are looked at while others are still fetched."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.audit.audit import load_rules, scanned_as_they_arrive
from builder.events import SilentReporter
from builder.names import Digest
from builder.store import Store
from builder.wheels.fetch import fetch
from builder.wheels.settings import IndexSettings
from builder.wheels.transport import IndexUnreachable
from builder.wheels.values import WheelSource
from tests.lock.indexes import Index, make_wheel, serving

PATIENCE = 60


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(Index()) as served:
        yield served


@dataclass(frozen=True)
class Wanted:
    """A wheel as a lock names it."""

    file: str
    sha256: Digest
    url: str
    size: int | None


def wanted(index: Index, path: Path) -> Wanted:
    return Wanted(path.name, Digest.of_file(path), index.file_url(path), path.stat().st_size)


def kept(store: Store) -> int:
    return len(store.derived_files(load_rules().scanner.kind))


def test_one_is_seen_before_the_next_has_come(store: Store, index: Index, tmp_path: Path) -> None:
    both = [wanted(index, index.add(make_wheel(tmp_path, name, "1.0"))) for name in ("one", "other")]
    seen_early: list[bool] = []

    def come(wheel: WheelSource) -> None:
        """Held back here like a slow download: the next wheel is fetched when this one has been looked at."""
        arrived(wheel)
        deadline = time.monotonic() + PATIENCE
        while not seen_early and not kept(store) and time.monotonic() < deadline:
            time.sleep(0.01)
        seen_early.append(kept(store) == 1 and not all(store.has(one.sha256) for one in both))

    with scanned_as_they_arrive(store, jobs=1) as arrived:
        fetch(
            both,
            store,
            reporter=SilentReporter(),
            settings=IndexSettings(),
            environ=os.environ,
            arrived=come,
            jobs=1,
        )
    assert seen_early[0]
    assert len(seen_early) == kept(store) == 2


def test_a_failed_fetch_ends_the_looking_too(store: Store, index: Index, tmp_path: Path) -> None:
    there = wanted(index, index.add(make_wheel(tmp_path, "there", "1.0")))
    gone = Wanted("gone-1.0-py3-none-any.whl", Digest("0" * 64), f"{index.url}gone-1.0-py3-none-any.whl", None)
    with pytest.raises(IndexUnreachable), scanned_as_they_arrive(store) as arrived:
        fetch(
            [there, gone],
            store,
            reporter=SilentReporter(),
            settings=IndexSettings(),
            environ=os.environ,
            arrived=arrived,
            jobs=1,
        )
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("audit")]


def test_what_is_no_wheel_is_left_to_the_audit(store: Store, index: Index, tmp_path: Path) -> None:
    path = tmp_path / "bad-1.0-py3-none-any.whl"
    path.write_bytes(b"this is no archive")
    bad = wanted(index, index.add(path))
    with scanned_as_they_arrive(store) as arrived:
        fetch([bad], store, reporter=SilentReporter(), settings=IndexSettings(), environ=os.environ, arrived=arrived)
    assert store.has(bad.sha256)
    assert not kept(store)
