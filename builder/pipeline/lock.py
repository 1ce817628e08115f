"""From a project and the tables to a lock on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement

from builder.audit.base import judge_base, refuse_base
from builder.base.debian import SUITES
from builder.base.resolve import OpenRepository, base_distributions, resolve_base
from builder.base.values import BaseDistribution, LockedBase
from builder.errors import BadInput, BuilderError, CannotTell, OutsideFailed, Refused, Where, did_you_mean
from builder.lock.engine import LockEngine
from builder.lock.files import lock_path, read_lock, requirements_path, write_lock
from builder.lock.fresh import edits, stale_reasons
from builder.lock.make import make_lock
from builder.lock.measure import measured
from builder.lock.policy import PackagePolicy, load_package_policy
from builder.lock.trap import blocked
from builder.lock.values import Lock
from builder.matrix import Refusal, Stack, load_tables, solve
from builder.node.values import NodeClass
from builder.pipeline.values import LockOutcome, Work
from builder.project import Project
from builder.registry.open import open_repository
from builder.wheels.settings import read_index_settings

__all__ = ["lock_project", "now", "open_engine", "solve_project"]

ENGINES = ("uv", "pip-tools")


def lock_project(
    project: Project,
    backend: str,
    *,
    work: Work,
    node_class: NodeClass | None = None,
    engine: str | None = None,
    check: bool = False,
    upgrade: bool = False,
    exclude_newer: str | None = None,
) -> LockOutcome:
    """The lock of one backend: the one on disk while it is fresh, else a new one, written beside the project file.

    `check` decides nothing and writes nothing. `upgrade` forgets the versions of the lock on disk. `exclude_newer` is a
    UTC time in ISO 8601; None takes SOURCE_DATE_EPOCH, else the clock. A lock that holds another backend's packages is
    returned with `blocked` and not written.

    What the tables do not know (which toolkit goes with a framework, say) does not change which wheels fit together, so
    it does not stop a lock: it is told, and stands in `Lock.unknown_allowed` for the build to answer for.
    """
    if engine is not None:
        _check_engine(engine)
    stack = solve_project(project, backend, node_class=node_class)
    if (where := load_tables().backend(backend).spec.wheels) is not None:
        work.reporter.note(where)
    for question in stack.unknown:
        work.reporter.note(f"not known: {question}")
    base_reference = project.base_for(backend) or stack.base or _own_base(project, stack)
    path = lock_path(project.root, backend)
    policy = load_package_policy()
    previous = _previous(path, must_exist=check)
    if previous is not None:
        stale = stale_reasons(
            previous, project=project, stack=stack, base=base_reference, engine=engine, exclude_newer=exclude_newer
        )
        if check or not (stale or upgrade):
            if not (check or requirements_path(project.root, backend).exists()):
                write_lock(previous, project.root)
            return LockOutcome(
                backend=backend, lock=previous, path=path, blocked=blocked(previous, policy), stale=stale
            )
        for reason in stale:
            work.reporter.note(f"the lock is stale: {reason}")
    settings = read_index_settings(work.environ)
    base = _base(base_reference, project, stack, None if upgrade else previous, work)
    held = base_distributions(
        base, store=work.store, reporter=work.reporter, offline=work.offline, open_repository=_opener(work)
    )
    _check_base(base, held, {}, project, stack, policy)
    lock = make_lock(
        project,
        stack,
        base,
        engine=open_engine(engine or (previous.engine.split()[0] if previous else "uv"), work),
        policy=policy,
        store=work.store,
        settings=settings,
        environ=work.environ,
        exclude_newer=exclude_newer or now(work),
        reporter=work.reporter,
        offline=work.offline,
        previous=None if upgrade else previous,
        unknown_allowed=stack.unknown,
    )
    _check_base(base, held, {item.name: item.version for item in lock.packages}, project, stack, policy)
    found = measured(blocked(lock, policy), lock, settings=settings, environ=work.environ, offline=work.offline)
    if not found:
        write_lock(lock, project.root)
    return LockOutcome(backend=backend, lock=lock, path=path, blocked=found, written=not found)


def _check_base(
    base: LockedBase,
    held: Sequence[BaseDistribution],
    locked: Mapping[str, str],
    project: Project,
    stack: Stack,
    policy: PackagePolicy,
) -> None:
    """Refuse a base that is broken already, and one whose packages the lock would replace (FR-02)."""
    findings = judge_base(
        held, backend=stack.backend, python=stack.python, arch=project.arch, policy=policy, locked=locked
    )
    refuse_base(base.reference, findings, backend=stack.backend)


def _opener(work: Work) -> OpenRepository:
    """Bases are only read, so mirrors may serve them."""
    return partial(open_repository, environ=work.environ, offline=work.offline, mirrors=True, reporter=work.reporter)


def solve_project(project: Project, backend: str, *, node_class: NodeClass | None) -> Stack:
    """The newest coherent stack for the project's requirements; one with open questions only when no other fits.

    `Refused` when the rules refuse every stack, with the nearest miss; `CannotTell` when they could not decide.
    """
    tables = load_tables()
    options = project.options(backend)
    want = tuple(Requirement(line) for line in project.requirements_for(backend))
    refused: tuple[Refusal, ...] = ()
    for allow_unknown in (False, True):
        solution = solve(
            tables,
            backend=backend,
            python=project.python_for(backend),
            arch=project.arch,
            node_class=node_class,
            toolkit=options.toolkit,
            want=want,
            allow_unknown=allow_unknown,
            companions=False,
        )
        if solution.stacks:
            return solution.stacks[0]
        refused = refused or solution.refused
    raise _no_stack(project, backend, refused)


def _no_stack(project: Project, backend: str, refused: tuple[Refusal, ...]) -> BuilderError:
    if not refused:
        why = f"the tables hold no stack of {backend} for Python {project.python_for(backend)} on {project.arch}"
        fix = f"see builder matrix list --backend {backend}"
        verdict = "unknown"
    else:
        nearest = refused[0]
        why = f"nearest miss {nearest.name}: " + "; ".join(f"{rule.rule}: {rule.why}" for rule in nearest.rules)
        fix = next((rule.fix for rule in nearest.rules if rule.fix), f"see builder matrix solve --backend {backend}")
        verdict = nearest.verdict
    kind = CannotTell if verdict == "unknown" else Refused
    return kind(f"no coherent {backend} stack for this project", why=why, fix=fix, where=Where(file=str(project.path)))


def _own_base(project: Project, stack: Stack) -> str:
    """The built-in base; `CannotTell` where the wheels need a vendor's image and none is known that fits."""
    spec = load_tables().backend(stack.backend).spec
    if spec.vendor_base:
        raise CannotTell(
            f"no base image is known for this {stack.backend} stack",
            why=next((reason.why for reason in stack.why if reason.cell == "base"), spec.source),
            fix=f'name the image in the project file: base = "HOST/NAME:TAG" in [backend.{stack.backend}]',
            where=Where(file=str(project.path)),
        )
    return _built_in(stack.python)


def _built_in(python: str) -> str:
    """The built-in base with this Python; the first one where none has it, so that the error names them."""
    fitting = [suite for suite, version in SUITES.items() if version == python]
    return f"debian:{next(iter(fitting or SUITES))}"


def open_engine(name: str, work: Work) -> LockEngine:
    """The lock engine of this name."""
    _check_engine(name)
    if name == "pip-tools":
        from builder.lock.pip_tools import PipTools

        return PipTools(work.environ)
    from builder.lock.uv import Uv

    return Uv(work.environ)


def _check_engine(name: str) -> None:
    if name not in ENGINES:
        raise BadInput(f"unknown lock engine {name!r}", fix=did_you_mean(name, ENGINES))


def now(work: Work) -> str:
    """The present in UTC, to the second, ISO 8601; SOURCE_DATE_EPOCH stands in for the clock when it is set."""
    epoch = work.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        moment = datetime.now(UTC)
    else:
        try:
            moment = datetime.fromtimestamp(int(epoch), UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise BadInput(
                f"SOURCE_DATE_EPOCH is not a time in seconds: {epoch!r}",
                why=str(error),
                fix="unset it, or give the seconds since 1970 as an integer",
            ) from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _previous(path: Path, *, must_exist: bool) -> Lock | None:
    if not path.exists() and not must_exist:
        return None
    return read_lock(path)


def _base(reference: str, project: Project, stack: Stack, previous: Lock | None, work: Work) -> LockedBase:
    """The base of the lock before while the reference is the same: a new base comes by --upgrade, not by accident.

    What an edited lock says of its base is not believed.
    """
    if (
        previous is not None
        and not edits(previous)
        and previous.base.reference == reference
        and previous.python == stack.python
    ):
        return previous.base
    try:
        return resolve_base(
            reference,
            python=stack.python,
            arch=project.arch,
            store=work.store,
            reporter=work.reporter,
            offline=work.offline,
            environ=work.environ,
            open_repository=_opener(work),
        )
    except OutsideFailed as error:
        asked = project.base_for(stack.backend) is not None
        error.what = f"cannot lock the base {reference} of {stack.backend}: {error.what}"
        error.where = error.where or Where(file=str(project.path), key=None if asked else f"backend.{stack.backend}")
        if not reference.startswith("debian:"):
            error.fix = "; or ".join(
                filter(None, (error.fix, 'name another base, for example base = "debian:bookworm"'))
            )
        raise
