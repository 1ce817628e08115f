"""The built-in runner on a real image, as the user who runs the tests."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.errors import BadInput, CannotTell
from builder.events import SilentReporter
from builder.matrix.values import RunLine
from builder.smoke.builtin import MODES, BuiltinRunner, Mode, why_not
from builder.smoke.run import run_command
from builder.smoke.values import Bind, Command, Completed, Container
from tests.services import REQUIRE_VARIABLE
from tests.smoke import images
from tests.smoke.conftest import MakeImage, image_maker

PYTHON = "/opt/venv/bin/python"


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mode:
    asked: Mode = request.param
    if asked == "root" and os.geteuid() != 0:
        pytest.skip("only root can run programs without a user namespace")
    if told := why_not(tmp_path_factory.mktemp("trial")):
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(told, pytrace=False)
        pytest.skip(told)
    return asked


@pytest.fixture
def runner(mode: Mode, tmp_path: Path) -> BuiltinRunner:
    return BuiltinRunner(scratch=tmp_path / "scratch", reporter=SilentReporter(), modes=(mode,))


@pytest.fixture(scope="module")
def container(mode: Mode, tmp_path_factory: pytest.TempPathFactory, base_layer: images.Tarred) -> Iterator[Container]:
    """One unpacked image for all tests that need no other: nothing stays behind between programs."""
    folder = tmp_path_factory.mktemp("unpacked")
    runner = BuiltinRunner(scratch=folder / "scratch", reporter=SilentReporter(), modes=(mode,))
    with runner.open(image_maker(folder, base_layer)(), run=RunLine()) as opened:
        yield opened


def run(container: Container, *argv: str, timeout: float = 60, **options: Any) -> Completed:
    return container.run(Command(argv=argv, timeout=timeout, **options))


def python(program: str) -> tuple[str, ...]:
    return (PYTHON, "-c", program)


def test_a_program_sees_the_image_and_not_the_machine(container: Container, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    program = f"""
import json, os, sys
def writable(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    return True
print(json.dumps({{
    "uid": os.getuid(), "gid": os.getgid(), "cwd": os.getcwd(), "prefix": sys.prefix, "home": os.environ["HOME"],
    "host": os.path.exists({str(secret)!r}), "outside": "LEAKED" in os.environ, "root": sorted(os.listdir("/")),
    "writes": [path for path in ("/tmp/x", "/app/x", "/opt/venv/x", "/etc/x", "/dev/shm/x") if writable(path)],
    "null": os.stat("/dev/null").st_rdev == os.makedev(1, 3),
    "processes": [int(p) for p in os.listdir("/proc") if p.isdigit()],
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0],
}}))
"""
    os.environ["LEAKED"] = "1"
    try:
        done = run(container, *python(program))
    finally:
        del os.environ["LEAKED"]
    assert done.code == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    assert (seen["uid"], seen["gid"]) == (10001, 10001)
    assert seen["cwd"] == "/app"
    assert seen["prefix"] == "/opt/venv"
    assert not seen["host"]
    assert not seen["outside"]
    assert seen["writes"] == ["/tmp/x", "/dev/shm/x"]
    assert seen["null"]
    assert int(seen["capabilities"], 16) == 0
    assert "app" in seen["root"]
    assert len(seen["processes"]) <= 2


def test_root_in_the_image_cannot_undo_the_read_only_mounts(make_image: MakeImage, runner: BuiltinRunner) -> None:
    program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(os.getuid(), libc.mount(b"none", b"/", None, ctypes.c_ulong(4096 | 32), None), ctypes.get_errno())
try:
    open("/etc/passwd", "a")
except OSError as error:
    print(error.errno)
"""
    done = run_command(make_image(config={"User": ""}), python(program), runner=runner, timeout=60)
    assert done.stdout.decode().split() == ["0", "-1", "1", "30"], done.stderr.decode()


def test_the_network_is_loopback_alone_unless_asked_for(container: Container) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"""
import socket
own = socket.create_server(("127.0.0.1", 0))
socket.create_connection(own.getsockname(), 5).close()
try:
    socket.create_connection(("127.0.0.1", {port}), 5).close()
    print("reached")
except OSError:
    print("cut")
"""
        cut = run(container, *python(program))
        reached = run(container, *python(program), network=True)
    assert cut.stdout == b"cut\n", cut.stderr.decode()
    assert reached.stdout == b"reached\n", reached.stderr.decode()


def test_binds_are_read_only_and_nothing_stays_behind(
    make_image: MakeImage, runner: BuiltinRunner, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "told").write_text("here")
    program = """
print(open("/run/seen/told").read())
try:
    open("/run/seen/new", "w")
except OSError as error:
    print(error.errno)
open("/tmp/left", "w").close()
"""
    image = make_image()
    with runner.open(image, run=RunLine()) as container:
        bind = Bind(source=shared, target="/run/seen")
        first = container.run(Command(argv=python(program), timeout=60, binds=(bind,)))
        second = container.run(Command(argv=python("import os; print(os.listdir('/tmp'))"), timeout=60))
    assert first.stdout == b"here\n30\n", first.stderr.decode()
    assert second.stdout == b"[]\n"
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os; os.abort()", 134),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", 132),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os\nif os.fork(): os._exit(3)\nimport time; time.sleep(30)", 3),
    ],
)
def test_exit_statuses_are_those_of_a_shell(container: Container, program: str, code: int) -> None:
    assert run(container, *python(program)).code == code


@pytest.mark.parametrize(("name", "code"), [("no-such-program", 127), ("/etc/passwd", 126), ("/app", 126)])
def test_what_cannot_be_executed(container: Container, name: str, code: int) -> None:
    done = run(container, name)
    assert done.code == code
    assert name.encode() in done.stderr


def test_a_program_that_hangs_is_stopped_with_its_children(container: Container) -> None:
    program = "import os, time\nos.fork()\nos.setsid()\nprint('up', flush=True)\ntime.sleep(600)"
    done = run(container, *python(program), timeout=2)
    assert done.timed_out
    assert b"up" in done.stdout
    assert not _processes_with("time.sleep(600)")


def _processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(text.encode() in word and word.startswith(b"import os, time\nos.fork") for word in words):
            found.append(path.parent.name)
    return found


def test_much_output_is_kept_at_its_end(make_image: MakeImage, runner: BuiltinRunner) -> None:
    done = run_command(make_image(), python("print('x' * (5 << 20)); print('the end')"), runner=runner, timeout=60)
    assert done.stdout.endswith(b"the end\n")
    assert len(done.stdout) <= 1 << 20


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"WorkingDir": "/etc/passwd"}, "/etc/passwd"),
        ({"User": "somebody"}, "no 'somebody'"),
    ],
)
def test_settings_that_cannot_be_used_are_the_images_fault(
    make_image: MakeImage, runner: BuiltinRunner, config: dict[str, str], words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        run_command(make_image(config=config), python("pass"), runner=runner, timeout=60)
    assert words in str(caught.value)


def test_a_working_directory_that_no_layer_brings_is_made(make_image: MakeImage, runner: BuiltinRunner) -> None:
    """As container runtimes do; an image without files of its own has no /app."""
    image = make_image(config={"WorkingDir": "/app/inner"})
    done = run_command(image, python("import os; print(os.getcwd())"), runner=runner, timeout=60)
    assert done.stdout == b"/app/inner\n"


def test_a_user_by_name_is_looked_up_in_the_image(make_image: MakeImage, runner: BuiltinRunner) -> None:
    done: Completed = run_command(
        make_image(config={"User": "nobody"}), python("import os; print(os.getuid(), os.getgid())"), runner=runner,
        timeout=60,
    )  # fmt: skip
    assert done.stdout == b"65534 65534\n"


def test_a_machine_that_allows_nothing_is_told_with_the_mend(make_image: MakeImage, tmp_path: Path) -> None:
    runner = BuiltinRunner(scratch=tmp_path / "scratch", reporter=SilentReporter(), modes=())
    with pytest.raises(CannotTell) as caught:
        run_command(make_image(), python("pass"), runner=runner, timeout=60)
    assert caught.value.exit_code == 4
    assert "--runner docker" in caught.value.fix
    assert list((tmp_path / "scratch").iterdir()) == []
