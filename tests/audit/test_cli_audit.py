"""`builder audit` as people and CI run it: exit codes, documents, and each report format."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests import schemas
from tests.audit.inside import Inside
from tests.audit.make import library, wheel


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    made = library(tmp_path, "x.so", needs=["libcudart.so.12", "libcuda.so.1"])
    return wheel(tmp_path, "quiet", {"quiet/x.so": made.read_bytes()}, requires=["torch"])


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return wheel(tmp_path, "plain", {"plain.py": b""}, tag="py3-none-any")


def test_a_wheel_of_another_backend_is_a_no(builder: Inside, dirty: Path) -> None:
    result = builder("audit", str(dirty), "--backend", "cpu", "--json")
    assert result.returncode == 1
    document = schemas.document(result, "audit")
    assert document["verdict"] == "block"
    (target,) = document["targets"]
    assert target["tokens"] == {"cuda": ["hard", "meta-torch"]}
    assert target["findings"][0]["path"] == "quiet/x.so"


def test_the_same_wheel_for_its_own_backend_is_a_yes(builder: Inside, dirty: Path) -> None:
    result = builder("audit", str(dirty), "--backend", "cuda")
    assert result.returncode == 0
    assert result.stdout == "ok     quiet 1.0  (cuda: hard meta-torch)\n\nok: 1 wheel for cuda: 1 ok\n"


def test_text_names_wheel_file_evidence_and_mend(builder: Inside, dirty: Path, clean: Path) -> None:
    result = builder("audit", str(dirty.parent), "--backend", "rocm")
    assert result.returncode == 1
    assert dirty.name in result.stdout
    assert "error   foreign-hard [cuda]" in result.stdout
    assert "quiet/x.so: DT_NEEDED libcudart.so.12, libcuda.so.1" in result.stdout
    assert "fix: use the build of quiet for rocm" in result.stdout
    assert f"ok     plain {clean.name.split('-')[1]}" in result.stdout
    assert result.stdout.endswith("block: 2 wheels for rocm: 1 block, 1 ok\n")


def test_what_level_is_a_no_can_be_chosen(builder: Inside, tmp_path: Path) -> None:
    made = library(
        tmp_path, "x.so", code='void *dlopen(const char *, int); void *f(void) { return dlopen("libcuda.so.1", 1); }'
    )
    soft = wheel(tmp_path, "soft", {"soft/x.so": made.read_bytes()})
    assert builder("audit", str(soft), "--backend", "cpu").returncode == 0
    assert builder("audit", str(soft), "--backend", "cpu", "--fail-on", "warn").returncode == 1


def test_sarif_points_at_the_wheel_and_has_stable_fingerprints(builder: Inside, dirty: Path) -> None:
    result = builder("audit", str(dirty), "--backend", "cpu", "--format", "sarif")
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    (found,) = run["results"]
    assert rules[found["ruleIndex"]] == found["ruleId"] == "foreign-hard"
    assert found["level"] == "error"
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == dirty.name
    again = json.loads(builder("audit", str(dirty), "--backend", "cpu", "--format", "sarif").stdout)
    assert again["runs"][0]["results"][0]["partialFingerprints"] == found["partialFingerprints"]


def test_junit_has_a_case_for_each_wheel(builder: Inside, dirty: Path, clean: Path) -> None:
    result = builder("audit", str(dirty), str(clean), "--backend", "cpu", "--format", "junit")
    root = ET.fromstring(result.stdout)  # noqa: S314  # our own output
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failures = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failures == [dirty.name]


def test_github_annotations_and_summary(builder: Inside, dirty: Path, tmp_path: Path) -> None:
    page = tmp_path / "summary.md"
    result = builder(
        "audit", str(dirty), "--backend", "cpu", "--format", "github", env={"GITHUB_STEP_SUMMARY": str(page)}
    )
    assert result.returncode == 1
    assert result.stdout.startswith(f"::error file={dirty.name},title=foreign-hard%3A quiet 1.0::quiet/x.so: DT_NEEDED")
    assert "%0AFix: " in result.stdout
    assert "| block | quiet 1.0 | cuda: hard meta-torch |" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing-1.0-py3-none-any.whl", "--backend", "cpu"], "no such file"),
        (["x.whl", "--backend", "cpuu"], "did you mean 'cpu'"),
        (["oci:somewhere", "--backend", "cpu"], "which image of"),
        (["oci:somewhere", "x.whl", "--backend", "cpu"], "an image is audited alone"),
        (["not a requirement", "--backend", "cpu"], "not a requirement"),
        (["missing.toml", "--backend", "cpu"], "no lock"),
        (["missing.toml", "x.whl", "--backend", "cpu"], "a lock is audited alone"),
    ],
)
def test_wrong_questions(builder: Inside, arguments: list[str], said: str) -> None:
    document = schemas.error(builder("audit", *arguments, "--json"), 2)
    assert said in " ".join(str(document[key]) for key in ("what", "why", "fix"))


def test_a_file_that_is_no_wheel(builder: Inside, tmp_path: Path) -> None:
    path = tmp_path / "broken-1.0-py3-none-any.whl"
    path.write_bytes(b"PK\x03\x04 and then nothing")
    schemas.error(builder("audit", str(path), "--backend", "cpu", "--json"), 2)


def test_a_folder_without_wheels(builder: Inside, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    schemas.error(builder("audit", str(tmp_path / "empty"), "--backend", "cpu", "--json"), 2)


@pytest.mark.network
def test_a_requirement_is_fetched_and_audited(builder: Inside) -> None:
    result = builder("audit", "torchaudio==2.11.1", "--backend", "cpu", "--json")
    assert result.returncode == 1
    (target,) = schemas.document(result, "audit")["targets"]
    assert target["tokens"]["cuda"][:3] == ["hard", "via", "device"]
    offline = builder("audit", "torchaudio==2.11.1", "--backend", "cpu", "--json", "--offline")
    schemas.error(offline, 3)


@pytest.mark.network
def test_a_version_that_does_not_exist(builder: Inside) -> None:
    document = schemas.error(builder("audit", "torchaudio==99", "--backend", "cpu", "--json"), 2)
    assert document["kind"] == "no-wheel"
