"""In-toto statements: what a smoke run, an audit or a promotion says about one image, written and read back.

Sources: in-toto attestation framework, "Statement layer" v1; predicate "test-result" v0.1; "ResourceDescriptor" v1.
Every statement is canonical JSON, so that the same result has the same digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar, get_args
from urllib.parse import quote

from builder.audit.values import Archs, AuditReport, Finding, Level, Severity, TargetAudit
from builder.errors import BadInput
from builder.names import Digest
from builder.registry.manifests import canonical_json
from builder.release.values import Draft, EvidenceType, PredicateType, PromotionRecord
from builder.smoke.values import CheckResult, CheckVerdict, LeftOut, SmokeReport

__all__ = [
    "audit_draft",
    "parse_statement",
    "promotion_draft",
    "read_audit",
    "read_promotion",
    "read_smoke",
    "smoke_draft",
    "subjects",
]

STATEMENT = "https://in-toto.io/Statement/v1"

_RESULTS: dict[CheckVerdict, str] = {"passed": "PASSED", "failed": "FAILED", "not-run": "WARNED"}
"""The predicate has no word for a check that could not run; it is no pass, so it stands among the warned."""

T = TypeVar("T")


def parse_statement(content: bytes) -> dict[str, Any]:
    """The statement's JSON object; `BadInput` when it is no in-toto statement of version 1."""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise BadInput("not an in-toto statement", why=f"not JSON: {error}") from error
    if not isinstance(value, dict) or value.get("_type") != STATEMENT or not isinstance(value.get("predicate"), dict):
        raise BadInput("not an in-toto statement", why=f"expected an object with _type {STATEMENT} and a predicate")
    return value


def subjects(statement: Mapping[str, Any]) -> tuple[Digest, ...]:
    """The sha256 digests a statement is about."""
    found = []
    for subject in statement.get("subject") or ():
        try:
            found.append(Digest.parse(f"sha256:{subject['digest']['sha256']}"))
        except (KeyError, TypeError, BadInput):
            continue
    return tuple(found)


# --- smoke


def smoke_draft(report: SmokeReport, *, name: str) -> Draft:
    """A smoke report as a test result. `name` is the image's, without tag.

    Node class, runner and time stand in `configuration`, and so does each check with its seconds, measures and detail.
    """
    run = {
        "name": "run",
        "uri": f"urn:builder:node-class:{quote(report.node_class or 'none', safe='')}",
        "annotations": {
            "backend": report.backend,
            "node_class": report.node_class,
            "runner": report.runner,
            "started": report.started,
            "lock": None if report.lock is None else str(report.lock),
            "left_out": [asdict(item) for item in report.left_out],
        },
    }
    checks = [
        {
            "name": check.name,
            "uri": f"urn:builder:check:{quote(check.name, safe='')}",
            "annotations": {
                "verdict": check.verdict,
                "seconds": check.seconds,
                "measures": dict(check.measures),
                "detail": check.detail,
            },
        }
        for check in report.checks
    ]
    named: dict[CheckVerdict, list[str]] = {
        verdict: [check.name for check in report.checks if check.verdict == verdict] for verdict in _RESULTS
    }
    predicate = {
        "result": _RESULTS[report.verdict],
        "configuration": [run, *checks],
        "passedTests": named["passed"],
        "warnedTests": named["not-run"],
        "failedTests": named["failed"],
    }
    summary = {"verdict": report.verdict, "backend": report.backend}
    if report.node_class is not None:
        summary["node-class"] = report.node_class
    return Draft(
        kind="smoke",
        artifact_type=EvidenceType.IN_TOTO,
        content=_statement(report.image, name, PredicateType.TEST_RESULT, predicate),
        title="smoke.intoto.json",
        predicate_type=PredicateType.TEST_RESULT,
        summary=summary,
    )


def read_smoke(content: bytes) -> SmokeReport:
    """The smoke report in a statement that `smoke_draft` wrote; `BadInput` for anything else."""

    def parse(statement: dict[str, Any]) -> SmokeReport:
        run, *checks = statement["predicate"]["configuration"]
        about = run["annotations"]
        report = SmokeReport(
            image=_one_subject(statement),
            backend=str(about["backend"]),
            node_class=_optional(about["node_class"]),
            runner=str(about["runner"]),
            checks=tuple(_check(check) for check in checks),
            started=str(about["started"]),
            lock=None if about["lock"] is None else Digest.parse(about["lock"]),
            left_out=tuple(LeftOut(name=str(item["name"]), why=str(item["why"])) for item in about["left_out"]),
        )
        result = statement["predicate"]["result"]
        if result != _RESULTS[report.verdict]:
            raise BadInput("the result of a smoke report is not that of its checks", why=f"it says {result}")
        return report

    return _read(content, PredicateType.TEST_RESULT, parse)


def _check(value: Mapping[str, Any]) -> CheckResult:
    about = value["annotations"]
    return CheckResult(
        name=str(value["name"]),
        verdict=_member(about["verdict"], get_args(CheckVerdict)),
        seconds=float(about["seconds"]),
        measures=dict(about["measures"]),
        detail=str(about["detail"]),
    )


# --- audit


def audit_draft(report: AuditReport, *, image: Digest, name: str) -> Draft:
    """An audit report as a statement about the image whose wheels were audited."""
    predicate = {
        "backend": report.backend,
        "level": report.level,
        "policy": report.policy,
        "targets": [
            {
                "name": target.name,
                "version": target.version,
                "file": target.file,
                "sha256": target.sha256.hex,
                "level": target.level,
                "tokens": {backend: list(tokens) for backend, tokens in target.tokens.items()},
                "archs": asdict(target.archs),
                "findings": [asdict(finding) for finding in target.findings],
            }
            for target in report.targets
        ],
        "graph_findings": [asdict(finding) for finding in report.graph_findings],
    }
    return Draft(
        kind="audit",
        artifact_type=EvidenceType.IN_TOTO,
        content=_statement(image, name, PredicateType.AUDIT, predicate),
        title="audit.intoto.json",
        predicate_type=PredicateType.AUDIT,
        summary={"verdict": report.level, "backend": report.backend},
    )


def read_audit(content: bytes) -> AuditReport:
    """The audit report in a statement that `audit_draft` wrote; `BadInput` for anything else."""

    def parse(statement: dict[str, Any]) -> AuditReport:
        predicate = statement["predicate"]
        report = AuditReport(
            backend=str(predicate["backend"]),
            targets=tuple(_target(value) for value in predicate["targets"]),
            graph_findings=tuple(_finding(value) for value in predicate["graph_findings"]),
            policy=str(predicate["policy"]),
        )
        if predicate["level"] != report.level:
            raise BadInput(
                "the level of an audit report is not that of its targets", why=f"it says {predicate['level']}"
            )
        return report

    return _read(content, PredicateType.AUDIT, parse)


def _target(value: Mapping[str, Any]) -> TargetAudit:
    return TargetAudit(
        name=str(value["name"]),
        version=str(value["version"]),
        file=str(value["file"]),
        sha256=Digest.parse(f"sha256:{value['sha256']}"),
        level=_member(value["level"], get_args(Level)),
        tokens={str(backend): tuple(map(str, tokens)) for backend, tokens in value["tokens"].items()},
        archs=Archs(**{name: tuple(map(str, values)) for name, values in value["archs"].items()}),
        findings=tuple(_finding(finding) for finding in value["findings"]),
    )


def _finding(value: Mapping[str, Any]) -> Finding:
    return Finding(
        rule=str(value["rule"]),
        severity=_member(value["severity"], get_args(Severity)),
        backend=str(value["backend"]),
        path=str(value["path"]),
        evidence=str(value["evidence"]),
        chain=tuple(map(str, value["chain"])),
        fix=str(value["fix"]),
    )


# --- promotion


def promotion_draft(record: PromotionRecord, *, name: str) -> Draft:
    """A move of a node class's tag as a statement about the image it moved to."""
    predicate = {
        "node_class": record.node_class,
        "action": record.action,
        "sequence": record.sequence,
        "history": [str(digest) for digest in record.history],
        "replaced": None if record.replaced is None else str(record.replaced),
        "evidence": [str(digest) for digest in record.evidence],
        "when": record.when,
    }
    return Draft(
        kind="promotion",
        artifact_type=EvidenceType.IN_TOTO,
        content=_statement(record.image, name, PredicateType.PROMOTION, predicate),
        title="promotion.intoto.json",
        predicate_type=PredicateType.PROMOTION,
        summary={"verdict": record.action, "node-class": record.node_class, "sequence": str(record.sequence)},
    )


def read_promotion(content: bytes) -> PromotionRecord:
    """The record in a statement that `promotion_draft` wrote; `BadInput` for anything else."""

    def parse(statement: dict[str, Any]) -> PromotionRecord:
        predicate = statement["predicate"]
        return PromotionRecord(
            image=_one_subject(statement),
            node_class=str(predicate["node_class"]),
            action=_member(predicate["action"], ("promote", "rollback")),
            sequence=int(predicate["sequence"]),
            history=tuple(Digest.parse(digest) for digest in predicate["history"]),
            replaced=None if predicate["replaced"] is None else Digest.parse(predicate["replaced"]),
            evidence=tuple(Digest.parse(digest) for digest in predicate["evidence"]),
            when=str(predicate["when"]),
        )

    return _read(content, PredicateType.PROMOTION, parse)


# --- inside


def _statement(image: Digest, name: str, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    return canonical_json(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": image.hex}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def _read(content: bytes, predicate_type: str, parse: Callable[[dict[str, Any]], T]) -> T:
    statement = parse_statement(content)
    if statement.get("predicateType") != predicate_type:
        raise BadInput(f"not a statement of type {predicate_type}", why=f"it is a {statement.get('predicateType')}")
    try:
        return parse(statement)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"a statement of type {predicate_type} cannot be read", why=f"{type(error).__name__}: {error}"
        ) from error


def _one_subject(statement: Mapping[str, Any]) -> Digest:
    found = subjects(statement)
    if len(found) != 1:
        raise BadInput("a statement about one image was expected", why=f"it names {len(found)}")
    return found[0]


def _member(value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} is not one of {', '.join(map(str, allowed))}")
    return value


def _optional(value: Any) -> str | None:
    return None if value is None else str(value)
