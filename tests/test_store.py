from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.names import Digest
from builder.store import CorruptBlob, NoRoom, Store, default_store, write_atomic


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
    assert default_store({}).root.name == "builder"
