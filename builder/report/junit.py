"""JUnit XML: one test case a wheel, as CI servers show them."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from builder.audit.values import AuditReport, Finding
from builder.report.places import seen

__all__ = ["junit"]


def junit(report: AuditReport) -> str:
    """A wheel whose level is `block` fails, milder findings are in its output; graph findings are one more case."""
    suite = ET.Element("testsuite", name=f"builder audit {report.backend}")
    failures = 0
    for target in report.targets:
        case = ET.SubElement(suite, "testcase", classname=target.name, name=target.file)
        failures += _fill(case, target.findings, failed=target.level == "block")
    if report.graph_findings:
        case = ET.SubElement(suite, "testcase", classname="lock", name="between wheels")
        failed = any(finding.severity == "error" for finding in report.graph_findings)
        failures += _fill(case, report.graph_findings, failed=failed)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _fill(case: ET.Element, findings: tuple[Finding, ...], *, failed: bool) -> int:
    shown = [finding for finding in findings if finding.severity != "info"]
    text = "\n".join(_line(finding) for finding in shown)
    if failed:
        first = next((finding for finding in shown if finding.severity == "error"), shown[0])
        failure = ET.SubElement(case, "failure", type=first.rule, message=_line(first))
        failure.text = text
    elif text:
        ET.SubElement(case, "system-out").text = text
    return int(failed)


def _line(finding: Finding) -> str:
    chain = f" (pulled in by {' > '.join(finding.chain)})" if len(finding.chain) > 1 else ""
    fix = f"; fix: {finding.fix}" if finding.fix else ""
    text = f"{finding.severity} {finding.rule} [{finding.backend}] {'; '.join(seen(finding))}{chain}{fix}"
    return "".join(character if character.isprintable() else "?" for character in text)
