"""The forms that CI servers read, held to what their readers demand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft7Validator

from builder.audit.audit import audit_lock
from builder.audit.policy import AuditException
from builder.audit.values import AuditReport
from builder.events import SilentReporter
from builder.lock.files import render_pylock, write_lock
from builder.lock.values import Lock
from builder.report.github import github_annotations, github_summary
from builder.report.junit import junit
from builder.report.places import lock_places
from builder.report.sarif import sarif
from tests.audit.inside import Inside
from tests.audit.make import Entry, library, wheel
from tests.audit.test_lock_audit import lock_of

PY = "int PyInit_x(void) { return 0; }"


def shape(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object of these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def each(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


TEXT = {"type": "string"}
MESSAGE = shape(("text",), text=TEXT)
BAG = {"type": "object"}
ESSENTIALS = shape(
    ("version", "runs"),
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"enum": ["2.1.0"]},
    runs=each(
        shape(
            ("tool",),
            tool=shape(
                ("driver",),
                driver=shape(
                    ("name",),
                    name=TEXT,
                    semanticVersion=TEXT,
                    rules=each(shape(("id",), id=TEXT, shortDescription=MESSAGE), uniqueItems=True),
                ),
            ),
            automationDetails=shape(id=TEXT),
            results=each(
                shape(
                    ("message",),
                    ruleId=TEXT,
                    ruleIndex={"type": "integer", "minimum": -1},
                    level={"enum": ["none", "note", "warning", "error"]},
                    message=MESSAGE,
                    locations=each(
                        shape(
                            physicalLocation=shape(
                                artifactLocation=shape(uri={"type": "string", "format": "uri-reference"}),
                                region=shape(startLine={"type": "integer", "minimum": 1}),
                            )
                        )
                    ),
                    partialFingerprints={"type": "object", "additionalProperties": TEXT},
                    suppressions=each(
                        shape(
                            ("kind",),
                            kind={"enum": ["inSource", "external"]},
                            status={"enum": ["accepted", "underReview", "rejected"]},
                            justification=TEXT,
                        ),
                        uniqueItems=True,
                    ),
                )
            ),
            properties=BAG,
        )
    ),
)
"""What the schema of SARIF 2.1.0 (OASIS, errata 01) says of the objects that are written; there they are closed too."""


@pytest.fixture
def lock(tmp_path: Path) -> Lock:
    """A lock with a stray wheel, one whose finding is excepted, one with three damaged names, and a clash."""
    stray = library(tmp_path, "y.so", code=PY, needs=["libcudart.so.12"]).read_bytes()
    names = ("a", "a", "b", "b")
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = wheel(tmp_path, "twice", [Entry(name=name, data=b"1") for name in names], record="")
    files = {
        "calm": wheel(tmp_path, "calm", {"same.py": b"1"}),
        "excepted": wheel(tmp_path, "excepted", {"e/y.so": stray + b"1"}),
        "stray": wheel(tmp_path, "stray", {"stray/y.so": stray, "same.py": b"2"}, version="1.0+a.b"),
        "twice": twice,
    }
    return lock_of(files, {"calm": ("stray",)}, ("calm", "excepted", "twice"), "cpu")


def audited(lock: Lock) -> AuditReport:
    exception = AuditException(
        package="excepted", rule="foreign-*", reason="never | loaded\nhere", expires=date(2999, 1, 1)
    )
    paths = {package.file: Path(package.url.removeprefix("file://").replace("%2B", "+")) for package in lock.packages}
    return audit_lock(
        lock, paths, backend="cpu", reporter=SilentReporter(), exceptions=(exception,), today=date(2026, 1, 1)
    )


def results(report: AuditReport, path: Path) -> list[dict[str, Any]]:
    document = json.loads(sarif(report, lock_places(path)))
    Draft7Validator(ESSENTIALS, format_checker=Draft7Validator.FORMAT_CHECKER).validate(document)
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    found: list[dict[str, Any]] = run["results"]
    return found


def place(result: dict[str, Any]) -> tuple[str, int]:
    (location,) = result["locations"]
    physical = location["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


def marks(found: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [result["partialFingerprints"] for result in found]


def test_sarif_is_what_its_schema_asks_and_points_at_the_lock(
    lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my service").mkdir()
    path = write_lock(lock, tmp_path / "my service")
    found = results(audited(lock), path)
    by_rule = {result["ruleId"]: result for result in found}
    assert set(by_rule) == {"foreign-hard", "duplicate-member", "two-owners-of-one-path", "record-mismatch"}
    text = path.read_text().splitlines()
    for result in found:
        uri, line = place(result)
        assert uri == "my%20service/pylock.cpu.toml"
        named = re.fullmatch(r'name = "([\w-]+)"', text[line - 1])
        assert named is not None
        assert result["ruleId"] == "two-owners-of-one-path" or result["message"]["text"].startswith(f"{named[1]} ")
    excepted = [result for result in found if "suppressions" in result]
    assert [(result["ruleId"], result["level"]) for result in excepted] == [("foreign-hard", "note")]
    assert excepted[0]["suppressions"][0]["justification"].startswith("excepted until 2999-01-01: never")
    for kind in ("builderFinding/v1", "primaryLocationLineHash"):
        assert len({mark[kind] for mark in marks(found)}) == len(found)


def test_fingerprints_stay_when_lines_move_and_versions_change(lock: Lock, tmp_path: Path) -> None:
    path = write_lock(lock, tmp_path)
    before = results(audited(lock), path)
    path.write_text("# a comment\n\n" + render_pylock(lock))
    moved = results(audited(lock), path)
    assert marks(moved) == marks(before)
    assert [place(result)[1] for result in moved] == [place(result)[1] + 2 for result in before]
    report = audited(lock)
    newer = replace(
        report,
        targets=tuple(
            replace(
                target,
                version="9.9",
                file=target.file.replace("1.0", "9.9"),
                findings=tuple(
                    replace(finding, evidence=f"{finding.evidence} at offset 77", chain=("elsewhere", target.name))
                    for finding in target.findings
                ),
            )
            for target in report.targets
        ),
    )
    assert marks(results(newer, path)) == marks(before)


def test_junit_counts_and_survives_any_name(lock: Lock) -> None:
    report = audited(lock)
    odd = replace(
        report,
        targets=tuple(
            replace(target, findings=tuple(replace(item, path="a\x01\ufffe<&>") for item in target.findings))
            for target in report.targets
        ),
    )
    (suite,) = ET.fromstring(junit(odd).encode())  # noqa: S314 - our own output
    cases = list(suite)
    assert suite.attrib == {"name": "builder audit cpu", "tests": "5", "failures": "2"}
    assert [case.get("classname") for case in cases] == ["calm", "excepted", "stray", "twice", "lock"]
    failed = {case.get("classname"): case.find("failure") for case in cases if case.find("failure") is not None}
    assert set(failed) == {"stray", "lock"}
    (kind,) = {failure.get("type") for name, failure in failed.items() if failure is not None and name == "stray"}
    assert kind == "foreign-hard"


def test_annotations_stand_on_their_lines_and_are_escaped(
    lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b:c%").mkdir()
    path = write_lock(lock, tmp_path / "a,b:c%")
    text = path.read_text().splitlines()
    lines = github_annotations(audited(lock), lock_places(path)).splitlines()
    assert lines
    for line in lines:
        match = re.fullmatch(
            r"::(error|warning) file=a%2Cb%3Ac%25/pylock.cpu.toml,line=(\d+),title=[^:,]+::[^\n]+", line
        )
        assert match is not None, line
        assert text[int(match[2]) - 1].startswith("name = ")
    assert [line.split(" ")[0] for line in lines].count("::error") == 2


def test_the_summary_is_a_table_whatever_the_words(lock: Lock) -> None:
    page = github_summary(audited(lock))
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
    assert "- excepted until 2999-01-01: excepted foreign-* (1 finding): never \\| loaded here\n" in page


def test_reports_of_a_lock_below_the_current_folder_name_it_from_there(
    builder: Inside, lock: Lock, tmp_path: Path
) -> None:
    path = write_lock(lock, tmp_path)
    document = json.loads(builder("audit", path, "--format", "sarif").stdout)
    uri, _ = place(document["runs"][0]["results"][0])
    assert uri == path.as_posix()
