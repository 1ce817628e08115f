"""Blobs of a base image by way of the store, so that one read from a registry is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from builder.registry.values import Descriptor, Manifest, Repository
from builder.store import Store, disk_errors

__all__ = ["kept_blob", "kept_manifest"]

_CHUNK = 1 << 20


def kept_blob(
    repository: Callable[[], Repository], descriptor: Descriptor, store: Store, *, keep: bool
) -> Iterator[bytes]:
    """The blob's bytes: from the store when there, else from the repository, kept in the store when `keep`.

    `repository` is called only when the store lacks the blob: offline, there may be none to open.
    """
    if not store.has(descriptor.digest, size=descriptor.size):
        if not keep:
            yield from repository().read_blob(descriptor.digest)
            return
        with store.partial() as path:
            with disk_errors(path), path.open("wb") as file:
                for chunk in repository().read_blob(descriptor.digest):
                    file.write(chunk)
            store.adopt(path, descriptor.digest)
    with store.open(descriptor.digest) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def kept_manifest(store: Store, manifest: Manifest) -> None:
    """Keep a manifest's bytes, so that an image can be assembled on this base without the registry."""
    if not store.has(manifest.digest):
        store.add_bytes([manifest.raw])
