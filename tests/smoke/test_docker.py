"""The docker runner keeps the built-in runner's promises, on a real engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput
from builder.events import SilentReporter
from builder.image.docker_cli import Docker, DockerFailed
from builder.matrix.values import RunLine
from builder.smoke.docker import DockerRunner
from builder.smoke.run import run_command, run_smoke
from builder.smoke.values import Command
from tests.image.wheels import build_wheel
from tests.smoke.conftest import MakeImage

pytestmark = pytest.mark.docker

PYTHON = "/opt/venv/bin/python"


class Notes(SilentReporter):
    """Keeps what a user would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def docker(docker_host: str, tmp_path: Path) -> Docker:
    return Docker.find({"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": docker_host})


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def runner(docker: Docker, notes: Notes) -> DockerRunner:
    return DockerRunner(docker=docker, reporter=notes)


def test_a_program_is_confined_as_by_the_built_in_runner(make_image: MakeImage, runner: DockerRunner) -> None:
    program = """
import json, os
def writable(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    return True
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "cwd": os.getcwd(), "home": os.environ["HOME"],
    "writes": [path for path in ("/tmp/x", "/app/x", "/opt/venv/x", "/etc/x", "/dev/shm/x") if writable(path)],
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0],
    "network": sorted(os.listdir("/sys/class/net")),
}))
"""
    done = run_command(make_image(), (PYTHON, "-c", program), runner=runner, timeout=60)
    assert done.code == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    assert seen == {
        "uid": 10001,
        "gid": 10001,
        "cwd": "/app",
        "home": "/tmp",
        "writes": ["/tmp/x", "/dev/shm/x"],
        "capabilities": "0000000000000000",
        "network": ["lo"],
    }


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ((PYTHON, "-c", "import sys; sys.exit(7)"), 7),
        ((PYTHON, "-c", "import ctypes; ctypes.string_at(0)"), 139),
        ((PYTHON, "-c", "import os; os.abort()"), 134),
        (("no-such-program",), 127),
        (("/app",), 126),
    ],
)
def test_exit_statuses(make_image: MakeImage, runner: DockerRunner, argv: tuple[str, ...], code: int) -> None:
    assert run_command(make_image(), argv, runner=runner, timeout=60).code == code


def test_a_program_that_hangs_is_removed(make_image: MakeImage, runner: DockerRunner, docker: Docker) -> None:
    done = run_command(make_image(), (PYTHON, "-c", "import time; time.sleep(600)"), runner=runner, timeout=3)
    assert done.timed_out
    assert docker.run(["ps", "--all", "--quiet", "--filter", "name=builder-smoke-"], what="list containers") == b""
    assert docker.run(["image", "ls", "--quiet", "localhost/builder/smoke"], what="list images") == b""


def test_the_checks_pass_and_the_report_names_the_runner(
    make_image: MakeImage, runner: DockerRunner, notes: Notes, tmp_path: Path
) -> None:
    wheel = build_wheel(tmp_path, "demo", files={"demo.py": b""})
    report = run_smoke(
        make_image(wheels=[wheel], warmup=["python", "-c", "import demo"]),
        checks=resources.checks_dir(),
        runner=runner,
        run=RunLine(),
        reporter=notes,
        started="2026-01-01T00:00:00Z",
    )
    assert (report.runner, report.verdict) == ("docker", "passed"), report


def test_an_engine_without_the_vendors_runtime_leaves_the_device_out(
    make_image: MakeImage, runner: DockerRunner, notes: Notes
) -> None:
    with runner.open(make_image(), run=RunLine(arguments=("--gpus=all",))) as container:
        done = container.run(Command(argv=(PYTHON, "-c", "print('ran')"), timeout=60))
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA device")
    assert done.stdout == b"ran\n"
    assert any(line.startswith("run without --gpus=all: ") for line in notes.lines)


def test_a_user_that_is_not_in_the_image_is_the_images_fault(make_image: MakeImage, runner: DockerRunner) -> None:
    with pytest.raises(BadInput, match="somebody"):
        run_command(make_image(config={"User": "somebody"}), (PYTHON, "-c", ""), runner=runner, timeout=60)


def test_what_the_engine_refuses_is_told(make_image: MakeImage, runner: DockerRunner) -> None:
    with pytest.raises(DockerFailed, match="could not start"):
        run_command(make_image(config={"WorkingDir": "relative"}), (PYTHON, "-c", ""), runner=runner, timeout=60)
