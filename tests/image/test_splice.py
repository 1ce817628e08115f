"""Spliced layers hold what the installer program writes, and copy what the wheel compressed."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.image.install import Venv
from builder.image.layers import LayerWriter, write_layer
from builder.image.splice import WheelFile, skeleton_layer, wheel_layer
from builder.image.values import Layer
from builder.names import Digest
from builder.store import NoRoom, Store
from builder.wheels.archive import UnsafeWheel
from tests.image.test_install import run_program
from tests.image.wheels import File, build_wheel, zstd_member

VENV = Venv(root="/opt/venv", python="3.11")
NOISE = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(10_000))


def wheel_file(path: Path) -> WheelFile:
    return WheelFile(
        file=path.name, name=path.name.split("-")[0], path=path, sha256=Digest.of_file(path), title=path.name
    )


def splice(paths: Sequence[Path], store: Store, venv: Venv = VENV) -> Layer:
    return wheel_layer([wheel_file(path) for path in paths], venv, store, title="test")


def unpacked(layer: Layer, root: Path) -> Path:
    assert layer.path is not None
    with tarfile.open(layer.path) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # Pythons before 3.11.4 have no filters
        archive.extractall(root)  # noqa: S202 - made here
    return root


def listing(root: Path) -> dict[str, tuple[int, str]]:
    """Path to permission bits and content."""
    found = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[path.relative_to(root).as_posix()] = (0, f"-> {path.readlink()}")
        elif path.is_file():
            data = hashlib.sha256(path.read_bytes()).hexdigest()
            found[path.relative_to(root).as_posix()] = (path.stat().st_mode & 0o7777, data)
    return found


def check_digests(layer: Layer) -> bytes:
    """The layer's tar, after both digests were computed again by other means."""
    assert layer.path is not None
    blob = layer.path.read_bytes()
    assert Digest.of(blob) == layer.descriptor.digest
    assert len(blob) == layer.descriptor.size
    with gzip.open(layer.path) as stream:  # gzip.decompress copies all that is left for each of thousands of members
        tar = stream.read()
    assert Digest.of(tar) == layer.diff_id
    assert len(tar) % 512 == 0
    return tar


FILES: dict[str, bytes | File] = {
    "demo/__init__.py": b"x = 1\n" * 1000,
    "demo/empty.py": b"",
    "demo/noise.bin": NOISE,
    "demo/stored.bin": File(NOISE, method=zipfile.ZIP_STORED),
    "demo/stored-empty": File(b"", method=zipfile.ZIP_STORED),
    "demo/bz.bin": File(NOISE[:70_000], method=zipfile.ZIP_BZIP2),
    "demo/lzma.bin": File(NOISE[:70_000], method=zipfile.ZIP_LZMA),
    "demo/run.so": File(b"\x7fELF" + bytes(100_000), 0o755),
    "demo/" + "deep/" * 40 + "file.py": b"deep",
    "demo-1.0.data/scripts/tool": File(b"#!python\nprint(1)\n", 0o755),
    "demo-1.0.data/data/etc/demo.conf": b"conf",
}
POINTS = "[console_scripts]\ndemo = demo:main\n"


@pytest.mark.parametrize("streamed", [False, True], ids=["sizes in headers", "data descriptors"])
def test_a_spliced_layer_is_the_tree_that_the_program_installs(tmp_path: Path, store: Store, streamed: bool) -> None:
    wheel = build_wheel(tmp_path, files=FILES, entry_points=POINTS, streamed=streamed)
    layer = splice([wheel], store)
    check_digests(layer)
    ours = listing(unpacked(layer, tmp_path / "layer") / "opt/venv")
    skeleton = listing(unpacked(skeleton_layer(VENV, "/usr/bin/python3.11", store), tmp_path / "skeleton") / "opt/venv")
    assert ours | skeleton == listing(run_program(tmp_path, [wheel]))
    assert len(ours) > len(FILES)


def test_zstd_members_are_written_as_stored_blocks(tmp_path: Path, store: Store) -> None:
    """No standard library before 3.14 reads them, so only this engine can install such a wheel."""
    wheel = build_wheel(tmp_path, files={"demo/zstd.bin": File(NOISE, method=zipfile.ZIP_STORED)}, record=False)
    zstd_member(wheel, NOISE)
    layer = splice([wheel], store)
    check_digests(layer)
    root = unpacked(layer, tmp_path / "layer")
    assert (root / "opt/venv/lib/python3.11/site-packages/demo/zstd.bin").read_bytes() == NOISE


def test_zip64_members_are_spliced(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"demo.py": b"z" * 5000, "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\n"}.items():
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(data)
    tree = unpacked(splice([path], store), tmp_path / "layer")
    assert (tree / "opt/venv/lib/python3.11/site-packages/demo.py").read_bytes() == b"z" * 5000


def test_deflate_streams_are_copied_unchanged(tmp_path: Path, store: Store) -> None:
    data = b"".join(b"%d squared is %d\n" % (i, i * i) for i in range(20_000))
    wheel = build_wheel(tmp_path, files={"demo/table.txt": data})
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo("demo/table.txt")
    raw = wheel.read_bytes()
    stream = raw[info.header_offset + 30 + len("demo/table.txt") :][: info.compress_size]
    layer = splice([wheel], store)
    assert layer.path is not None
    assert stream in layer.path.read_bytes()
    assert layer.descriptor.size < len(raw) + 3000


def test_a_stream_with_bytes_behind_its_end_is_refused(tmp_path: Path, store: Store) -> None:
    """Zip readers ignore what follows the final block; in a layer it would be read as the next gzip member."""
    data = b"payload " * 500
    path = build_wheel(tmp_path, files={"demo/x.py": File(data)})
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = deflater.compress(data) + deflater.flush()
    assert stream in path.read_bytes()
    _replace_stream(path, stream, stream + b"garbage")
    with zipfile.ZipFile(path) as archive:
        assert archive.read("demo/x.py") == data
    with pytest.raises(UnsafeWheel, match="is damaged"):
        splice([path], store)


def _replace_stream(path: Path, old: bytes, new: bytes) -> None:
    """Write the archive again with one member's compressed bytes and compressed size changed."""
    with zipfile.ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    out = io.BytesIO()
    central = []
    for info, data in members:
        name = info.filename.encode()
        deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
        stream = deflater.compress(data) + deflater.flush()
        stream = new if stream == old else stream
        fields = (20, 0, 8, 0, 0x21, zlib.crc32(data), len(stream), len(data), len(name), 0)
        central.append((fields, out.tell(), name))
        out.write(struct.pack("<4s5H3L2H", b"PK\x03\x04", *fields) + name + stream)
    start = out.tell()
    for fields, offset, name in central:
        record = (0x314, *fields[:10], 0, 0, 0, 0o100644 << 16, offset)
        out.write(struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *record) + name)
    size = out.tell() - start
    end = (0, 0, len(central), len(central), size, start, 0)
    out.write(struct.pack("<4s4H2LH", b"PK\x05\x06", *end))
    path.write_bytes(out.getvalue())


def test_damage_is_found_before_the_layer_has_a_name(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files={"demo/noise.bin": NOISE})
    raw = bytearray(wheel.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    wheel.write_bytes(raw)
    with pytest.raises(UnsafeWheel, match="is damaged"):
        splice([wheel], store)
    assert not list((store.root / "tmp").iterdir())
    assert not (store.root / "sha256").exists()


def test_a_wheel_without_a_rule_for_a_member_is_refused_by_name(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files={"demo-1.0.data/attic/x": b""})
    with pytest.raises(UnsafeWheel) as caught:
        splice([wheel], store)
    assert caught.value.what == "demo-1.0-py3-none-any.whl cannot be installed"
    assert "'attic'" in caught.value.why


def test_layers_do_not_depend_on_place_store_or_neighbours(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files=FILES, entry_points=POINTS)
    other = tmp_path / "some where else"
    other.mkdir()
    copy = other / wheel.name
    copy.write_bytes(wheel.read_bytes())
    first = splice([wheel], store)
    second = splice([copy], Store(other / "store"))
    assert (first.descriptor, first.diff_id) == (second.descriptor, second.diff_id)


def test_a_layer_made_before_is_not_made_again(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files={"demo.py": b"1"})
    first = splice([wheel], store)
    wheel_again = wheel_file(wheel)
    wheel.unlink()
    again = wheel_layer([wheel_again], VENV, store, title="test")
    assert again == first
    assert first.path is not None
    first.path.unlink()
    with pytest.raises(Exception, match="no such file"):
        wheel_layer([wheel_again], VENV, store, title="test")


def test_wheels_of_one_layer_share_directories_and_leave_out_what_a_later_one_brings(
    tmp_path: Path, store: Store
) -> None:
    one = build_wheel(tmp_path, "one", files={"shared/README": b"1", "one.py": b""})
    two = build_wheel(tmp_path, "two", files={"shared/README": b"2"})
    left_out = {one.name: frozenset({"lib/python3.11/site-packages/shared/README"})}
    layer = wheel_layer([wheel_file(one), wheel_file(two)], VENV, store, title="2", left_out=left_out)
    with tarfile.open(fileobj=io.BytesIO(check_digests(layer))) as archive:
        names = archive.getnames()
    assert len(names) == len(set(names))
    tree = unpacked(layer, tmp_path / "layer")
    assert (tree / "opt/venv/lib/python3.11/site-packages/shared/README").read_bytes() == b"2"


def test_directories_precede_their_files(tmp_path: Path, store: Store) -> None:
    layer = splice([build_wheel(tmp_path, files=FILES)], store)
    with tarfile.open(fileobj=io.BytesIO(check_digests(layer))) as archive:
        seen = {"opt"}
        for entry in archive:
            assert entry.name.rpartition("/")[0] in seen, entry.name
            assert entry.mode == 0o755 or entry.isreg()
            seen.add(entry.name)


def test_files_from_disk_of_any_length(tmp_path: Path, store: Store) -> None:
    sizes = [0, 1, 511, 512, 4 << 20, (4 << 20) + 1, (9 << 20) + 7]

    def fill(writer: LayerWriter) -> None:
        for size in sizes:
            path = tmp_path / str(size)
            path.write_bytes((NOISE * 32)[:size])
            with path.open("rb") as file:
                writer.file(f"f{size}", file, size, mode=0o644)

    tree = unpacked(write_layer(store, "files", fill), tmp_path / "layer")
    for size in sizes:
        assert (tree / f"f{size}").read_bytes() == (NOISE * 32)[:size]


@pytest.mark.parametrize("size", [10, 5 << 20])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_that_changes_while_it_is_read_stops_the_build(
    tmp_path: Path, store: Store, size: int, change: int
) -> None:
    path = tmp_path / "growing"
    path.write_bytes(bytes(size))

    def fill(writer: LayerWriter) -> None:
        with path.open("rb") as file:
            writer.file("growing", file, size + change, mode=0o644)

    with pytest.raises(Exception, match="growing changed while it was read"):
        write_layer(store, "files", fill)
    assert not list((store.root / "tmp").iterdir())


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, full_disk: Path) -> None:
    wheel = build_wheel(tmp_path, files={f"demo/{number}.bin": NOISE for number in range(8)})
    small = Store(full_disk / "store")
    with pytest.raises(NoRoom, match="disk full"):
        splice([wheel], small)
    assert [path for path in small.root.rglob("*") if path.is_file()] == []
