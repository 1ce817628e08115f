"""Putting, looking up, restoring: files and trees, whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from builder.cache import EngineCache, TargetInUse, engine_kind
from builder.cache.gc import clear
from builder.cache.locks import LockTimeout, NoLocks
from builder.cache.values import ForeignEntry
from builder.cache.verify import verify
from builder.errors import BadInput
from builder.store import CorruptBlob
from tests.cache.conftest import Clock
from tests.cache.samples import OTHER_MODEL, key_of

TENSORRT = engine_kind("tensorrt")
TRITON = engine_kind("triton-nvidia")
KEY = key_of(TENSORRT)


def triton_cache(root: Path) -> Path:
    """A Triton cache folder as the library writes it: the group file holds absolute paths."""
    kernel = root / "KQ7AQ"
    kernel.mkdir(parents=True)
    (kernel / "add.cubin").write_bytes(b"\x7fELF" + os.urandom(2000))
    (kernel / "add.json").write_text('{"name": "add", "num_warps": 4}')
    launcher = root / "LAUNCH" / "__triton_launcher.so"
    launcher.parent.mkdir()
    launcher.write_bytes(b"\x7fELFlauncher")
    launcher.chmod(0o755)
    paths = {name: str(kernel / name) for name in ("add.cubin", "add.json")}
    (kernel / "__grp__add.json").write_text(json.dumps({"child_paths": paths}))
    (root / "empty").mkdir()
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_file_comes_back_byte_by_byte(cache: EngineCache, plan: Path, tmp_path: Path) -> None:
    entry = cache.put(KEY, plan)
    answer = cache.lookup(KEY)
    assert answer.verdict == "hit"
    assert answer.entry == entry
    assert answer.differs == ()
    restored = cache.restore(entry, tmp_path / "elsewhere" / "m.plan")
    assert restored.read_bytes() == plan.read_bytes()
    with cache.using(entry) as path:
        assert path.read_bytes() == plan.read_bytes()


def test_a_tree_comes_back_with_its_paths_written_anew(cache: EngineCache, tmp_path: Path) -> None:
    made = triton_cache(tmp_path / "home-a" / ".triton" / "cache")
    entry = cache.put(key_of(TRITON), made)
    assert entry.notes == ()
    restored = cache.restore(entry, tmp_path / "home-b" / "cache")
    group = json.loads((restored / "KQ7AQ" / "__grp__add.json").read_text())
    assert group["child_paths"]["add.cubin"] == str(restored / "KQ7AQ" / "add.cubin")
    before, after = contents(made), contents(restored)
    assert before.pop("KQ7AQ/__grp__add.json") != after.pop("KQ7AQ/__grp__add.json")
    assert before == after
    assert (restored / "empty").is_dir()
    assert os.access(restored / "LAUNCH" / "__triton_launcher.so", os.X_OK)


def test_two_homes_make_one_manifest(cache: EngineCache, tmp_path: Path) -> None:
    made = triton_cache(tmp_path / "a")
    moved = tmp_path / "b"
    entry = cache.put(key_of(TRITON), made)
    cache.restore(entry, moved)
    again = cache.put(key_of(TRITON, device="other"), moved)
    assert again.content == entry.content


def test_a_container_sees_its_own_paths(cache: EngineCache, tmp_path: Path) -> None:
    made = triton_cache(tmp_path / "volume")
    group = made / "KQ7AQ" / "__grp__add.json"
    group.write_text(group.read_text().replace(str(made), "/home/app/.triton/cache"))
    entry = cache.put(key_of(TRITON), made, built_at="/home/app/.triton/cache")
    restored = cache.restore(entry, tmp_path / "host", used_at="/home/app/.triton/cache")
    paths = json.loads((restored / "KQ7AQ" / "__grp__add.json").read_text())["child_paths"]
    assert paths["add.json"] == "/home/app/.triton/cache/KQ7AQ/add.json"


def test_paths_in_the_list_of_compiled_graphs_move(cache: EngineCache, tmp_path: Path) -> None:
    """FR-19: absolute paths stored inside the artefacts; vLLM's list of compiled graphs holds one a graph."""
    made = tmp_path / "torch_compile_cache"
    (made / "inductor_cache").mkdir(parents=True)
    (made / "inductor_cache" / "civ.py").write_text("graph")
    (made / "vllm_compile_cache.py").write_text(f"{{(None, 0, 'inductor'): ('f', '{made}/inductor_cache/civ.py')}}")
    entry = cache.put(key_of(engine_kind("vllm")), made)
    assert entry.notes == ()
    restored = cache.restore(entry, tmp_path / "pod-2")
    assert (restored / "vllm_compile_cache.py").read_text() == (
        f"{{(None, 0, 'inductor'): ('f', '{restored}/inductor_cache/civ.py')}}"
    )


def test_a_file_that_holds_its_folder_is_noted(cache: EngineCache, tmp_path: Path) -> None:
    folder = tmp_path / "inductor-cache"
    folder.mkdir()
    (folder / "graph.py").write_text(f"SO = '{folder}/kernel.so'\n")
    entry = cache.put(key_of(engine_kind("inductor")), folder)
    assert "graph.py" in entry.notes[0]


def test_a_link_inside_stays_a_link(cache: EngineCache, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").write_bytes(b"a")
    (folder / "relative").symlink_to("a")
    (folder / "absolute").symlink_to(folder / "a")
    restored = cache.restore(cache.put(key_of(TRITON), folder), tmp_path / "out")
    assert (restored / "relative").readlink() == Path("a")
    assert (restored / "absolute").readlink() == Path("a")


def test_what_is_named_may_be_a_link(cache: EngineCache, plan: Path, tmp_path: Path) -> None:
    named = tmp_path / "by-name.plan"
    named.symlink_to(plan)
    entry = cache.put(KEY, named)
    assert (entry.name, entry.form) == ("by-name.plan", "file")
    made = triton_cache(tmp_path / "volume")
    mounted = tmp_path / "mounted"
    mounted.symlink_to(made)
    tree = cache.put(key_of(TRITON), mounted)
    assert (tree.name, tree.files) == ("mounted", 4)


@pytest.mark.parametrize("target", ["/etc/passwd", "../other"])
def test_a_link_to_outside_is_refused(cache: EngineCache, tmp_path: Path, target: str) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "l").symlink_to(target)
    with pytest.raises(BadInput, match="outside the folder"):
        cache.put(key_of(TRITON), folder)
    assert list(cache.entries()) == []


def test_an_empty_folder_is_no_engine(cache: EngineCache, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with pytest.raises(BadInput, match="is empty"):
        cache.put(key_of(TRITON), tmp_path / "tree")


def test_the_first_writer_wins_and_replace_replaces(cache: EngineCache, plan: Path, tmp_path: Path) -> None:
    first = cache.put(KEY, plan)
    other = tmp_path / "other.plan"
    other.write_bytes(b"another build")
    assert cache.put(KEY, other) == first
    second = cache.put(KEY, other, replace=True)
    assert second.content != first.content
    assert cache.lookup(KEY).entry == second


def test_an_entry_in_use_is_not_replaced(cache: EngineCache, plan: Path) -> None:
    entry = cache.put(KEY, plan)
    with cache.using(entry), pytest.raises(Exception, match="in use"):
        cache.put(KEY, plan, replace=True)
    cache.put(KEY, plan, replace=True)


def test_what_is_there_is_never_mixed_into(cache: EngineCache, plan: Path, tmp_path: Path) -> None:
    entry = cache.put(KEY, plan)
    target = tmp_path / "there"
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(TargetInUse):
        cache.restore(entry, target)
    assert [path.name for path in target.iterdir()] == ["file"]


def test_a_key_that_is_not_complete_is_not_kept(cache: EngineCache, plan: Path) -> None:
    with pytest.raises(BadInput, match="not complete"):
        cache.put(key_of(TENSORRT, compute_capability=None), plan)


def test_a_miss_lists_the_nearest_first(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(TENSORRT, tensorrt="10.8.0.43", precision="int8"), plan)
    near = cache.put(key_of(TENSORRT, tensorrt="10.8.0.43"), plan)
    cache.put(key_of(TENSORRT, model=str(OTHER_MODEL)), plan)
    answer = cache.lookup(KEY)
    assert answer.verdict == "miss"
    assert answer.nearest[0].entry == near
    assert len(answer.nearest) == 2
    assert [one.name for one in answer.differs] == ["tensorrt"]


def test_of_two_usable_the_closer_is_taken(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(TENSORRT, device="a", driver_branch="550"), plan)
    close = cache.put(key_of(TENSORRT, device="a"), plan)
    answer = cache.lookup(KEY)
    assert answer.verdict == "usable"
    assert answer.entry == close


def test_what_another_process_removed_is_not_usable(cache: EngineCache, plan: Path) -> None:
    first = cache.put(key_of(TENSORRT, device="a"), plan)
    second = cache.put(key_of(TENSORRT, device="b", driver_branch="550"), plan)
    assert cache.lookup(KEY).entry == first
    cache.store.entry_path(first.digest).unlink()
    assert cache.lookup(KEY).entry == second
    EngineCache(cache.store.root).put(second.key, plan, replace=True)
    cache.store.entry_path(second.digest).write_bytes(b"{")
    assert cache.lookup(KEY).verdict == "miss"


def test_what_is_not_stated_is_unknown(cache: EngineCache, plan: Path) -> None:
    entry = cache.put(KEY, plan)
    answer = cache.lookup(key_of(TENSORRT, compute_capability=None))
    assert answer.verdict == "unknown"
    assert answer.entry == entry
    assert answer.missing == ("compute-capability",)


def test_what_only_a_header_tells_is_judged_where_both_state_it(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(TENSORRT, serialization="228"), plan)
    assert cache.lookup(key_of(TENSORRT, serialization=None)).verdict == "hit"
    assert cache.lookup(key_of(TENSORRT, serialization="226")).verdict == "miss"


def test_what_a_header_needs_must_be_known_of_the_machine(cache: EngineCache, plan: Path) -> None:
    kind = engine_kind("neff")
    cache.put(key_of(kind, features="0x0", runtime_compat=None), plan)
    assert cache.lookup(key_of(kind, features=None, runtime_compat=None)).verdict == "hit"
    cache.put(key_of(kind, features="0x1", runtime_compat=None, shapes="other"), plan)
    assert cache.lookup(key_of(kind, features=None, runtime_compat=None, shapes="other")).verdict == "unknown"


def test_what_blocks_is_a_miss_whatever_else_is_not_stated(cache: EngineCache, plan: Path) -> None:
    cache.put(KEY, plan)
    answer = cache.lookup(key_of(TENSORRT, compute_capability=None, precision="int8"))
    assert answer.verdict == "miss"


def test_without_a_model_nothing_can_be_told(cache: EngineCache, plan: Path) -> None:
    cache.put(KEY, plan)
    assert cache.lookup(key_of(TENSORRT, model=None)).verdict == "unknown"


def test_a_version_compatible_plan_answers_newer_runtimes(cache: EngineCache, plan: Path) -> None:
    cache.put(key_of(TENSORRT, version_compatible="on", serialization=None), plan)
    for wanted, verdict in (
        ("10.13.0", "usable"),
        ("11.1.0", "usable"),
        ("10.8.0", "miss"),
        ("12.0.0", "miss"),
        ("10.9.0.34", "usable"),
    ):
        assert cache.lookup(key_of(TENSORRT, tensorrt=wanted, serialization=None)).verdict == verdict, wanted


def test_a_corrupt_part_is_never_handed_out(cache: EngineCache, plan: Path, tmp_path: Path) -> None:
    entry = cache.put(KEY, plan)
    part = cache.store.part_path(entry.content)
    part.chmod(0o644)
    with part.open("r+b") as file:
        file.seek(5000)
        file.write(b"!")
    with pytest.raises(CorruptBlob):
        cache.restore(entry, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert cache.lookup(KEY).verdict == "miss"
    assert [path.name for path in (cache.store.root / "damaged").iterdir()] == [entry.content.hex]
    cache.put(KEY, plan)
    assert cache.restore(entry, tmp_path / "out").read_bytes() == plan.read_bytes()


def test_a_truncated_tree_is_never_handed_out(cache: EngineCache, tmp_path: Path) -> None:
    entry = cache.put(key_of(TRITON), triton_cache(tmp_path / "made"))
    item = next(one for one in cache.items(entry) if one.path.endswith(".cubin"))
    assert item.digest is not None
    cache.store.part_path(item.digest).unlink()
    with pytest.raises(CorruptBlob):
        cache.restore(entry, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    assert not (tmp_path / "out").exists()
    assert cache.lookup(key_of(TRITON)).verdict == "miss"


def test_a_new_put_mends_a_part_that_another_entry_shares(cache: EngineCache, plan: Path, tmp_path: Path) -> None:
    entry = cache.put(KEY, plan)
    part = cache.store.part_path(entry.content)
    part.chmod(0o644)
    part.write_bytes(b"torn")
    cache.put(key_of(TENSORRT, precision="int8"), plan)
    assert cache.restore(entry, tmp_path / "out").read_bytes() == plan.read_bytes()


def test_failures_are_remembered_until_they_expire(cache: EngineCache, plan: Path, clock: Clock) -> None:
    cache.put_failure(KEY, "ptxas ran out of memory", keep=600)
    answer = cache.lookup(KEY)
    assert answer.failure is not None
    assert answer.failure.reason == "ptxas ran out of memory"
    clock.now += 601
    assert cache.lookup(KEY).failure is None
    cache.put_failure(KEY, "again", keep=600)
    cache.put(KEY, plan)
    assert cache.store.failure(KEY.digest) is None


def test_a_clock_that_goes_backwards_makes_no_failure_last(cache: EngineCache, clock: Clock) -> None:
    cache.put_failure(KEY, "no", keep=600)
    clock.now -= 86400
    assert cache.lookup(KEY).failure is None


def test_one_builds_and_others_wait(cache: EngineCache, plan: Path) -> None:
    built: list[int] = []
    inside = threading.Barrier(4)

    def build(folder: Path) -> Path:
        built.append(1)
        target = folder / "m.plan"
        target.write_bytes(plan.read_bytes())
        return target

    def ask() -> None:
        inside.wait()
        assert cache.get_or_build(KEY, build).digest == KEY.digest

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]


def test_waiting_has_an_end(cache: EngineCache) -> None:
    with (
        cache.building(KEY),
        pytest.raises(LockTimeout, match="the build of tensorrt"),
        cache.building(KEY, timeout=0.05),
    ):
        pass


def test_two_keys_build_at_a_time(cache: EngineCache) -> None:
    with cache.building(KEY), cache.building(key_of(TENSORRT, precision="int8"), timeout=0) as entry:
        assert entry is None


def test_a_document_of_another_version_is_named_and_not_used(cache: EngineCache, plan: Path) -> None:
    entry = cache.put(KEY, plan)
    path = cache.store.entry_path(entry.digest)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "schema": "builder/engine-entry/9"}))
    assert cache.lookup(KEY).verdict == "miss"
    (found,) = cache.entries()
    assert isinstance(found, BadInput)
    assert "another version" in found.what
    with pytest.raises(ForeignEntry):
        cache.put(KEY, plan)
    assert json.loads(path.read_text())["schema"] == "builder/engine-entry/9", "left alone"
    cache.put(KEY, plan, replace=True)
    assert cache.lookup(KEY).verdict == "hit"


def test_without_locks_engines_are_read_and_none_is_kept(
    cache: EngineCache, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = cache.put(KEY, plan)

    def flock(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert cache.restore(entry, tmp_path / "out").read_bytes() == plan.read_bytes()
    with pytest.raises(NoLocks, match="cannot be locked"):
        cache.put(key_of(TENSORRT, precision="int8"), plan)
    with pytest.raises(NoLocks):
        clear(cache, budget=0)
    assert cache.lookup(KEY).verdict == "hit"


def test_a_factor_of_a_newer_tool_makes_the_answer_unknown(cache: EngineCache, plan: Path) -> None:
    from builder.cache import EngineKey
    from builder.cache.judge import judge, verdict_of

    newer = EngineKey("tensorrt", {**KEY.factors, "moon-phase": "full"})
    differs = judge(TENSORRT, KEY.factors, newer.factors)
    assert [one.name for one in differs] == ["moon-phase"]
    assert verdict_of(differs) == "unknown"


def test_a_large_file_is_digested_while_it_is_written(cache: EngineCache, tmp_path: Path) -> None:
    big = tmp_path / "big.plan"
    big.write_bytes(os.urandom(9 << 20) + b"end")
    entry = cache.put(KEY, big)
    assert entry.size == big.stat().st_size
    assert cache.restore(entry, tmp_path / "out").read_bytes() == big.read_bytes()


@pytest.mark.parametrize("durable", [True, False])
def test_flushed_or_not_it_is_the_same(tmp_path: Path, durable: bool) -> None:
    cache = EngineCache(tmp_path / "engines", durable=durable)
    made = triton_cache(tmp_path / "made")
    entry = cache.put(key_of(TRITON), made)
    cache.put(key_of(TRITON, device="other"), made)
    restored = cache.restore(entry, tmp_path / "out", used_at=str(made))
    assert contents(restored).keys() == contents(made).keys()
    assert verify(cache) == (2, [])
