"""Starts the real services that tests talk to: a Docker Engine and a distribution registry, on this machine only.

    python -m tests.services -- COMMAND …     start both, export their addresses, run COMMAND, stop both

Each service gets its own folder, socket or loopback port, and is ended by its process id.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

DOCKER_VARIABLE = "BUILDER_TEST_DOCKER_HOST"
REGISTRY_VARIABLE = "BUILDER_TEST_REGISTRY"
REQUIRE_VARIABLE = "BUILDER_TEST_REQUIRE_SERVICES"


class Unavailable(Exception):
    """The service cannot be had on this machine; the text says why."""


def free_port() -> int:
    """A loopback TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def program(name: str) -> str:
    """Path of a program, also in the sbin folders that a user's PATH leaves out; `Unavailable` when absent."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(name, path=path)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


def registry_config(folder: Path, port: int) -> str:
    """A distribution registry's configuration: plain HTTP on loopback, blobs under `folder`, deletion allowed."""
    return f"""\
version: 0.1
log:
  level: warn
storage:
  filesystem:
    rootdirectory: {folder}
  delete:
    enabled: true
http:
  addr: 127.0.0.1:{port}
"""


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """A distribution registry with its files under `folder`; gives `127.0.0.1:PORT`."""
    binary = program("docker-registry")
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yml"
    config.write_text(registry_config(folder / "storage", port))
    host = f"127.0.0.1:{port}"
    with running([binary, "serve", str(config)], folder / "registry.log", lambda: _answers(f"http://{host}/v2/")):
        yield host


@contextmanager
def engine(folder: Path) -> Iterator[str]:
    """A Docker Engine of its own with its files under `folder`; gives its `unix://` address. Needs root.

    It gets no bridge and writes no firewall rules: containers that need a network use the host's.
    """
    binary = program("dockerd")
    if os.geteuid() != 0:
        raise Unavailable("dockerd needs root")
    folder.mkdir(parents=True, exist_ok=True)
    # a socket's path has a limit of 107 bytes, which a test's temporary folder can pass
    with tempfile.TemporaryDirectory(prefix="builder-docker-") as short, _unmounted(Path(short), folder):
        address = f"unix://{short}/docker.sock"
        command = [
            binary,
            *("--data-root", str(folder / "data")),
            *("--exec-root", f"{short}/exec"),
            *("--pidfile", f"{short}/docker.pid"),
            *("--host", address),
            "--bridge=none",
            "--iptables=false",
        ]
        client = program("docker")
        with running(
            command,
            folder / "dockerd.log",
            lambda: (
                subprocess.run([client, "--host", address, "info"], capture_output=True, check=False).returncode == 0
            ),
        ):
            yield address


@contextmanager
def _unmounted(*folders: Path) -> Iterator[None]:
    """Afterwards nothing is mounted below the folders: an engine leaves the network namespaces of its containers."""
    try:
        yield
    finally:
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for point in reversed(points):
            if any(Path(point).is_relative_to(folder) for folder in folders):
                subprocess.run(["umount", "--lazy", point], check=False)


@contextmanager
def running(command: list[str], log: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """The process, once `ready`; its whole process group is ended afterwards, politely first."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            deadline = time.monotonic() + 60
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                    raise Unavailable(f"{command[0]} did not start:\n{tail}")
                time.sleep(0.1)
            yield
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Run a command with both services up and their addresses in its environment."""
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments:
        sys.stderr.write("usage: python -m tests.services -- COMMAND …\n")
        return 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="builder-services-")))
        try:
            found = {
                DOCKER_VARIABLE: stack.enter_context(engine(folder / "docker")),
                REGISTRY_VARIABLE: stack.enter_context(registry(folder / "registry")),
            }
        except Unavailable as error:
            sys.stderr.write(f"{error}\n")
            return 3
        return _run_to_the_end(arguments, {**environ, **found})


def _run_to_the_end(arguments: list[str], environ: Mapping[str, str]) -> int:
    """The command's exit code. It leads its own process group, which is ended with us when we are told to stop."""
    process = subprocess.Popen(arguments, env=environ, start_new_session=True)

    def stop(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
