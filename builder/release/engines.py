"""Compiled engines in the bill of materials: each a component, with its pedigree to the model it was compiled from.

Source: CycloneDX 1.6 JSON schema, `component.pedigree.ancestors` ("components from which this one is derived"), type
`machine-learning-model`; a changed document keeps its serial number and has the next `version`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from builder.cache.values import Entry
from builder.errors import BadInput
from builder.names import Digest
from builder.registry.dsse import DSSE, PrivateKey, seal
from builder.registry.errors import MissingContent
from builder.registry.manifests import canonical_json
from builder.registry.values import Repository
from builder.release.evidence import attach, evidence
from builder.release.values import Draft, Evidence, EvidenceKind, EvidenceType

__all__ = ["bills_of", "enter_engines", "with_engines"]

_ENGINE, _MODEL = "engine:", "model:"


def with_engines(
    content: bytes,
    engines: Sequence[Entry],
    *,
    node_class: str,
    model_names: Mapping[Digest, str] | None = None,
    others: Sequence[bytes] = (),
) -> bytes:
    """A CycloneDX document with these engines of a node class and their models entered; the same bytes when they were.

    `model_names` gives names to models, which are known by their digests otherwise. `others` are documents of the same
    image whose engines are taken over: two who wrote at once each know only their own.
    """
    try:
        document: dict[str, Any] = json.loads(content)
        components = [dict(item) for item in document.get("components") or ()]
        depends = {str(item["ref"]): set(map(str, item.get("dependsOn") or ())) for item in document["dependencies"]}
        root = str(document["metadata"]["component"]["bom-ref"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput("not a bill of materials of this tool", why=f"{type(error).__name__}: {error}") from error
    known = {str(item.get("bom-ref")): number for number, item in enumerate(components)}

    def enter(component: dict[str, Any]) -> None:
        number = known.setdefault(component["bom-ref"], len(components))
        components[number : number + 1] = [component]

    for component in _engines_of(others):
        if component["bom-ref"] not in known:
            enter(component)
            models = [_model_ref(item) for item in (component.get("pedigree") or {}).get("ancestors") or ()]
            depends.setdefault(component["bom-ref"], set()).update(models)
            if component["bom-ref"].startswith(_ENGINE):
                depends.setdefault(root, set()).add(component["bom-ref"])
    names = model_names or {}
    for entry in sorted(engines, key=lambda entry: entry.digest.hex):
        model = _model(entry, names)
        before = components[known[f"{_ENGINE}{entry.digest}"]] if f"{_ENGINE}{entry.digest}" in known else None
        engine = _engine(entry, model, sorted({node_class, *_classes(before)}))
        enter(engine)
        if model is not None:
            enter(model)
            depends.setdefault(engine["bom-ref"], set()).add(model["bom-ref"])
            depends.setdefault(model["bom-ref"], set())
        depends.setdefault(engine["bom-ref"], set())
        depends.setdefault(root, set()).add(engine["bom-ref"])
    changed = {
        **document,
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(needed)} for ref, needed in depends.items()],
    }
    if changed["components"] == document.get("components"):
        return content
    return canonical_json({**changed, "version": int(document.get("version") or 1) + 1})


def _engines_of(others: Sequence[bytes]) -> list[dict[str, Any]]:
    """The components of engines and models in other documents, models first: an engine refers to its model."""
    found = {
        str(component["bom-ref"]): dict(component)
        for content in others
        for component in json.loads(content).get("components") or ()
        if str(component.get("bom-ref", "")).startswith((_ENGINE, _MODEL))
    }
    return [found[ref] for ref in sorted(found, reverse=True)]


def _model_ref(ancestor: Mapping[str, Any]) -> str:
    return f"{_MODEL}{ancestor['version']}"


def _classes(component: Mapping[str, Any] | None) -> list[str]:
    listed = (component or {}).get("properties") or ()
    return [str(item["value"]) for item in listed if item.get("name") == "builder:node-class"]


def _engine(entry: Entry, model: Mapping[str, Any] | None, node_classes: Sequence[str]) -> dict[str, Any]:
    properties = [
        ("builder:engine-kind", entry.key.kind),
        *(("builder:node-class", name) for name in node_classes),
        ("builder:form", entry.form),
        *((f"builder:factor:{factor.name}", factor.value) for factor in entry.key if factor.value),
    ]
    component: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": f"{_ENGINE}{entry.digest}",
        "name": entry.name,
        "version": str(entry.digest),
        "hashes": [{"alg": "SHA-256", "content": entry.content.hex}],
        "properties": [{"name": name, "value": value} for name, value in properties],
    }
    if model is not None:
        ancestor = {key: value for key, value in model.items() if key != "bom-ref"}
        component["pedigree"] = {"ancestors": [ancestor], "notes": f"compiled as {entry.key.kind}"}
    return component


def _model(entry: Entry, names: Mapping[Digest, str]) -> dict[str, Any] | None:
    if entry.key.model is None:
        return None
    digest = Digest.parse(entry.key.model)
    return {
        "type": "machine-learning-model",
        "bom-ref": f"{_MODEL}{digest}",
        "name": names.get(digest, "model"),
        "version": str(digest),
        "hashes": [{"alg": "SHA-256", "content": digest.hex}],
    }


def bills_of(repository: Repository, image: Digest) -> list[bytes]:
    """The documents of this tool that describe this very image, the newest last.

    `BadInput` when there are some, and all are about another image: they would be signed for this one.
    """
    kinds: tuple[EvidenceKind, ...] = ("sbom",)
    written = _ours(evidence(repository, image, kinds=kinds))
    ours = [content for content in written if _subject(content) == image.hex]
    if written and not ours:
        raise BadInput(
            f"the bill of materials attached to {image} is about another image",
            why=f"it describes sha256:{_subject(written[-1])}",
            fix="publish the image's evidence again (builder publish), or leave the document alone: --no-sbom",
        )
    return ours


def enter_engines(
    repository: Repository,
    image: Digest,
    engines: Sequence[Entry],
    *,
    node_class: str,
    key: PrivateKey,
    model_names: Mapping[Digest, str] | None = None,
) -> Digest | None:
    """Attach the image's bill of materials anew, with engines entered, and signed; the digest of what attaches it.

    None when the image has no bill of materials, or has the engines in it. The earlier document stays attached: its
    version number is lower. `BadInput` when every document there is about another image: it would be signed for this.
    """
    ours = bills_of(repository, image)
    if not ours:
        return None
    *others, newest = ours
    content = with_engines(newest, engines, node_class=node_class, model_names=model_names, others=others)
    if content == newest:
        return None
    subject = repository.manifest(image)
    if subject is None:
        raise MissingContent(f"{image} is not in {repository}", fix="publish the image there first")
    count = len(json.loads(content)["components"])
    document = Draft(
        kind="sbom",
        artifact_type=EvidenceType.CYCLONEDX,
        content=content,
        title="sbom.cdx.json",
        summary={"components": str(count)},
    )
    signature = Draft(
        kind="other",
        artifact_type=DSSE,
        content=seal(content, EvidenceType.CYCLONEDX, key),
        title="sbom.cdx.dsse.json",
    )
    return attach(repository, subject.descriptor, (document, signature))[0]


def _subject(content: bytes) -> str:
    """SHA-256 of the manifest that a document describes, in hexadecimal; empty when it names none."""
    component = (json.loads(content).get("metadata") or {}).get("component") or {}
    hashes = [item for item in component.get("hashes") or () if item.get("alg") == "SHA-256"]
    return str(hashes[0].get("content", "")) if hashes else ""


def _ours(found: Sequence[Evidence]) -> list[bytes]:
    """The documents that this tool wrote, the highest version last."""
    ranked = []
    for piece in found:
        document = {} if piece.problem else json.loads(piece.content)
        tools = ((document.get("metadata") or {}).get("tools") or {}).get("components") or ()
        if any(tool.get("name") == "builder" for tool in tools):
            ranked.append((int(document.get("version") or 1), piece.digest.hex, piece.content))
    return [content for _, _, content in sorted(ranked)]
