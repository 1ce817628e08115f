"""The lowest layers of an image: the built-in base as one layer made here, or an OCI base's own layers by reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from builder.base.blobs import kept_blob
from builder.base.debian_tree import read_tree
from builder.base.mirror import fetch_packages
from builder.base.resolve import OpenRepository
from builder.base.values import LockedBase, TreeEntry
from builder.errors import OutsideFailed
from builder.events import Reporter
from builder.image.layers import LayerWriter, kept_layer, layer_source, write_layer
from builder.image.packing import GZIP, Packing
from builder.image.values import Layer
from builder.names import Arch, Digest, LayoutRef, parse_ref
from builder.registry.manifests import parse_manifest
from builder.registry.values import BlobSource, BytesSource, Descriptor, Manifest, MediaType, Repository
from builder.store import Store

__all__ = ["BaseImage", "base_image", "base_sizes", "debian_layer", "write_tree"]

_OCI_TYPES = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": MediaType.LAYER_GZIP,
    "application/vnd.docker.image.rootfs.diff.tar": MediaType.LAYER_TAR,
}
"""Docker's layer types to OCI's: the bytes are the same (image-spec, "Compatibility Matrix")."""

_LAZY = ("containerd.io/snapshot/stargz/", "io.github.containers.zstd-chunked.")
"""Prefixes of the annotations of eStargz and zstd:chunked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseImage:
    """A base, ready to be built on."""

    layers: tuple[Layer, ...]
    sources: tuple[BlobSource, ...]
    """How to read each layer's blob."""
    config: Mapping[str, Any]
    """The base's own image configuration (image-spec, config.md); empty for the built-in base."""
    mount_from: str | None = None
    """Repository of the same registry that holds the layers, for `Repository.put_blob`."""
    host: str | None = None
    """The registry of `mount_from`."""


def base_image(
    base: LockedBase,
    arch: Arch,
    store: Store,
    reporter: Reporter,
    *,
    offline: bool = False,
    open_repository: OpenRepository | None = None,
    packing: Packing = GZIP,
) -> BaseImage:
    """The base's layers; `open_repository` is needed for an OCI base. `packing` is for those that are made here."""
    if base.packages:
        layer = debian_layer(base, arch, store, reporter, offline=offline, packing=packing)
        return BaseImage(layers=(layer,), sources=(layer_source(layer, store),), config={})
    return _oci_base(base, store, open_repository)


def debian_layer(
    base: LockedBase,
    arch: Arch,
    store: Store,
    reporter: Reporter,
    *,
    offline: bool = False,
    packing: Packing = GZIP,
) -> Layer:
    """The built-in base as one layer, made once for each base digest."""

    def fill(writer: LayerWriter) -> None:
        fetch_packages(base.packages, store, reporter, offline=offline)
        reporter.detail(f"unpacking {len(base.packages)} packages of {base.reference}")
        write_tree(writer, read_tree(base, store, arch))

    return write_layer(store, base.reference, fill, key=_debian_key(base, arch), packing=packing)


def _debian_key(base: LockedBase, arch: Arch) -> str:
    return f"base {base.digest} {arch}"


def base_sizes(
    base: LockedBase,
    arch: Arch,
    store: Store,
    reporter: Reporter,
    *,
    offline: bool = False,
    open_repository: OpenRepository | None = None,
    packing: Packing = GZIP,
) -> tuple[tuple[str, int, bool], ...]:
    """Title, bytes and whether they are exact, of each layer of the base; nothing is made and no layer is fetched.

    A built-in base that was not made yet is about as long as its packages.
    """
    if not base.packages:
        found = base_image(base, arch, store, reporter, offline=offline, open_repository=open_repository)
        return tuple((layer.title, layer.descriptor.size, True) for layer in found.layers)
    kept = kept_layer(store, base.reference, _debian_key(base, arch), packing)
    if kept is not None:
        return ((base.reference, kept.descriptor.size, True),)
    return ((base.reference, sum(package.size for package in base.packages), False),)


def write_tree(writer: LayerWriter, tree: tuple[TreeEntry, ...]) -> None:
    """Write a tree's entries as they come."""
    for entry in tree:
        if entry.kind == "directory":
            writer.directory(entry.path, mode=entry.mode, uid=entry.uid, gid=entry.gid)
        elif entry.kind == "symlink":
            writer.symlink(entry.path, entry.link, uid=entry.uid, gid=entry.gid)
        else:
            writer.content(entry.path, entry.data, mode=entry.mode, uid=entry.uid, gid=entry.gid)


def _oci_base(base: LockedBase, store: Store, open_repository: OpenRepository | None) -> BaseImage:
    reference = parse_ref(base.reference)
    if open_repository is None:
        raise ValueError("an OCI base needs open_repository")
    repository = cache(partial(open_repository, reference))
    keep = not isinstance(reference, LayoutRef)
    manifest = _manifest(base, repository, store)
    document = parse_manifest(manifest)
    config_blob = Descriptor.from_json(document["config"])
    config = json.loads(b"".join(kept_blob(repository, config_blob, store, keep=keep)))
    diff_ids = (config.get("rootfs") or {}).get("diff_ids") or []
    descriptors = [Descriptor.from_json(value) for value in document.get("layers") or ()]
    if len(diff_ids) != len(descriptors):
        raise OutsideFailed(
            f"base image {base.reference} is malformed",
            why=f"its manifest has {len(descriptors)} layers, its configuration {len(diff_ids)}",
        )
    layers = tuple(
        Layer(
            descriptor=replace(
                item, media_type=_OCI_TYPES.get(item.media_type, item.media_type), annotations=_about_bytes(item)
            ),
            diff_id=Digest.parse(diff_id),
            title=f"base {base.reference}",
        )
        for item, diff_id in zip(descriptors, diff_ids, strict=True)
    )
    sources = tuple(partial(kept_blob, repository, item, store, keep=keep) for item in descriptors)
    if isinstance(reference, LayoutRef):
        return BaseImage(layers=layers, sources=sources, config=config)
    return BaseImage(
        layers=layers, sources=sources, config=config, mount_from=reference.repository, host=reference.host
    )


def _about_bytes(layer: Descriptor) -> dict[str, str]:
    """Annotations that belong to the blob wherever it lies: those by which a runtime pulls it lazily."""
    return {name: value for name, value in layer.annotations.items() if name.startswith(_LAZY)}


def _manifest(base: LockedBase, repository: Callable[[], Repository], store: Store) -> Manifest:
    if store.has(base.digest):
        raw = store.path(base.digest).read_bytes()
        media_type = json.loads(raw).get("mediaType", MediaType.MANIFEST)
        return Manifest(media_type, raw)
    found = repository().manifest(base.digest)
    if found is None:
        raise OutsideFailed(
            f"base image {base.reference} no longer has the locked content",
            why=f"its repository has no {base.digest}",
            fix="make a new lock, or bring the locked base back to that repository",
        )
    store.add_bytes(BytesSource(found.raw)())
    return found
