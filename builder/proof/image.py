"""An image's manifest, configuration and layers, read from a repository."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from builder.errors import BadInput, Refused
from builder.events import Reporter
from builder.names import ARCHES, Arch, Digest, Platform
from builder.proof.elf import READER, read_object
from builder.proof.layers import LayerIndex, read_files, read_layer
from builder.proof.rootfs import RootFs
from builder.proof.values import ImageConfig
from builder.registry.manifests import INDEX_TYPES, offered_platforms, platform_entry, pointed_manifests
from builder.registry.values import Descriptor, Manifest, Repository
from builder.store import Store

__all__ = ["Image", "open_image"]

_CONFIG_LIMIT = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One image for one platform."""

    repository: Repository
    digest: Digest
    """Of the manifest itself, also when an index was asked for."""
    config: ImageConfig
    layers: tuple[Descriptor, ...]
    """Lowest first."""

    def with_env(self, env: Mapping[str, str]) -> Image:
        """The same image, started with more environment."""
        config = dataclasses.replace(self.config, env={**self.config.env, **env})
        return dataclasses.replace(self, config=config)

    def index(self, *, store: Store, reporter: Reporter) -> tuple[LayerIndex, ...]:
        """The index of every layer; each is read once and remembered in the store."""
        total = sum(layer.size for layer in self.layers)
        with reporter.task(f"reading {len(self.layers)} layers", total=total) as advance:
            return tuple(
                read_layer(self.repository, layer, read=read_object, reader=READER, store=store, advance=advance)
                for layer in self.layers
            )

    def files(self, root: RootFs, paths: Iterable[str]) -> Mapping[str, bytes]:
        """Content of these files of the merged tree; reads again the layers they lie in."""
        wanted: dict[int, dict[str, list[str]]] = {}
        for path in paths:
            file = root.plain(path)
            if file is not None:
                wanted.setdefault(file.layer, {}).setdefault(file.path.lstrip("/"), []).append(path)
        found: dict[str, bytes] = {}
        for number, names in wanted.items():
            for name, data in read_files(self.repository, self.layers[number], names.keys()):
                found.update(dict.fromkeys(names[name], data))
        return found


def open_image(repository: Repository, digest: Digest, *, arch: Arch) -> Image:
    """The image of this platform under a digest; of an index, the entry for `arch`."""
    manifest = repository.manifest(digest)
    if manifest is None:
        raise BadInput(f"there is no image {digest}", fix="build or push it first")
    document = _json(manifest)
    if manifest.media_type in INDEX_TYPES:
        entry = _entry(manifest, arch)
        manifest = repository.manifest(entry.digest)
        if manifest is None:
            raise BadInput(f"the index {digest} names {entry.digest}, which is not there", fix="push it again")
        document = _json(manifest)
    try:
        layers = tuple(Descriptor.from_json(layer) for layer in document["layers"])
        config = _config(repository, Descriptor.from_json(document["config"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{digest} is not an image", why=f"its manifest lacks {error}") from error
    return Image(repository=repository, digest=manifest.digest, config=config, layers=layers)


def _json(manifest: Manifest) -> dict[str, Any]:
    value = json.loads(manifest.raw)
    if not isinstance(value, dict):
        raise BadInput(f"{manifest.digest} is not a manifest", why="it is no JSON object")
    return value


def _entry(index: Manifest, arch: Arch) -> Descriptor:
    entries = pointed_manifests(index)
    entry = platform_entry(entries, arch)
    if entry is None:
        raise Refused(
            f"{index.digest} has no image for {Platform(arch)}",
            why=f"its index lists: {offered_platforms(entries)}",
            fix=f"build it for {arch}",
        )
    return entry


def _config(repository: Repository, descriptor: Descriptor) -> ImageConfig:
    if descriptor.size > _CONFIG_LIMIT:
        raise BadInput("the image's configuration is too large to be one", why=f"{descriptor.size} bytes")
    value = json.loads(b"".join(repository.read_blob(descriptor.digest)))
    run = value.get("config") or {}
    architecture = str(value.get("architecture", ""))
    env = dict(entry.partition("=")[::2] for entry in run.get("Env") or [])
    return ImageConfig(
        arch=next((arch for arch in ARCHES if Platform(arch).oci_arch == architecture), None),
        architecture=architecture,
        env=env,
        entrypoint=tuple(run.get("Entrypoint") or ()),
        command=tuple(run.get("Cmd") or ()),
        workdir=run.get("WorkingDir") or "/",
        labels=dict(run.get("Labels") or {}),
    )
