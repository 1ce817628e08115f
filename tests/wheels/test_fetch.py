"""The wheelhouse: verified, resumable, and never a wrong or half file under a digest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.errors import OutsideFailed
from builder.events import SilentReporter
from builder.names import Digest
from builder.store import CorruptBlob, NoRoom, Store
from builder.wheels.archive import UnsafeWheel, WheelArchive
from builder.wheels.fetch import MissingWheels, fetch, receive, sound_wheels
from builder.wheels.settings import IndexSettings
from builder.wheels.transport import IndexUnreachable, open_client
from builder.wheels.values import Wheelhouse, WheelSource
from tests.lock.indexes import Index, make_wheel, serving


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    file: str
    sha256: Digest
    url: str
    size: int | None


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(Index()) as served:
        yield served


@pytest.fixture
def wheel(tmp_path: Path, index: Index) -> Path:
    """Three MiB that do not compress, offered by the index."""
    return index.add(make_wheel(tmp_path / "files", "heavy", "1.0", files={"heavy/data": os.urandom(3 << 20)}))


def wanted(index: Index, path: Path, *, size: bool = True) -> Wanted:
    return Wanted(
        file=path.name,
        sha256=Digest.of_file(path),
        url=index.file_url(path),
        size=path.stat().st_size if size else None,
    )


def fetch_all(
    store: Store, *wheels: WheelSource, offline: bool = False, environ: dict[str, str] | None = None
) -> Wheelhouse:
    return fetch(
        wheels, store, reporter=SilentReporter(), settings=IndexSettings(), environ=environ or {}, offline=offline
    )


def partials(store: Store) -> list[Path]:
    """Files of unfinished downloads; what is remembered about them is gone when they are."""
    found = sorted((store.root / "tmp").glob("*.part"))
    assert [path.stem for path in sorted((store.root / "tmp").glob("*.etag"))] in ([], [path.name for path in found])
    return found


def test_wheels_come_into_the_store_under_their_digest(store: Store, index: Index, wheel: Path) -> None:
    small = index.add(make_wheel(wheel.parent, "small", "2.0"))
    house = fetch_all(store, wanted(index, wheel), wanted(index, small))
    assert house.files[wheel.name].read_bytes() == wheel.read_bytes()
    assert house.files[small.name] == store.path(Digest.of_file(small))
    assert list((store.root / "tmp").iterdir()) == []


def test_what_is_in_the_store_is_not_fetched_again(store: Store, index: Index, wheel: Path) -> None:
    fetch_all(store, wanted(index, wheel))
    fetch_all(store, wanted(index, wheel))
    assert len(index.fetched(wheel)) == 1


def test_a_copy_that_was_cut_short_in_the_store_is_fetched_again(store: Store, index: Index, wheel: Path) -> None:
    copy = fetch_all(store, wanted(index, wheel)).files[wheel.name]
    copy.chmod(0o644)
    os.truncate(copy, 1000)
    assert fetch_all(store, wanted(index, wheel)).files[wheel.name].read_bytes() == wheel.read_bytes()


def test_a_copy_that_was_changed_in_the_store_is_told_and_removed(store: Store, index: Index, wheel: Path) -> None:
    asked = wanted(index, wheel)
    copy = fetch_all(store, asked).files[wheel.name]
    with pytest.raises(UnsafeWheel, match="of its own"), sound_wheels([asked], store):
        raise UnsafeWheel("a fault of its own")
    assert copy.is_file()
    copy.chmod(0o644)
    copy.write_bytes(bytes(asked.size or 0))
    with pytest.raises(CorruptBlob, match="heavy") as caught, sound_wheels([asked], store):
        WheelArchive.open(copy, filename=wheel.name)
    assert "run again" in caught.value.fix
    assert fetch_all(store, asked).files[wheel.name].read_bytes() == wheel.read_bytes()


def test_offline_uses_the_store_alone_and_names_what_is_missing(store: Store, index: Index, wheel: Path) -> None:
    small = index.add(make_wheel(wheel.parent, "small", "2.0"))
    fetch_all(store, wanted(index, small))
    before = len(index.requests)
    with pytest.raises(MissingWheels) as caught:
        fetch_all(store, wanted(index, wheel), wanted(index, small), offline=True)
    assert wheel.name in caught.value.why
    assert small.name not in caught.value.why
    assert "1 of 2 wheels" in caught.value.what
    assert len(index.requests) == before
    assert fetch_all(store, wanted(index, small), offline=True).files.keys() == {small.name}


def test_a_broken_connection_is_taken_up_where_it_broke(store: Store, index: Index, wheel: Path) -> None:
    index.cut = [1 << 20]
    house = fetch_all(store, wanted(index, wheel))
    assert house.files[wheel.name].read_bytes() == wheel.read_bytes()
    first, second = index.fetched(wheel)
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) <= 1 << 20


def test_a_bad_line_is_borne_as_long_as_it_moves(store: Store, index: Index, wheel: Path) -> None:
    index.cut = [400_000] * 7
    house = fetch_all(store, wanted(index, wheel))
    assert house.files[wheel.name].read_bytes() == wheel.read_bytes()


def test_a_later_process_goes_on_with_the_partial_file(store: Store, index: Index, wheel: Path) -> None:
    index.cut = [1 << 20, 0, 0, 0, 0]
    with pytest.raises(IndexUnreachable):
        fetch_all(store, wanted(index, wheel))
    (partial,) = partials(store)
    have = partial.stat().st_size
    assert have > 0
    fetch_all(store, wanted(index, wheel))
    assert index.fetched(wheel)[-1] == f"bytes={have}-"
    assert partials(store) == []


def test_a_partial_file_of_other_bytes_is_thrown_away(store: Store, index: Index, wheel: Path) -> None:
    digest = Digest.of_file(wheel)
    (store.root / "tmp").mkdir(parents=True)
    (store.root / "tmp" / f"{digest.hex}.whl.part").write_bytes(b"something else" * 1000)
    house = fetch_all(store, wanted(index, wheel))
    assert house.files[wheel.name].read_bytes() == wheel.read_bytes()


def test_a_partial_file_that_is_too_long_is_thrown_away(store: Store, index: Index, wheel: Path) -> None:
    digest = Digest.of_file(wheel)
    (store.root / "tmp").mkdir(parents=True)
    (store.root / "tmp" / f"{digest.hex}.whl.part").write_bytes(wheel.read_bytes() + b"more")
    house = fetch_all(store, wanted(index, wheel))
    assert house.files[wheel.name].read_bytes() == wheel.read_bytes()


def test_a_whole_partial_file_needs_no_second_download(store: Store, index: Index, wheel: Path) -> None:
    digest = Digest.of_file(wheel)
    (store.root / "tmp").mkdir(parents=True)
    (store.root / "tmp" / f"{digest.hex}.whl.part").write_bytes(wheel.read_bytes())
    fetch_all(store, wanted(index, wheel))
    assert index.fetched(wheel) == [f"bytes={wheel.stat().st_size}-"]


def test_a_server_without_ranges_starts_over(store: Store, index: Index, wheel: Path) -> None:
    index.ranges = False
    index.cut = [1 << 20]
    house = fetch_all(store, wanted(index, wheel))
    assert house.files[wheel.name].read_bytes() == wheel.read_bytes()


def test_temporary_refusals_are_tried_again(store: Store, index: Index, wheel: Path) -> None:
    index.fail = [503, 429]
    fetch_all(store, wanted(index, wheel))
    assert len(index.fetched(wheel)) == 3


@pytest.mark.parametrize("status", [400, 404, 410, 501])
def test_other_refusals_are_final(store: Store, index: Index, wheel: Path, status: int) -> None:
    index.fail = [status]
    with pytest.raises(IndexUnreachable) as caught:
        fetch_all(store, wanted(index, wheel))
    assert str(status) in caught.value.why
    assert len(index.fetched(wheel)) == 1


def test_a_swapped_file_is_refused_and_not_kept(store: Store, index: Index, wheel: Path) -> None:
    index.swapped[wheel.name] = b"not the wheel"
    with pytest.raises(CorruptBlob) as caught:
        fetch_all(store, wanted(index, wheel))
    assert str(Digest.of(b"not the wheel")) in caught.value.why
    assert not store.has(Digest.of_file(wheel))
    assert partials(store) == []


def test_one_failure_keeps_what_is_finished(store: Store, index: Index, wheel: Path) -> None:
    small = index.add(make_wheel(wheel.parent, "small", "2.0"))
    gone = Wanted(file="gone-1-py3-none-any.whl", sha256=Digest.of(b"gone"), url=f"{index.url}/nothing", size=1)
    fetch_all(store, wanted(index, small))
    with pytest.raises(IndexUnreachable):
        fetch_all(store, wanted(index, small), gone)
    assert store.has(Digest.of_file(small))


def test_files_are_copied_not_linked(store: Store, tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "files", "near", "1.0")
    mode = path.stat().st_mode
    near = Wanted(file=path.name, sha256=Digest.of_file(path), url=path.as_uri(), size=None)
    house = fetch_all(store, near)
    content = path.read_bytes()
    path.write_bytes(b"changed later")
    assert house.files[path.name].read_bytes() == content
    assert path.stat().st_mode == mode


def test_a_changed_file_in_a_find_links_folder_is_refused(store: Store, tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "files", "near", "1.0")
    near = Wanted(file=path.name, sha256=Digest.of_file(path), url=path.as_uri(), size=None)
    path.write_bytes(b"changed")
    with pytest.raises(CorruptBlob):
        fetch_all(store, near)
    path.unlink()
    with pytest.raises(IndexUnreachable) as caught:
        fetch_all(store, near)
    assert str(path) in caught.value.what


def test_credentials_come_from_netrc_and_are_not_told(store: Store, index: Index, wheel: Path, tmp_path: Path) -> None:
    index.login = ("reader", "s3cret")
    with pytest.raises(IndexUnreachable) as caught:
        fetch_all(store, wanted(index, wheel))
    assert "netrc" in caught.value.fix
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login reader password s3cret\n")
    (tmp_path / "netrc").chmod(0o600)
    fetch_all(store, wanted(index, wheel), environ={"NETRC": str(tmp_path / "netrc")})
    assert store.has(Digest.of_file(wheel))


def test_credentials_of_a_configured_index_are_used_for_its_files(store: Store, index: Index, wheel: Path) -> None:
    index.login = ("reader", "p@ss")
    url = index.url.replace("http://", "http://reader:p%40ss@")
    fetch([wanted(index, wheel)], store, reporter=SilentReporter(), settings=IndexSettings(index_url=url), environ={})
    assert store.has(Digest.of_file(wheel))


def test_no_message_holds_a_password(store: Store, index: Index, wheel: Path) -> None:
    url = index.file_url(wheel).replace("http://", "http://reader:s3cret@")
    index.fail = [404]
    with pytest.raises(OutsideFailed) as caught:
        fetch_all(store, Wanted(file=wheel.name, sha256=Digest.of_file(wheel), url=url, size=None))
    assert "s3cret" not in str(caught.value)


def test_a_full_disk_is_named(full_disk: Path, index: Index, wheel: Path) -> None:
    with pytest.raises(NoRoom) as caught:
        fetch_all(Store(full_disk / "store"), wanted(index, wheel))
    assert str(full_disk) in caught.value.what
    assert not Store(full_disk / "store").has(Digest.of_file(wheel))


def test_an_unknown_digest_is_found_by_hashing(store: Store, index: Index, wheel: Path) -> None:
    index.cut = [1 << 20]
    with open_client(IndexSettings(), {}) as client:
        found = receive(client, index.file_url(wheel), store, digest=None)
    assert found == Digest.of_file(wheel)
    assert store.has(found)


def test_two_processes_fetch_one_wheel_at_a_time(store: Store, index: Index, wheel: Path) -> None:
    found: list[Wheelhouse] = []
    threads = [threading.Thread(target=lambda: found.append(fetch_all(store, wanted(index, wheel)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(index.fetched(wheel)) == 1
    assert partials(store) == []


def test_ctrl_c_leaves_a_partial_file_to_go_on_with(store: Store, index: Index, wheel: Path, tmp_path: Path) -> None:
    script = tmp_path / "fetch.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from pathlib import Path
            from builder.events import SilentReporter
            from builder.store import Store
            from builder.wheels.fetch import fetch
            from builder.wheels.settings import IndexSettings
            from tests.wheels.test_fetch import Wanted
            from builder.names import Digest
            from contextlib import contextmanager

            class Interrupting(SilentReporter):
                # the progress of the first MiB stands for the user's Ctrl-C
                @contextmanager
                def task(self, title, *, total=None, unit="B"):
                    yield lambda amount, /: os.kill(os.getpid(), signal.SIGINT)

            wanted = Wanted(file="x.whl", sha256=Digest.parse(sys.argv[1]), url=sys.argv[2], size=None)
            fetch([wanted], Store(Path(sys.argv[3])), reporter=Interrupting(), settings=IndexSettings(), environ={})
            """
        )
    )
    done = subprocess.run(
        [sys.executable, script, str(Digest.of_file(wheel)), index.file_url(wheel), store.root],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert "KeyboardInterrupt" in done.stderr
    (partial,) = partials(store)
    have = partial.stat().st_size
    assert not store.has(Digest.of_file(wheel))
    fetch_all(store, wanted(index, wheel))
    assert index.fetched(wheel)[-1] == (f"bytes={have}-" if have else None)
