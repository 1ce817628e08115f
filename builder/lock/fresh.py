"""Is a lock still what would be locked? Answered from the project and the tables alone, without the network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from builder.base.values import LockedBase
from builder.lock.values import Lock
from builder.matrix.values import IndexPin, Stack
from builder.names import Arch, Digest
from builder.project.values import Project

__all__ = ["edits", "engine_name", "inputs_digest", "stale_reasons"]


def inputs_digest(
    *,
    backend: str,
    python: str,
    arch: Arch,
    requirements: Sequence[str],
    overrides: Sequence[str],
    toolkit: str | None,
    frameworks: Mapping[str, str],
    constraints: Sequence[str],
    indexes: Sequence[IndexPin],
    base: LockedBase,
    engine: str,
) -> Digest:
    """Digest over everything a lock is decided from, in a canonical JSON form. `engine` is the engine's name alone.

    The user's own index settings are not among the inputs: they differ from machine to machine, and the hashes in the
    lock hold wherever a file is fetched from.
    """
    record = {
        "format": 1,
        "backend": backend,
        "python": python,
        "arch": arch,
        "requirements": list(requirements),
        "overrides": list(overrides),
        "toolkit": toolkit,
        "frameworks": dict(frameworks),
        "constraints": list(constraints),
        "indexes": [[pin.index, *pin.packages] for pin in indexes],
        "base": [base.reference, str(base.digest), base.python, base.glibc],
        "engine": engine,
    }
    return Digest.of(json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def _digest_of(lock: Lock) -> Digest:
    return inputs_digest(
        backend=lock.backend,
        python=lock.python,
        arch=lock.arch,
        requirements=lock.requirements,
        overrides=lock.overrides,
        toolkit=lock.toolkit,
        frameworks=lock.frameworks,
        constraints=lock.constraints,
        indexes=lock.indexes,
        base=lock.base,
        engine=engine_name(lock),
    )


def edits(lock: Lock) -> list[str]:
    """What in a lock was changed by something else than locking."""
    found = []
    if lock.inputs != _digest_of(lock):
        found.append("it was edited: its inputs do not have the digest it records")
    if lock.recorded is not None and lock.recorded != lock.content:
        found.append("it was edited: its packages do not have the digest it records")
    return found


def engine_name(lock: Lock) -> str:
    """`uv` of `uv 0.13.9`."""
    return lock.engine.partition(" ")[0]


def stale_reasons(
    lock: Lock,
    *,
    project: Project,
    stack: Stack,
    base: str,
    engine: str | None = None,
    exclude_newer: str | None = None,
) -> tuple[str, ...]:
    """Why the lock is stale, most telling first; empty when it is fresh.

    `base` is the reference a new lock would resolve. `engine` and `exclude_newer` count only when the user asks for
    one.
    """
    backend = stack.backend
    reasons: list[str] = []
    if lock.backend != backend:
        reasons.append(f"it is for backend {lock.backend}")
    reasons += edits(lock)
    reasons += _lists("requirement", lock.requirements, project.requirements_for(backend))
    reasons += _lists("override", lock.overrides, project.options(backend).overrides)
    reasons += _changed("Python", lock.python, stack.python)
    reasons += _changed("architecture", lock.arch, project.arch)
    reasons += _changed("toolkit", lock.toolkit or "none", stack.toolkit or "none")
    for name in sorted({*lock.frameworks, *stack.frameworks}):
        reasons += _changed(name, lock.frameworks.get(name, "none"), stack.frameworks.get(name, "none"))
    reasons += _lists("stack bound", lock.constraints, stack.constraints)
    reasons += _lists("index pin", _pins(lock.indexes), _pins(stack.indexes))
    reasons += _changed("base", lock.base.reference, base)
    if engine is not None:
        reasons += _changed("engine", engine_name(lock), engine)
    if exclude_newer is not None:
        reasons += _changed("exclude-newer", lock.exclude_newer, exclude_newer)
    return tuple(reasons)


def _changed(what: str, old: str, new: str) -> list[str]:
    return [] if old == new else [f"{what} changed from {old} to {new}"]


def _lists(what: str, old: Sequence[str], new: Sequence[str]) -> list[str]:
    reasons = [f"{what} {line!r} is new" for line in new if line not in old]
    reasons += [f"{what} {line!r} is gone" for line in old if line not in new]
    if not reasons and tuple(old) != tuple(new):
        reasons.append(f"the order of {what}s changed")
    return reasons


def _pins(indexes: Iterable[IndexPin]) -> tuple[str, ...]:
    return tuple(f"{', '.join(pin.packages)} from {pin.index}" for pin in indexes)
