"""The wheel holds what it should, and in CI it is the wheel that is tested."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import builder
from builder import resources
from tests.conftest import RunBuilder

ROOT = Path(__file__).parent.parent
DATA = ("matrices", "dockerfiles", "checks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, cwd=folder)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.network
def test_the_wheel_holds_the_package_and_all_its_data(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", "builder", *DATA], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name if name.startswith("builder/") else f"builder/_data/{name}" for name in listed.stdout.splitlines()}
    assert expected <= names
    assert {name for name in names - expected if "__pycache__" in name or name.endswith(".pyc")} == set()
    assert {name.split("/")[0] for name in names} == {"builder"}


@pytest.mark.network
def test_the_wheel_installs_both_commands(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert wheel.read(entry_points).decode().splitlines() == [
        "[console_scripts]",
        "build = builder.cli.main:build_main",
        "builder = builder.cli.main:main",
    ]


@pytest.mark.skipif(os.environ.get("BUILDER_TEST_INSTALLED") != "1", reason="only ./check installs the wheel")
def test_the_tests_run_on_the_installed_wheel(run_builder: RunBuilder, tmp_path: Path) -> None:
    package = Path(builder.__file__).parent
    assert package.parent.name == "site-packages"
    assert resources.matrices_dir() == package / "_data" / "matrices"
    code = "import builder; print(builder.__file__)"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert Path(found.stdout.strip()).parent == package
    assert run_builder("--version", cwd=ROOT).returncode == 0


def test_every_module_says_what_it_is_for() -> None:
    modules = sorted((ROOT / "builder").rglob("*.py"))
    assert [str(path) for path in modules if not path.read_text(encoding="utf-8").startswith('"""')] == []
