"""Unpacking layers: what they may say, and what they must not do."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from builder.errors import BadInput, CannotTell
from builder.names import Digest
from builder.registry.layout import Layout
from builder.registry.values import Descriptor, MediaType
from builder.smoke.rootfs import open_layer, unpack_layer
from builder.store import CorruptBlob
from tests.smoke.images import entry, tar_of, write_image

DIR, SYM, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def unpack(root: Path, *layers: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    root.mkdir(exist_ok=True)
    for layer in layers:
        unpack_layer(io.BytesIO(tar_of(layer).tar), root)
    return root


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_files_links_and_modes(tmp_path: Path) -> None:
    root = unpack(
        tmp_path / "root",
        [
            entry("usr/bin", kind=DIR, mode=0o755),
            entry("bin", kind=SYM, link="usr/bin"),
            entry("bin/tool", b"#!", mode=0o4755),
            entry("usr/bin/same", kind=HARD, link="bin/tool"),
            entry("./deep/er/file", b"x", mode=0o000),
            entry("dev/null", kind=tarfile.CHRTYPE),
        ],
    )
    assert (root / "usr/bin/tool").read_bytes() == b"#!"
    assert (root / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (root / "usr/bin/same").samefile(root / "usr/bin/tool")
    assert (root / "deep/er/file").stat().st_mode & 0o777 == 0o400
    assert not (root / "dev/null").exists()


def test_whiteouts_remove_what_lower_layers_brought(tmp_path: Path) -> None:
    root = unpack(
        tmp_path / "root",
        [entry("a/one", b"1"), entry("a/two", b"2"), entry("b/old", b"3"), entry("gone/file", b"4")],
        [
            entry("a/.wh.one"),
            entry("b/new", b"5"),
            entry("b/.wh..wh..opq"),
            entry(".wh.gone"),
            entry(".wh.never-there"),
        ],
    )
    assert names(root) == ["a", "a/two", "b", "b/new"]


def test_an_entry_replaces_one_of_another_kind(tmp_path: Path) -> None:
    root = unpack(
        tmp_path / "root",
        [entry("x/file", b"1"), entry("y", b"2"), entry("z", kind=SYM, link="/outside")],
        [entry("x", b"now a file"), entry("y", kind=DIR, mode=0o755), entry("z", kind=DIR, mode=0o755)],
    )
    assert (root / "x").read_bytes() == b"now a file"
    assert (root / "y").is_dir()
    assert (root / "z").is_dir()
    assert not (root / "z").is_symlink()


@pytest.mark.parametrize(
    "layer",
    [
        [entry("../escaped", b"x")],
        [entry("a/../../escaped", b"x")],
    ],
)
def test_names_that_climb_are_refused(tmp_path: Path, layer: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with pytest.raises(BadInput, match="outside"):
        unpack(tmp_path / "root", layer)
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("target", ["/", "..", "../..", "/../../..", "{tmp}"])
def test_links_lead_nowhere_but_into_the_image(tmp_path: Path, target: str) -> None:
    link = target.format(tmp=tmp_path)
    root = unpack(
        tmp_path / "root",
        [entry("out", kind=SYM, link=link), entry("out/escaped", b"x"), entry("/rooted", b"y")],
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]
    assert (root / "rooted").exists()
    assert [path for path in root.rglob("escaped") if path.is_file()]


def test_a_hard_link_cannot_take_a_file_of_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    with pytest.raises(BadInput, match="hard link"):
        unpack(
            tmp_path / "root",
            [entry("up", kind=SYM, link=".."), entry("taken", kind=HARD, link="up/secret")],
        )


def test_a_loop_of_links_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="loop"):
        unpack(tmp_path / "root", [entry("a", kind=SYM, link="b"), entry("b", kind=SYM, link="a"), entry("a/x", b"")])


def test_a_layer_cut_short_is_refused(tmp_path: Path) -> None:
    tar = tar_of([entry("file", b"x" * 100_000), entry("more", b"y" * 50_000)]).tar
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(BadInput):
        unpack_layer(io.BytesIO(tar[: len(tar) // 2]), root)


def _layer(layout: Layout, data: bytes, media_type: str = MediaType.LAYER_GZIP) -> Descriptor:
    descriptor = Descriptor(media_type=media_type, digest=Digest.of(data), size=len(data))
    layout.put_blob(descriptor, lambda: iter([data]))
    return descriptor


def test_gzip_of_many_members_is_one_stream(tmp_path: Path) -> None:
    import gzip

    tar = tar_of([entry("file", b"x" * 3_000_000)]).tar
    parts = [gzip.compress(tar[at : at + 700_001]) for at in range(0, len(tar), 700_001)]
    layout = Layout(tmp_path / "layout")
    counted: list[int] = []
    with open_layer(layout, _layer(layout, b"".join(parts)), counted.append) as stream:
        assert stream.read() == tar
    assert sum(counted) == sum(map(len, parts))
    with pytest.raises(EOFError), open_layer(layout, _layer(layout, b"".join(parts)[:-4]), counted.append) as stream:
        stream.read()


def test_plain_and_unknown_layers(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    tar = tar_of([entry("file", b"x")]).tar
    with open_layer(layout, _layer(layout, tar, MediaType.LAYER_TAR), lambda _, /: None) as stream:
        assert stream.read() == tar
    frames = b"".join(zstandard.compress(part) for part in (tar[:700], tar[700:]))
    with open_layer(layout, _layer(layout, frames, MediaType.LAYER_ZSTD), lambda _, /: None) as stream:
        assert stream.read() == tar
    with pytest.raises(CannotTell, match="encrypted"):
        open_layer(layout, _layer(layout, b"?", "application/vnd.oci.image.layer.v1.tar+encrypted"), lambda _, /: None)


def test_a_gzip_stream_that_does_not_decode_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    data = bytearray(tar_of([entry("file", os.urandom(200_000))]).gzip)
    data[100_000:100_040] = bytes(40)
    root = tmp_path / "root"
    root.mkdir()
    layer = _layer(layout, bytes(data))
    with pytest.raises(BadInput, match="unpacked"), open_layer(layout, layer, lambda _, /: None) as stream:
        unpack_layer(stream, root)


def test_a_damaged_blob_is_noticed(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    write_image(layout, [tar_of([entry("file", b"x")])])
    layer = _layer(layout, tar_of([entry("file", b"y")]).gzip)
    path = layout.blob_path(layer.digest)
    path.chmod(0o644)
    path.write_bytes(tar_of([entry("file", b"z")]).gzip)
    (tmp_path / "root").mkdir()
    with pytest.raises(CorruptBlob), open_layer(layout, layer, lambda _, /: None) as stream:
        unpack_layer(stream, tmp_path / "root")
