"""Clearing and checking: least recently used first, never what is used, nothing that an entry needs."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from builder.cache import EngineCache, EngineKey, Entry, engine_kind
from builder.cache.gc import clear
from builder.cache.incoming import Incoming
from builder.cache.verify import verify
from tests.cache.conftest import Clock
from tests.cache.samples import key_of
from tests.cache.test_cache import triton_cache

TENSORRT = engine_kind("tensorrt")
TRITON = engine_kind("triton-nvidia")
DAY = 86400.0


def key(number: int) -> EngineKey:
    return key_of(TENSORRT, plugins=f"p:{number}")


def filled(cache: EngineCache, clock: Clock, tmp_path: Path, count: int = 4) -> list[Entry]:
    """Entries of 1,000 bytes each, used an hour apart, the first one longest ago."""
    entries = []
    for number in range(count):
        path = tmp_path / f"{number}.plan"
        path.write_bytes(bytes([number]) * 1000)
        entry = cache.put(key(number), path)
        used = clock.now - (count - number) * 3600
        os.utime(cache.store.marker(entry), (used, used))
        entries.append(entry)
    return entries


def left(cache: EngineCache) -> list[str]:
    return [one.key.factors["plugins"] for one in cache.entries() if isinstance(one, Entry)]


def test_the_budget_takes_the_least_recently_used(cache: EngineCache, clock: Clock, tmp_path: Path) -> None:
    filled(cache, clock, tmp_path)
    cleared = clear(cache, budget=2000)
    assert sorted(left(cache)) == ["p:2", "p:3"]
    assert (cleared.entries, cleared.size) == (2, 2000)
    assert sum(one.size for one in cleared.removed if one.why.startswith("least")) == 2000
    assert len(list(cache.store.parts())) == 2


def test_a_lookup_is_a_use(cache: EngineCache, clock: Clock, tmp_path: Path) -> None:
    filled(cache, clock, tmp_path)
    cache.lookup(key(0))
    clear(cache, budget=2000)
    assert sorted(left(cache)) == ["p:0", "p:3"]


def test_what_is_in_use_stays(cache: EngineCache, clock: Clock, tmp_path: Path) -> None:
    entries = filled(cache, clock, tmp_path)
    with EngineCache(cache.store.root).using(entries[0]):
        cleared = clear(cache, budget=0)
    assert left(cache) == ["p:0"]
    assert cleared.kept == ((str(entries[0].digest), "in use"),)
    assert len(list(cache.store.parts())) == 1


def test_a_use_in_the_future_counts_as_now(cache: EngineCache, clock: Clock, tmp_path: Path) -> None:
    entries = filled(cache, clock, tmp_path)
    os.utime(cache.store.marker(entries[0]), (clock.now + 9e6, clock.now + 9e6))
    clock.now += 10 * DAY
    clear(cache, unused=DAY)
    assert left(cache) == ["p:0"]
    clock.now += 9e6
    clear(cache, unused=DAY)
    assert left(cache) == []


def test_a_shared_part_stays_and_counts_once(cache: EngineCache, clock: Clock, plan: Path) -> None:
    first = cache.put(key(0), plan)
    cache.put(key(1), plan)
    os.utime(cache.store.marker(first), (1, 1))
    size = plan.stat().st_size
    assert clear(cache, budget=size).removed == ()
    clear(cache, budget=size, unused=DAY)
    assert left(cache) == ["p:1"]
    assert verify(cache) == (1, [])


def test_a_dry_run_removes_nothing(cache: EngineCache, clock: Clock, tmp_path: Path) -> None:
    filled(cache, clock, tmp_path)
    assert len(clear(cache, budget=0, dry_run=True).removed) == 4
    assert len(left(cache)) == 4


def test_left_overs_of_the_dead_go_and_those_of_the_living_stay(cache: EngineCache, plan: Path) -> None:
    cache.put(key(0), plan)
    dead = cache.store.root / "incoming" / "dead"
    dead.mkdir(parents=True)
    (dead / "lock").touch()
    (dead / "part").write_bytes(b"half")
    with Incoming(cache.store) as living:
        living.add_file(plan)
        clear(cache)
        assert not dead.exists()
        assert len(list((cache.store.root / "incoming").iterdir())) == 1
    assert list((cache.store.root / "incoming").iterdir()) == []


def test_expired_failures_and_free_locks_go(cache: EngineCache, clock: Clock) -> None:
    cache.put_failure(key(0), "no", keep=10)
    cache.put_failure(key(1), "no", keep=DAY)
    with cache.building(key(2)), EngineCache(cache.store.root).building(key(3)):
        pass
    clock.now += 60
    with cache.building(key(2)):
        clear(cache)
        assert [path.name for path in (cache.store.root / "locks").iterdir()] == [f"{key(2).digest.hex}.lock"]
    assert len(list((cache.store.root / "failures").glob("*/*"))) == 1


def test_parts_of_another_versions_entries_stay(cache: EngineCache, clock: Clock, tmp_path: Path) -> None:
    entries = filled(cache, clock, tmp_path)
    path = cache.store.entry_path(entries[0].digest)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": "builder/engine-entry/2"}))
    clear(cache, budget=0)
    assert path.exists()
    assert cache.store.part_path(entries[0].content).exists()


def test_while_somebody_adds_everything_stays(cache: EngineCache, clock: Clock, tmp_path: Path) -> None:
    filled(cache, clock, tmp_path)
    with EngineCache(cache.store.root).store.lock.shared():
        cleared = clear(cache, budget=0, timeout=0.05)
    assert cleared.removed == ()
    assert cleared.kept[0][0] == "everything"
    assert len(left(cache)) == 4


def test_a_document_that_cannot_be_read_goes_with_what_only_it_needs(cache: EngineCache, plan: Path) -> None:
    entry = cache.put(key(0), plan)
    cache.store.entry_path(entry.digest).write_bytes(b'{"schema": "builder/eng')
    assert cache.lookup(key(0)).verdict == "miss"
    cleared = clear(cache)
    assert {one.why for one in cleared.removed} == {"damaged", "no entry needs it"}
    assert list(cache.store.parts()) == []


def test_verify_names_what_is_damaged_and_drops_it(cache: EngineCache, plan: Path, tmp_path: Path) -> None:
    good = cache.put(key(0), plan)
    tree = cache.put(key_of(TRITON), triton_cache(tmp_path / "made"))
    item = next(one for one in cache.items(tree) if one.path.endswith(".cubin"))
    assert item.digest is not None
    part = cache.store.part_path(item.digest)
    part.chmod(0o644)
    part.write_bytes(b"short")
    checked, damage = verify(cache)
    assert checked == 2
    assert [one.entry for one in damage] == [str(tree.digest)]
    assert "KQ7AQ/add.cubin: it has 5 bytes" in damage[0].what
    assert part.exists(), "only told"
    verify(cache, drop=True)
    assert not part.exists()
    assert [one.digest for one in cache.entries() if isinstance(one, Entry)] == [good.digest]
    assert verify(cache) == (1, [])


def test_verify_tells_foreign_from_damaged(cache: EngineCache, plan: Path) -> None:
    entry = cache.put(key(0), plan)
    path = cache.store.entry_path(entry.digest)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": "builder/engine-entry/2"}))
    _, (damage,) = verify(cache, drop=True)
    assert damage.foreign
    assert path.exists()


def test_a_full_disk_is_named_and_leaves_nothing(full_disk: Path, tmp_path: Path) -> None:
    from builder.store import NoRoom

    cache = EngineCache(full_disk / "engines")
    big = tmp_path / "big.plan"
    big.write_bytes(os.urandom(2 << 20))
    with pytest.raises(NoRoom, match="disk full"):
        cache.put(key(0), big)
    assert cache.lookup(key(0)).verdict == "miss"
    small = tmp_path / "small.plan"
    small.write_bytes(b"fits")
    assert cache.put(key(1), small).size == 4
    assert list((cache.store.root / "incoming").iterdir()) == []


def test_a_read_only_store_answers_and_restores(full_disk: Path, plan: Path, tmp_path: Path) -> None:
    import subprocess

    from builder.store import NoRoom

    entry = EngineCache(full_disk / "engines").put(key(0), plan)
    subprocess.run(["mount", "-o", "remount,ro", full_disk], check=True)
    cache = EngineCache(full_disk / "engines")
    assert cache.lookup(key(0)).verdict == "hit"
    assert cache.restore(entry, tmp_path / "out").read_bytes() == plan.read_bytes()
    with cache.using(entry) as path:
        assert path.read_bytes() == plan.read_bytes()
    with pytest.raises(NoRoom, match="cannot write"):
        cache.put(key(1), plan)
    with pytest.raises(NoRoom, match="cannot write"):
        clear(cache, budget=0)


def test_the_gate_lets_the_one_in_who_clears(cache: EngineCache) -> None:
    """A shared holder behind another shared holder would keep the exclusive one out for ever."""
    gate = cache.store.root / "gate"
    cache.store.root.mkdir()
    handle = os.open(gate, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    from builder.cache.locks import LockTimeout

    with pytest.raises(LockTimeout), cache.store.lock.shared(timeout=0.05):
        pass
    os.close(handle)
    with cache.store.lock.shared(timeout=0.05):
        pass


def plan_of(tmp_path: Path, number: int, size: int = 1000) -> Path:
    path = tmp_path / f"{number}.plan"
    path.write_bytes(bytes([number]) * size)
    return path


def test_a_cache_with_a_budget_clears_by_itself(clock: Clock, tmp_path: Path) -> None:
    cache = EngineCache(tmp_path / "engines", budget=3000, clock=clock)
    for number in range(8):
        clock.now += 100
        cache.put(key(number), plan_of(tmp_path, number))
        assert sum(size for _, size in cache.store.parts()) <= 3000
    assert f"p:{7}" in left(cache)
    assert "p:0" not in left(cache)


def test_a_budget_never_takes_what_is_in_use_nor_what_was_just_added(clock: Clock, tmp_path: Path) -> None:
    cache = EngineCache(tmp_path / "engines", budget=1500, clock=clock)
    first = cache.put(key(0), plan_of(tmp_path, 0))
    clock.now += 100
    with cache.using(first) as path:
        cache.put(key(1), plan_of(tmp_path, 1))
        assert path.read_bytes() == bytes(1000)
        assert sorted(left(cache)) == ["p:0", "p:1"]
    clock.now += 100
    cache.put(key(2), plan_of(tmp_path, 2, size=9000))
    assert left(cache) == ["p:2"], "larger than the budget, and nobody could ever use it if it went at once"


def test_what_others_add_is_noticed_when_the_room_is_half_filled(clock: Clock, tmp_path: Path) -> None:
    bounded = EngineCache(tmp_path / "engines", budget=10_000, clock=clock)
    other = EngineCache(tmp_path / "engines", clock=clock)
    bounded.put(key(0), plan_of(tmp_path, 0))
    for number in range(1, 12):
        clock.now += 100
        other.put(key(number), plan_of(tmp_path, number))
    assert len(left(other)) == 12
    for number in range(12, 18):
        clock.now += 100
        bounded.put(key(number), plan_of(tmp_path, number))
    assert len(left(bounded)) <= 10
    assert "p:17" in left(bounded)
