"""A base whose tag moved on: what its reference names now, beside what the lock holds (FR-06).

A build never follows the tag, for the lock holds the digest. This is for the moment when somebody asks what a new base
would bring: above all what it asks of the nodes, since a container runtime refuses an image whose NVIDIA_REQUIRE_CUDA
its driver does not meet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from builder.base.blobs import kept_blob
from builder.base.oci import platform_manifest, read_config
from builder.base.values import LockedBase
from builder.matrix.values import Verdict
from builder.names import Arch, Digest, Reference
from builder.node import NodeClass
from builder.node.require import requirement_met, requirement_of
from builder.registry.manifests import parse_manifest, pointed_blobs
from builder.registry.values import Manifest, MediaType, Repository
from builder.store import Store

__all__ = ["Difference", "Drift", "NodeAnswer", "judge_nodes", "oci_drift", "package_drift"]

_SETTINGS = ("Entrypoint", "Cmd", "User", "WorkingDir", "StopSignal")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing that is not what it was."""

    kind: Literal["env", "label", "setting", "package"]
    name: str
    locked: str | None
    """None: it was not there."""
    now: str | None
    """None: it is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """What a base's reference names now."""

    reference: str
    locked: Digest
    now: Digest
    differences: tuple[Difference, ...] = ()
    """Sorted; of the configuration or the packages, not of single files."""
    compared: bool = True
    """False when the locked image is nowhere any more, so that nothing could be compared."""
    kept: bool = True
    """The registry still has the locked image."""
    requires: str = ""
    """What the image asks of the host's driver now (NVIDIA_REQUIRE_CUDA)."""

    @property
    def moved(self) -> bool:
        """The reference names another base than the lock."""
        return self.locked != self.now


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeAnswer:
    """Whether the nodes of a class would start an image on the new base."""

    node_class: str
    verdict: Verdict
    why: str
    fix: str


def oci_drift(base: LockedBase, reference: Reference, repository: Repository, *, arch: Arch, store: Store) -> Drift:
    """Compare configurations; `repository` is the registry itself, for a mirror may be late."""
    manifest = platform_manifest(reference, repository, arch)
    config = read_config(reference, repository, parse_manifest(manifest), arch, store)
    now = _settings(config)
    if manifest.digest == base.digest:
        return Drift(reference=base.reference, locked=base.digest, now=manifest.digest, requires=_requirement(now))
    there = repository.manifest(base.digest)
    before = _kept_config(there or _kept_manifest(base.digest, store), repository, store)
    return Drift(
        reference=base.reference,
        locked=base.digest,
        now=manifest.digest,
        differences=() if before is None else _compare(_settings(before), now),
        compared=before is not None,
        kept=there is not None,
        requires=_requirement(now),
    )


def package_drift(locked: LockedBase, now: LockedBase) -> Drift:
    """The same for the built-in base: which Debian packages are others."""
    old, new = ({item.name: item.version for item in base.packages} for base in (locked, now))
    found = [
        Difference(kind="package", name=name, locked=old.get(name), now=new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    return Drift(reference=locked.reference, locked=locked.digest, now=now.digest, differences=tuple(found))


def judge_nodes(drift: Drift, nodes: Iterable[NodeClass]) -> tuple[NodeAnswer, ...]:
    """What the new base asks of each class's driver; classes that nothing is asked of are left out."""
    if not drift.requires:
        return ()
    answers = []
    for node in nodes:
        found = requirement_met(drift.requires, node)
        if found is None:
            why = f"{drift.requires!r} is asked, and the class does not say its driver"
            answers.append(
                NodeAnswer(node_class=node.name, verdict="unknown", why=why, fix="add the driver to the class")
            )
        else:
            answers.append(NodeAnswer(node_class=node.name, verdict=found.verdict, why=found.why, fix=found.fix))
    return tuple(answers)


def _kept_manifest(digest: Digest, store: Store) -> Manifest | None:
    """The locked image's manifest, from the time when it was locked or built here."""
    if not store.has(digest):
        return None
    with store.open(digest) as file:
        raw = file.read()
    return Manifest(MediaType.MANIFEST, raw) if Digest.of(raw) == digest else None


def _kept_config(manifest: Manifest | None, repository: Repository, store: Store) -> Mapping[str, Any] | None:
    if manifest is None:
        return None
    about = next(iter(pointed_blobs(manifest)), None)
    if about is None or not (store.has(about.digest, size=about.size) or repository.has_blob(about.digest)):
        return None
    value: Mapping[str, Any] = json.loads(b"".join(kept_blob(lambda: repository, about, store, keep=True)))
    return value


_Settings = dict[tuple[Literal["env", "label", "setting"], str], str]


def _settings(config: Mapping[str, Any]) -> _Settings:
    run = config.get("config") or {}
    found: _Settings = {}
    for entry in run.get("Env") or ():
        name, _, value = str(entry).partition("=")
        found["env", name] = value
    for name, value in (run.get("Labels") or {}).items():
        found["label", str(name)] = str(value)
    for name in _SETTINGS:
        chosen = run.get(name)
        if chosen:
            found["setting", name] = chosen if isinstance(chosen, str) else json.dumps(chosen)
    return found


def _requirement(settings: _Settings) -> str:
    return requirement_of({name: value for (kind, name), value in settings.items() if kind == "env"})


def _compare(before: _Settings, now: _Settings) -> tuple[Difference, ...]:
    return tuple(
        Difference(kind=key[0], name=key[1], locked=before.get(key), now=now.get(key))
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    )
