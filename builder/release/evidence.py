"""Attaching evidence to a digest in a repository, and reading it back with every byte verified."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from builder.errors import BadInput, where_path
from builder.names import Digest
from builder.registry.errors import MissingContent
from builder.registry.intoto import parse_statement, subjects
from builder.registry.manifests import (
    EMPTY_CONFIG,
    canonical_json,
    parse_manifest,
    pointed_blobs,
    subject_of,
)
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType, Repository
from builder.release.records import read_promotion
from builder.release.values import Draft, Evidence, EvidenceKind, EvidenceType, PredicateType

__all__ = ["FileKind", "attach", "draft_from_file", "evidence", "listed_evidence"]

_PREDICATE_KEY = "in-toto.io/predicate-type"
"""Annotation that BuildKit and others use for the predicate of an attached statement."""
_TITLE_KEY = "org.opencontainers.image.title"
"""On the layer: the file name that tools save it under (image-spec, annotations.md)."""
_SUMMARY = "dev.builder."
_ENGINE = "dev.builder.engine."
"""Annotations of an engine (builder.cache.statement); of them kind and node class say something to people."""
_LIMIT = 64 << 20
"""Bytes of evidence that are read at most."""

FileKind = Literal["sbom", "audit", "smoke", "proof"]
"""What a build writes to files beside the image."""

_KINDS: Mapping[str, EvidenceKind] = {
    PredicateType.TEST_RESULT: "smoke",
    PredicateType.AUDIT: "audit",
    PredicateType.PROOF: "proof",
    PredicateType.PROMOTION: "promotion",
    PredicateType.PROVENANCE: "provenance",
}


def attach(repository: Repository, subject: Descriptor, drafts: Sequence[Draft]) -> tuple[Digest, ...]:
    """Attach drafts to a manifest; returns their digests, in order. What is attached already is not sent again."""
    if not drafts:
        return ()
    present = {entry.digest for entry in repository.referrers(subject.digest)}
    manifests = [_manifest(draft, subject) for draft in drafts]
    fresh = {}
    for draft, manifest in zip(drafts, manifests, strict=True):
        if manifest.digest not in present:
            for data, media_type in ((EMPTY_CONFIG, MediaType.EMPTY), (draft.content, draft.artifact_type)):
                blob = Descriptor(media_type=media_type, digest=Digest.of(data), size=len(data))
                repository.put_blob(blob, BytesSource(data))
            fresh[manifest.digest] = manifest
    if fresh:
        repository.put_referrers(tuple(fresh.values()))
    return tuple(manifest.digest for manifest in manifests)


def _manifest(draft: Draft, subject: Descriptor) -> Manifest:
    """The manifest that attaches a draft (image-spec, manifest.md, "Guidelines for Artifact Usage")."""
    annotations = {f"{_SUMMARY}{key}": value for key, value in {"evidence": draft.kind, **draft.summary}.items()}
    layer_annotations = {_TITLE_KEY: draft.title}
    if draft.predicate_type is not None:
        annotations[_PREDICATE_KEY] = layer_annotations[_PREDICATE_KEY] = draft.predicate_type
    layer = Descriptor(
        media_type=draft.artifact_type,
        digest=Digest.of(draft.content),
        size=len(draft.content),
        annotations=layer_annotations,
    )
    empty = Descriptor(media_type=MediaType.EMPTY, digest=Digest.of(EMPTY_CONFIG), size=len(EMPTY_CONFIG))
    about = Descriptor(media_type=subject.media_type, digest=subject.digest, size=subject.size)
    return Manifest(
        MediaType.MANIFEST,
        canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": MediaType.MANIFEST,
                "artifactType": draft.artifact_type,
                "config": empty.to_json(),
                "layers": [layer.to_json()],
                "subject": about.to_json(),
                "annotations": annotations,
            }
        ),
    )


def listed_evidence(repository: Repository, subject: Digest) -> tuple[Evidence, ...]:
    """What is attached, by its listing alone: one request, nothing verified, no content."""
    return tuple(
        Evidence(
            digest=entry.digest,
            subject=subject,
            kind=_listed_kind(entry),
            artifact_type=entry.artifact_type or "",
            content=b"",
            predicate_type=entry.annotations.get(_PREDICATE_KEY),
            summary=_summary(entry.annotations),
        )
        for entry in repository.referrers(subject)
    )


def evidence(
    repository: Repository, subject: Digest, *, kinds: Collection[EvidenceKind] | None = None
) -> tuple[Evidence, ...]:
    """Everything attached to a digest, fetched and verified: manifest, subject, content, statement.

    With `kinds`, what the listing calls another kind is not fetched. What cannot stand is returned with its `problem`.
    """
    found = []
    for entry in repository.referrers(subject):
        if kinds is None or _listed_kind(entry) in kinds:
            piece = _fetch(repository, subject, entry)
            if kinds is None or piece.kind in kinds:
                found.append(piece)
    return tuple(found)


def draft_from_file(path: Path, kind: FileKind, image: Digest) -> Draft:
    """Evidence that was written to a file, as the bytes it is; `BadInput` when it is not of this kind or image."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}", why=str(error.strerror), where=where_path(path)) from error
    artifact_type = EvidenceType.CYCLONEDX if kind == "sbom" else EvidenceType.IN_TOTO
    found, predicate_type, problem = _judge(content, artifact_type, image)
    if problem or found != kind:
        raise BadInput(
            f"{path} is not the {kind} evidence of {image}",
            why=problem or f"it is evidence of the kind {found}",
            fix="give the file that the same build wrote",
            where=where_path(path),
        )
    return Draft(
        kind=kind,
        artifact_type=artifact_type,
        content=content,
        title="sbom.cdx.json" if kind == "sbom" else f"{kind}.intoto.json",
        predicate_type=predicate_type,
        summary=_summarise(kind, content),
    )


def _fetch(repository: Repository, subject: Digest, entry: Descriptor) -> Evidence:
    manifest = repository.manifest(entry.digest)
    if manifest is None:
        raise MissingContent(
            f"{entry.digest} is listed as attached to {subject}, but is not in {repository}",
            fix="attach it again, or delete it from the list",
        )
    value = parse_manifest(manifest)
    artifact_type = str(value.get("artifactType") or (value.get("config") or {}).get("mediaType") or "")
    layers = [blob for blob in pointed_blobs(manifest) if blob.media_type != MediaType.EMPTY]
    content, predicate_type, problem = b"", None, ""
    kind = _listed_kind(replace(entry, artifact_type=artifact_type))  # the manifest decides, not the list
    if subject_of(manifest) != subject:
        problem = f"it is attached to {subject_of(manifest)}"
    elif artifact_type in (EvidenceType.CYCLONEDX, EvidenceType.IN_TOTO):
        if len(layers) != 1 or layers[0].size > _LIMIT:
            problem = f"it has {len(layers)} layers" if len(layers) != 1 else f"it is larger than {_LIMIT} bytes"
        else:
            content = b"".join(repository.read_blob(layers[0].digest))
            kind, predicate_type, problem = _judge(content, artifact_type, subject)
    return Evidence(
        digest=entry.digest,
        subject=subject,
        kind=kind,
        artifact_type=artifact_type,
        content=content,
        predicate_type=predicate_type,
        summary=_summary(value.get("annotations") or {}),
        problem=problem,
    )


def _judge(content: bytes, artifact_type: str, subject: Digest) -> tuple[EvidenceKind, str | None, str]:
    """Kind, predicate type, and what is wrong with it, from the content alone."""
    if artifact_type == EvidenceType.CYCLONEDX:
        return "sbom", None, _sbom_problem(content)
    try:
        statement = parse_statement(content)
    except BadInput as error:
        return "other", None, f"{error.what}: {error.why}"
    predicate_type = str(statement.get("predicateType"))
    kind = _KINDS.get(predicate_type, "other")
    if subject not in subjects(statement):
        return kind, predicate_type, f"the statement is not about {subject}"
    try:
        if kind == "promotion":
            read_promotion(content)
        elif kind == "provenance":
            from builder.release.provenance import read_provenance

            read_provenance(content)
        elif kind in ("smoke", "audit", "proof"):
            from builder.release.statements import read_audit, read_proof, read_smoke  # a node that picks needs none

            {"smoke": read_smoke, "audit": read_audit, "proof": read_proof}[kind](content)
    except BadInput as error:
        return kind, predicate_type, f"{error.what}: {error.why}"
    return kind, predicate_type, ""


def _sbom_problem(content: bytes) -> str:
    try:
        value = json.loads(content)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(value, dict) or value.get("bomFormat") != "CycloneDX":
        return "not a CycloneDX document"
    return ""


def _summarise(kind: FileKind, content: bytes) -> dict[str, str]:
    """The summary that the draft functions give, from the content."""
    from builder.release.statements import read_audit, read_proof, read_smoke

    if kind == "proof":
        proof = read_proof(content)
        return {"verdict": proof.answer, "node-class": proof.node_class}
    if kind == "smoke":
        smoke = read_smoke(content)
        where = {} if smoke.node_class is None else {"node-class": smoke.node_class}
        return {"verdict": smoke.verdict, "backend": smoke.backend, **where}
    if kind == "audit":
        audit = read_audit(content)
        return {"verdict": audit.level, "backend": audit.backend}
    return {"components": str(len(json.loads(content).get("components") or ()))}


def _listed_kind(entry: Descriptor) -> EvidenceKind:
    if entry.artifact_type == EvidenceType.CYCLONEDX:
        return "sbom"
    if entry.artifact_type != EvidenceType.IN_TOTO:  # whatever its annotations say: its content is not read
        return "other"
    return _KINDS.get(entry.annotations.get(_PREDICATE_KEY, ""), "other")


def _summary(annotations: Mapping[str, str]) -> dict[str, str]:
    engine = annotations.get(f"{_ENGINE}kind")
    if engine is not None:
        return {"engine": str(engine), "node-class": str(annotations.get(f"{_ENGINE}node-class", ""))}
    return {
        key.removeprefix(_SUMMARY): str(value)
        for key, value in sorted(annotations.items())
        if key.startswith(_SUMMARY) and key != f"{_SUMMARY}evidence"
    }
