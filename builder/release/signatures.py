"""Signatures over evidence: DSSE envelopes attached to an image, held against public keys (builder.registry.dsse)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builder.errors import BadInput, BuilderError
from builder.names import Digest
from builder.registry.dsse import PublicKey, open_envelope
from builder.registry.intoto import parse_statement, subjects
from builder.registry.manifests import pointed_blobs
from builder.registry.values import MediaType, Repository
from builder.release.values import EvidenceType

__all__ = ["SignedPayload", "signed_payloads"]

_LIMIT = 64 << 20
"""Bytes of an envelope that are read at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedPayload:
    """One envelope attached to an image."""

    digest: Digest
    """Of the manifest that attaches it."""
    payload: bytes
    signers: tuple[str, ...]
    """Names of the keys that signed exactly this payload."""
    problem: str = ""
    """Why it cannot be read."""

    def covers(self, content: bytes, image: Digest) -> bool:
        """Whether the payload is this evidence: its bytes, or a statement on this image with the same predicate."""
        if self.payload == content:
            return True
        try:
            ours, theirs = parse_statement(content), parse_statement(self.payload)
        except BuilderError:
            return False
        same = all(ours.get(key) == theirs.get(key) for key in ("predicateType", "predicate"))
        return same and image in subjects(theirs)


def signed_payloads(repository: Repository, image: Digest, keys: Sequence[PublicKey]) -> tuple[SignedPayload, ...]:
    """All envelopes attached to an image, with the keys that signed them; sigstore bundles that hold one as well."""
    found = []
    for entry in repository.referrers(image):
        if entry.artifact_type not in (EvidenceType.DSSE, EvidenceType.SIGSTORE_BUNDLE):
            continue
        manifest = repository.manifest(entry.digest)
        layers = [blob for blob in pointed_blobs(manifest) if blob.media_type != MediaType.EMPTY] if manifest else []
        if len(layers) != 1 or layers[0].size > _LIMIT:
            found.append(SignedPayload(digest=entry.digest, payload=b"", signers=(), problem="it has no one envelope"))
            continue
        found.append(_read(entry.digest, b"".join(repository.read_blob(layers[0].digest)), keys))
    return tuple(found)


def _read(digest: Digest, content: bytes, keys: Sequence[PublicKey]) -> SignedPayload:
    try:
        envelope = open_envelope(content, keys)
    except BadInput as error:
        return SignedPayload(digest=digest, payload=b"", signers=(), problem=f"it is no DSSE envelope: {error.why}")
    return SignedPayload(digest=digest, payload=envelope.payload, signers=envelope.signers)
