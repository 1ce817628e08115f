"""Where two locks part ways, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builder.lock.compare import compare
from builder.lock.files import write_lock
from builder.lock.values import Lock
from builder.matrix.values import IndexPin
from tests import schemas
from tests.conftest import RunBuilder
from tests.lock.test_trap import lock, package


def npu() -> Lock:
    return replace(
        lock(
            "npu",
            ("torch-npu==2.13.0", "torch==2.13.0+cpu", "numpy"),
            package("torch", "2.13.0+cpu"),
            package("torch-npu", "2.13.0", "torch", "numpy"),
            package("numpy", "1.26.4"),
            package("pillow", "12.0.0"),
        ),
        constraints=("torch==2.13.0+cpu",),
        indexes=(IndexPin(index="https://cpu.host/whl", packages=("torch",)),),
    )


def cuda(**changes: str) -> Lock:
    made = lock(
        "cuda",
        ("torch==2.13.0", "numpy"),
        package("torch", "2.13.0"),
        package("numpy", "2.3.0"),
        package("pillow", "12.0.0"),
        package("triton", "3.7.1"),
    )
    return replace(made, python=changes.get("python", made.python))


def test_versions_that_differ_are_named_with_what_makes_them_so() -> None:
    numpy, torch = compare(npu(), cuda(python="3.12"))
    assert (numpy.name, numpy.first, numpy.second, numpy.label_only) == ("numpy", "1.26.4", "2.3.0", False)
    assert "npu: torch-npu asks for it, and not in cuda" in numpy.why
    assert f"Python: npu {npu().python}, cuda 3.12" in numpy.why
    assert torch.label_only
    assert "npu: torch==2.13.0+cpu" in torch.why
    assert "npu: only from https://cpu.host/whl" in torch.why
    assert "cuda: torch==2.13.0" in torch.why


def test_what_only_one_lock_holds_is_no_difference() -> None:
    assert compare(cuda(), cuda()) == ()
    assert [one.name for one in compare(npu(), cuda())] == ["numpy", "torch"]


def test_without_a_cause_in_either_lock_it_says_so() -> None:
    older = lock("cpu", (), package("pillow", "11.0.0"))
    newer = lock("xpu", (), package("pillow", "12.0.0"))
    (found,) = compare(older, newer)
    assert found.why == ("neither lock says: lock both again with --upgrade",)


def test_the_command_line_tells(tmp_path: Path, run_builder: RunBuilder) -> None:
    (tmp_path / "builder.toml").write_text('name = "x"\nversion = "1"\nbase = "debian:bookworm"\n')
    first, second = write_lock(npu(), tmp_path), write_lock(cuda(), tmp_path)
    result = run_builder("lock", "--diff", first, second, "--json")
    found = schemas.document(result, "lock-diff")
    assert (result.returncode, found["verdict"], found["shared"]) == (1, "diverges", 3)
    assert [item["name"] for item in found["packages"]] == ["numpy", "torch"]
    text = run_builder("lock", "--diff", first, second).stdout
    assert "torch: 2.13.0+cpu and 2.13.0 (another build)" in text
    assert "diverges: 1 of 3 packages in both have other versions" in text
    named = run_builder("lock", "--diff", "npu", "npu", "--project", tmp_path, "--json")
    assert (named.returncode, schemas.document(named, "lock-diff")["verdict"]) == (0, "same")


def test_without_a_backend_there_is_nothing_to_lock(run_builder: RunBuilder) -> None:
    result = run_builder("lock", "--json")
    assert schemas.error(result, 2)["what"] == "Missing option '--backend'."
