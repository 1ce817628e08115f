"""A cache in a temporary folder, with a clock that tests set."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cache import EngineCache


class Clock:
    """Seconds since the epoch; may go backwards."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock(1_800_000_000.0)


@pytest.fixture
def cache(tmp_path: Path, clock: Clock) -> EngineCache:
    return EngineCache(tmp_path / "engines", clock=clock)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """An engine of one file."""
    path = tmp_path / "model.plan"
    path.write_bytes(b"ftrt" + bytes(range(256)) * 64)
    return path
