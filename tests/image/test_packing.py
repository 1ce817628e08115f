"""Layers packed in other ways than plain gzip: the same tar, and what each format promises."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from builder.base.values import LockedBase
from builder.errors import BadInput, CannotTell
from builder.events import SilentReporter
from builder.image.buildah import Buildah, assemble_buildah
from builder.image.docker_cli import Docker
from builder.image.estargz import LANDMARK, TOC_ANNOTATION, TOC_NAME, footer
from builder.image.layers import LayerWriter, write_layer
from builder.image.packing import GZIP, Packing, refuse_packing
from builder.image.splice import skeleton_layer, wheel_layer
from builder.image.values import Layer
from builder.matrix.values import RunLine
from builder.names import Digest
from builder.project.values import ImageOptions
from builder.registry.layout import Layout
from builder.registry.values import MediaType
from builder.smoke.docker import DockerRunner
from builder.store import Store
from tests.base.debs import locked_base
from tests.image.bases import ROOTFS, put_image
from tests.image.test_oci import a_plan, build, read_json
from tests.image.test_splice import FILES, POINTS, VENV, listing, unpacked, wheel_file
from tests.image.wheels import build_wheel
from tests.smoke.images import opened

ZSTD = Packing(compression="zstd")
ESTARGZ = Packing(estargz=True)


def a_layer(tmp_path: Path, store: Store, packing: Packing) -> Layer:
    folder = tmp_path / "wheel"
    folder.mkdir(exist_ok=True)
    wheel = build_wheel(folder, files=FILES, entry_points=POINTS)
    return wheel_layer([wheel_file(wheel)], VENV, store, title="test", packing=packing)


def blob(layer: Layer) -> bytes:
    assert layer.path is not None
    data = layer.path.read_bytes()
    assert Digest.of(data) == layer.descriptor.digest
    assert len(data) == layer.descriptor.size
    return data


# zstd


def test_a_zstd_layer_is_the_same_tar(tmp_path: Path, store: Store) -> None:
    plain, packed = a_layer(tmp_path, store, GZIP), a_layer(tmp_path, store, ZSTD)
    assert packed.diff_id == plain.diff_id
    assert packed.descriptor.media_type == MediaType.LAYER_ZSTD
    tar = zstandard.ZstdDecompressor().decompressobj().decompress(blob(packed))
    assert tar == gzip.decompress(blob(plain))
    assert Digest.of(tar) == packed.diff_id
    again = a_layer(tmp_path, Store(tmp_path / "other"), ZSTD)
    assert again.descriptor == packed.descriptor


def test_packings_do_not_share_a_key(tmp_path: Path, store: Store) -> None:
    made = [a_layer(tmp_path, store, packing).descriptor for packing in (GZIP, ZSTD, ESTARGZ)]
    assert len({descriptor.digest for descriptor in made}) == 3
    assert [a_layer(tmp_path, store, packing).descriptor for packing in (GZIP, ZSTD, ESTARGZ)] == made


@pytest.mark.parametrize("size", [0, 1, 4 << 20, (4 << 20) + 1, (9 << 20) + 7])
@pytest.mark.parametrize("packing", [ZSTD, ESTARGZ], ids=["zstd", "estargz"])
def test_files_from_disk_of_any_length(tmp_path: Path, store: Store, packing: Packing, size: int) -> None:
    data = (b"0123456789abcdef" * (size // 16 + 1))[:size]

    def fill(writer: LayerWriter) -> None:
        writer.file("f", io.BytesIO(data), size, mode=0o644)

    plain = write_layer(store, "files", fill)
    packed = write_layer(store, "files", fill, packing=packing)
    assert (packed.diff_id == plain.diff_id) == (packing is ZSTD)
    if packing is ESTARGZ:
        assert read_estargz(packed)["f"] == data


# eStargz


def read_estargz(layer: Layer) -> dict[str, bytes]:
    """Path to content of every regular file, read as a lazy runtime does: footer, table, then single ranges."""
    data = blob(layer)
    tail = data[-51:]
    assert tail[:4] == b"\x1f\x8b\x08\x04"
    assert struct.unpack("<H2sH", tail[10:16]) == (26, b"SG", 22)
    match = re.fullmatch(rb"([0-9a-f]{16})STARGZ", tail[16:38])
    assert match
    assert gzip.decompress(tail) == b""
    start = int(match[1], 16)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data[start:-51]))) as archive:
        (entry,) = archive.getmembers()
        assert entry.name == TOC_NAME
        file = archive.extractfile(entry)
        assert file is not None
        table = file.read()
    assert str(Digest.of(table)) == layer.descriptor.annotations[TOC_ANNOTATION]
    contents = json.loads(table)
    assert contents["version"] == 1
    found: dict[str, bytes] = {}
    for entry in contents["entries"]:
        assert {"name", "type", "mode", "uid", "gid"} <= set(entry)
        if entry["type"] != "reg":
            continue
        found[entry["name"]] = b""
        if "size" in entry:
            member = zlib.decompressobj(31)
            content = member.decompress(data[entry["offset"] :])
            assert member.eof, "one file is one gzip member"
            assert len(content) == entry["size"]
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == entry["chunkDigest"] == entry["digest"]
            found[entry["name"]] = content
    check_against_tar(data, contents["entries"])
    return found


def check_against_tar(data: bytes, entries: list[Mapping[str, Any]]) -> None:
    """The table says of every entry what the tar says."""
    kinds = {"reg": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
        members = archive.getmembers()
    assert members[-1].name == TOC_NAME
    assert len(members) == len(entries) + 1
    for member, entry in zip(members, entries, strict=False):
        assert (member.name, member.type) == (entry["name"].rstrip("/"), kinds[entry["type"]])
        assert entry["name"].endswith("/") == member.isdir()
        told = (entry["mode"], entry["uid"], entry["gid"], entry.get("size", 0), entry.get("linkName", ""))
        assert told == (member.mode, member.uid, member.gid, member.size, member.linkname)
        assert entry["modtime"] == "1980-01-01T00:00:00Z"


def test_an_estargz_layer_gives_every_file_by_its_range(tmp_path: Path, store: Store) -> None:
    layer = a_layer(tmp_path, store, ESTARGZ)
    assert layer.descriptor.media_type == MediaType.LAYER_GZIP
    found = read_estargz(layer)
    assert found[LANDMARK] == b"\x0f"
    assert next(iter(found)) == LANDMARK
    site = "opt/venv/lib/python3.11/site-packages/"
    assert found[f"{site}demo/empty.py"] == b""
    assert found[f"{site}demo/run.so"] == b"\x7fELF" + bytes(100_000)
    tree = listing(unpacked(layer, tmp_path / "lazy"))
    assert set(tree) == set(found) | {TOC_NAME}
    plain = listing(unpacked(a_layer(tmp_path, store, GZIP), tmp_path / "plain"))
    assert {path: told for path, told in tree.items() if path in plain} == plain
    assert set(tree) - set(plain) == {TOC_NAME, LANDMARK}


def test_links_and_folders_are_in_the_table(store: Store) -> None:
    layer = skeleton_layer(VENV, "/usr/bin/python3.11", store, ESTARGZ)
    assert "opt/venv/pyvenv.cfg" in read_estargz(layer)


def test_the_reader_sees_a_changed_file(tmp_path: Path, store: Store) -> None:
    """The digest of each chunk hangs on the manifest, so a registry cannot slip in another file."""
    layer = a_layer(tmp_path, store, ESTARGZ)
    raw = bytearray(blob(layer))
    place = raw.index(b"\x1f\x8b", len(raw) // 2)
    raw[place + 40] ^= 0x10
    forged = tmp_path / "forged"
    forged.write_bytes(raw)
    changed = replace(layer, path=forged, descriptor=replace(layer.descriptor, digest=Digest.of(bytes(raw))))
    with pytest.raises((AssertionError, zlib.error, gzip.BadGzipFile, EOFError)):
        read_estargz(changed)


def test_the_footer_is_the_one_of_the_specification() -> None:
    """Written down byte by byte from docs/estargz.md, "Footer", for offset 0x1234."""
    expected = base64.b64decode("H4sIBAAAAAAA/xoAU0cWADAwMDAwMDAwMDAwMDEyMzRTVEFSR1oBAAD//wAAAAAAAAAA")
    assert footer(0x1234) == expected
    assert len(expected) == 51


# What projects may ask for, and who is told what.


def test_what_does_not_go_together_is_refused() -> None:
    options = ImageOptions(env={}, labels={}, compression="zstd", estargz=True)
    with pytest.raises(BadInput, match="cannot be compressed by zstd"):
        Packing.of(options)
    for wish in (replace(options, estargz=False), replace(options, compression="gzip")):
        with pytest.raises(BadInput, match="the docker engine writes no") as caught:
            refuse_packing(wish, "docker")
        assert "--engine oci" in caught.value.fix
    refuse_packing(replace(options, estargz=False, compression="gzip"), "docker")


@pytest.fixture
def base(tmp_path: Path, store: Store) -> LockedBase:
    return locked_base(tmp_path / "base", store)


@pytest.mark.parametrize("packing", [ZSTD, ESTARGZ], ids=["zstd", "estargz"])
def test_every_layer_of_an_image_is_packed_alike(
    tmp_path: Path, base: LockedBase, store: Store, packing: Packing
) -> None:
    target = Layout(tmp_path / "out")
    plan = a_plan(tmp_path / "project", base)
    plain = build(plan, target, store, tag="plain")
    project = plan.project.with_layers(compression=packing.compression, estargz=packing.estargz)
    built = build(replace(plan, project=project), target, store, tag="packed")
    rows = read_json(target, built.digest)["layers"]
    if packing.estargz:
        assert all(TOC_ANNOTATION in row["annotations"] for row in rows)
        for layer in built.layers:
            read_estargz(layer)
    else:
        assert {row["mediaType"] for row in rows} == {MediaType.LAYER_ZSTD}
        assert [layer.diff_id for layer in built.layers] == [layer.diff_id for layer in plain.layers]


def test_a_lazy_base_stays_lazy(tmp_path: Path, store: Store) -> None:
    """The digest of a base's table belongs to its blob, wherever that lies."""
    from tests.image.test_oci import lock

    vendor = Layout(tmp_path / "vendor")
    manifest = put_image(vendor, store, [ROOTFS])
    document = json.loads(manifest.raw)
    document["layers"][0]["annotations"] = {TOC_ANNOTATION: str(Digest.of(b"table")), "org.example.note": "gone"}
    from builder.registry.manifests import canonical_json
    from builder.registry.values import Manifest

    vendor.put_manifest(Manifest(manifest.media_type, canonical_json(document)), tag="base")
    base = lock(vendor, store)
    target = Layout(tmp_path / "out")
    built = build(a_plan(tmp_path / "project", base), target, store)
    assert read_json(target, built.digest)["layers"][0]["annotations"] == {TOC_ANNOTATION: str(Digest.of(b"table"))}


@pytest.mark.docker
def test_an_engine_that_cannot_read_zstd_is_told_before_it_tries(
    tmp_path: Path, base: LockedBase, store: Store, docker_host: str
) -> None:
    target = Layout(tmp_path / "out")
    plan = a_plan(tmp_path / "project", base)
    build(replace(plan, project=plan.project.with_layers(compression="zstd", estargz=None)), target, store)
    docker = Docker.find({**os.environ, "DOCKER_HOST": docker_host})
    old = replace(docker, versions=replace(docker.versions, server="20.10.24+dfsg1"))
    assert not old.versions.reads_zstd
    assert replace(docker.versions, server="23.0.1").reads_zstd
    image = opened(target, "1.0")
    with (
        pytest.raises(CannotTell, match="cannot be run by this Docker Engine") as caught,
        DockerRunner(docker=old, reporter=SilentReporter()).open(image, run=RunLine()),
    ):
        pass
    assert "--runner builtin" in caught.value.fix


def test_the_other_engines_refuse_before_anything_is_fetched(tmp_path: Path, base: LockedBase, store: Store) -> None:
    plan = a_plan(tmp_path / "project", base)
    lazy = replace(plan, project=plan.project.with_layers(compression=None, estargz=True))
    with pytest.raises(BadInput, match="the buildah engine writes no eStargz layers"):
        assemble_buildah(
            lazy,
            buildah=Buildah.find(dict(os.environ)),
            target=Layout(tmp_path / "out"),
            tag="1",
            store=store,
            reporter=SilentReporter(),
        )


@pytest.mark.network
@pytest.mark.parametrize("packing", [ZSTD, ESTARGZ], ids=["zstd", "estargz"])
def test_a_real_wheel_in_every_packing(tmp_path: Path, store: Store, packing: Packing) -> None:
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps"]
    subprocess.run([*pip, "--only-binary=:all:", "-d", str(wheels), "greenlet==3.2.4"], check=True)
    (path,) = wheels.iterdir()
    plain = wheel_layer([wheel_file(path)], VENV, store, title="greenlet")
    packed = wheel_layer([wheel_file(path)], VENV, store, title="greenlet", packing=packing)
    if packing is ESTARGZ:
        assert len(read_estargz(packed)) > 50
    else:
        assert packed.diff_id == plain.diff_id
        assert packed.descriptor.size < plain.descriptor.size
