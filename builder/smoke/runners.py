"""The runners by name, as `--runner` spells them; only the one that is asked for is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from builder.errors import BadInput, did_you_mean
from builder.events import Reporter
from builder.smoke.values import Runner
from builder.store import Store

__all__ = ["RUNNERS", "RunnerName", "open_runner"]

RunnerName = Literal["builtin", "docker"]

RUNNERS: tuple[RunnerName, ...] = get_args(RunnerName)
"""The default first: it needs nothing but the kernel."""


def open_runner(name: str, *, environ: Mapping[str, str], store: Store, reporter: Reporter) -> Runner:
    """The runner of that name. `BadInput` for an unknown one, `OutsideFailed` when it has no engine to speak to."""
    if name == "builtin":
        from builder.smoke.builtin import BuiltinRunner

        return BuiltinRunner(scratch=store.root / "tmp", reporter=reporter)
    if name == "docker":
        from builder.image.docker_cli import Docker
        from builder.smoke.docker import DockerRunner

        return DockerRunner(docker=Docker.find(environ), reporter=reporter)
    raise BadInput(f"unknown runner {name!r}", fix=did_you_mean(name, RUNNERS))
