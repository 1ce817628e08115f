"""Moving the tag of a node class: forward on evidence, back by what the registry remembers.

Everything needed is in the registry: the tag says what runs, and the newest promotion record attached to that image
says what ran before. The record is written before the tag moves, so a crash between leaves a record of a move that did
not happen (which nothing follows) rather than a tag without a way back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from builder.errors import BadInput, Refused, did_you_mean
from builder.names import Digest
from builder.registry.errors import MissingContent, TagMoved
from builder.registry.manifests import INDEX_TYPES, check_index, parse_manifest, pointed_manifests
from builder.registry.values import Manifest, Repository
from builder.release.evidence import attach, evidence
from builder.release.history import latest_record
from builder.release.records import node_class_tag, promotion_draft
from builder.release.statements import read_audit, read_proof, read_smoke
from builder.release.values import Evidence, Missing, Promotion, PromotionRecord, PromotionRefused

__all__ = ["NEEDED", "REQUIREMENTS", "Older", "promote", "rollback"]

NEEDED = ("smoke", "audit", "proof")
"""What a promotion rests on unless told otherwise: it ran there, it is clean, and all of it loads there."""

_HISTORY = 50
"""Images a tag remembers; older ones are still in the repository, but not on the way back."""

_CREATED = "org.opencontainers.image.created"


class Older(Refused):
    """The candidate was made, or was replaced, before the image that the tag points at (FR-28)."""

    kind = "older"


def promote(
    repository: Repository,
    digest: Digest,
    node_class: str,
    *,
    when: str,
    required: Sequence[str] = NEEDED,
    expected: Digest | None = None,
    allow_older: bool = False,
    name: str = "image",
) -> Promotion:
    """Point the tag of a node class at a digest, when the registry holds all that is `required` for it on that class.

    `when` is the time in UTC ISO 8601. `expected` is what the tag must point at now, for callers that decided on what
    they saw earlier; by default it is what the tag points at when this starts. `PromotionRefused` lists what is
    missing, `TagMoved` when somebody else moves the tag meanwhile, `Older` for a step back without `allow_older`.
    """
    tag = node_class_tag(node_class)
    unknown = [need for need in required if need not in REQUIREMENTS]
    if unknown:
        raise BadInput(f"unknown requirement {unknown[0]!r}", fix=did_you_mean(unknown[0], REQUIREMENTS))
    manifest = _image(repository, digest)
    found = evidence(repository, digest, kinds=("smoke", "audit", "proof", "sbom"))
    verdicts = [REQUIREMENTS[need](found, node_class) for need in required]
    missing = tuple(verdict for verdict in verdicts if isinstance(verdict, Missing))
    if missing:
        raise PromotionRefused(digest=digest, node_class=node_class, repository=str(repository), missing=missing)
    rests_on = tuple(sorted({verdict.digest for verdict in verdicts if isinstance(verdict, Evidence)}))
    now = repository.resolve(tag)
    current = None if now is None else now.digest
    if expected is not None and current != expected:
        raise TagMoved(tag, repository=str(repository), expected=expected, found=current)
    if current == digest:
        return Promotion(
            node_class=node_class, digest=digest, previous=current, record=None, evidence=rests_on, moved=False
        )
    before = None if current is None else latest_record(repository, current, node_class)
    history = () if current is None else (current, *(before.history if before else ()))
    if current is not None and not allow_older:
        _refuse_older(repository, manifest, current, history, node_class)
    record = PromotionRecord(
        image=digest,
        node_class=node_class,
        action="promote",
        sequence=_next(before, latest_record(repository, digest, node_class)),
        history=history[:_HISTORY],
        replaced=current,
        evidence=rests_on,
        when=when,
    )
    return _move(repository, manifest, record, name)


def rollback(
    repository: Repository, node_class: str, *, when: str, expected: Digest | None = None, name: str = "image"
) -> Promotion:
    """Point the tag of a node class at the image before; called again, at the one before that.

    `Refused` when there is none, or when the tag was moved by something else than a promotion.
    """
    tag = node_class_tag(node_class)
    now = repository.resolve(tag)
    if now is None:
        raise Refused(
            f"nothing to roll back for {node_class!r} in {repository}",
            why="no image was promoted to this node class",
            fix=f"known tags: {', '.join(repository.tags()) or 'none'}",
        )
    if expected is not None and now.digest != expected:
        raise TagMoved(tag, repository=str(repository), expected=expected, found=now.digest)
    before = latest_record(repository, now.digest, node_class)
    if before is None or not before.history:
        raise Refused(
            f"nothing to roll back to for {node_class!r} in {repository}",
            why=f"{now.digest} is the first image promoted to it"
            if before
            else f"tag {tag!r} points at {now.digest}, which no promotion put there",
            fix="promote another image",
        )
    target, *rest = before.history
    manifest = repository.manifest(target)
    if manifest is None:
        raise Refused(
            f"the image before is gone from {repository}",
            why=f"{target} was deleted",
            fix="promote another image, or push that one again",
        )
    record = PromotionRecord(
        image=target,
        node_class=node_class,
        action="rollback",
        sequence=_next(before, latest_record(repository, target, node_class)),
        history=tuple(rest),
        replaced=now.digest,
        evidence=(),
        when=when,
    )
    return _move(repository, manifest, record, name)


def _next(*records: PromotionRecord | None) -> int:
    """A number above those of these records, so that the new record is the newest of its image."""
    return max((record.sequence for record in records if record is not None), default=0) + 1


def _move(repository: Repository, manifest: Manifest, record: PromotionRecord, name: str) -> Promotion:
    (attached,) = attach(repository, manifest.descriptor, (promotion_draft(record, name=name),))
    repository.move_tag(node_class_tag(record.node_class), record.image, expected=record.replaced)
    return Promotion(
        node_class=record.node_class,
        digest=record.image,
        previous=record.replaced,
        record=attached,
        evidence=record.evidence,
        moved=True,
    )


def _image(repository: Repository, digest: Digest) -> Manifest:
    manifest = repository.manifest(digest)
    if manifest is None:
        raise MissingContent(f"{digest} is not in {repository}", fix="publish the image there first")
    if manifest.media_type in INDEX_TYPES:
        check_index(pointed_manifests(manifest))
    return manifest


# --- what a promotion can require


def _smoke(found: Sequence[Evidence], node_class: str) -> Evidence | Missing:
    """The latest smoke report of exactly this class, which must have passed."""
    fix = f"run `builder smoke --node-class {node_class} --attach` on the image, on a node of that class"
    broken = next((piece for piece in found if piece.kind == "smoke" and piece.problem), None)
    reports = [(read_smoke(piece.content), piece) for piece in found if piece.kind == "smoke" and not piece.problem]
    ours = [(report, piece) for report, piece in reports if report.node_class == node_class]
    if not ours:
        classes = sorted({report.node_class for report, _ in reports if report.node_class is not None})
        why = f"no smoke report of class {node_class} is attached"
        if classes:
            why += f"; there are reports of {', '.join(classes)} ({did_you_mean(node_class, classes)})"
        elif reports:
            why += "; there is one that names no node class"
        elif broken is not None:
            why += f"; {broken.digest} does not count: {broken.problem}"
        return Missing(need="smoke", why=why, fix=fix)
    report, piece = max(ours, key=lambda item: (item[0].started, item[0].verdict != "passed"))
    if report.verdict == "passed":
        return piece
    named = [check.name for check in report.checks if check.verdict == report.verdict]
    return Missing(
        need="smoke",
        why=f"the latest smoke report of class {node_class} ({report.started}) is {report.verdict}"
        + (f": {', '.join(named)}" if named else ": it holds no check"),
        fix=fix,
    )


def _audit(found: Sequence[Evidence], _: str) -> Evidence | Missing:
    """An audit report without level block; one that blocks outweighs any that does not."""
    pieces = [piece for piece in found if piece.kind == "audit"]
    sound = [(read_audit(piece.content), piece) for piece in pieces if not piece.problem]
    for report, piece in sound:
        if report.level == "block":
            named = [target.file for target in report.targets if target.level == "block"]
            return Missing(
                need="audit",
                why=f"the audit report {piece.digest} blocks" + (f": {', '.join(named)}" if named else ""),
                fix="build an image without these, and promote that",
            )
    if sound:
        return min((piece for _, piece in sound), key=lambda piece: piece.digest)
    why = "no audit report is attached"
    if pieces:
        why += f" that counts: {pieces[0].digest}: {pieces[0].problem}"
    return Missing(need="audit", why=why, fix="publish the image with the audit report that its build wrote")


def _proof(found: Sequence[Evidence], node_class: str) -> Evidence | Missing:
    """A proof for exactly this class. The same image on the same class has one answer, so any refusal stands."""
    fix = f"run `builder prove --node-class {node_class} --attach` on the image"
    sound = [(read_proof(piece.content), piece) for piece in found if piece.kind == "proof" and not piece.problem]
    ours = [(facts, piece) for facts, piece in sound if facts.node_class == node_class]
    if not ours:
        return Missing(need="proof", why=f"no proof for class {node_class} is attached", fix=fix)
    worst, piece = min(ours, key=lambda item: (("refused", "unknown", "proven").index(item[0].answer), item[1].digest))
    if worst.answer == "proven":
        return piece
    if worst.answer == "unknown" and any(facts.answer == "proven" for facts, _ in ours):
        return min((piece for facts, piece in ours if facts.answer == "proven"), key=lambda piece: piece.digest)
    why = f"the proof {piece.digest} for class {node_class} is {worst.answer}"
    return Missing(need="proof", why=why + (f": {worst.reasons[0]}" if worst.reasons else ""), fix=fix)


def _sbom(found: Sequence[Evidence], _: str) -> Evidence | Missing:
    sound = [piece for piece in found if piece.kind == "sbom" and not piece.problem]
    if sound:
        return min(sound, key=lambda piece: piece.digest)
    return Missing(need="sbom", why="no SBOM is attached", fix="publish the image with the SBOM that its build wrote")


REQUIREMENTS: Mapping[str, Callable[[Sequence[Evidence], str], Evidence | Missing]] = {
    "smoke": _smoke,
    "audit": _audit,
    "proof": _proof,
    "sbom": _sbom,
}
"""What `promote` can be told to require: evidence and node class in, the piece it rests on or what is missing out."""


# --- age


def _refuse_older(
    repository: Repository, candidate: Manifest, current: Digest, history: tuple[Digest, ...], node_class: str
) -> None:
    fix = "use `builder rollback` to go back, or --allow-older if the older image is meant"
    if candidate.digest in history:
        raise Older(
            f"{candidate.digest} is not promoted to {node_class!r}",
            why=f"it was promoted before and replaced since; {current} runs now",
            fix=fix,
        )
    running = repository.manifest(current)
    ours, theirs = _created(repository, candidate), running and _created(repository, running)
    if ours and theirs and ours < theirs:
        raise Older(
            f"{candidate.digest} is not promoted to {node_class!r}",
            why=f"it was made at {ours}, and {current}, which runs now, at {theirs}",
            fix=fix,
        )


def _created(repository: Repository, manifest: Manifest) -> str | None:
    """When an image says it was made, as UTC text that sorts by time; from its annotations, else its config."""
    value = parse_manifest(manifest)
    text: Any = (value.get("annotations") or {}).get(_CREATED)
    config = value.get("config")
    if text is None and isinstance(config, dict) and config.get("size", 0) < (4 << 20):
        try:
            text = json.loads(b"".join(repository.read_blob(Digest.parse(config["digest"])))).get("created")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
    return _utc(text) if isinstance(text, str) else None


def _utc(text: str) -> str | None:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC).isoformat() if moment.tzinfo else None
