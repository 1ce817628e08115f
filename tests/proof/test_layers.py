"""A layer is read once, whatever it is compressed with, and damage is told apart from absence."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from builder.names import Digest
from builder.proof.elf import READER, read_object
from builder.proof.layers import LayerIndex, read_files, read_layer
from builder.registry.layers import BadLayer
from builder.registry.layout import Layout
from builder.registry.values import Descriptor, MediaType
from builder.store import CorruptBlob, Store
from tests.proof.trees import Tree, index_of, put_image, tar_of


def members(tar: bytes) -> bytes:
    """One gzip member for each 512-byte block, as layers spliced from wheels have many."""
    return b"".join(gzip.compress(tar[at : at + 512]) for at in range(0, len(tar), 512))


def files(**contents: bytes) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, data in contents.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return raw.getvalue()


class Counting(Layout):
    """A layout that knows how often a blob was read."""

    reads = 0

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        """Count and read."""
        self.reads += 1
        return super().read_blob(digest)


def layers_of(repository: Layout, digest: Digest) -> list[Descriptor]:
    manifest = repository.manifest(digest)
    assert manifest is not None
    return [Descriptor.from_json(layer) for layer in json.loads(manifest.raw)["layers"]]


def read(repository: Layout, layer: Descriptor, store: Store) -> LayerIndex:
    return read_layer(repository, layer, read=read_object, reader=READER, store=store, advance=lambda amount, /: None)


@pytest.mark.parametrize(
    ("compress", "media_type"),
    [
        (gzip.compress, MediaType.LAYER_GZIP),
        (members, MediaType.LAYER_GZIP),
        (lambda tar: zstandard.compress(tar[:1024]) + zstandard.compress(tar[1024:]), MediaType.LAYER_ZSTD),
        (bytes, MediaType.LAYER_TAR),
    ],
    ids=["gzip", "gzip members", "zstd frames", "plain"],
)
def test_every_compression_gives_the_same_index(
    tree: Tree, tmp_path: Path, store: Store, compress: Callable[[bytes], bytes], media_type: str
) -> None:
    tree.write("/app/run", "#!/usr/bin/env python3\n", mode=0o755)
    tar = tar_of(tree.root)
    repository, digest = put_image(tmp_path / "l", [tar], compress=compress, media_type=media_type)
    (layer,) = layers_of(repository, digest)
    found = read(repository, layer, store)
    assert found == index_of(tar)
    assert found.scripts == {"app/run": "/usr/bin/env python3"}
    assert found.objects["lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"].system_dirs[0] == "/lib/x86_64-linux-gnu"


def test_a_layer_is_read_once(tree: Tree, tmp_path: Path, store: Store) -> None:
    _, digest = put_image(tmp_path / "l", [tar_of(tree.root)])
    repository = Counting(tmp_path / "l")
    (layer,) = layers_of(repository, digest)
    first = read(repository, layer, store)
    assert read(repository, layer, store) == first
    assert repository.reads == 1


@pytest.mark.parametrize("keep", [100, -100], ids=["in the header", "in the trailer"])
def test_a_layer_cut_short(tree: Tree, tmp_path: Path, store: Store, keep: int) -> None:
    repository, digest = put_image(tmp_path / "l", [tar_of(tree.root)], compress=lambda tar: gzip.compress(tar)[:keep])
    (layer,) = layers_of(repository, digest)
    with pytest.raises(BadLayer, match=f"cannot read layer {layer.digest}"):
        read(repository, layer, store)


def test_bytes_that_are_no_layer(tmp_path: Path, store: Store) -> None:
    repository, digest = put_image(tmp_path / "l", [b"\0" * 10], compress=lambda tar: b"not compressed at all" * 99)
    (layer,) = layers_of(repository, digest)
    with pytest.raises(BadLayer, match="its media type is"):
        read(repository, layer, store)


def test_nothing_is_remembered_of_a_damaged_blob(tree: Tree, tmp_path: Path, store: Store) -> None:
    # the damage lies behind the end of the tar: only the digest tells
    repository, digest = put_image(tmp_path / "l", [tar_of(tree.root)], compress=bytes, media_type=MediaType.LAYER_TAR)
    (layer,) = layers_of(repository, digest)
    path = repository.blob_path(layer.digest)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    for _ in range(2):
        with pytest.raises(CorruptBlob):
            read(repository, layer, store)


def test_what_only_starts_like_an_elf_file() -> None:
    index = index_of(files(a=b"\x7fELF", b=b"\x7fELF" + b"\xff" * 200, c=b""))
    assert index.objects == {}
    assert [entry.path for entry in index.entries] == ["a", "b", "c"]


def test_python_files_that_load_libraries() -> None:
    index = index_of(
        files(
            **{
                "p__load.py": b"import ctypes\nctypes.CDLL('libfoo.so.1')\n",
                "p__name.py": b"NAME = 'libfoo.so.1'\n",
            }
        )
    )
    assert index.loads == {"p/load.py": ("libfoo.so.1",)}


def test_a_large_library_is_not_held(tree: Tree) -> None:
    tree.library("/opt/liba.so")
    data = tree.path("/opt/liba.so").read_bytes()
    size = 64 << 20
    tar = files(liba=data + b"\0" * size)
    tracemalloc.start()
    try:
        index = index_of(tar)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert index.objects["liba"].soname == "liba.so"
    assert peak < size / 2


def test_files_are_found_again(tmp_path: Path) -> None:
    repository, digest = put_image(tmp_path / "l", [files(a=b"1", b__c=b"2", d=b"3")])
    (layer,) = layers_of(repository, digest)
    assert dict(read_files(repository, layer, ["b/c", "d", "gone"])) == {"b/c": b"2", "d": b"3"}


def test_the_index_survives_the_store(tree: Tree) -> None:
    tree.library("/opt/liba.so", flags=["-Wl,-rpath,/x"])
    index = index_of(tar_of(tree.root))
    assert LayerIndex.from_json(json.loads(json.dumps(index.to_json()))) == index
