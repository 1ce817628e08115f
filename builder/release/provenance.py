"""Where an image comes from: SLSA provenance v1, the same bytes for the same lock, image and engine.

Source: SLSA "Build: Provenance" v1 (slsa.dev/spec/v1.1/provenance). Times and the building machine are left out: they
are not what the image depends on, and with them no two builds would agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from builder import __version__
from builder.lock.values import Lock
from builder.names import Digest
from builder.registry.intoto import one_subject, read_statement, statement
from builder.release.sbom import deb_purl, wheel_purl
from builder.release.values import Draft, EvidenceType, PredicateType

__all__ = ["BUILD_TYPE", "ProvenanceFacts", "provenance_draft", "read_provenance"]

BUILD_TYPE = "urn:builder:build:1"
"""What externalParameters and resolvedDependencies mean (docs/registry.md, "Provenance")."""
_BUILDER = "urn:builder:cli"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvenanceFacts:
    """What others hold against the provenance of an image."""

    image: Digest
    build_type: str
    builder: str
    """`runDetails.builder.id`."""
    materials: frozenset[Digest]
    """Digests of everything that the image was made from."""


def provenance_draft(lock: Lock, *, image: Digest, name: str, version: str, engine: str, source: str = "") -> Draft:
    """The provenance of an image made from a lock; `source` is the URL of the project's repository."""
    external: dict[str, Any] = {
        "project": name,
        "version": version,
        "backend": lock.backend,
        "toolkit": lock.toolkit,
        "python": lock.python,
        "arch": lock.arch,
        "requirements": list(lock.requirements),
        "engine": engine,
    }
    if source:
        external["source"] = source
    base = {"name": lock.base.reference, "digest": {"sha256": lock.base.digest.hex}}
    wheels = [
        {"name": package.file, "uri": wheel_purl(package), "digest": {"sha256": package.sha256.hex}}
        for package in lock.packages
    ]
    distro = lock.base.reference.removeprefix("debian:").partition("@")[0]
    debs = [
        {"name": package.name, "uri": deb_purl(package, distro), "digest": {"sha256": package.sha256.hex}}
        for package in lock.base.packages
    ]
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": external,
            "internalParameters": {
                "lock": {"inputs": str(lock.inputs), "engine": lock.engine, "exclude_newer": lock.exclude_newer},
                "unknown_allowed": list(lock.unknown_allowed),
            },
            "resolvedDependencies": [base, *wheels, *debs],
        },
        "runDetails": {"builder": {"id": _BUILDER, "version": {"builder": __version__}}},
    }
    return Draft(
        kind="provenance",
        artifact_type=EvidenceType.IN_TOTO,
        content=statement(image, name, PredicateType.PROVENANCE, predicate),
        title="provenance.intoto.json",
        predicate_type=PredicateType.PROVENANCE,
        summary={"backend": lock.backend, "engine": engine},
    )


def read_provenance(content: bytes) -> ProvenanceFacts:
    """What any builder's provenance v1 of one image says; `BadInput` when it is none."""

    def parse(value: dict[str, Any]) -> ProvenanceFacts:
        definition = value["predicate"]["buildDefinition"]
        found = [item.get("digest", {}).get("sha256") for item in definition.get("resolvedDependencies") or ()]
        return ProvenanceFacts(
            image=one_subject(value),
            build_type=str(definition["buildType"]),
            builder=str(value["predicate"]["runDetails"]["builder"]["id"]),
            materials=frozenset(Digest.parse(f"sha256:{item}") for item in found if item is not None),
        )

    return read_statement(content, PredicateType.PROVENANCE, parse)
