"""Checking an image that lies somewhere: every byte against its digest, and all evidence against the image.

Nothing is believed because it is listed: manifests, blobs and diff ids are hashed again, statements must name this very
image, and the bill of materials must name what the provenance says the image was made from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from builder.errors import BadInput, BuilderError, Refused
from builder.events import Advance, Reporter
from builder.names import Digest
from builder.registry.dsse import PublicKey
from builder.registry.errors import MissingContent, RegistryRefused
from builder.registry.layers import DAMAGED, BadLayer, BlobStream, decompressed
from builder.registry.manifests import INDEX_TYPES, check_index, parse_manifest, pointed_blobs, pointed_manifests
from builder.registry.values import Descriptor, Manifest, Repository
from builder.release.evidence import evidence
from builder.release.provenance import BUILD_TYPE, read_provenance
from builder.release.signatures import signed_payloads
from builder.release.values import Evidence
from builder.store import CorruptBlob

__all__ = ["KINDS", "NEEDED", "Check", "Verification", "verify"]

NEEDED = ("sbom", "audit", "provenance")
"""Kinds of evidence that `builder build` attaches to every image."""

KINDS = ("sbom", "audit", "provenance", "smoke", "proof", "promotion")
"""Kinds that can be asked for."""
_DAMAGED = (
    BadLayer,
    CorruptBlob,
    MissingContent,
    RegistryRefused,
    BadInput,
    Refused,
    ValueError,
    *DAMAGED,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was checked."""

    name: str
    verdict: Literal["ok", "failed"]
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What was found of one image or index."""

    digest: Digest
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Literal["ok", "failed"]:
        """The worst check's."""
        return "failed" if any(check.verdict == "failed" for check in self.checks) else "ok"


def verify(
    repository: Repository,
    digest: Digest,
    *,
    required: Sequence[str] = NEEDED,
    keys: Sequence[PublicKey] = (),
    reporter: Reporter,
) -> Verification:
    """Check an image, or each image of an index. With `keys`, each required kind must be signed by one of them."""
    checks: list[Check] = []
    manifest = _checked(checks, "manifest", lambda: _manifest(repository, digest), str(digest))
    if manifest is None:
        return Verification(digest=digest, checks=tuple(checks))
    if manifest.media_type in INDEX_TYPES:
        children = pointed_manifests(manifest)
        _checked(checks, "index", lambda: _honest(children))
        for child in children:
            if (child.platform or {}).get("architecture") in (None, "unknown"):
                continue
            found = verify(repository, child.digest, required=required, keys=keys, reporter=reporter)
            checks += found.checks
        return Verification(digest=digest, checks=tuple(checks))
    checks += _content(repository, manifest, reporter)
    checks += _evidence(repository, digest, required, keys)
    return Verification(digest=digest, checks=tuple(checks))


def _checked(checks: list[Check], name: str, run: Callable[[], Any], detail: str = "") -> Any:
    """What `run` returns; None, with the reason noted, when what it reads is damaged or missing."""
    try:
        value = run()
    except _DAMAGED as error:
        told = f"{error.what}: {error.why}" if isinstance(error, BuilderError) else str(error)
        checks.append(Check(name=name, verdict="failed", detail=told.rstrip(": ")))
        return None
    checks.append(Check(name=name, verdict="ok", detail=detail or str(value)))
    return value


def _honest(children: Sequence[Descriptor]) -> str:
    check_index(children)
    return f"{len(children)} manifests"


def _manifest(repository: Repository, digest: Digest) -> Manifest:
    found = repository.manifest(digest)
    if found is None:
        raise MissingContent(f"{repository} has no manifest {digest}")
    return found


def _content(repository: Repository, manifest: Manifest, reporter: Reporter) -> list[Check]:
    checks: list[Check] = []
    config_blob, *_ = pointed_blobs(manifest)
    config = _checked(
        checks,
        "config",
        lambda: json.loads(b"".join(repository.read_blob(config_blob.digest))),
        str(config_blob.digest),
    )
    if not isinstance(config, dict):
        return checks
    diff_ids = list((config.get("rootfs") or {}).get("diff_ids") or ())
    layers = [blob for blob in pointed_blobs(manifest) if blob.digest != config_blob.digest]
    listed = [str(layer["digest"]) for layer in parse_manifest(manifest).get("layers") or ()]
    if len(diff_ids) != len(listed):
        told = f"the manifest has {len(listed)} layers, the configuration {len(diff_ids)}"
        return [*checks, Check(name="layers", verdict="failed", detail=told)]
    expected = dict(zip(listed, diff_ids, strict=True))
    total = sum(layer.size for layer in layers)
    with reporter.task("verify", total=total) as advance:
        for layer in layers:
            _checked(checks, "layer", partial(_layer, repository, layer, expected[str(layer.digest)], advance))
    return checks


def _layer(repository: Repository, layer: Descriptor, diff_id: str, advance: Advance) -> str:
    """Read a layer to its end: digest, length and diff id; `CorruptBlob` when one of them is another."""
    size = 0

    def count(amount: int, /) -> None:
        nonlocal size
        size += amount
        advance(amount)

    hasher = hashlib.sha256()
    with decompressed(BlobStream(repository.read_blob(layer.digest), count), layer) as stream:
        while piece := stream.read(1 << 20):
            hasher.update(piece)
    if size != layer.size:
        raise CorruptBlob(f"layer {layer.digest}", why=f"it has {size} bytes, the manifest says {layer.size}")
    if f"sha256:{hasher.hexdigest()}" != diff_id:
        raise CorruptBlob(f"layer {layer.digest}", why=f"it unpacks to sha256:{hasher.hexdigest()}, not {diff_id}")
    return f"{layer.digest}, {layer.size} bytes"


def _evidence(
    repository: Repository, digest: Digest, required: Sequence[str], keys: Sequence[PublicKey]
) -> list[Check]:
    checks: list[Check] = []
    found = _checked(checks, "evidence", lambda: evidence(repository, digest), "read")
    if found is None:
        return checks
    checks += [
        Check(name=piece.kind, verdict="failed" if piece.problem else "ok", detail=piece.problem or str(piece.digest))
        for piece in found
        if piece.kind != "other" or piece.problem
    ]
    sound = [piece for piece in found if not piece.problem]
    present = {piece.kind for piece in sound}
    checks += [
        Check(name=kind, verdict="failed", detail="none is attached to the image")
        for kind in required
        if kind not in present
    ]
    checks += [_about(piece, digest) for piece in sound if piece.kind == "sbom"]
    checks += _materials(sound)
    if keys:
        checks += _signed(repository, digest, [piece for piece in sound if piece.kind in required], keys)
    return checks


def _about(piece: Evidence, digest: Digest) -> Check:
    """A CycloneDX document names the image by hash, or names none."""
    component = (json.loads(piece.content).get("metadata") or {}).get("component") or {}
    hashes = {str(item.get("content")) for item in component.get("hashes") or () if item.get("alg") == "SHA-256"}
    if hashes and digest.hex not in hashes:
        return Check(name="sbom", verdict="failed", detail=f"{piece.digest} is about another image")
    return Check(name="sbom subject", verdict="ok", detail=component.get("name") or "not named")


def _materials(sound: Sequence[Evidence]) -> list[Check]:
    """The wheels that our SBOM lists are those that our provenance names."""
    provenances = [read_provenance(piece.content) for piece in sound if piece.kind == "provenance"]
    ours = [item for item in provenances if item.build_type == BUILD_TYPE]
    checks = []
    for piece in sound:
        if piece.kind != "sbom" or not ours:
            continue
        listed = set()
        for component in json.loads(piece.content).get("components") or ():
            if str(component.get("purl", "")).startswith("pkg:pypi/"):
                listed |= {str(item["content"]) for item in component.get("hashes") or () if item["alg"] == "SHA-256"}
        missing = listed - {digest.hex for item in ours for digest in item.materials}
        told = (
            f"{len(listed)} wheels" if not missing else f"{len(missing)} wheels of the SBOM are not in the provenance"
        )
        checks.append(Check(name="materials", verdict="failed" if missing else "ok", detail=told))
    return checks


def _signed(
    repository: Repository, digest: Digest, pieces: Sequence[Evidence], keys: Sequence[PublicKey]
) -> list[Check]:
    checks: list[Check] = []
    payloads = _checked(checks, "envelopes", lambda: signed_payloads(repository, digest, keys), "read")
    if payloads is None:
        return checks
    checks += [
        Check(name="signature", verdict="failed", detail=f"{item.digest}: {item.problem}")
        for item in payloads
        if item.problem
    ]
    for piece in pieces:
        signers = sorted({name for item in payloads if item.covers(piece.content, digest) for name in item.signers})
        told = ", ".join(signers) or "no signature of the given keys"
        checks.append(Check(name=f"{piece.kind} signature", verdict="ok" if signers else "failed", detail=told))
    return checks
