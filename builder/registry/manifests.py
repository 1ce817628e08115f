"""Reading manifests: what they point at, what they are about, and which index is honest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from builder.errors import BuilderError, Refused
from builder.names import Arch, Digest, Platform
from builder.registry.errors import RegistryRefused
from builder.registry.values import Descriptor, Manifest, MediaType

__all__ = [
    "EMPTY_CONFIG",
    "IMAGE_TYPES",
    "INDEX_TYPES",
    "canonical_json",
    "check_index",
    "is_image",
    "is_referrers_tag",
    "offered_platforms",
    "parse_index",
    "parse_manifest",
    "platform_entry",
    "pointed_blobs",
    "pointed_manifests",
    "referrer_entry",
    "referrers_tag",
    "subject_of",
]

IMAGE_TYPES = (MediaType.MANIFEST, MediaType.DOCKER_MANIFEST)
INDEX_TYPES = (MediaType.INDEX, MediaType.DOCKER_LIST)

EMPTY_CONFIG = b"{}"
"""The empty descriptor's content (image-spec, manifest.md, "Guidance for an Empty Descriptor")."""


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """The one way JSON is written here: sorted keys, no spaces, UTF-8; same value, same digest."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_manifest(manifest: Manifest) -> dict[str, Any]:
    """The JSON object of a manifest or index; `RegistryRefused` when it is none."""
    try:
        value = json.loads(manifest.raw)
    except ValueError as error:
        raise RegistryRefused(f"manifest {manifest.digest} is not JSON", why=str(error)) from error
    if not isinstance(value, dict):
        raise RegistryRefused(f"manifest {manifest.digest} is not a JSON object")
    return value


def _descriptors(manifest: Manifest, values: Iterable[Any]) -> tuple[Descriptor, ...]:
    try:
        return tuple(Descriptor.from_json(value) for value in values)
    except (KeyError, TypeError, ValueError, BuilderError) as error:
        raise RegistryRefused(
            f"manifest {manifest.digest} is malformed", why=f"a descriptor in it cannot be read: {error!r}"
        ) from error


def pointed_manifests(manifest: Manifest) -> tuple[Descriptor, ...]:
    """The manifests an index lists, in order; none for an image."""
    if manifest.media_type not in INDEX_TYPES:
        return ()
    return _descriptors(manifest, parse_manifest(manifest).get("manifests") or ())


def pointed_blobs(manifest: Manifest) -> tuple[Descriptor, ...]:
    """Config and layers an image needs, config first, each digest once.

    Layers with `urls` are kept elsewhere on purpose and left out (image-spec, descriptor.md, `urls`).
    """
    if manifest.media_type not in IMAGE_TYPES:
        return ()
    value = parse_manifest(manifest)
    wanted = [value.get("config"), *(layer for layer in value.get("layers") or () if not layer.get("urls"))]
    found = _descriptors(manifest, (item for item in wanted if item is not None))
    return tuple({descriptor.digest: descriptor for descriptor in found}.values())


def is_image(manifest: Manifest) -> bool:
    """Whether this is an image or an index of images, not an artifact (image-spec, manifest.md, `artifactType`)."""
    value = parse_manifest(manifest)
    return not (value.get("artifactType") or value.get("subject"))


def subject_of(manifest: Manifest) -> Digest | None:
    """The digest this manifest is about (image-spec, manifest.md, `subject`), if any."""
    value = parse_manifest(manifest).get("subject")
    return None if value is None else _descriptors(manifest, [value])[0].digest


def referrer_entry(manifest: Manifest) -> Descriptor:
    """How a referrer is listed: artifact type (the config's media type when there is none) and annotations copied.

    Source: distribution-spec, "Listing Referrers".
    """
    value = parse_manifest(manifest)
    config = value.get("config") or {}
    return replace(
        manifest.descriptor,
        artifact_type=value.get("artifactType") or config.get("mediaType"),
        annotations=dict(value.get("annotations") or {}),
    )


def referrers_tag(subject: Digest) -> str:
    """The tag that lists referrers where a registry cannot (distribution-spec, "Referrers Tag Schema")."""
    return f"sha256-{subject.hex}"


def is_referrers_tag(tag: str) -> bool:
    """Whether a tag has the form of `referrers_tag`."""
    return re.fullmatch(r"sha256-[0-9a-f]{64}", tag) is not None


def parse_index(manifest: Manifest) -> tuple[Descriptor, ...] | None:
    """The entries when this really is an OCI index, None when it is anything else."""
    if manifest.media_type != MediaType.INDEX:
        return None
    value = parse_manifest(manifest)
    if value.get("mediaType", MediaType.INDEX) != MediaType.INDEX or not isinstance(value.get("manifests"), list):
        return None
    return _descriptors(manifest, value["manifests"])


def platform_entry(entries: Iterable[Descriptor], arch: Arch) -> Descriptor | None:
    """The first entry for Linux on this machine; one that leaves the system out counts as Linux."""
    wanted = Platform(arch).oci_arch
    for entry in entries:
        platform = entry.platform or {}
        if platform.get("architecture") == wanted and platform.get("os", "linux") == "linux":
            return entry
    return None


def offered_platforms(entries: Iterable[Descriptor]) -> str:
    """The platforms of an index for a message, e.g. `linux/amd64, linux/arm64`."""
    named = {"/".join(str((entry.platform or {}).get(key, "?")) for key in ("os", "architecture")) for entry in entries}
    return ", ".join(sorted(named)) or "nothing"


def check_index(entries: Iterable[Descriptor]) -> None:
    """`Refused` when two entries have one platform: clients take the first, whatever the backend (FR-27).

    Entries without a platform, or with the platform unknown/unknown (attestations), are no images and are not compared.
    """
    seen: dict[tuple[str, ...], Digest] = {}
    for entry in entries:
        platform = entry.platform
        if platform is None or platform.get("architecture") in (None, "unknown"):
            continue
        key = tuple(str(platform.get(name, "")) for name in ("os", "architecture", "variant", "os.version"))
        other = seen.setdefault(key, entry.digest)
        if other != entry.digest:
            text = "/".join(part for part in key if part)
            raise Refused(
                f"an index with two images for {text} is not made",
                why=f"{other} and {entry.digest} have the same platform; an index cannot tell backends apart, "
                "and clients run the first",
                fix="publish one tag per backend and let `builder pick` choose by node class",
            )
