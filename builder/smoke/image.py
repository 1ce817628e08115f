"""Opens an image of a repository for running: manifest, config and layers, parsed once."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import Any

from builder.errors import BadInput, CannotTell, OutsideFailed, did_you_mean
from builder.names import ARCHES, Arch, Digest, LayoutRef, Platform, Reference
from builder.registry.manifests import INDEX_TYPES, offered_platforms, platform_entry, pointed_manifests
from builder.registry.values import Descriptor, Manifest, Repository
from builder.smoke.values import RunnableImage

__all__ = ["open_image", "this_arch", "which_image"]

_CONFIG_LIMIT = 8 * 2**20


def open_image(repository: Repository, reference: Digest | str, *, arch: Arch, name: str) -> RunnableImage:
    """The image under a digest or tag; of an index, the one for Linux on `arch`.

    `name` is how messages call it. `BadInput` when it is not there, is not an image, or is for another machine.
    """
    manifest = repository.manifest(reference)
    if manifest is None:
        tags = repository.tags() if isinstance(reference, str) else ()
        raise BadInput(
            f"there is no image {name}",
            why=f"the repository holds nothing under {reference}",
            fix=(did_you_mean(reference, tags) or "check the name and the tag; the repository holds no tags")
            if isinstance(reference, str)
            else "check the digest",
        )
    if manifest.media_type in INDEX_TYPES:
        manifest = _choose(repository, manifest, arch, name)
    document = _json(manifest.raw, name)
    if "config" not in document or "layers" not in document:
        raise BadInput(f"{name} is not an image", why=f"its manifest has type {manifest.media_type}")
    config_descriptor = Descriptor.from_json(document["config"])
    config = _json(_read_bounded(repository, config_descriptor, name), name)
    found = str(config.get("architecture", ""))
    if found != Platform(arch).oci_arch:
        raise BadInput(
            f"{name} is for {found or 'an unnamed architecture'}",
            why=f"this machine is {Platform(arch).oci_arch}",
            fix="run it on a machine of its architecture",
        )
    settings = config.get("config") or {}
    return RunnableImage(
        repository=repository,
        digest=manifest.digest,
        name=name,
        config=config,
        config_digest=config_descriptor.digest,
        layers=tuple(Descriptor.from_json(layer) for layer in document["layers"]),
        diff_ids=tuple(Digest.parse(text) for text in config["rootfs"]["diff_ids"]),
        env=dict(line.partition("=")[::2] for line in settings.get("Env") or ()),
        user=settings.get("User") or "",
        workdir=settings.get("WorkingDir") or "/",
        entrypoint=tuple(settings.get("Entrypoint") or ()),
        command=tuple(settings.get("Cmd") or ()),
        labels=settings.get("Labels") or {},
    )


def _choose(repository: Repository, index: Manifest, arch: Arch, name: str) -> Manifest:
    offered = pointed_manifests(index)
    entry = platform_entry(offered, arch)
    if entry is None:
        raise BadInput(
            f"{name} has no image for {Platform(arch)}", why=f"its index offers {offered_platforms(offered)}"
        )
    manifest = repository.manifest(entry.digest)
    if manifest is None:
        raise OutsideFailed(f"{name} lacks the manifest {entry.digest} that its index names")
    return manifest


def _read_bounded(repository: Repository, descriptor: Descriptor, name: str) -> bytes:
    if descriptor.size > _CONFIG_LIMIT:
        raise BadInput(f"the config of {name} is too large", why=f"{descriptor.size} bytes")
    return b"".join(repository.read_blob(descriptor.digest))


def _json(raw: bytes, name: str) -> Mapping[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise BadInput(f"{name} is damaged", why=f"a manifest or config is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{name} is damaged", why="a manifest or config is not a JSON object")
    return value


def this_arch() -> Arch:
    """This machine's architecture; `CannotTell` on one that images are not made for."""
    found = platform.machine()
    for arch in ARCHES:
        if arch == found:
            return arch
    raise CannotTell(
        f"images cannot be run on {found}", why=f"they are made for {', '.join(ARCHES)}", fix="use such a machine"
    )


def which_image(repository: Repository, reference: Reference) -> Digest | str:
    """The digest or tag that a reference names; in a layout with one tag alone, that one."""
    if reference.digest is not None:
        return reference.digest
    if reference.tag is not None:
        return reference.tag
    tags = repository.tags() if isinstance(reference, LayoutRef) else ()
    if len(tags) == 1:
        return tags[0]
    raise BadInput(
        f"{reference} names no image",
        why="it has neither a tag nor a digest",
        fix=f"add one, for example {reference}:{tags[0]} ({len(tags)} tags)" if tags else f"add one: {reference}:TAG",
    )
