"""The checks on real images through the built-in runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput
from builder.events import SilentReporter
from builder.matrix.values import RunLine
from builder.names import Digest
from builder.node import NodeClass
from builder.smoke.builtin import BuiltinRunner
from builder.smoke.run import run_smoke
from builder.smoke.values import CheckResult, RunnableImage, SmokeReport
from tests.image.wheels import build_wheel
from tests.smoke.conftest import MakeImage


def run(image: RunnableImage, tmp_path: Path, **options: object) -> SmokeReport:
    reporter = SilentReporter()
    return run_smoke(
        image,
        checks=resources.checks_dir(),
        runner=BuiltinRunner(scratch=tmp_path / "scratch", reporter=reporter),
        run=RunLine(),
        reporter=reporter,
        started="2026-01-01T00:00:00Z",
        **options,  # type: ignore[arg-type]
    )


def check(report: SmokeReport, name: str) -> CheckResult:
    return next(result for result in report.checks if result.name == name)


def test_a_good_image_passes_and_says_what_was_checked(make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(
        tmp_path,
        "demo",
        files={"demo/__init__.py": b"", "demo/part.py": b"", "extra_demo.py": b"", "tests/x.py": b"1/0"},
    )
    image = make_image(wheels=[wheel], warmup=["python", "-c", "import demo.part; print('one batch')"])
    report = run(image, tmp_path)
    assert report.verdict == "passed", report
    assert [result.name for result in report.checks] == ["device", "memory", "imports", "warmup"]
    assert report.image == image.digest
    assert check(report, "warmup").detail == "one batch"
    assert check(report, "imports").measures["modules"] == 2
    assert check(report, "imports").detail == "not imported by name: tests"
    assert int(check(report, "device").measures["cpu_cores"]) >= 1
    assert [row.name for row in report.left_out] == ["matmul"]


def test_the_environment_of_the_class_is_set_and_not_in_the_image(make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "demo", files={"demo.py": b""})
    told = ["python", "-c", "import os; print(os.environ['HSA_OVERRIDE_GFX_VERSION'])"]
    image = make_image(wheels=[wheel], warmup=told)
    node = NodeClass(name="n", backend="cpu", arch="x86_64", env=("HSA_OVERRIDE_GFX_VERSION=11.0.0",))
    report = run(image, tmp_path, node_class=node, machine=node)
    assert check(report, "warmup").detail == "11.0.0"
    assert check(run(image, tmp_path), "warmup").verdict == "failed"


BROKEN = {
    "raises": (b"raise RuntimeError('no such thing')", "broken (broken): RuntimeError: no such thing"),
    "wants": (b"import not_in_the_lock", "ModuleNotFoundError: No module named 'not_in_the_lock'"),
    "illegal": (b"import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL, an instruction set fault"),
    "exits": (b"import os; os._exit(0)", "it ended the interpreter without an error"),
    "library": (b"import ctypes; ctypes.CDLL('libnothing.so.1')", "libnothing.so.1: cannot open shared object file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_module_that_cannot_be_imported_fails_by_name(name: str, make_image: MakeImage, tmp_path: Path) -> None:
    code, words = BROKEN[name]
    wheels = [
        build_wheel(tmp_path, "broken", files={"broken.py": code}),
        build_wheel(tmp_path, "sound", files={"sound.py": b""}),
    ]
    report = run(make_image(wheels=wheels, warmup=["python", "-c", ""]), tmp_path)
    imports = check(report, "imports")
    assert report.verdict == "failed"
    assert imports.verdict == "failed"
    assert words in imports.detail
    assert "sound" not in imports.detail
    assert check(report, "warmup").verdict == "not-run"


def test_the_image_is_held_against_the_lock(make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "demo", "1.0", files={"demo.py": b""})
    report = run(make_image(wheels=[wheel], packages={"demo": "2.0", "absent": "1"}), tmp_path)
    detail = check(report, "imports").detail
    assert check(report, "imports").verdict == "failed"
    assert "absent 1 is in the lock but not in the image" in detail
    assert "demo is 1.0 in the image but 2.0 in the lock" in detail


def test_a_side_module_may_want_what_is_not_locked(make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "demo", files={"demo.py": b"", "demo_plugin.py": b"import not_locked"})
    report = run(make_image(wheels=[wheel]), tmp_path)
    assert check(report, "imports").verdict == "passed"
    assert "demo_plugin" in check(report, "imports").detail


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["python", "-c", "import sys; sys.exit('no model')"], "exit 1; no model"),
        (["python", "-c", "import os; os.kill(os.getpid(), 4)"], "exit 132 (SIGILL): instruction set fault"),
        (["missing-program"], "exit 127"),
    ],
)
def test_a_warmup_that_fails(command: list[str], words: str, make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "demo", files={"demo.py": b""})
    report = run(make_image(wheels=[wheel], warmup=command), tmp_path)
    assert report.verdict == "failed"
    assert check(report, "warmup").verdict == "failed"
    assert words in check(report, "warmup").detail


def test_a_warmup_that_hangs_is_cut_off(make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "demo", files={"demo.py": b""})
    image = make_image(wheels=[wheel], warmup=["python", "-c", "import time; time.sleep(600)"])
    report = run(image, tmp_path, timeout=5.0)
    assert "still running" in check(report, "warmup").detail


def test_an_absent_device_leaves_the_image_a_candidate(make_image: MakeImage, tmp_path: Path) -> None:
    """Nothing failed: the modules that need no driver import, the one that does waits for a machine that has it."""
    vendor = (
        b"import ctypes\ntry:\n    ctypes.CDLL('libascendcl.so')\n"
        b"except OSError as error:\n    raise RuntimeError('backend not loaded') from error\n"
    )
    wheels = [
        build_wheel(tmp_path, "torch_npu", files={"torch_npu.py": vendor}),
        build_wheel(tmp_path, "plain", files={"plain.py": b""}),
    ]
    image = make_image(
        wheels=wheels, packages={"torch-npu": "1.0", "plain": "1.0"}, backend="npu", warmup=["python", "-c", ""]
    )
    report = run(image, tmp_path)
    assert report.verdict == "not-run"
    assert {result.verdict for result in report.checks} == {"not-run"}
    assert "no npu device" in check(report, "device").detail
    assert check(report, "imports").measures["modules"] == 2
    assert "torch_npu needs libascendcl.so" in check(report, "imports").detail
    assert "needs device, which did not run" in check(report, "matmul-torch-npu").detail


def test_an_absent_device_excuses_nothing_else(make_image: MakeImage, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "plain", files={"plain.py": b"import ctypes; ctypes.CDLL('libcudart.so.13')"})
    report = run(make_image(wheels=[wheel], backend="npu"), tmp_path)
    assert report.verdict == "failed"
    assert "libcudart.so.13" in check(report, "imports").detail


@pytest.mark.parametrize(("what", "value"), [("backend", "npu"), ("lock", Digest.of(b"another"))])
def test_another_image_than_was_meant_is_refused(
    what: str, value: object, make_image: MakeImage, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="not the image that was meant"):
        run(make_image(), tmp_path, **{what: value})


def test_an_image_without_labels_is_refused(make_image: MakeImage, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"its labels lack dev\.builder\.backend"):
        run(make_image(config={"Labels": {}}), tmp_path)


def test_a_failed_import_does_not_spoil_the_next(make_image: MakeImage, tmp_path: Path) -> None:
    """torch leaves its operators registered when a plug-in fails; what comes after must not fail for that."""
    wheels = [
        build_wheel(tmp_path, "a_first", files={"a_first.py": b"import builtins; builtins.spoilt = 1; 1/0"}),
        build_wheel(
            tmp_path, "b_second", files={"b_second.py": b"import builtins; assert not hasattr(builtins, 'spoilt')"}
        ),
    ]
    packages = {"a-first": "1.0", "b-second": "1.0"}
    detail = check(run(make_image(wheels=wheels, packages=packages), tmp_path), "imports").detail
    assert "a_first (a-first): ZeroDivisionError" in detail
    assert "b_second" not in detail
