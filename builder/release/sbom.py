"""The bill of materials of an image: CycloneDX 1.6 JSON, the same bytes for the same lock, image and licences.

Source: CycloneDX 1.6 JSON schema; package URLs: purl-spec, types pypi, deb and oci.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder import __version__
from builder.base.values import DebPackage, LockedBase
from builder.lock.values import Lock, LockedPackage
from builder.names import Digest, Platform
from builder.registry.manifests import canonical_json
from builder.release.values import Draft, EvidenceType, Licence

__all__ = ["deb_purl", "sbom_draft", "wheel_purl"]


def sbom_draft(
    lock: Lock, *, image: Digest, name: str, version: str, licences: Mapping[str, Licence], created: str | None = None
) -> Draft:
    """The SBOM of an image made from a lock; `licences` by normalised name, `created` an RFC 3339 time or None.

    Components: each locked wheel with its digest, and the base with its Debian packages where the lock lists them.
    """
    wheels = [_wheel(package, licences.get(package.name)) for package in lock.packages]
    base = _base(lock.base)
    distro = lock.base.reference.removeprefix("debian:").partition("@")[0]
    debs = [_deb(package, distro) for package in lock.base.packages]
    root = _root(image, name, version, lock)
    reference = {package.name: wheel_purl(package) for package in lock.packages}
    roots = {canonicalize_name(Requirement(line).name) for line in lock.requirements}
    dependencies = [
        {
            "ref": root["bom-ref"],
            "dependsOn": sorted([base["bom-ref"], *(reference[name] for name in roots if name in reference)]),
        },
        {"ref": base["bom-ref"], "dependsOn": sorted(deb["bom-ref"] for deb in debs)},
        *(
            {
                "ref": reference[package.name],
                "dependsOn": sorted(reference[needed] for needed in package.requires if needed in reference),
            }
            for package in lock.packages
        ),
    ]
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, str(image))}",
        "version": 1,
        "metadata": {
            "component": root,
            "tools": {"components": [{"type": "application", "name": "builder", "version": __version__}]},
        },
        "components": [*wheels, base, *debs],
        "dependencies": dependencies,
    }
    if created:
        document["metadata"]["timestamp"] = created
    return Draft(
        kind="sbom",
        artifact_type=EvidenceType.CYCLONEDX,
        content=canonical_json(document),
        title="sbom.cdx.json",
        summary={"components": str(len(document["components"]))},
    )


def _root(image: Digest, name: str, version: str, lock: Lock) -> dict[str, Any]:
    arch = Platform(lock.arch).oci_arch
    purl = f"pkg:oci/{quote(name)}@{quote(str(image), safe='')}?arch={arch}"
    properties = {"builder:backend": lock.backend, "builder:toolkit": lock.toolkit, "builder:python": lock.python}
    return {
        "type": "container",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": image.hex}],
        "properties": [{"name": key, "value": value} for key, value in properties.items() if value],
    }


def _wheel(package: LockedPackage, licence: Licence | None) -> dict[str, Any]:
    purl = wheel_purl(package)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256.hex}],
        "properties": [{"name": "builder:file", "value": package.file}],
    }
    if licence is not None and licence.expression:
        component["licenses"] = [{"expression": licence.expression}]
    elif licence is not None:
        component["licenses"] = [{"license": {"name": name}} for name in licence.names]
    url = _public(package.url)
    if url is not None:
        component["externalReferences"] = [{"type": "distribution", "url": url}]
    return component


def wheel_purl(package: LockedPackage) -> str:
    """Package URL of a locked wheel."""
    return f"pkg:pypi/{quote(package.name)}@{quote(package.version, safe='')}"


def _base(base: LockedBase) -> dict[str, Any]:
    return {
        "type": "operating-system" if base.packages else "container",
        "bom-ref": f"base:{base.digest}",
        "name": base.reference,
        "version": str(base.digest),
        "properties": [
            {"name": "builder:python", "value": base.python},
            {"name": "builder:glibc", "value": base.glibc},
        ],
    }


def deb_purl(package: DebPackage, distro: str) -> str:
    """Package URL of a Debian package; `distro` is the suite."""
    return (
        f"pkg:deb/debian/{quote(package.name, safe='')}@{quote(package.version, safe='')}"
        f"?arch={package.architecture}&distro={quote(distro)}"
    )


def _deb(package: DebPackage, distro: str) -> dict[str, Any]:
    purl = deb_purl(package, distro)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256.hex}],
    }


def _public(url: str) -> str | None:
    """The URL without user and query (they may hold secrets); None for a file on somebody's machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
