"""What is run in an image, what a runner gives back, and the result of checks run in one image on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from builder.matrix.values import RunLine
from builder.names import Digest
from builder.registry.values import Descriptor

__all__ = [
    "Bind",
    "Blobs",
    "CheckResult",
    "CheckVerdict",
    "Command",
    "Completed",
    "Container",
    "LeftOut",
    "RunnableImage",
    "Runner",
    "SmokeReport",
]

CheckVerdict = Literal["passed", "failed", "not-run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """One check."""

    name: str
    verdict: CheckVerdict
    seconds: float
    measures: Mapping[str, float | int | str]
    """Figures with the unit in the name: `matmul_seconds`, `device_memory_bytes`."""
    detail: str = ""
    """Why it failed or did not run; the program's own last words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A check of the backend's table that this image has nothing to run with."""

    name: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeReport:
    """All checks of one run."""

    image: Digest
    backend: str
    node_class: str | None
    runner: str
    checks: tuple[CheckResult, ...]
    started: str
    """UTC ISO 8601."""
    lock: Digest | None = None
    """Digest of the lock the image says it was made from."""
    left_out: tuple[LeftOut, ...] = ()
    """What the table has but this image does not call for: told, never counted as passed."""

    @property
    def verdict(self) -> CheckVerdict:
        """failed when any failed; passed only when all passed; else not-run."""
        verdicts = {check.verdict for check in self.checks}
        if "failed" in verdicts:
            return "failed"
        return "passed" if verdicts == {"passed"} else "not-run"


class Blobs(Protocol):
    """Where layers are read from: a `Repository`, or what stands in for one."""

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        """The blob's bytes, verified while streaming."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnableImage:
    """An image in a repository, with what its config says about running it."""

    repository: Blobs
    digest: Digest
    """Of the image manifest (never of an index)."""
    name: str
    """For messages: the reference as the user wrote it."""
    config: Mapping[str, Any]
    """The image config's JSON (image-spec, config.md)."""
    config_digest: Digest
    layers: tuple[Descriptor, ...]
    """Lowest first."""
    diff_ids: tuple[Digest, ...]
    env: Mapping[str, str]
    user: str
    """As written in the config: empty (root), a name, `uid` or `uid:gid`."""
    workdir: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def argv(self) -> tuple[str, ...]:
        """What a container runs when nothing else is asked for."""
        return self.entrypoint + self.command


@dataclass(frozen=True, kw_only=True, slots=True)
class Bind:
    """A host folder or file seen inside the container, read-only unless it says otherwise."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One program to run in an image, as the image's user, in its working directory and environment."""

    argv: tuple[str, ...]
    timeout: float
    """Seconds of wall time; the program and its children are killed after that."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the image's environment."""
    binds: tuple[Bind, ...] = ()
    network: bool = False
    """False: only the loopback interface. True: the host's network."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """How a program ended."""

    code: int
    """Exit status as a shell shows it: 128 + signal number when a signal ended it."""
    stdout: bytes
    """At most `OUTPUT_LIMIT` bytes, the last ones."""
    stderr: bytes
    """At most `OUTPUT_LIMIT` bytes, the last ones."""
    seconds: float
    timed_out: bool = False


class Container(Protocol):
    """An image made ready to run programs in. Nothing one program writes is seen by the next."""

    def run(self, command: Command) -> Completed:
        """Run one program to its end. `OutsideFailed` when it could not be started at all for the runner's sake."""


class Runner(Protocol):
    """Something that can run programs in an image on this machine. `open` is called once per image."""

    name: str
    """`builtin` or `docker`, as `--runner` spells it and the report records it."""

    def open(self, image: RunnableImage, *, run: RunLine) -> AbstractContextManager[Container]:
        """Make the image ready; what was made for it is released at exit.

        `run` names the device nodes, mounts and groups of the backend; what is not there on this machine is left
        out, so that a device check can say so. `CannotTell` when this machine does not let the runner work.
        """
