"""Levels, exceptions and the policy tables themselves."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from builder.audit.audit import Terms, audit_wheel, load_rules
from builder.audit.environment import marker_environment
from builder.audit.judge import TOKENS
from builder.audit.policy import leaves_wheel, load_audit_policy, load_exceptions
from builder.audit.tables import load_mends, load_tables
from builder.audit.values import TargetAudit
from builder.audit.wheel import WheelScanner
from builder.errors import BadInput
from builder.resources import policies_dir
from builder.store import Store
from tests.audit.make import judged, library, wheel

EXCEPTIONS = """
[[exception]]
package = "carrier"
rule = "foreign-*"
reason = "the CUDA plug-in is never chosen on these nodes"
expires = 2027-03-01
"""


def excepted(tmp_path: Path, today: date, text: str = EXCEPTIONS) -> TargetAudit:
    file = tmp_path / "exceptions.toml"
    file.write_text(text)
    made = wheel(tmp_path, "carrier", {"c/x.so": library(tmp_path, "x.so", needs=["libcudart.so.12"]).read_bytes()})
    return audit_wheel(
        made,
        made.name,
        Terms(
            backend="cpu",
            environment=marker_environment("3.11", "x86_64"),
            exceptions=load_exceptions(file),
            today=today,
        ),
        store=None,
    )


def test_an_exception_lets_pass_and_stays_visible(tmp_path: Path) -> None:
    audit = excepted(tmp_path, date(2027, 3, 1))
    assert audit.level == "ok"
    (finding,) = (finding for finding in audit.findings if finding.rule.startswith("foreign-"))
    assert finding.severity == "info"
    assert "excepted until 2027-03-01: the CUDA plug-in is never chosen" in finding.evidence


def test_an_exception_ends(tmp_path: Path) -> None:
    assert excepted(tmp_path, date(2027, 3, 2)).level == "block"


def test_an_exception_is_for_one_package_and_rule(tmp_path: Path) -> None:
    other = EXCEPTIONS.replace('"foreign-*"', '"foreign-device"')
    assert excepted(tmp_path, date(2027, 1, 1), other).level == "block"


def test_faults_of_an_exceptions_file_come_together(tmp_path: Path) -> None:
    file = tmp_path / "exceptions.toml"
    file.write_text('[[exception]]\npackage = "x"\nrule = "y"\nreson = "z"\nexpires = "soon"\n')
    with pytest.raises(BadInput) as caught:
        load_exceptions(file)
    said = str(caught.value)
    assert "did you mean 'reason'" in said
    assert "reason is missing" in said
    assert "expires is missing or not a date" in said


def test_every_token_has_a_level_and_a_mend() -> None:
    policy = load_audit_policy()
    assert set(policy.levels) == set(policy.fixes) == set(TOKENS)
    for text in policy.fixes.values():
        text.format(name="n", backend="b", other="o")


def test_a_table_with_faults_says_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "levels.toml"
    path.write_text('[levels]\nblok = ["hard"]\nwarn = ["sofd"]\n[fix]\n')
    with pytest.raises(BadInput) as caught:
        load_audit_policy(path)
    assert "did you mean 'block'" in str(caught.value)
    assert "did you mean 'soft'" in str(caught.value)
    assert "token 'via' has no level" in str(caught.value)


def test_library_rows_have_sources_and_known_roles() -> None:
    tables = load_tables()
    assert len(tables.libraries) > 200
    roles = {row.role for row in tables.libraries.values()}
    assert {"host driver", "runtime", "math lib", "framework plug-in"} <= roles
    for row in tables.libraries.values():
        assert row.source, row.stem
        assert row.backend, row.stem
    for api in tables.apis:
        assert api.library in tables.libraries, api.library
        assert api.defines in TOKENS
    for mark in tables.marks:
        assert mark.library in tables.libraries


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("libcudart.so.12", "cuda"),
        ("libcudart-1a2b3c4d.so.11.0.221", "cuda"),
        ("libcudart.faf08d9a.so.13", "cuda"),
        ("/opt/rocm/lib/libamdhip64.so.7", "rocm"),
        ("libnvrtc.alt.so.13", "cuda"),
        ("libascendcl.so", "npu"),
        ("libtpu.so", "tpu"),
        ("libnrt.so.1", "neuron"),
        ("libsycl.so.8", "xpu"),
    ],
)
def test_names_of_libraries(name: str, backend: str) -> None:
    row = load_tables().library(name)
    assert row is not None
    assert row.backend == backend


@pytest.mark.parametrize("name", ["libcudart", "libcudart_like.so", "cudart.so.12", "libcudartx.so.1", ""])
def test_names_that_are_none(name: str) -> None:
    assert load_tables().library(name) is None


@pytest.mark.parametrize(
    ("path", "entry", "place"),
    [
        ("p/x.so", "$ORIGIN", None),
        ("p/x.so", "$ORIGIN/../p.libs", None),
        ("p.libs/y.so", "$ORIGIN/../p/lib", None),
        ("p/a/b/x.so", "${ORIGIN}/../..", None),
        ("p/x.so", "$ORIGIN/../nvidia/nccl/lib", "nvidia/nccl/lib"),
        ("p/x.so", "$ORIGIN/../../lib", "../lib"),
        ("p/x.so", "/usr/local/cuda/lib64", "/usr/local/cuda/lib64"),
        ("p/x.so", "", None),
    ],
)
def test_places_outside_the_wheel(path: str, entry: str, place: str | None) -> None:
    assert leaves_wheel(path, entry) == place


def test_the_rules_version_changes_with_the_tables() -> None:
    rules = load_rules()
    other = replace(rules, scanner=WheelScanner(replace(rules.tables, digest="0" * 64)))
    assert other.version != rules.version


def test_facts_come_from_the_store_the_second_time(tmp_path: Path, store: Store) -> None:
    made = wheel(tmp_path, "carrier", {"c/x.so": library(tmp_path, "x.so", needs=["libcudart.so.12"]).read_bytes()})

    def once() -> TargetAudit:
        terms = Terms(backend="cpu", environment=marker_environment("3.11", "x86_64"))
        return audit_wheel(made, made.name, terms, store=store)

    first = once()
    kept = list((store.root / "derived" / load_rules().scanner.kind).iterdir())
    assert len(kept) == 1
    kept[0].write_text(kept[0].read_text().replace("libcudart.so.12", "libcudart.so.99"))
    assert "libcudart.so.99" in once().findings[0].evidence
    kept[0].write_text("{damaged")
    assert once() == first


def test_the_tables_are_part_of_the_package() -> None:
    for name in ("libraries", "api", "members", "targets", "levels"):
        assert (policies_dir() / f"{name}.toml").is_file()


@pytest.mark.parametrize(
    ("name", "version", "backend", "said"),
    [
        ("onnxruntime-gpu", "1.0", "rocm", "use onnxruntime-rocm; or use the build of onnxruntime-gpu for rocm"),
        ("torch", "2.9.0+cu128", "cpu", "use torch==2.9.0+cpu from https://"),
        ("torch", "2.9.0", "npu", "which torch-npu extends; or "),
        ("jax-cuda13-plugin", "1.0", "rocm", "use the jax-rocm plug-in"),
        ("kit", "1.0", "cpu", "use the build of kit for cpu"),
        ("xgboost", "1.0", "rocm", "use the build of xgboost for rocm"),
    ],
)
def test_the_mend_names_what_to_take_instead(tmp_path: Path, name: str, version: str, backend: str, said: str) -> None:
    made = library(tmp_path, "x.so", code="int PyInit_x(void) { return 0; }", needs=["libcudart.so.12"])
    audit = judged(wheel(tmp_path, name, {"x.so": made.read_bytes()}, version=version), backend)
    finding = next(finding for finding in audit.findings if finding.rule == "foreign-hard")
    assert said in finding.fix


def test_what_is_taken_instead_is_of_that_backend_or_of_none() -> None:
    rules = load_rules()
    for mend in load_mends():
        for word in re.findall(r"[a-z][a-z0-9-]+", mend.use.partition(" ")[0]):
            owner = rules.packages.owner(word, "1.0", "x86_64")
            assert owner is None or owner.welcome(mend.backend), mend
