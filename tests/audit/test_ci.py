"""The composite action, the workflow and the pre-commit hook, by running their steps."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import hatchling
import pytest

from builder.lock.files import write_lock
from tests.audit.make import library, wheel
from tests.audit.test_lock_audit import lock_of

ROOT = Path(__file__).parents[2]
ACTION = (ROOT / ".github/actions/audit/action.yml").read_text(encoding="utf-8")
INPUTS = dict(re.findall(r'(?m)^  ([\w-]+):\n    description: .*\n    default: "?([^"\n]*)"?$', ACTION))
STEP = ACTION.split("    - name: Audit\n")[1]
ENV = dict(re.findall(r"(?m)^        ([A-Z_]+): (.+)$", STEP))
RUN = textwrap.dedent(STEP.split("      run: |\n")[1])
PY = "int PyInit_x(void) { return 0; }"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose first commit has a lock of one clean wheel, and whose second adds a CUDA wheel to it."""
    plain = library(tmp_path, "x.so", code=PY).read_bytes()
    stray = library(tmp_path, "y.so", code=PY, needs=["libcudart.so.12"]).read_bytes()
    files = {"kit": wheel(tmp_path, "kit", {"kit/x.so": plain})}
    folder = tmp_path / "repository" / "service"
    folder.mkdir(parents=True)
    root = folder.parent
    git(root, "init", "--quiet")
    write_lock(lock_of(files, {}, ("kit",), "cpu"), folder)
    commit(root, "clean")
    files["stray"] = wheel(tmp_path, "stray", {"stray/y.so": stray})
    write_lock(lock_of(files, {}, ("kit", "stray"), "cpu"), folder)
    commit(root, "add a wheel")
    return root


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True)


def commit(root: Path, message: str) -> None:
    git(root, "add", "--all")
    git(root, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", message)


@pytest.fixture
def environment(tmp_path: Path, builder_environment: dict[str, str]) -> dict[str, str]:
    """A clean environment with `builder` on the path, as after the action's first step."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "builder"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m builder "$@"\n')
    program.chmod(0o755)
    path = f"{folder}:{builder_environment['PATH']}"
    return {**builder_environment, "PATH": path, "PYTHONPATH": str(ROOT)}


def step(root: Path, environment: dict[str, str], **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's last step as the runner does: bash -e -o pipefail, inputs through its env."""
    given = INPUTS | inputs
    env = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: given[match[1]], value)
        for name, value in ENV.items()
    }
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", RUN]
    return subprocess.run(script, cwd=root, env={**environment, **env}, capture_output=True, text=True, check=False)


def test_a_change_that_adds_a_stray_wheel_is_blocked_on_its_line(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    page = tmp_path / "summary.md"
    result = step(repository, {**environment, "GITHUB_STEP_SUMMARY": str(page)}, base="HEAD~1")
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("::error file=service/pylock.cpu.toml,line=")
    assert "DT_NEEDED libcudart.so.12" in result.stdout
    assert "| block | stray 1.0 | cuda: hard |" in page.read_text()


def test_what_was_there_before_does_not_block_a_change(repository: Path, environment: dict[str, str]) -> None:
    lock = repository / "service/pylock.cpu.toml"
    lock.write_text(lock.read_text() + "\n")
    commit(repository, "only a new line")
    assert step(repository, environment, base="HEAD~1").returncode == 0
    untouched = step(repository, environment, base="HEAD")
    assert (untouched.returncode, untouched.stderr) == (0, "")
    everything = step(repository, environment)
    assert everything.returncode == 1


def test_a_lock_that_is_new_is_audited_whole(repository: Path, environment: dict[str, str]) -> None:
    git(repository, "mv", "service", "other")
    commit(repository, "move")
    assert step(repository, environment, base="HEAD~1").returncode == 1


def test_the_action_writes_sarif_of_what_it_audited(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    result = step(repository, environment, base="HEAD~1", sarif=str(tmp_path / "sarif"))
    assert result.returncode == 1
    (written,) = (tmp_path / "sarif").iterdir()
    assert written.name == "service_pylock.cpu.toml.sarif"
    (run,) = json.loads(written.read_text())["runs"]
    (place,) = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "service/pylock.cpu.toml"


def test_the_workflow_gives_the_action_the_base_of_the_pull_request() -> None:
    assert set(INPUTS) == {"locks", "base", "fail-on", "sarif"}
    flow = (ROOT / ".github/workflows/audit.yml").read_text(encoding="utf-8")
    checkout, audit = flow.split("actions/checkout@")[1], flow.split("- uses: $/.github/actions/audit\n")[1]
    assert "fetch-depth: 0" in checkout
    assert audit.split() == ["with:", "base:", "${{", "github.event.pull_request.base.sha", "}}"]


def test_the_pre_commit_hook(repository: Path, environment: dict[str, str]) -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    hook = dict(re.findall(r"(?m)^  ([a-z_]+): (.+)$", text))
    lock = "service/pylock.cpu.toml"
    assert re.search(hook["files"], lock)
    assert not re.search(hook["files"], "service/pyproject.toml")
    command = [*shlex.split(hook["entry"]), lock]
    result = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "foreign-hard [cuda]" in result.stdout
    git(repository, "checkout", "--quiet", "HEAD~1")
    result = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "ok: 1 wheel for cpu: 1 ok")


def test_the_first_step_of_the_action_installs_the_program(tmp_path: Path, environment: dict[str, str]) -> None:
    step = ACTION.split("    - name: Install builder\n")[1].split("    - name: Audit\n")[0]
    source = re.findall(r"(?m)^        SOURCE: \$\{\{ github\.action_path \}\}/(.+)$", step)
    (script,) = re.findall(r"(?m)^      run: (.+)$", step)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    # Its dependencies and what builds it are there for these tests; fetching them again would prove nothing.
    site = Path(hatchling.__file__).parents[1]
    env = {
        **environment,
        "SOURCE": f"{ROOT}/.github/actions/audit/{source[0]}",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PATH": f"{tmp_path / 'venv/bin'}:{environment['PATH']}",
        "PYTHONPATH": str(site),
    }
    subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=env, check=True, cwd=tmp_path)
    assert (tmp_path / "venv/bin/builder").is_file()
