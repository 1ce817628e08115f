"""The small deflate encoder against zlib, and tar headers against tarfile."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.image.gzipstream import compressed, member, pack, stored_blocks
from builder.image.tarstream import END, MTIME, TarKind, header, padding

PIECES = st.lists(st.one_of(st.integers(0, 2000).map(bytes), st.binary(max_size=400)), max_size=6).map(b"".join)


def inflated(stream: bytes) -> bytes:
    """The content of exactly one complete deflate stream."""
    inflater = zlib.decompressobj(-15)
    data = inflater.decompress(stream) + inflater.flush()
    assert inflater.eof
    assert inflater.unused_data == b""
    return data


@given(PIECES)
def test_packed_bytes_inflate_to_themselves(data: bytes) -> None:
    assert inflated(pack(data)) == data


@pytest.mark.parametrize("size", [0, 1, 23, 24, 65535, 65536, 131070, 200000])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (100, 0), (0, 100), (258, 259)])
def test_long_literals_between_runs(size: int, before: int, after: int) -> None:
    data = bytes(before) + b"x" * size + bytes(after)
    assert inflated(pack(data)) == data
    assert inflated(b"".join(stored_blocks(data))) == data


def test_every_length_of_a_run() -> None:
    for count in range(24, 800):
        assert inflated(pack(b"a" + bytes(count) + b"b")) == b"a" + bytes(count) + b"b", count


def test_a_tar_header_shrinks() -> None:
    block = header("opt/venv/lib/python3.11/site-packages/torch/version.py", "file", mode=0o644, size=100)
    assert len(block) == 512
    assert len(member(block)) < 200
    assert gzip.decompress(member(block) + member(b"next")) == block + b"next"


def test_compressed_is_a_plain_deflate_stream() -> None:
    assert inflated(compressed(b"hello " * 100)) == b"hello " * 100


LONG = "d" * 90 + "/" + "f" * 90


@pytest.mark.parametrize(
    ("path", "kind", "link"),
    [
        ("a", "file", ""),
        ("a/b", "directory", ""),
        ("n" * 100, "file", ""),
        ("n" * 100, "directory", ""),
        ("n" * 101, "file", ""),
        (LONG, "file", ""),
        (LONG + "/" + "g" * 90, "file", ""),
        ("p/" + "x" * 200, "file", ""),
        ("grün/日本", "file", ""),
        ("bad\udcff", "file", ""),
        ("link", "symlink", "t" * 150),
        ("link", "symlink", "../grün"),
    ],
)
def test_headers_are_read_back_by_tarfile(path: str, kind: TarKind, link: str) -> None:
    size = 3 if kind == "file" else 0
    data = header(path, kind, mode=0o751, uid=7, gid=8, size=size, link=link)
    data += b"abc" * (size // 3) + padding(size) + END
    assert len(data) % 512 == 0
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as archive:
        (found,) = archive.getmembers()
        assert (found.name, found.linkname, found.mode, found.uid, found.gid) == (path, link, 0o751, 7, 8)
        assert (found.mtime, found.uname, found.size) == (MTIME, "", size)
        assert {"file": found.isreg, "directory": found.isdir, "symlink": found.issym}[kind]()


def test_sizes_beyond_eight_gibibytes_are_written() -> None:
    data = header("big", "file", mode=0o644, size=9 << 30)
    found = tarfile.TarFile.open(fileobj=io.BytesIO(data + END)).next()
    assert found is not None
    assert found.size == 9 << 30
