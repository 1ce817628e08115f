"""What a run of the pipeline is told and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from builder.audit.values import AuditReport
from builder.events import Reporter
from builder.image.preview import Budget, LayerPlan
from builder.image.values import BuiltImage
from builder.lock.values import BlockedPackage, Lock
from builder.proof.values import Proof
from builder.smoke.values import SmokeReport
from builder.store import Store

__all__ = ["BuildOutcome", "LockOutcome", "Step", "StepName", "Work"]

StepName = Literal["lock", "audit", "image", "size", "proof", "smoke", "publish"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Everything around a project that the steps need: where to keep things, how to reach others, whom to tell."""

    store: Store
    environ: Mapping[str, str]
    reporter: Reporter
    offline: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOutcome:
    """What `lock_project` found or made."""

    backend: str
    """The one that was asked for."""
    lock: Lock
    path: Path
    blocked: tuple[BlockedPackage, ...] = ()
    """Packages of another backend in the graph; when there are any, nothing was written."""
    stale: tuple[str, ...] = ()
    """Why the lock that stands beside the project is stale; empty when it is fresh or was made anew."""
    written: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of a build."""

    name: StepName
    verdict: str
    """The step's own word: `fresh`, `locked`, `ok`, `block`, `built`, `proven`, `passed`, `not-run`, `published`, …"""
    seconds: float
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOutcome:
    """What a build came to; as far as it got."""

    verdict: Literal["built", "candidate", "refused", "planned"]
    """built: every step that ran said yes. candidate: the image is there, but something could not be told here: a check
    did not run, or the tables do not know. refused: a step said no, and no tag was moved.
    planned: only the plan was asked for."""
    steps: tuple[Step, ...]
    lock: Lock | None = None
    blocked: tuple[BlockedPackage, ...] = ()
    audit: AuditReport | None = None
    image: BuiltImage | None = None
    proofs: tuple[Proof, ...] = ()
    smoke: SmokeReport | None = None
    tags: tuple[str, ...] = ()
    plan: LayerPlan | None = None
    """What would be made, when only that was asked for."""
    budget: Budget | None = None
    """How the image stands to `max-size`; None when the backend has none."""
    run_line: str = ""
    """How a container of the image is started on a node with the device."""
