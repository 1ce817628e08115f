"""The base image's own Python, run on this machine by the built-in runner: what compiles bytecode for an image."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from builder.errors import CannotTell, OutsideFailed, Refused
from builder.image.base_layers import BaseImage
from builder.lock.values import Lock
from builder.matrix.values import RunLine
from builder.names import Digest
from builder.registry.values import BlobSource
from builder.smoke.image import this_arch
from builder.smoke.values import Bind, Command, Container, RunnableImage, Runner

__all__ = ["UnpackedBase"]

_TIMEOUT = 3600.0
"""Seconds; a wheel with ten thousand files compiles in minutes on a slow machine."""

_MEND = "leave --compile-bytecode out, or build with --engine docker or buildah, which compile inside their own build"


@dataclass(frozen=True, slots=True)
class _Layers:
    """The base's layers as a runner reads them."""

    sources: Mapping[Digest, BlobSource]

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        return self.sources[digest]()


class UnpackedBase:
    """A `BasePython`. The base is unpacked when it is first needed, and removed at exit."""

    def __init__(self, lock: Lock, open_base: Callable[[], BaseImage], runner: Runner) -> None:
        self._lock = lock
        self._open_base = open_base
        self._runner = runner
        self._stack = ExitStack()
        self._opening = threading.Lock()
        self._container: Container | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, arguments: Sequence[str], *, read: Mapping[str, Path], write: Mapping[str, Path]) -> str:
        """Run the interpreter with these arguments; hashes of strings are the same in every run."""
        command = Command(
            argv=(self._lock.base.python_path, *arguments),
            timeout=_TIMEOUT,
            env={"PYTHONHASHSEED": "0"},
            binds=(
                *(Bind(source=source, target=target) for target, source in read.items()),
                *(Bind(source=source, target=target, writable=True) for target, source in write.items()),
            ),
        )
        done = self._opened().run(command)
        if done.code:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise OutsideFailed(
                f"the Python of {self._lock.base.reference} could not compile bytecode",
                why=words[-1] if words else f"exit code {done.code}",
                fix=_MEND,
            )
        return done.stdout.decode(errors="replace")

    def _opened(self) -> Container:
        with self._opening:
            if self._container is None:
                self._container = self._open()
            return self._container

    def _open(self) -> Container:
        lock = self._lock
        if lock.arch != this_arch():
            raise Refused(
                f"bytecode for {lock.arch} cannot be compiled here",
                why=f"the base's own Python compiles it, and this machine is {this_arch()}",
                fix=f"build on a machine of {lock.arch}, or leave --compile-bytecode out",
            )
        base = self._open_base()
        image = RunnableImage(
            repository=_Layers(
                {layer.descriptor.digest: source for layer, source in zip(base.layers, base.sources, strict=True)}
            ),
            digest=lock.base.digest,
            name=lock.base.reference,
            config=base.config,
            config_digest=lock.base.digest,
            layers=tuple(layer.descriptor for layer in base.layers),
            diff_ids=tuple(layer.diff_id for layer in base.layers),
            env={},
            user="0:0",
            workdir="/",
            entrypoint=(),
            command=(),
            labels={},
        )
        try:
            return self._stack.enter_context(self._runner.open(image, run=RunLine()))
        except CannotTell as error:
            raise Refused("bytecode cannot be compiled on this machine", why=error.why, fix=_MEND) from error
