"""The workflows and scripts are well-formed, pinned and without rights they do not need."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
SCRIPTS = ["demo", "check", ".ci/run", "scripts/environment.sh"]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{program} is not installed (pip install --group dev)")
    return subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_with_its_version_beside(path: Path) -> None:
    uses = re.findall(r"(?m)^\s*(?:- )?uses: *(.+)$", path.read_text(encoding="utf-8"))
    wrong = [use for use in uses if re.fullmatch(r"([.$]/\S+|[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+){2})", use) is None]
    assert wrong == []


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_starts_without_any_rights(path: Path) -> None:
    assert re.search(r"(?m)^permissions: \{\}$", path.read_text(encoding="utf-8"))


def test_the_release_is_built_apart_from_where_it_is_published() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    build, publish = text.split("\n  publish:\n")
    assert "id-token" not in build
    assert "needs: build" in publish
    assert "actions/checkout" not in publish
    assert re.search(r"(?m)^ *-? *run:", publish) is None


def test_jactionlint_finds_nothing() -> None:
    result = run("jactionlint")
    assert result.returncode == 0, result.stdout


def test_zizmor_finds_nothing() -> None:
    result = run("zizmor", "--offline", "--quiet", ".github")
    assert result.returncode == 0, result.stdout


def test_shellcheck_finds_nothing() -> None:
    result = run("shellcheck", "--external-sources", *SCRIPTS)
    assert result.returncode == 0, result.stdout


def test_every_script_is_checked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    shell = [
        name
        for name in names
        if name.endswith(".sh") or (ROOT / name).read_bytes()[:19].startswith(b"#!/usr/bin/env bash")
    ]
    assert sorted(shell) == sorted(SCRIPTS)
