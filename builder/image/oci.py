"""The built-in engine: from a plan to an image in a registry or layout, without a daemon and without root.

Blobs go first, the manifest next, the tag last, so that a tag never names a part of an image. What is there already is
not sent again. Layers are pushed while later ones are still being made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from builder.base.resolve import OpenRepository
from builder.events import Reporter
from builder.image.app import app_layers
from builder.image.base_layers import BaseImage, base_image
from builder.image.bytecode import BasePython, bytecode_layer, interpreter, source_size
from builder.image.config import config_json, manifest_annotations
from builder.image.conflicts import shadowed_paths
from builder.image.install import Venv
from builder.image.layers import layer_source
from builder.image.packing import Packing
from builder.image.plan import Limits, WheelSize, group_title, group_wheels
from builder.image.splice import WheelFile, skeleton_layer, wheel_layer
from builder.image.values import VENV, BuiltFrom, BuiltImage, ImagePlan, Layer
from builder.image.wheel_files import wheel_files
from builder.names import Digest, Reference, RegistryRef
from builder.registry.manifests import canonical_json
from builder.registry.values import BlobSource, BytesSource, Descriptor, Manifest, MediaType, Repository
from builder.store import Store

__all__ = ["assemble"]

_PUSHES = 4

_Push = Callable[[Layer, BlobSource, str | None], None]


def assemble(
    plan: ImagePlan,
    *,
    target: Repository,
    tag: str | None,
    store: Store,
    reporter: Reporter,
    reference: Reference | None = None,
    open_repository: OpenRepository | None = None,
    offline: bool = False,
    limits: Limits | None = None,
    python: BasePython | None = None,
    workers: int | None = None,
) -> BuiltImage:
    """Make the image and put it into `target`, under its digest, and under `tag` when given.

    `reference` names the target in the result, and lets layers of a base in the same registry be mounted;
    `open_repository` is needed for an OCI base, `python` for a project that wants bytecode. `workers` is how many
    layers are made at once, by default as many as this machine has processors, from 2 to 4. Same inputs, same digest.
    """
    packing = Packing.of(plan.project.image)
    with ThreadPoolExecutor(_PUSHES, thread_name_prefix="push") as pool:
        pending: list[Future[bool]] = []

        def push(layer: Layer, source: BlobSource, mount_from: str | None) -> None:
            pending.append(pool.submit(target.put_blob, layer.descriptor, source, mount_from=mount_from))

        try:
            base = base_image(
                plan.lock.base,
                plan.lock.arch,
                store,
                reporter,
                offline=offline,
                open_repository=open_repository,
                packing=packing,
            )
            mount_from = _mount_from(base, reference)
            for layer, source in zip(base.layers, base.sources, strict=True):
                push(layer, source, mount_from)
            own = _own_layers(plan, store, reporter, limits, len(base.layers), push, python, workers)
            with reporter.task("push", total=len(pending), unit="layers") as advance:
                for done in pending:
                    done.result()
                    advance(1)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    built = BuiltFrom(layers=(*base.layers, *own), base_layers=len(base.layers), base_config=base.config)
    config = canonical_json(config_json(plan, built))
    descriptor = Descriptor(media_type=MediaType.CONFIG, digest=Digest.of(config), size=len(config))
    target.put_blob(descriptor, BytesSource(config))
    stored = target.put_manifest(_manifest(plan, descriptor, built.layers), tag=tag)
    return BuiltImage(
        reference=_name(reference, tag, stored.digest),
        digest=stored.digest,
        size=descriptor.size + sum(layer.descriptor.size for layer in built.layers),
        layers=built.layers,
    )


def _own_layers(
    plan: ImagePlan,
    store: Store,
    reporter: Reporter,
    limits: Limits | None,
    base_layers: int,
    push: _Push,
    python: BasePython | None,
    workers: int | None,
) -> tuple[Layer, ...]:
    """Environment, wheels, bytecode, application: made in threads, pushed as each is ready, in stacking order."""
    venv = Venv(root=VENV, python=plan.lock.python)
    packing = Packing.of(plan.project.image)
    wheels = wheel_files(plan)
    shadowed = shadowed_paths(wheels, venv, store)
    by_file = {wheel.file: wheel for wheel in wheels}
    sizes = [WheelSize(name=wheel.name, file=wheel.file, size=wheel.path.stat().st_size) for wheel in wheels]
    others = base_layers + 1 + len(plan.project.image.copy)
    compiled = plan.project.image.compile_bytecode
    groups = [
        tuple(by_file[item.file] for item in group)
        for group in group_wheels(sizes, other_layers=others + int(compiled), limits=limits)
    ]
    total = sum(item.size for item in sizes)
    compiled_groups: list[tuple[WheelFile, ...]] = []
    if compiled:
        sources = [replace(item, size=source_size(by_file[item.file], store)) for item in sizes]
        compiled_groups = [
            tuple(by_file[item.file] for item in group)
            for group in group_wheels(
                [item for item in sources if item.size], other_layers=others + len(groups), limits=limits
            )
        ]

    def wheel_job(group: tuple[WheelFile, ...]) -> Layer:
        layer = wheel_layer(group, venv, store, title=_title(group), left_out=shadowed, packing=packing)
        advance(sum(wheel.path.stat().st_size for wheel in group))
        return layer

    def bytecode_job(group: tuple[WheelFile, ...]) -> Layer:
        if python is None:
            raise ValueError("a project with compile_bytecode needs the base's Python")
        return bytecode_layer(
            group,
            venv,
            store,
            python=python,
            by=interpreter(python, plan.lock.base, venv, store),
            title=f"bytecode of {_title(group)}",
            reporter=reporter,
            left_out=shadowed,
            packing=packing,
        )

    with (
        reporter.task("layers", total=total) as advance,
        ThreadPoolExecutor(workers or max(2, min(4, os.cpu_count() or 1)), thread_name_prefix="layer") as pool,
    ):
        jobs: list[Future[Layer]] = [pool.submit(skeleton_layer, venv, plan.lock.base.python_path, store, packing)]
        jobs += [pool.submit(wheel_job, group) for group in groups]
        jobs += [pool.submit(bytecode_job, group) for group in compiled_groups]
        apps = pool.submit(app_layers, plan.project, store, packing)
        try:
            own = [_pushed(job.result(), push, store) for job in jobs]
            own += [_pushed(layer, push, store) for layer in apps.result()]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return tuple(own)


def _pushed(layer: Layer, push: _Push, store: Store) -> Layer:
    push(layer, layer_source(layer, store), None)
    return layer


def _title(group: tuple[WheelFile, ...]) -> str:
    return group_title([wheel.title for wheel in group], [wheel.name for wheel in group])


def _mount_from(base: BaseImage, reference: Reference | None) -> str | None:
    """The base's repository when it lies in the target's registry; a mount never crosses registries (FR-29)."""
    same = isinstance(reference, RegistryRef) and reference.host == base.host
    return base.mount_from if same else None


def _manifest(plan: ImagePlan, config: Descriptor, layers: tuple[Layer, ...]) -> Manifest:
    document = {
        "schemaVersion": 2,
        "mediaType": MediaType.MANIFEST,
        "config": config.to_json(),
        "layers": [layer.descriptor.to_json() for layer in layers],
        "annotations": manifest_annotations(plan),
    }
    return Manifest(MediaType.MANIFEST, canonical_json(document))


def _name(reference: Reference | None, tag: str | None, digest: Digest) -> str:
    if reference is None:
        return f"{tag}@{digest}" if tag else str(digest)
    return f"{reference.with_tag(tag)}@{digest}" if tag else str(reference.with_digest(digest))
