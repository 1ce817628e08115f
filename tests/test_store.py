from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builder.names import Digest
from builder.store import CorruptBlob, NoRoom, Store, StoreInUse, default_store, store_root, write_atomic


def files(store: Store) -> list[str]:
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.is_file())


def test_bytes_are_found_under_their_digest(store: Store) -> None:
    digest, size = store.add_bytes([b"ab", b"c"])
    assert (digest, size) == (Digest.of(b"abc"), 3)
    assert store.has(digest)
    with store.open(digest) as file:
        assert file.read() == b"abc"
    assert files(store) == [f"sha256/{digest.hex[:2]}/{digest.hex[2:]}"]


def test_a_blob_cannot_be_written_by_accident(store: Store) -> None:
    digest, _ = store.add_bytes([b"abc"])
    assert store.path(digest).stat().st_mode & 0o222 == 0


def test_the_same_bytes_twice_are_one_blob(store: Store) -> None:
    assert store.add_bytes([b"abc"]) == store.add_bytes([b"abc"])
    assert len(files(store)) == 1


def test_wrong_bytes_never_get_the_name(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "download"
    path.write_bytes(b"other")
    with pytest.raises(CorruptBlob, match="download is not the file") as caught:
        store.adopt(path, Digest.of(b"wanted"))
    assert str(Digest.of(b"wanted")) in caught.value.why
    assert not path.exists()
    assert not store.has(Digest.of(b"wanted"))


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    def chunks() -> list[bytes]:
        raise ConnectionResetError("cut")

    with pytest.raises(ConnectionResetError):
        store.add_bytes(chunk for _ in range(2) for chunk in chunks())
    assert files(store) == []


def test_a_named_partial_survives_a_failure_and_an_unnamed_one_does_not(store: Store) -> None:
    def interrupted(name: str) -> None:
        with store.partial(name) as path:
            path.write_bytes(b"half")
            raise KeyboardInterrupt

    for name in ("", "wheel-1.0.whl"):
        with pytest.raises(KeyboardInterrupt):
            interrupted(name)
    assert files(store) == ["tmp/wheel-1.0.whl"]
    with store.partial("wheel-1.0.whl") as path:
        assert path.read_bytes() == b"half"


def test_a_partial_name_cannot_leave_the_folder(store: Store) -> None:
    with store.partial("../../evil/x") as path:
        assert path.parent == store.root / "tmp"


def test_derived_facts_are_found_again_and_damage_counts_as_absent(store: Store) -> None:
    assert store.derived("audit", "a:1") is None
    store.put_derived("audit", "a:1", {"level": "ok"})
    assert store.derived("audit", "a:1") == {"level": "ok"}
    assert store.derived("audit", "a:2") is None
    (path,) = (store.root / "derived" / "audit").iterdir()
    path.write_text('{"lev')
    assert store.derived("audit", "a:1") is None


def test_two_processes_store_the_same_bytes_at_once(store: Store) -> None:
    code = "import sys; from pathlib import Path; from builder.store import Store; s = Store(Path(sys.argv[1]))\n"
    code += "for i in range(60): s.add_bytes([bytes([i]) * 5000])"
    running = [subprocess.Popen([sys.executable, "-c", code, str(store.root)]) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    found = [path for path in (store.root / "sha256").rglob("*") if path.is_file()]
    assert len(found) == 60
    assert all(Digest.of_file(path).hex == path.parent.name + path.name for path in found)
    assert list((store.root / "tmp").iterdir()) == []


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "f"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in path.parent.iterdir()] == ["f"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(NoRoom, match="cannot write"):
        write_atomic(tmp_path / "f", b"x")


def test_a_full_disk_is_named(full_disk: Path) -> None:
    with pytest.raises(NoRoom, match="disk full while writing") as caught:
        Store(full_disk / "store").add_bytes([b"x" * 65536] * 64)
    assert "BUILDER_STORE" in caught.value.fix


def test_the_variable_moves_the_store(tmp_path: Path) -> None:
    assert default_store({"BUILDER_STORE": str(tmp_path)}).root == tmp_path
    assert store_root({}).name == "builder"


DAY = 86400.0


def test_only_what_was_not_used_for_long_is_cleared(store: Store) -> None:
    digest, _ = store.add_bytes([b"abc"])
    store.put_derived("facts", "key", {"a": 1})
    now = time.time()
    assert store.collect(unused=DAY, min_age=DAY, now=now) == ()
    assert store.has(digest)
    would = store.collect(unused=DAY, min_age=DAY, now=now + 2 * DAY, dry_run=True)
    assert store.has(digest)
    assert sorted(item.name.partition("/")[0] for item in would) == ["derived", "sha256"]
    assert store.collect(unused=DAY, min_age=DAY, now=now + 2 * DAY) == would
    assert files(store) == ["lock"]
    assert store.derived("facts", "key") is None


def test_what_interrupted_commands_left_is_cleared_whatever_its_modes(store: Store) -> None:
    digest, _ = store.add_bytes([b"abc"])
    unpacked = store.root / "tmp/image-abc/root/usr"
    unpacked.mkdir(parents=True)
    (unpacked / "file").write_bytes(b"x" * 100)
    (unpacked / "link").symlink_to("/etc")
    unpacked.chmod(0o500)
    (store.root / "tmp/half.whl.part").write_bytes(b"half")
    assert store.collect(unused=1e9, min_age=DAY, now=time.time()) == ()
    gone = store.collect(unused=1e9, min_age=DAY, now=time.time() + 2 * DAY)
    assert [item.name for item in gone] == ["tmp/half.whl.part", "tmp/image-abc"]
    assert gone[1].size >= 100
    assert list((store.root / "tmp").iterdir()) == []
    assert store.has(digest)
    assert Path("/etc").is_dir()


def test_a_store_that_a_command_uses_is_not_cleared(store: Store) -> None:
    digest, _ = store.add_bytes([b"abc"])
    program = (
        "import os, sys\nfrom builder.store import default_store\nkept = default_store(os.environ)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    environ = {**os.environ, "BUILDER_STORE": str(store.root)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "held\n"
        with pytest.raises(StoreInUse, match="is in use"):
            store.collect(unused=0, min_age=0, now=time.time() + DAY)
        user.communicate("")
    assert store.has(digest)
    store.collect(unused=0, min_age=0, now=time.time() + DAY)
    assert not store.has(digest)


def test_a_store_that_cannot_be_made_is_no_obstacle() -> None:
    default_store({"BUILDER_STORE": "/proc/none"})
