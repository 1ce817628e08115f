"""`builder build`: lock, audit, image, proof, smoke, publish. Each step's answer decides whether the next one runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeVar

from builder.audit.audit import audit_lock
from builder.audit.values import AuditReport
from builder.base.resolve import OpenRepository
from builder.errors import BadInput, Refused, Where
from builder.image.base_layers import base_image
from builder.image.buildah import Buildah, assemble_buildah
from builder.image.devices import build_devices
from builder.image.docker import assemble_docker
from builder.image.docker_cli import Docker
from builder.image.dockerfile import run_line, run_prefix
from builder.image.labels import image_labels
from builder.image.oci import assemble
from builder.image.packing import Packing, refuse_packing
from builder.image.preview import Budget, LayerPlan, check_budget, preview
from builder.image.values import BuiltImage, ImagePlan, Wheelhouse
from builder.lock.values import Lock, LockedPackage
from builder.matrix import Runtime, load_backend
from builder.names import LayoutRef, Reference, RegistryRef, parse_ref
from builder.node import NodeClass, node_class
from builder.pipeline.base_python import UnpackedBase
from builder.pipeline.lock import lock_project, now
from builder.pipeline.smoke import smoke_image
from builder.pipeline.values import BuildOutcome, LockOutcome, Step, StepName, Work
from builder.project import Project
from builder.proof.prove import prove
from builder.proof.values import Proof, worst_answer
from builder.registry.open import open_repository
from builder.registry.values import Repository
from builder.release.licences import read_licences
from builder.release.provenance import provenance_draft
from builder.release.publish import publish
from builder.release.sbom import sbom_draft
from builder.release.statements import audit_draft, proof_draft, smoke_draft
from builder.release.tags import refuse_class_tag, version_tag
from builder.release.values import Draft
from builder.smoke.runners import open_runner
from builder.smoke.values import SmokeReport
from builder.store import Store
from builder.wheels.fetch import fetch, sound_wheels
from builder.wheels.settings import read_index_settings

__all__ = ["BuildOptions", "build", "plan_image", "target_for"]

T = TypeVar("T")

EngineName = Literal["oci", "docker", "buildah"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """How a build is wanted, besides what the project file says."""

    engine: EngineName = "oci"
    to: Reference | None = None
    """Where the image goes; None takes the project's registry, else the layout dist/image beside the project file."""
    node_class: NodeClass | None = None
    devices: bool = False
    """Give the node class's devices to the steps of the build; the built-in engine has no steps."""
    runner: str | None = None
    locked: bool = False
    """Refuse a missing or stale lock instead of making a new one."""
    upgrade: bool = False
    allow_unknown: bool = False
    """What the tables do not know does not make the image a candidate only."""
    proof: bool = True
    """Prove for `node_class`, or for each class that the project names for the backend."""
    smoke: bool = True
    publish: bool = True
    plan: bool = False
    """Lock and say which layers there would be; make nothing else."""
    move_tag: bool = False
    """Let the version tag in a registry move from another image to this one."""
    plain_http: bool | None = None


@dataclass(kw_only=True)
class _Record:
    """The steps as they end."""

    work: Work
    steps: list[Step] = field(default_factory=list)

    def step(self, name: StepName, run: Callable[[], T], verdict: Callable[[T], tuple[str, str]]) -> T:
        """Run one step and note how it ended; `verdict` gives the step's word and a detail for people."""
        started = time.monotonic()
        value = run()
        word, detail = verdict(value)
        seconds = time.monotonic() - started
        self.steps.append(Step(name=name, verdict=word, seconds=seconds, detail=detail))
        self.work.reporter.note(f"{name:8} {word:10} {seconds:6.1f} s  {detail}".rstrip())
        return value


def build(project: Project, backend: str, *, options: BuildOptions, work: Work) -> BuildOutcome:
    """Build one backend's image. A refusal ends the build with what was found; nothing is tagged then."""
    _check_wishes(project, options, work)
    record = _Record(work=work)
    locked = record.step("lock", partial(_lock, project, backend, options, work), _lock_verdict)
    lock = locked.lock
    if locked.blocked:
        return BuildOutcome(verdict="refused", steps=tuple(record.steps), lock=lock, blocked=locked.blocked)
    if options.plan:
        return BuildOutcome(
            verdict="planned", steps=tuple(record.steps), lock=lock, plan=_preview(project, lock, options, work)
        )
    wheelhouse, audit = record.step("audit", partial(_audit, project, lock, work), _audit_verdict)
    if audit.level == "block":
        return BuildOutcome(verdict="refused", steps=tuple(record.steps), lock=lock, audit=audit)
    plan = plan_image(project, lock, wheelhouse, work)
    destination, tag = target_for(project, lock, options.to)
    workbench = destination if isinstance(destination, LayoutRef) else LayoutRef(project.root / "dist" / "image")
    bench = _open(workbench, options, work)
    image = record.step(
        "image",
        partial(_assemble, plan, bench, workbench, options, work),
        lambda made: ("built", f"{made.digest}, {made.size / 1e6:.1f} MB in {len(made.layers)} layers"),
    )
    budget = check_budget(image, project.options(backend).max_size)
    if budget is not None:
        record.step("size", lambda: budget, _size_verdict)
        if not budget.kept:
            return BuildOutcome(
                verdict="refused", steps=tuple(record.steps), lock=lock, audit=audit, image=image, budget=budget
            )
    proofs: tuple[Proof, ...] = ()
    if options.proof and (classes := _classes(project, backend, options)):
        proofs = record.step("proof", partial(_prove, image, bench, classes, work), _proof_verdict)
    refused = any(proof.answer == "refused" for proof in proofs)
    smoke = None
    if options.smoke and not refused:
        smoke = record.step("smoke", partial(_smoke, image, bench, plan, options, work), _smoke_verdict)
        refused = smoke.verdict == "failed"
    tags: tuple[str, ...] = ()
    if options.publish and not refused:
        place = bench if destination is workbench else _open(destination, options, work)
        drafts = _evidence(project, lock, wheelhouse, audit, proofs, smoke, image, options.engine, work.store)
        image = record.step(
            "publish",
            partial(_publish, image, bench, place, destination, tag, drafts, options, work),
            lambda published: ("published", published.reference),
        )
        tags = (tag,)
    return BuildOutcome(
        verdict="refused" if refused else _verdict(lock, proofs, smoke, options),
        steps=tuple(record.steps),
        lock=lock,
        audit=audit,
        image=image,
        proofs=proofs,
        smoke=smoke,
        tags=tags,
        budget=budget,
        run_line=_run_line(plan, destination.with_tag(tag) if tags else None, options),
    )


def plan_image(project: Project, lock: Lock, wheelhouse: Wheelhouse, work: Work) -> ImagePlan:
    """What an engine needs. Depends on the project, the lock and SOURCE_DATE_EPOCH only, so its digest does too."""
    plan = ImagePlan(
        project=project,
        lock=lock,
        wheelhouse=wheelhouse,
        runtime=_runtime(lock),
        labels={},
        created=now(work) if "SOURCE_DATE_EPOCH" in work.environ else _age(lock),
    )
    return replace(plan, labels=image_labels(project, lock, run_line=run_prefix(plan)))


def _age(lock: Lock) -> str:
    """When the newest locked wheel was uploaded: the same wheels give the same time, whatever day they are locked on.

    An image is no older than what is in it. Where no index says when, the time that the lock was held to stands in.
    """
    return max((package.uploaded for package in lock.packages if package.uploaded), default=lock.exclude_newer)


def target_for(project: Project, lock: Lock, to: Reference | None) -> tuple[Reference, str]:
    """Where the image goes, and its tag: the one written in the reference, else the project's tag grammar."""
    chosen = to
    if chosen is None and project.registry is not None:
        chosen = parse_ref(project.registry)
    if chosen is None:
        chosen = LayoutRef(project.root / "dist" / "image")
    if chosen.digest is not None:
        raise BadInput(
            f"cannot publish to {chosen}", why="a digest names an image that exists", fix="name a repository or a tag"
        )
    tag = chosen.tag or version_tag(
        project.tag,
        name=project.name,
        version=project.version,
        backend=lock.backend,
        toolkit=lock.toolkit,
        arch=lock.arch,
        python=lock.python,
    )
    refuse_class_tag(tag)
    return chosen, tag


def _lock(project: Project, backend: str, options: BuildOptions, work: Work) -> LockOutcome:
    outcome = lock_project(
        project,
        backend,
        work=work,
        node_class=options.node_class,
        check=options.locked,
        upgrade=options.upgrade,
    )
    if options.locked and outcome.stale:
        raise Refused(
            f"the lock of {backend} is stale",
            why="; ".join(outcome.stale),
            fix=f"builder lock --backend {backend}, or build without --locked",
            where=Where(file=str(outcome.path)),
        )
    return outcome


def _lock_verdict(outcome: LockOutcome) -> tuple[str, str]:
    if outcome.blocked:
        return "refused", f"{len(outcome.blocked)} packages of another backend"
    count = f"{len(outcome.lock.packages)} packages, {outcome.path.name}"
    return ("locked" if outcome.written else "fresh"), count


def _audit(project: Project, lock: Lock, work: Work) -> tuple[Wheelhouse, AuditReport]:
    """The wheels are fetched once, by hash; what is audited here is what the engines install."""
    wheelhouse = _fetch(lock.packages, work)
    with sound_wheels(lock.packages, work.store):
        report = audit_lock(
            lock,
            wheelhouse.files,
            backend=lock.backend,
            reporter=work.reporter,
            store=work.store,
            exceptions=project.exceptions,
            translations=project.options(lock.backend).translations,
            today=datetime.now(tz=UTC).date(),
        )
    return wheelhouse, report


def _fetch(packages: tuple[LockedPackage, ...], work: Work) -> Wheelhouse:
    return fetch(
        packages,
        work.store,
        reporter=work.reporter,
        settings=read_index_settings(work.environ),
        environ=work.environ,
        offline=work.offline,
    )


def _audit_verdict(audited: tuple[Wheelhouse, AuditReport]) -> tuple[str, str]:
    wheelhouse, report = audited
    size = sum(path.stat().st_size for path in wheelhouse.files.values())
    detail = f"{len(wheelhouse.files)} wheels, {size / 1e6:.1f} MB"
    worst = [target.name for target in report.targets if target.level == report.level]
    return report.level, detail if report.level == "ok" else f"{detail}; {report.level}: {', '.join(worst[:4])}"


def _runtime(lock: Lock) -> Runtime:
    return load_backend(lock.backend).spec.runtime_for(lock.toolkit)


def _open(reference: Reference, options: BuildOptions, work: Work) -> Repository:
    return open_repository(
        reference,
        environ=work.environ,
        offline=work.offline,
        plain_http=options.plain_http,
        reporter=work.reporter,
    )


def _assemble(
    plan: ImagePlan, bench: Repository, workbench: LayoutRef, options: BuildOptions, work: Work
) -> BuiltImage:
    engine: Callable[..., BuiltImage] = assemble
    opener = partial(open_repository, environ=work.environ, offline=work.offline, mirrors=True, reporter=work.reporter)
    devices = _devices(plan, options)
    if options.engine == "docker":
        engine = partial(assemble_docker, docker=Docker.find(work.environ), devices=devices)
    elif options.engine == "buildah":
        engine = partial(assemble_buildah, buildah=Buildah.find(work.environ), devices=devices)
    with ExitStack() as stack:
        stack.enter_context(sound_wheels(plan.lock.packages, work.store))
        if options.engine == "oci" and plan.project.image.compile_bytecode:
            engine = partial(engine, python=stack.enter_context(_base_python(plan, opener, work)))
        return engine(
            plan,
            target=bench,
            tag=None,
            store=work.store,
            reporter=work.reporter,
            reference=workbench,
            open_repository=opener,
            offline=work.offline,
        )


def _base_python(plan: ImagePlan, opener: OpenRepository, work: Work) -> UnpackedBase:
    lock = plan.lock
    return UnpackedBase(
        lock,
        lambda: base_image(
            lock.base,
            lock.arch,
            work.store,
            work.reporter,
            offline=work.offline,
            open_repository=opener,
            packing=Packing.of(plan.project.image),
        ),
        open_runner("builtin", environ=work.environ, store=work.store, reporter=work.reporter),
    )


def _devices(plan: ImagePlan, options: BuildOptions) -> tuple[str, ...]:
    if not options.devices or options.node_class is None:
        return ()
    return build_devices(options.node_class, plan.runtime)


def _check_wishes(project: Project, options: BuildOptions, work: Work) -> None:
    """What cannot be done is said before anything is locked or fetched."""
    if options.devices:
        _check_devices(options)
    Packing.of(project.image)
    if options.engine != "oci":
        refuse_packing(project.image, options.engine)
    if options.to is not None and options.to.tag is not None:
        refuse_class_tag(options.to.tag)
    if options.plan:
        return
    if options.engine == "docker" or (options.smoke and options.runner == "docker"):
        Docker.find(work.environ)
    if options.engine == "buildah":
        Buildah.find(work.environ)


def _check_devices(options: BuildOptions) -> None:
    if options.engine == "oci":
        raise BadInput(
            "the built-in engine gives no device to a build",
            why="it runs no step: files are written as they are",
            fix="leave --devices out, or build with --engine docker or --engine buildah",
        )
    if options.node_class is None:
        raise BadInput("whose devices are meant?", why="--devices takes them from a node class", fix="--node-class N")


def _size_verdict(budget: Budget) -> tuple[str, str]:
    detail = f"{budget.size / 1e6:.1f} of {budget.limit / 1e6:.1f} MB"
    return ("kept", detail) if budget.kept else ("refused", detail)


def _preview(project: Project, lock: Lock, options: BuildOptions, work: Work) -> LayerPlan:
    """Wheels are fetched only where their index does not say how long they are."""
    unsized = tuple(package for package in lock.packages if package.size is None)
    fetched = _fetch(unsized, work).files if unsized else {}
    sizes = {
        package.file: fetched[package.file].stat().st_size if package.size is None else package.size
        for package in lock.packages
    }
    opener = partial(open_repository, environ=work.environ, offline=work.offline, mirrors=True, reporter=work.reporter)
    return preview(
        project,
        lock,
        sizes,
        store=work.store,
        reporter=work.reporter,
        offline=work.offline,
        open_repository=opener,
    )


def _classes(project: Project, backend: str, options: BuildOptions) -> tuple[NodeClass, ...]:
    if options.node_class is not None:
        return (options.node_class,)
    return tuple(node_class(name) for name in project.options(backend).node_classes)


def _prove(image: BuiltImage, bench: Repository, classes: tuple[NodeClass, ...], work: Work) -> tuple[Proof, ...]:
    return tuple(prove(bench, image.digest, node, store=work.store, reporter=work.reporter) for node in classes)


def _proof_verdict(proofs: tuple[Proof, ...]) -> tuple[str, str]:
    worst = worst_answer(tuple(proof.answer for proof in proofs))
    named = [proof for proof in proofs if proof.answer == worst]
    detail = ", ".join(proof.node_class for proof in named)
    return worst, detail if worst == "proven" else f"{detail}: {next(iter(named[0].reasons), '')}"


def _smoke(image: BuiltImage, bench: Repository, plan: ImagePlan, options: BuildOptions, work: Work) -> SmokeReport:
    runner = options.runner or ("docker" if options.engine == "docker" else "builtin")
    return smoke_image(
        bench,
        image.digest,
        name=image.reference,
        arch=plan.lock.arch,
        runner=runner,
        node_class=options.node_class,
        work=work,
    )


def _smoke_verdict(report: SmokeReport) -> tuple[str, str]:
    wrong = [check for check in report.checks if check.verdict == report.verdict != "passed"]
    detail = "; ".join(f"{check.name}: {check.detail}" for check in wrong[:3])
    return report.verdict, detail or f"{len(report.checks)} checks, runner {report.runner}"


def _evidence(
    project: Project,
    lock: Lock,
    wheelhouse: Wheelhouse,
    audit: AuditReport,
    proofs: tuple[Proof, ...],
    smoke: SmokeReport | None,
    image: BuiltImage,
    engine: EngineName,
    store: Store,
) -> tuple[Draft, ...]:
    licences = read_licences(lock.packages, wheelhouse.files, store)
    drafts = [
        sbom_draft(lock, image=image.digest, name=project.name, version=project.version, licences=licences),
        provenance_draft(
            lock,
            image=image.digest,
            name=project.name,
            version=project.version,
            engine=engine,
            source=project.source,
        ),
        audit_draft(audit, image=image.digest, name=project.name),
        *(proof_draft(proof, name=project.name) for proof in proofs),
    ]
    if smoke is not None:
        drafts.append(smoke_draft(smoke, name=project.name))
    return tuple(drafts)


def _publish(
    image: BuiltImage,
    bench: Repository,
    place: Repository,
    destination: Reference,
    tag: str,
    drafts: tuple[Draft, ...],
    options: BuildOptions,
    work: Work,
) -> BuiltImage:
    """A layout on disk is a workbench, where a rebuilt version takes its tag over; in a registry a version stays."""
    moves = options.move_tag or isinstance(destination, LayoutRef)
    publish(
        source=bench,
        digest=image.digest,
        target=place,
        tag=None if moves else tag,
        drafts=drafts,
        reporter=work.reporter,
    )
    if moves:
        found = place.resolve(tag)
        if found is None or found.digest != image.digest:
            place.move_tag(tag, image.digest, expected=found.digest if found else None)
    return BuiltImage(
        reference=str(destination.with_tag(tag)), digest=image.digest, size=image.size, layers=image.layers
    )


def _run_line(plan: ImagePlan, published: Reference | None, options: BuildOptions) -> str:
    """How the image is started: what was published, else what the engine still has; empty where neither is there."""
    if options.engine == "docker" and not isinstance(published, RegistryRef):
        return run_line(plan)
    return run_line(plan, published) if published else ""


def _verdict(
    lock: Lock, proofs: tuple[Proof, ...], smoke: SmokeReport | None, options: BuildOptions
) -> Literal["built", "candidate"]:
    questions = bool(lock.unknown_allowed) or any(proof.answer == "unknown" for proof in proofs)
    undecided = questions and not options.allow_unknown
    not_run = smoke is not None and smoke.verdict == "not-run"
    return "candidate" if undecided or not_run else "built"
