"""The docker runner: `docker run` with the backend's devices, and the same limits that the built-in runner sets.

The image is loaded from where it lies, by digest, under a name of its own, and removed from the engine afterwards. The
check programs are mounted into the container, so the engine must run on this machine.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from builder.errors import BadInput, CannotTell, OutsideFailed
from builder.events import Reporter
from builder.image.docker_archive import load_stream
from builder.image.docker_cli import Docker, DockerFailed
from builder.matrix.values import RunLine
from builder.registry.values import MediaType
from builder.smoke.hostfacts import device_nodes
from builder.smoke.preflight import groups_for, shared_memory_for
from builder.smoke.process import Process
from builder.smoke.values import Command, Completed, Container, RunnableImage

__all__ = ["DockerRunner"]

_ENGINE_FAILED = 125
"""Exit status of `docker run` when the container could not be started at all (Docker reference, "Exit status")."""


class DockerRunner:
    """Runs containers through one engine."""

    name = "docker"

    def __init__(self, *, docker: Docker, reporter: Reporter) -> None:
        self._docker = docker
        self._reporter = reporter

    @contextmanager
    def open(self, image: RunnableImage, *, run: RunLine) -> Iterator[Container]:
        """The image in the engine, removed at exit unless the engine had it before."""
        name = f"localhost/builder/smoke:{image.digest.hex[:16]}"
        self._load(image, name)
        try:
            nodes = device_nodes(run.devices)
            arguments = [
                *(f"--device={node.path}" for node in nodes),
                *(f"--group-add={group}" for group in groups_for(nodes)),
                *(f"--volume={path}:{path}:ro" for path in run.mounts if Path(path).exists()),
                # What an engine's plug-in brings is not known here; it may well be several devices.
                f"--shm-size={shared_memory_for(several=len(nodes) > 1 or bool(run.arguments))}",
            ]
            container = _Loaded(docker=self._docker, image=image, name=name, arguments=tuple(arguments))
            # As process 1 a program would not die of signals that it does not handle; not every engine has an init.
            container = container.with_those_accepted(("--init",), self._reporter.detail)
            yield container.with_those_accepted(run.arguments, self._reporter.note)
        finally:
            self._docker.ask(["image", "rm", name])

    def _load(self, image: RunnableImage, name: str) -> None:
        if self._docker.image_layers(name) is not None:
            return
        if (
            any(layer.media_type == MediaType.LAYER_ZSTD for layer in image.layers)
            and not self._docker.versions.reads_zstd
        ):
            raise CannotTell(
                f"{image.name} cannot be run by this Docker Engine",
                why=f"its layers are compressed by zstd, which {self._docker.versions.server} cannot read; 23.0 can",
                fix="run with --runner builtin, or build without --compression zstd",
            )
        read = image.repository.read_blob
        config = b"".join(read(image.config_digest))
        layers = [(layer, partial(read, layer.digest)) for layer in image.layers]
        total = sum(layer.size for layer in image.layers)
        with self._reporter.task("loading the image into the engine", total=total) as advance:

            def counted() -> Iterator[bytes]:
                for chunk in load_stream(name, config, layers):
                    advance(len(chunk))
                    yield chunk

            self._docker.feed(["image", "load"], counted(), what=f"load {image.name}")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loaded:
    """An image of the engine and the arguments its containers get."""

    docker: Docker
    image: RunnableImage
    name: str
    arguments: tuple[str, ...]

    def with_those_accepted(self, arguments: tuple[str, ...], tell: Callable[[str], None]) -> _Loaded:
        """With these further arguments, when the engine can start a container with them.

        An engine without the vendor's runtime refuses `--gpus`; the device check then says that there is no device.
        """
        if not arguments:
            return self
        more = _Loaded(docker=self.docker, image=self.image, name=self.name, arguments=(*self.arguments, *arguments))
        done = more._start(Command(argv=("/",), timeout=120.0))
        if done.code == _ENGINE_FAILED:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            tell(f"run without {' '.join(arguments)}: {words[-1] if words else 'the engine refused'}")
            return self
        return more

    def run(self, command: Command) -> Completed:
        """Run one program in a container of its own."""
        done = self._start(command)
        if done.code != _ENGINE_FAILED:
            return done
        words = done.stderr.decode(errors="replace").strip()
        if "no users found" in words or "unable to find user" in words:
            raise BadInput(
                f"{self.image.name} cannot be run as its user {self.image.user!r}",
                why=words,
                fix="give a numeric uid:gid as [image] user",
            )
        raise DockerFailed(f"docker could not start a container of {self.image.name}", why=words)

    def _start(self, command: Command) -> Completed:
        container = f"builder-smoke-{secrets.token_hex(8)}"
        environ = {"HOME": "/tmp", **command.env} if "HOME" not in self.image.env else command.env  # noqa: S108 - inside
        argv = [
            *(self.docker.program, "run", "--rm", "--name", container),
            *("--network", "host" if command.network else "none"),
            *("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
            *(f"--tmpfs={path}:rw,exec,nosuid,nodev,mode=1777,size=4g" for path in ("/tmp", "/var/tmp", "/run")),  # noqa: S108
            *self.arguments,
            *(f"--env={key}={value}" for key, value in environ.items()),
            *(f"--volume={bind.source}:{bind.target}:{'rw' if bind.writable else 'ro'}" for bind in command.binds),
            *("--entrypoint", command.argv[0], self.name, *command.argv[1:]),
        ]
        process = Process(argv, env=self.docker.environ)
        return process.finish(command.timeout, stop=lambda: self._remove(container))

    def _remove(self, container: str) -> None:
        if self.docker.ask(["rm", "--force", container]) is None:
            raise OutsideFailed(f"the container {container} could not be stopped", fix=f"docker rm --force {container}")
