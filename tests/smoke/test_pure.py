"""What decides verdicts, without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput
from builder.image.labels import ImageFacts
from builder.names import Digest
from builder.project.values import Warmup
from builder.smoke.judge import exit_detail, judge_check, judge_command
from builder.smoke.plan import blocked_by, plan_checks
from builder.smoke.preflight import DeviceNode, device_access, groups_for, shared_memory_for
from builder.smoke.table import load_table
from builder.smoke.values import CheckResult, CheckVerdict, Completed, SmokeReport

DIGEST = Digest.of(b"")


def facts(backend: str, packages: dict[str, str], *, warmup: bool = False) -> ImageFacts:
    return ImageFacts(
        backend=backend,
        toolkit=None,
        python="3.11",
        lock=DIGEST,
        packages=packages,
        warmup=Warmup(command=("run",)) if warmup else None,
    )


def done(stdout: str = "", *, code: int = 0, stderr: str = "", timed_out: bool = False) -> Completed:
    return Completed(code=code, stdout=stdout.encode(), stderr=stderr.encode(), seconds=1.5, timed_out=timed_out)


def line(verdict: str = "passed", **more: object) -> str:
    return json.dumps({"name": "x", "verdict": verdict, "measures": {"a": 1}, "detail": "", **more})


# --- what a run was worth


@pytest.mark.parametrize("verdict", ["passed", "failed", "not-run"])
def test_the_last_result_line_counts(verdict: str) -> None:
    result = judge_check("matmul", done(f"noise\n{line('failed')}\n{line(verdict)}\n[1]\nnoise"))
    assert (result.name, result.verdict, result.measures) == ("matmul", verdict, {"a": 1})


@pytest.mark.parametrize("stdout", ["", "hello", "{}", '{"verdict": "passed"}', line("fine"), '"passed"'])
def test_silence_is_not_a_pass(stdout: str) -> None:
    result = judge_check("matmul", done(stdout, stderr="last words"))
    assert result.verdict == "failed"
    assert "last words" in result.detail


def test_a_result_does_not_outlive_a_crash() -> None:
    result = judge_check("matmul", done(line(), code=139))
    assert result.verdict == "failed"
    assert result.measures == {"exit_code": 139}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (132, "exit 132 (SIGILL): instruction set fault"),
        (137, "exit 137 (SIGKILL): killed"),
        (139, "exit 139 (SIGSEGV)"),
        (134, "exit 134 (SIGABRT)"),
        (135, "exit 135 (SIGBUS)"),
        (127, "not found"),
        (126, "cannot be executed"),
        (3, "exit 3"),
        (200, "signal 72"),
    ],
)
def test_exit_statuses_are_classed(code: int, words: str) -> None:
    assert words in exit_detail(code)


def test_fr_32_an_instruction_fault_is_named() -> None:
    result = judge_command("warmup", done(code=132))
    assert result.verdict == "failed"
    assert "instruction set fault" in result.detail


def test_a_timeout_is_told_with_the_last_words() -> None:
    result = judge_command("warmup", done("compiling", code=137, timed_out=True))
    assert result.verdict == "failed"
    assert result.detail == "still running after 2 s, stopped; compiling"


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        (["passed", "passed"], "passed"),
        (["passed", "not-run"], "not-run"),
        (["not-run", "failed", "passed"], "failed"),
        ([], "not-run"),
    ],
)
def test_the_whole_passes_only_when_every_check_did(verdicts: list[CheckVerdict], whole: str) -> None:
    checks = tuple(
        CheckResult(name=str(number), verdict=verdict, seconds=0, measures={})
        for number, verdict in enumerate(verdicts)
    )
    report = SmokeReport(
        image=DIGEST, backend="cpu", node_class=None, runner="builtin", checks=checks, started="2026-01-01T00:00:00Z"
    )
    assert report.verdict == whole


# --- which checks an image must pass


def test_every_backend_has_a_table() -> None:
    assert resources.backends()
    for backend in resources.backends():
        table = load_table(resources.checks_dir(), backend)
        assert {"device", "imports", "matmul", "warmup"} <= {check.name for check in table.checks}


@pytest.mark.parametrize(
    ("packages", "names", "left_out"),
    [
        ({"torch": "2.13.0+cpu", "numpy": "2.3"}, ["matmul-torch", "matmul-numpy", "warmup"], []),
        ({"onnxruntime": "1.22"}, ["matmul-onnxruntime", "warmup"], []),
        ({"numpy": "2.3"}, ["matmul-numpy", "warmup"], []),
        ({"flask": "3.0"}, ["warmup"], ["matmul"]),
    ],
)
def test_a_cpu_image_is_checked_with_every_framework_it_has(
    packages: dict[str, str], names: list[str], left_out: list[str]
) -> None:
    planned, told = plan_checks(load_table(resources.checks_dir(), "cpu"), facts("cpu", packages, warmup=True))
    assert [check.name for check in planned] == ["device", "memory", "imports", *names]
    assert [row.name for row in told] == left_out
    assert not any(check.cannot_run for check in planned)


def test_an_accelerator_image_without_a_framework_cannot_pass() -> None:
    planned, _ = plan_checks(load_table(resources.checks_dir(), "npu"), facts("npu", {"torch": "2.13.0+cpu"}))
    matmul = next(check for check in planned if check.row == "matmul")
    assert matmul.cannot_run == "the lock holds none of torch-npu"
    assert blocked_by(matmul, {}, []) == matmul.cannot_run


@pytest.mark.parametrize(("verdict", "word"), [("failed", "failed"), ("not-run", "did not run")])
def test_a_check_is_not_run_when_one_it_needs_has_not_passed(verdict: CheckVerdict, word: str) -> None:
    planned, _ = plan_checks(load_table(resources.checks_dir(), "cuda"), facts("cuda", {"torch": "2.13.0"}))
    matmul = next(check for check in planned if check.row == "matmul")
    results = [CheckResult(name="device", verdict=verdict, seconds=0, measures={}, detail="no /dev/nvidia0")]
    assert blocked_by(matmul, {"device": "device"}, results) == f"needs device, which {word}: no /dev/nvidia0"


def test_faults_of_a_table_are_all_told(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/checks.toml").write_text(
        """
[frameworks.torch]
module = "torch"
[[check]]
name = "one"
program = "missing.py"
needs = ["tow"]
tiemout = 3
[[check]]
name = "one"
frameworks = ["touch"]
without-framework = "skip"
"""
    )
    with pytest.raises(BadInput) as caught:
        load_table(tmp_path, "odd")
    text = str(caught.value)
    for words in (
        "needs module and device",
        "unknown key 'tiemout'",
        "did you mean 'timeout'",
        "missing.py",
        "needs 'tow'",
        "is there twice",
        "either a program or warmup",
        "unknown framework 'touch'",
        "leave-out or not-run",
    ):
        assert words in text


def test_an_unknown_backend_gets_the_closest_name() -> None:
    with pytest.raises(BadInput, match="did you mean 'cuda'"):
        load_table(resources.checks_dir(), "cudda")


# --- the launch


def test_fr_33_a_device_that_the_launch_does_not_let_through() -> None:
    nodes = (
        DeviceNode(path="/dev/kfd", uid=0, gid=992, mode=0o660),
        DeviceNode(path="/dev/dri/renderD128", uid=0, gid=992, mode=0o660),
    )
    told = device_access(nodes, uid=1000, gids=frozenset({44}))
    assert told == (
        "/dev/kfd belongs to gid 992 with mode 0660, and the process (uid 1000) has groups 44: "
        "start the container with --group-add 992"
    )
    assert groups_for(nodes) == (992,)
    assert device_access(nodes, uid=1000, gids=frozenset({44, 992})) == ""
    assert device_access(nodes, uid=0, gids=frozenset()) == ""


def test_fr_34_several_devices_get_more_shared_memory_than_an_engine_gives() -> None:
    assert shared_memory_for(several=False) == 64 << 20
    assert shared_memory_for(several=True) == 1 << 30
