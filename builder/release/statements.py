"""What a smoke run, an audit or a proof says about one image, as in-toto statements, written and read back.

Sources: in-toto attestation framework, predicate "test-result" v0.1 and "ResourceDescriptor" v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args
from urllib.parse import quote

from builder.audit.values import Archs, AuditReport, Finding, Level, Severity, TargetAudit
from builder.errors import BadInput
from builder.names import Digest
from builder.proof.document import proof_document
from builder.proof.values import Answer, Proof
from builder.registry.intoto import member, one_subject, optional, read_statement, statement
from builder.release.values import Draft, EvidenceType, PredicateType
from builder.smoke.values import CheckResult, CheckVerdict, LeftOut, SmokeReport

__all__ = ["ProofFacts", "audit_draft", "proof_draft", "read_audit", "read_proof", "read_smoke", "smoke_draft"]

_RESULTS: dict[CheckVerdict, str] = {"passed": "PASSED", "failed": "FAILED", "not-run": "WARNED"}
"""The predicate has no word for a check that could not run; it is no pass, so it stands among the warned."""

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
        content=statement(report.image, name, PredicateType.TEST_RESULT, predicate),
        title="smoke.intoto.json",
        predicate_type=PredicateType.TEST_RESULT,
        summary=summary,
    )


def read_smoke(content: bytes) -> SmokeReport:
    """The smoke report in a statement that `smoke_draft` wrote; `BadInput` for anything else."""

    def parse(value: dict[str, Any]) -> SmokeReport:
        run, *checks = value["predicate"]["configuration"]
        about = run["annotations"]
        report = SmokeReport(
            image=one_subject(value),
            backend=str(about["backend"]),
            node_class=optional(about["node_class"]),
            runner=str(about["runner"]),
            checks=tuple(_check(check) for check in checks),
            started=str(about["started"]),
            lock=None if about["lock"] is None else Digest.parse(about["lock"]),
            left_out=tuple(LeftOut(name=str(item["name"]), why=str(item["why"])) for item in about["left_out"]),
        )
        result = value["predicate"]["result"]
        if result != _RESULTS[report.verdict]:
            raise BadInput("the result of a smoke report is not that of its checks", why=f"it says {result}")
        return report

    return read_statement(content, PredicateType.TEST_RESULT, parse)


def _check(value: Mapping[str, Any]) -> CheckResult:
    about = value["annotations"]
    return CheckResult(
        name=str(value["name"]),
        verdict=member(about["verdict"], get_args(CheckVerdict)),
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
        content=statement(image, name, PredicateType.AUDIT, predicate),
        title="audit.intoto.json",
        predicate_type=PredicateType.AUDIT,
        summary={"verdict": report.level, "backend": report.backend},
    )


def read_audit(content: bytes) -> AuditReport:
    """The audit report in a statement that `audit_draft` wrote; `BadInput` for anything else."""

    def parse(value: dict[str, Any]) -> AuditReport:
        predicate = value["predicate"]
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

    return read_statement(content, PredicateType.AUDIT, parse)


def _target(value: Mapping[str, Any]) -> TargetAudit:
    return TargetAudit(
        name=str(value["name"]),
        version=str(value["version"]),
        file=str(value["file"]),
        sha256=Digest.parse(f"sha256:{value['sha256']}"),
        level=member(value["level"], get_args(Level)),
        tokens={str(backend): tuple(map(str, tokens)) for backend, tokens in value["tokens"].items()},
        archs=Archs(**{name: tuple(map(str, values)) for name, values in value["archs"].items()}),
        findings=tuple(_finding(finding) for finding in value["findings"]),
    )


def _finding(value: Mapping[str, Any]) -> Finding:
    return Finding(
        rule=str(value["rule"]),
        severity=member(value["severity"], get_args(Severity)),
        backend=str(value["backend"]),
        path=str(value["path"]),
        evidence=str(value["evidence"]),
        chain=tuple(map(str, value["chain"])),
        fix=str(value["fix"]),
    )


# --- proof


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofFacts:
    """What a promotion needs to know of a proof."""

    image: Digest
    node_class: str
    answer: Answer
    reasons: tuple[str, ...]
    """Why it is not proven, the worst first."""


def proof_draft(proof: Proof, *, name: str) -> Draft:
    """A proof as a statement about the image; the predicate is the document of `builder prove --json`."""
    predicate = proof_document(proof, reference=f"{name}@{proof.image}")
    return Draft(
        kind="proof",
        artifact_type=EvidenceType.IN_TOTO,
        content=statement(proof.image, name, PredicateType.PROOF, predicate),
        title="proof.intoto.json",
        predicate_type=PredicateType.PROOF,
        summary={"verdict": proof.answer, "backend": proof.backend, "node-class": proof.node_class},
    )


def read_proof(content: bytes) -> ProofFacts:
    """What a statement of `proof_draft` says; `BadInput` for anything else."""

    def parse(value: dict[str, Any]) -> ProofFacts:
        predicate = value["predicate"]
        return ProofFacts(
            image=one_subject(value),
            node_class=str(predicate["node_class"]),
            answer=member(predicate["verdict"], get_args(Answer)),
            reasons=tuple(str(reason) for reason in predicate["reasons"]),
        )

    return read_statement(content, PredicateType.PROOF, parse)
