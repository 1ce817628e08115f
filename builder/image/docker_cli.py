"""Speaks to a Docker Engine through the docker client, using only its documented command line.

The client knows contexts, ssh hosts and credentials, and is the only way to BuildKit, whose build session no Python
client speaks (docs/decisions). BUILDER_DOCKER names another client than the first `docker` on PATH.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from builder.errors import OutsideFailed

__all__ = ["Docker", "DockerFailed", "DockerVersions"]

BuildWith = Literal["buildx", "buildkit", "classic"]
"""The client's plug-in; a client before 23 with DOCKER_BUILDKIT=1; the engine's old builder."""

_BUILDKIT_INSIDE = (18, 9)
"""First client that speaks to the engine's BuildKit without a plug-in (Docker 18.09 release notes)."""
_BUILDX_ONLY = (23, 0)
"""First client that needs the buildx plug-in for BuildKit (Docker 23.0 release notes)."""


class DockerFailed(OutsideFailed):
    """The Docker client or engine did not do what it was asked."""

    kind = "docker-failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerVersions:
    """What `docker version` says."""

    client: str
    server: str

    @property
    def client_numbers(self) -> tuple[int, ...]:
        """`20.10.24+dfsg1` as (20, 10)."""
        return _numbers(self.client)

    @property
    def reads_zstd(self) -> bool:
        """Whether the engine can take in layers that are compressed by zstd (Docker Engine 23.0 release notes)."""
        return _numbers(self.server) >= (23,)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


@dataclass(frozen=True, kw_only=True, slots=True)
class Docker:
    """One client and the engine it speaks to. Make it with `find`."""

    program: str
    environ: Mapping[str, str]
    versions: DockerVersions
    _tools: dict[str, BuildWith] = field(default_factory=dict, repr=False)

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Docker:
        """The client on PATH and a living engine; `DockerFailed` with the mend when either is missing."""
        named = environ.get("BUILDER_DOCKER", "docker")
        program = shutil.which(named, path=environ.get("PATH"))
        if program is None:
            raise DockerFailed(
                "there is no docker client",
                why=f"{named!r} is not on PATH",
                fix="install Docker, or use the built-in engine and runner (--engine oci, --runner builtin)",
            )
        done = subprocess.run(
            [program, "version", "--format", "{{json .}}"], env=dict(environ), capture_output=True, check=False
        )
        try:
            found: Any = json.loads(done.stdout)
            versions = DockerVersions(client=found["Client"]["Version"], server=found["Server"]["Version"])
        except (ValueError, KeyError, TypeError):
            raise DockerFailed(
                "there is no Docker Engine to speak to",
                why=_last_words(done.stderr) or f"{program} version gave no answer",
                fix="start the engine, point DOCKER_HOST at one, or use the built-in engine and runner "
                "(--engine oci, --runner builtin)",
            ) from None
        return cls(program=program, environ=environ, versions=versions)

    @property
    def build_with(self) -> BuildWith:
        """The best builder that client and engine have together; asked once."""
        if "found" not in self._tools:
            self._tools["found"] = self._find_builder()
        return self._tools["found"]

    @property
    def buildx_version(self) -> str:
        """`0.29.1` of the plug-in; empty without one."""
        said = self.ask(["buildx", "version"])
        found = re.search(rb"v?(\d+\.\d+[0-9.]*)", said or b"")
        return found[1].decode() if found else ""

    def _find_builder(self) -> BuildWith:
        wanted = self.environ.get("DOCKER_BUILDKIT", "1") != "0"
        if not wanted:
            return "classic"
        if self._call(["buildx", "version"]).returncode == 0:
            return "buildx"
        if _BUILDKIT_INSIDE <= self.versions.client_numbers < _BUILDX_ONLY:
            return "buildkit"
        return "classic"

    def run(self, arguments: Sequence[str], *, what: str, more: Mapping[str, str] | None = None) -> bytes:
        """Stdout of one docker command; `DockerFailed` saying `what` failed, with the engine's last words."""
        done = self._call(arguments, more=more)
        if done.returncode != 0:
            raise self._failed(what, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def ask(self, arguments: Sequence[str]) -> bytes | None:
        """Stdout of one docker command, or None when it failed: for questions whose answer may be no."""
        done = self._call(arguments)
        return done.stdout if done.returncode == 0 else None

    def feed(self, arguments: Sequence[str], chunks: Iterable[bytes], *, what: str) -> bytes:
        """Like `run`, with the chunks on the command's stdin."""
        process = subprocess.Popen(
            [self.program, *arguments],
            env=dict(self.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        said: dict[str, bytes] = {}
        reader = threading.Thread(target=lambda: said.update(zip(("out", "err"), _drain(process), strict=True)))
        reader.start()
        try:
            assert process.stdin is not None  # noqa: S101 - asked for above
            try:
                for chunk in chunks:
                    process.stdin.write(chunk)
                process.stdin.close()
            except BrokenPipeError:
                pass  # the command ended early; its exit status and words tell why
            process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            reader.join()
        if process.returncode != 0:
            raise self._failed(what, process.returncode, said["out"], said["err"])
        return said["out"]

    def image_layers(self, name: str) -> tuple[str, ...] | None:
        """Diff ids of an image of the engine, lowest first, or None when it has no such image."""
        found = self.ask(["image", "inspect", "--format", "{{json .RootFS.Layers}}", name])
        return tuple(json.loads(found) or ()) if found is not None else None

    def _call(
        self, arguments: Sequence[str], *, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.program, *arguments],
            env={**self.environ, **(more or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def _failed(self, what: str, code: int, stdout: bytes, stderr: bytes) -> DockerFailed:
        """The classic builder says what a step printed on stdout, BuildKit on stderr, newer ones far from the end."""
        return DockerFailed(
            f"docker could not {what}",
            why="\n".join(filter(None, (_last_words(stdout, 3), _step_words(stderr), _last_words(stderr))))
            or f"exit {code}",
            fix=f"see the engine's log; client {self.versions.client}, engine {self.versions.server}",
        )


def _drain(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Both outputs to their end; stderr in a thread of its own, so that neither pipe can fill up."""
    assert process.stdout is not None  # noqa: S101 - asked for by the caller
    assert process.stderr is not None  # noqa: S101
    errors: list[bytes] = []
    stderr = process.stderr
    reader = threading.Thread(target=lambda: errors.append(stderr.read()))
    reader.start()
    with process.stdout, stderr:
        out = process.stdout.read()
        reader.join()
    return out, errors[0]


def _step_words(stderr: bytes, lines: int = 6) -> str:
    """What the failed step itself printed, where buildx repeats it: between two rules, below a line `> [2/3] RUN …`."""
    text = stderr.decode(errors="replace")
    found = re.findall(r"^------\n > .*\n((?:.*\n)*?)------$", text, re.MULTILINE)
    return "\n".join(found[-1].strip().splitlines()[-lines:]) if found else ""


def _last_words(stderr: bytes, lines: int = 6) -> str:
    return "\n".join(stderr.decode(errors="replace").strip().splitlines()[-lines:])
