"""Wheel archives as they are, and those that would harm whoever installs them."""

from __future__ import annotations

import hashlib
import io
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.errors import BadInput
from builder.wheels.archive import DEFLATED, STORED, UnsafeWheel, WheelArchive
from tests.image.wheels import zstd_member
from tests.lock.indexes import make_wheel

NAME = "thing-1.0-py3-none-any.whl"


def noise(seed: int, length: int) -> bytes:
    """Bytes that do not compress, the same every time."""
    return hashlib.shake_256(bytes([seed])).digest(length)


def entry(name: str, *, mode: int = 0o644, kind: int = stat.S_IFREG, method: int = DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = (kind | mode) << 16
    info.compress_type = method
    return info


def archive(folder: Path, *members: tuple[zipfile.ZipInfo, bytes]) -> Path:
    path = folder / NAME
    with zipfile.ZipFile(path, "w") as target:
        for info, data in members:
            target.writestr(info, data)
    return path


def patched(path: Path, old: bytes, new: bytes) -> Path:
    data = path.read_bytes()
    assert len(old) == len(new)
    assert old in data
    path.write_bytes(data.replace(old, new))
    return path


def test_members_are_read_whole(tmp_path: Path) -> None:
    big = noise(1, 3_000_000) + bytes(3_000_000)
    path = archive(
        tmp_path,
        (entry("thing/a.py", mode=0o755), b"print()\n"),
        (entry("thing/big.bin"), big),
        (entry("thing/plain.bin", method=STORED), big[:100]),
        (entry("thing/empty"), b""),
    )
    with WheelArchive.open(path) as wheel:
        assert [member.name for member in wheel.members] == [
            *("thing/a.py", "thing/big.bin", "thing/plain.bin", "thing/empty"),
        ]
        first, second, third, last = wheel.members
        assert first.executable
        assert not second.executable
        assert wheel.read(second) == big
        assert wheel.read(third) == big[:100]
        assert wheel.read(last) == b""
        assert max(len(piece) for piece in wheel.stream(second, chunk=10_000)) <= 10_000
        raw = wheel.raw(second)
        assert zlib.decompress(raw, -15) == big
        raw.release()


def test_metadata_is_found_by_the_wheels_own_name(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "some-thing", "1.0", requires=["torch", "numpy>=2; python_version>'3'"])
    with WheelArchive.open(path) as wheel:
        assert wheel.dist_info == "some_thing-1.0.dist-info"
        assert wheel.metadata()["requires_dist"] == ["torch", "numpy>=2; python_version>'3'"]


def test_bytes_behind_a_deflate_stream_do_not_pass(tmp_path: Path) -> None:
    content = noise(5, 2000)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = packer.compress(content) + packer.flush() + b"hidden"
    path = archive(tmp_path, (entry("thing/x", method=STORED), stream))
    sizes = struct.pack("<LLL", zlib.crc32(stream), len(stream), len(stream))
    patched(path, sizes, struct.pack("<LLL", zlib.crc32(content), len(stream), len(content)))
    raw = bytearray(path.read_bytes())
    raw[8] = DEFLATED
    raw[raw.index(b"PK\x01\x02") + 10] = DEFLATED
    path.write_bytes(bytes(raw))
    with WheelArchive.open(path) as wheel, pytest.raises(UnsafeWheel, match="damaged"):
        wheel.read(wheel.members[0])


def test_the_file_name_can_be_given_for_a_blob(tmp_path: Path) -> None:
    blob = tmp_path / "0123"
    make_wheel(tmp_path, "thing", "1.0").rename(blob)
    with WheelArchive.open(blob, filename=NAME) as wheel:
        assert wheel.metadata()["name"] == "thing"
    with pytest.raises(BadInput, match="not a wheel"):
        WheelArchive.open(blob)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        WheelArchive.open(tmp_path / NAME)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all" * 100])
def test_what_is_no_zip_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(UnsafeWheel, match="damaged"):
        WheelArchive.open(tmp_path / NAME)


def test_a_truncated_wheel_is_damaged(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "thing", "1.0", files={"thing/x": bytes(1000)})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UnsafeWheel):
        WheelArchive.open(path)


def test_flipped_bytes_do_not_pass(tmp_path: Path) -> None:
    data = noise(2, 5000)
    path = archive(tmp_path, (entry("thing/x", method=STORED), data))
    patched(path, data[100:110], bytes(10))
    with WheelArchive.open(path) as wheel, pytest.raises(UnsafeWheel) as caught:
        wheel.read(wheel.members[0])
    assert "thing/x" in caught.value.why


def test_broken_deflate_does_not_pass(tmp_path: Path) -> None:
    path = archive(tmp_path, (entry("thing/x"), b"hello " * 1000))
    with WheelArchive.open(path) as wheel:
        offset, length = wheel.members[0].offset, wheel.members[0].compressed_size
    data = bytearray(path.read_bytes())
    data[offset : offset + length] = b"\xff" * length
    path.write_bytes(bytes(data))
    with WheelArchive.open(path) as wheel, pytest.raises(UnsafeWheel, match="damaged"):
        wheel.read(wheel.members[0])


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a//bcd",
        "./abc",
        "../abc/",
        "a/../../x",
        "/etc/passwd",
        "a/..",
        "..",
        "a\\..\\x",
        "thing/\0x",
        ".",
        "C:/x/../y",
    ],
)
def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    placeholder = "q" * len(name)
    path = patched(archive(tmp_path, (entry(placeholder), b"x")), placeholder.encode(), name.encode())
    with pytest.raises(UnsafeWheel) as caught:
        WheelArchive.open(path)
    assert caught.value.exit_code == 2
    with WheelArchive.open(path, inspect=True) as wheel:
        assert len(wheel.faults) >= 1


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_members_that_are_no_plain_files_are_refused(tmp_path: Path, kind: int) -> None:
    path = archive(tmp_path, (entry("thing/link", kind=kind, mode=0o777), b"/etc/passwd"))
    with pytest.raises(UnsafeWheel, match="not a plain file"):
        WheelArchive.open(path)
    with WheelArchive.open(path, inspect=True) as wheel:
        assert wheel.members[0].symlink == (kind == stat.S_IFLNK)


def test_folders_are_no_members(tmp_path: Path) -> None:
    path = archive(tmp_path, (entry("thing/", kind=stat.S_IFDIR, mode=0o755), b""), (entry("thing/x"), b"x"))
    with WheelArchive.open(path) as wheel:
        assert [member.name for member in wheel.members] == ["thing/x"]


def test_a_member_that_promises_too_much_is_a_bomb(tmp_path: Path) -> None:
    path = archive(tmp_path, (entry("thing/bomb"), bytes(1000)))
    size = struct.pack("<L", 1000)
    patched(path, size, struct.pack("<L", 4_000_000_000))
    with pytest.raises(UnsafeWheel, match="zip bomb"):
        WheelArchive.open(path)


def test_a_member_that_holds_more_than_it_says_is_cut_off(tmp_path: Path) -> None:
    path = archive(tmp_path, (entry("thing/long"), bytes(50_000_000)))
    patched(path, struct.pack("<L", 50_000_000), struct.pack("<L", 40_000_000))
    got: list[int] = []

    def consume(pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            got.append(len(piece))  # noqa: PERF401 (what came before the error counts)

    with WheelArchive.open(path) as wheel, pytest.raises(UnsafeWheel, match="damaged"):
        consume(wheel.stream(wheel.members[0]))
    assert sum(got) <= 40_000_000


def test_overlapping_members_are_a_bomb(tmp_path: Path) -> None:
    data = noise(3, 2000)
    path = archive(tmp_path, (entry("thing/a", method=STORED), data), (entry("thing/b", method=STORED), data))
    raw = path.read_bytes()
    second = raw.rindex(b"PK\x01\x02")
    # the second entry of the directory now points at the first member's local header
    path.write_bytes(raw[: second + 42] + struct.pack("<L", 0) + raw[second + 46 :])
    with pytest.raises(UnsafeWheel, match="overlaps"):
        WheelArchive.open(path)


def test_a_member_beyond_the_end_is_damaged(tmp_path: Path) -> None:
    path = archive(tmp_path, (entry("thing/a", method=STORED), bytes(1000)))
    patched(path, struct.pack("<LL", 1000, 1000), struct.pack("<LL", 900_000, 900_000))
    with pytest.raises(UnsafeWheel, match="beyond the file"):
        WheelArchive.open(path)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, (entry("thing/a"), b"x" * 100))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(UnsafeWheel, match="encrypted"):
        WheelArchive.open(path)


def test_of_two_members_with_one_name_the_last_is_installed(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(tmp_path, (entry("thing/a"), b"first"), (entry("thing/b"), b"b"), (entry("thing/a"), b"last"))
    with WheelArchive.open(path) as wheel:
        assert wheel.duplicates == ("thing/a",)
        found = wheel.get("thing/a")
        assert found is not None
        assert wheel.read(found) == b"last"


def test_data_descriptors_are_understood(tmp_path: Path) -> None:
    """Written to a pipe, zip puts sizes and CRC behind the data (APPNOTE 4.3.9)."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, piece: object) -> int:
            self.data += bytes(piece)  # type: ignore[call-overload]
            return len(bytes(piece))  # type: ignore[call-overload]

    pipe = Pipe()
    content = b"streamed " * 5000
    with zipfile.ZipFile(pipe, "w") as target:
        target.writestr(entry("thing/a"), content)
        target.writestr(entry("thing/b"), b"second")
    path = tmp_path / NAME
    path.write_bytes(bytes(pipe.data))
    with WheelArchive.open(path) as wheel:
        assert [wheel.read(member) for member in wheel.members] == [content, b"second"]


def test_zip64_is_understood(tmp_path: Path) -> None:
    content = b"large " * 10_000
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w") as target, target.open(entry("thing/a"), "w", force_zip64=True) as file:
        file.write(content)
    with WheelArchive.open(path) as wheel:
        (member,) = wheel.members
        assert member.size == len(content)
        assert wheel.read(member) == content


def test_bzip2_and_lzma_members_are_read(tmp_path: Path) -> None:
    path = archive(
        tmp_path,
        (entry("thing/a", method=zipfile.ZIP_BZIP2), b"a" * 9999),
        (entry("thing/b", method=zipfile.ZIP_LZMA), b"b" * 9999),
    )
    with WheelArchive.open(path) as wheel:
        assert [wheel.read(member) for member in wheel.members] == [b"a" * 9999, b"b" * 9999]


def test_zstd_members_are_read_and_damage_in_them_is_found(tmp_path: Path) -> None:
    content = noise(3, 100_000) + bytes(100_000)
    path = archive(tmp_path, (entry("thing/a", method=STORED), content))
    zstd_member(path, content)
    with WheelArchive.open(path) as wheel:
        assert wheel.read(wheel.members[0]) == content
    frame = zstandard.compress(content)
    for spoiled in (frame[:100] + bytes(100) + frame[200:], frame[:-10] + bytes(10)):
        damaged = patched(path, frame, spoiled)
        with WheelArchive.open(damaged) as wheel, pytest.raises(UnsafeWheel, match="is damaged"):
            wheel.read(wheel.members[0])
        patched(path, spoiled, frame)


@pytest.mark.parametrize("folders", [(), ("thing-1.0.dist-info", "Thing-1.0.dist-info"), ("other-1.0.dist-info",)])
def test_a_wheel_has_one_dist_info_of_its_own(tmp_path: Path, folders: tuple[str, ...]) -> None:
    path = archive(tmp_path, *((entry(f"{folder}/METADATA"), b"Name: thing\n") for folder in folders))
    with WheelArchive.open(path) as wheel, pytest.raises(UnsafeWheel, match=r"one \.dist-info"):
        wheel.metadata()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damage_anywhere_is_an_error_or_harmless(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever byte is changed: an `UnsafeWheel`, or a member whose CRC and length still hold."""
    folder = tmp_path_factory.mktemp("fuzz")
    path = make_wheel(folder, "thing", "1.0", files={"thing/x": noise(4, 300) + bytes(300)})
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw))
    try:
        with WheelArchive.open(path) as wheel:
            for member in wheel.members:
                assert len(wheel.read(member)) == member.size
    except UnsafeWheel:
        pass


def test_a_large_wheel_is_read_without_staying_in_memory(tmp_path: Path) -> None:
    """Pages of a mapped file count as this process's memory until they are let go of."""
    size = 96 << 20
    path = tmp_path / "large-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(zipfile.ZipInfo("large/data.bin"), "w") as file:
            for number in range(96):
                file.write(bytes([number]) * (1 << 20))
        archive.writestr("large-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1.0\n")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from builder.wheels.archive import WheelArchive\n"
        "def mapped():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith('RssFile'))\n"
        "with WheelArchive.open(Path(sys.argv[1])) as archive:\n"
        "    member = archive.members[0]\n"
        "    before, read, most = mapped(), 0, 0\n"
        "    for pieces in (archive.stream(member), archive.copied(member)):\n"
        "        for piece in pieces:\n"
        "            read += len(piece)\n"
        "            most = max(most, mapped() - before)\n"
        "    print(read, most)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    read, most = map(int, done.stdout.split())
    assert read == 2 * size
    assert most < 40 << 10, "KiB of the file in memory at once"
