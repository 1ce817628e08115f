"""An OCI image as a base: pinned to one platform's manifest, and looked into for its Python, glibc and distributions.

What a base has is read from its layers, never guessed from its name. A base where this cannot be found out is an error
of its own kind (`CannotTell`), not "probably fine".
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, cast

from builder.base.blobs import kept_blob, kept_manifest
from builder.base.distributions import METADATA, PYVENV, Distributions
from builder.base.values import BaseDistribution, LockedBase
from builder.errors import BadInput, CannotTell, OutsideFailed, Refused, Where
from builder.events import Reporter
from builder.names import Arch, Digest, LayoutRef, Platform, Reference
from builder.registry.layers import DAMAGED, LAYER_TYPES, BlobStream, decompressed
from builder.registry.manifests import (
    INDEX_TYPES,
    offered_platforms,
    parse_manifest,
    platform_entry,
    pointed_manifests,
)
from builder.registry.values import Descriptor, Manifest, Repository
from builder.store import Store

__all__ = ["BaseFacts", "base_facts", "find_facts", "kept_facts", "lock_oci", "platform_manifest", "read_config"]


_LIBC = re.compile(r"(?:usr/)?lib(?:64)?/(?:[a-z0-9_]+-linux-gnu/)?libc\.so\.6")
_MUSL = re.compile(r"(?:usr/)?lib/ld-musl-[a-z0-9_]+\.so\.1")
_PYTHON = re.compile(r"(?P<folder>(?:[^/]+/)*bin)/python(?P<minor>3\.\d+)")
_BANNER = re.compile(rb"GNU C Library [^\n]{0,80} release version (\d+\.\d+)")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseFacts:
    """What was found in a base's layers."""

    pythons: Mapping[str, str]
    """Absolute path of an interpreter to its minor version."""
    glibc: str | None
    musl: bool
    distributions: tuple[BaseDistribution, ...] = ()
    """Sorted by folder and name."""


def lock_oci(
    reference: Reference, repository: Repository, *, python: str, arch: Arch, store: Store, reporter: Reporter
) -> LockedBase:
    """Pin a base image; `BadInput` when it lacks the Python asked for, `CannotTell` when its glibc is not found."""
    manifest = platform_manifest(reference, repository, arch)
    config = read_config(reference, repository, parse_manifest(manifest), arch, store)
    facts = base_facts(reference, repository, manifest, store=store, reporter=reporter)
    kept_manifest(store, manifest)
    path = next((item for item in (config.get("config") or {}).get("Env") or () if item.startswith("PATH=")), "")
    return _locked(reference, manifest, facts, python, path.removeprefix("PATH=") or _DEFAULT_PATH)


def base_facts(
    reference: Reference, repository: Repository, manifest: Manifest, *, store: Store, reporter: Reporter
) -> BaseFacts:
    """What one platform's image holds; its layers are read once for a store."""
    facts = kept_facts(manifest.digest, store)
    if facts is None:
        facts = _read(reference, repository, parse_manifest(manifest), store, reporter)
        store.put_derived("base-facts", _key(manifest.digest), {**asdict(facts), "pythons": dict(facts.pythons)})
    return facts


def kept_facts(manifest: Digest, store: Store) -> BaseFacts | None:
    """What this store knows of an image that was looked into before."""
    kept = store.derived("base-facts", _key(manifest))
    if kept is None:
        return None
    return BaseFacts(
        pythons=kept["pythons"],
        glibc=kept["glibc"],
        musl=kept["musl"],
        distributions=tuple(
            BaseDistribution(**{**row, "requires": tuple(row["requires"])}) for row in kept["distributions"]
        ),
    )


def _key(manifest: Digest) -> str:
    return f"2 {manifest}"


def platform_manifest(reference: Reference, repository: Repository, arch: Arch) -> Manifest:
    """The image manifest for one platform; an index is followed."""
    name = str(reference)
    found = repository.manifest(reference.digest or reference.tag or "")
    if found is None:
        raise BadInput(
            f"base image {name} does not exist", fix="check the name and tag, and that this user may read it"
        )
    if found.media_type not in INDEX_TYPES:
        return found
    entries = pointed_manifests(found)
    entry = platform_entry(entries, arch)
    if entry is None:
        raise BadInput(
            f"base image {name} is not made for {Platform(arch)}", why=f"it offers {offered_platforms(entries)}"
        )
    manifest = repository.manifest(entry.digest)
    if manifest is None:
        raise OutsideFailed(f"base image {name} is incomplete", why=f"its manifest {entry.digest} is missing")
    return manifest


def read_config(
    reference: Reference, repository: Repository, document: Mapping[str, Any], arch: Arch, store: Store
) -> dict[str, Any]:
    """The image's configuration, checked to be of this architecture."""
    descriptor = _descriptor(document.get("config"), str(reference))
    config = json.loads(b"".join(kept_blob(lambda: repository, descriptor, store, keep=True)))
    if config.get("architecture") != Platform(arch).oci_arch:
        raise BadInput(
            f"base image {reference} is not made for {Platform(arch)}",
            why=f"its configuration says {config.get('os')}/{config.get('architecture')}",
        )
    return cast("dict[str, Any]", config)


def find_facts(layers: Sequence[tarfile.TarFile] | Iterator[tarfile.TarFile]) -> BaseFacts:
    """Read layers, top one first: the upper entry of a path hides the lower ones, whiteouts hide what is below."""
    look = _Look()
    for layer in layers:
        look.into(layer)
    return look.facts()


@dataclass(slots=True)
class _Look:
    """Keeps what upper layers said while lower ones are read."""

    seen: set[str] = field(default_factory=set)
    hidden: tuple[str, ...] = ()
    pythons: dict[str, str] = field(default_factory=dict)
    glibc: str | None = None
    musl: bool = False
    distributions: Distributions = field(default_factory=Distributions)

    def into(self, layer: tarfile.TarFile) -> None:
        here: set[str] = set()
        texts: dict[str, bytes] = {}
        hides: list[str] = []
        for member in layer:
            path = member.name.removeprefix("./").strip("/")
            folder, _, name = path.rpartition("/")
            if name == ".wh..wh..opq":
                hides.append(f"{folder}/")
            elif name.startswith(".wh."):
                gone = f"{folder}/{name.removeprefix('.wh.')}".lstrip("/")
                hides += [f"{gone}/"]
                here.add(gone)
            elif path not in self.seen and not f"{path}/".startswith(self.hidden):
                here.add(path)
                self._note(layer, member, path)
                self.distributions.note(layer, member, path, texts)
        self.seen |= {
            path for path in here if any(kind.fullmatch(path) for kind in (_LIBC, _PYTHON, _MUSL, METADATA, PYVENV))
        }
        self.hidden = (*self.hidden, *hides)

    def _note(self, layer: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        if (found := _PYTHON.fullmatch(path)) is not None and not member.isdir():
            self.pythons[f"/{path}"] = found["minor"]
        elif _LIBC.fullmatch(path) and self.glibc is None:
            self.glibc = _glibc(layer, member)
        elif _MUSL.fullmatch(path):
            self.musl = True

    def facts(self) -> BaseFacts:
        pythons = dict(sorted(self.pythons.items()))
        return BaseFacts(
            pythons=pythons, glibc=self.glibc, musl=self.musl, distributions=self.distributions.found(pythons)
        )


def _glibc(layer: tarfile.TarFile, member: tarfile.TarInfo) -> str | None:
    """Version of a libc.so.6: from the link's target in older releases, else from the banner in the library."""
    if member.issym():
        target = re.fullmatch(r"libc-(\d+\.\d+)\.so", PurePosixPath(member.linkname).name)
        return target[1] if target else None
    file = layer.extractfile(member) if member.isreg() else None
    found = _BANNER.search(file.read()) if file is not None else None
    return found[1].decode() if found else None


def _read(
    reference: Reference, repository: Repository, document: Mapping[str, Any], store: Store, reporter: Reporter
) -> BaseFacts:
    name = str(reference)
    descriptors = [_descriptor(value, name) for value in document.get("layers") or ()]
    total = sum(item.size for item in descriptors)
    keep = not isinstance(reference, LayoutRef)

    def layers() -> Iterator[tarfile.TarFile]:
        for descriptor in reversed(descriptors):
            if descriptor.media_type not in LAYER_TYPES:
                raise CannotTell(
                    "the base image has a layer of an unknown kind",
                    why=f"media type {descriptor.media_type}",
                    fix="use a base with gzip, zstd or plain tar layers",
                )
            chunks = kept_blob(lambda: repository, descriptor, store, keep=keep)
            with decompressed(BlobStream(chunks, advance), descriptor) as file:
                try:
                    with tarfile.open(fileobj=file, mode="r|") as archive:
                        yield archive
                except DAMAGED as error:
                    raise OutsideFailed(
                        f"base image {name} is damaged",
                        why=f"layer {descriptor.digest}: {error}",
                        where=Where(file=name),
                    ) from error

    with reporter.task(f"base {name}", total=total) as advance:
        return find_facts(layers())


def _descriptor(value: Any, name: str) -> Descriptor:
    try:
        return Descriptor.from_json(value)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"base image {name} is malformed", why=f"a descriptor in its manifest: {error!r}") from error


def _locked(reference: Reference, manifest: Manifest, facts: BaseFacts, python: str, path: str) -> LockedBase:
    name = str(reference)
    if facts.musl and facts.glibc is None:
        raise Refused(
            f"base image {name} cannot run the locked wheels",
            why="its C library is musl, and manylinux wheels need glibc",
            fix="use a base on glibc, for example the built-in debian:bookworm",
        )
    matching = [item for item, minor in facts.pythons.items() if minor == python]
    if not matching:
        found = sorted(set(facts.pythons.values()))
        raise BadInput(
            f"base image {name} has no Python {python}",
            why=f"it has {', '.join(found)}" if found else "no interpreter named python3.N was found in its layers",
            fix="ask for a Python that it has, or use another base",
        )
    if facts.glibc is None:
        raise CannotTell(
            f"the glibc of base image {name} is not known",
            why="no libc.so.6 with a version was found in its layers",
            fix="use another base; wheels are held against the base's glibc",
        )
    order = {folder: index for index, folder in enumerate(path.split(":"))}
    matching.sort(key=lambda item: (order.get(str(PurePosixPath(item).parent), len(order)), item))
    return LockedBase(reference=name, digest=manifest.digest, python=python, python_path=matching[0], glibc=facts.glibc)
