"""The docker engine: the generated Dockerfile, built by a Docker Engine, handed over as an OCI image.

Same plan, same base and same installer as the built-in engine, so the files are the same, byte for byte. What comes
back has fixed times and no owners' names, and the base's layers are the base's own blobs. What is not the same on
every day: the digest depends on the engine's version, which decides the order of entries in its layers and which
empty mount points it leaves behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from builder.base.resolve import OpenRepository
from builder.errors import OutsideFailed
from builder.events import Reporter
from builder.image.app import rule_files
from builder.image.base_layers import BaseImage, base_image
from builder.image.config import manifest_annotations
from builder.image.config import settings as chosen_settings
from builder.image.conflicts import shadowed_paths
from builder.image.devices import buildx_devices
from builder.image.docker_archive import SavedImage, load_stream, plain_layer
from builder.image.docker_cli import Docker
from builder.image.dockerfile import Dockerfile, copy_paths, local_base, local_name, render
from builder.image.install import Venv
from builder.image.layers import layer_source
from builder.image.packing import refuse_packing
from builder.image.values import VENV, BuiltImage, ImagePlan, Layer
from builder.image.wheel_files import wheel_files
from builder.lock.values import Lock
from builder.names import Digest, Platform, Reference
from builder.project.values import CopyRule, Project
from builder.registry.manifests import canonical_json
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType, Repository
from builder.store import Store, disk_errors

__all__ = ["assemble_docker", "base_archive", "hand_over", "load_base", "write_context"]

_CONFIG_KEYS = ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Labels", "ExposedPorts", "Volumes", "StopSignal")
"""What the image-spec (config.md) knows; the rest of an engine's config is about the build."""

_BUILDAH_LABEL = "io.buildah.version"
"""Put on every image by buildah: not what the image is, but what made it, and the base may have it for itself."""


def assemble_docker(
    plan: ImagePlan,
    *,
    docker: Docker,
    target: Repository,
    tag: str | None,
    store: Store,
    reporter: Reporter,
    reference: Reference | None = None,
    open_repository: OpenRepository | None = None,
    offline: bool = False,
    devices: tuple[str, ...] = (),
) -> BuiltImage:
    """Build the image and put it into `target`, under its digest, and under `tag` when given.

    The image stays in the engine too, as `NAME:BACKEND`. Arguments and result are those of the built-in engine's
    `assemble`; `docker` is the engine, and `devices` are given to the build's steps (CDI names).
    """
    refuse_packing(plan.project.image, "docker")
    more: tuple[str, ...] = ()
    if devices:
        more = buildx_devices(
            devices, build_with=docker.build_with, buildx=docker.buildx_version, engine=docker.versions.server
        )
    shadowed_paths(wheel_files(plan), Venv(root=VENV, python=plan.lock.python), store)
    base = base_image(plan.lock.base, plan.lock.arch, store, reporter, offline=offline, open_repository=open_repository)
    load_base(docker, plan.lock, base, reporter=reporter)
    dockerfile = render(
        plan,
        base_image=local_base(plan.lock.base),
        base_note=plan.lock.base.reference,
        builder="classic" if docker.build_with == "classic" else "buildkit",
        devices=devices,
    )
    with store.scratch("engine-") as folder:
        context = folder / "context"
        write_context(plan, dockerfile, context)
        image = _build(docker, context, folder / "id", local_name(plan), reporter, more)
        shutil.rmtree(context)
        saved = folder / "image.tar"
        reporter.detail(f"taking image {image} out of the engine")
        with disk_errors(saved):
            docker.run(["image", "save", "--output", str(saved), image], what="save the image")
        return hand_over(plan, base, saved, target=target, tag=tag, store=store, reference=reference)


def load_base(docker: Docker, lock: Lock, base: BaseImage, *, reporter: Reporter) -> None:
    """Make the base known to the engine, under the name that Dockerfiles use; nothing is done when it is there."""
    if docker.image_layers(local_base(lock.base)) == tuple(str(layer.diff_id) for layer in base.layers):
        return
    total = sum(layer.descriptor.size for layer in base.layers)
    with reporter.task(f"loading {lock.base.reference} into the engine", total=total) as advance:

        def counted() -> Iterator[bytes]:
            for chunk in base_archive(lock, base):
                advance(len(chunk))
                yield chunk

        docker.feed(["image", "load"], counted(), what=f"load the base {lock.base.reference}")


def base_archive(lock: Lock, base: BaseImage) -> Iterator[bytes]:
    """The base as `docker load` takes it, under the name that Dockerfiles use."""
    config = canonical_json(
        {
            "architecture": Platform(lock.arch).oci_arch,
            "os": "linux",
            **{key: value for key, value in base.config.items() if key not in ("rootfs", "history")},
            "history": _history(lock, base),
            "rootfs": {"type": "layers", "diff_ids": [str(layer.diff_id) for layer in base.layers]},
        }
    )
    layers = [(layer.descriptor, source) for layer, source in zip(base.layers, base.sources, strict=True)]
    yield from load_stream(local_base(lock.base), config, layers)


def _history(lock: Lock, base: BaseImage) -> list[Any]:
    """The base's history, or one line for each layer where it does not fit the layers: buildah counts them."""
    found = list(base.config.get("history") or ())
    if sum(not entry.get("empty_layer") for entry in found) == len(base.layers):
        return found
    return [{"created_by": f"builder: base {lock.base.reference}"} for _ in base.layers]


def write_context(plan: ImagePlan, dockerfile: Dockerfile, folder: Path) -> None:
    """Write the Dockerfile and its context; wheels are hard links into the store where the file system allows."""
    wheels = {wheel.file: wheel.path for wheel in wheel_files(plan)}
    with disk_errors(folder):
        folder.mkdir(parents=True)
        (folder / "Dockerfile").write_text(dockerfile.text, encoding="utf-8")
        for file in dockerfile.context:
            target = folder / file.path
            if file.text is not None:
                target.write_text(file.text, encoding="utf-8")
            elif file.kind == "wheel":
                target.parent.mkdir(exist_ok=True)
                _link(wheels[file.source], target)
        rules = plan.project.image.copy
        for path, rule in zip(copy_paths(rules), rules, strict=True):
            _write_rule(plan.project, rule, folder / path)


def _write_rule(project: Project, rule: CopyRule, top: Path) -> None:
    """One rule's file or folder, with the modes that every engine gives it."""
    top.parent.mkdir(parents=True)
    files = rule_files(project, rule)
    if not (project.root / rule.source).is_dir():
        _write_file(files[0].source, top)
        return
    root = PurePosixPath(rule.target.strip("/"))
    top.mkdir()
    top.chmod(0o755)
    for item in files:
        target = top / PurePosixPath(item.path).relative_to(root)
        if item.is_folder:
            target.mkdir(exist_ok=True)
            target.chmod(0o755)
        elif item.link is not None:
            target.symlink_to(item.link)
        else:
            _write_file(item.source, target)


def _write_file(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _build(
    docker: Docker, context: Path, id_file: Path, name: str, reporter: Reporter, more_arguments: tuple[str, ...] = ()
) -> str:
    """The built image's id."""
    arguments = ["--network=none", "--tag", name, "--iidfile", str(id_file), "--file", str(context / "Dockerfile")]
    arguments += more_arguments
    reporter.detail(f"docker build with {docker.build_with}, engine {docker.versions.server}")
    with reporter.task("docker build"):
        if docker.build_with == "buildx":
            more = ["--progress=plain", "--load", "--provenance=false", "--sbom=false"]
            docker.run(["buildx", "build", *more, *arguments, str(context)], what="build the image")
        elif docker.build_with == "buildkit":
            environ = {"DOCKER_BUILDKIT": "1"}
            docker.run(["build", "--progress=plain", *arguments, str(context)], what="build the image", more=environ)
        else:
            environ = {"DOCKER_BUILDKIT": "0"}
            docker.run(["build", "--force-rm", *arguments, str(context)], what="build the image", more=environ)
    return id_file.read_text(encoding="ascii").strip()


def hand_over(
    plan: ImagePlan,
    base: BaseImage,
    saved: Path,
    *,
    target: Repository,
    tag: str | None,
    store: Store,
    reference: Reference | None,
    engine: str = "docker",
) -> BuiltImage:
    """From the engine's archive to the target: base blobs as they were, own layers with fixed times, tag last."""
    image = SavedImage.open(saved)
    try:
        _check_base(image.config, base)
        own = []
        for number, name in enumerate(image.layers[len(base.layers) :], 1):
            with image.layer(name) as source:
                own.append(plain_layer(source, store, title=f"{engine} build, layer {number}"))
    finally:
        image.close()
    layers = (*base.layers, *own)
    for layer, blob in zip(base.layers, base.sources, strict=True):
        target.put_blob(layer.descriptor, blob)
    for layer in own:
        target.put_blob(layer.descriptor, layer_source(layer, store))
    config = canonical_json(_config(plan, image.config, base, layers))
    descriptor = Descriptor(media_type=MediaType.CONFIG, digest=Digest.of(config), size=len(config))
    target.put_blob(descriptor, BytesSource(config))
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MediaType.MANIFEST,
            "config": descriptor.to_json(),
            "layers": [layer.descriptor.to_json() for layer in layers],
            "annotations": manifest_annotations(plan),
        }
    )
    stored = target.put_manifest(Manifest(MediaType.MANIFEST, manifest), tag=tag)
    return BuiltImage(
        reference=_name(reference, tag, stored.digest),
        digest=stored.digest,
        size=descriptor.size + sum(layer.descriptor.size for layer in layers),
        layers=layers,
    )


def _check_base(config: Mapping[str, Any], base: BaseImage) -> None:
    found = ((config.get("rootfs") or {}).get("diff_ids") or [])[: len(base.layers)]
    if found != [str(layer.diff_id) for layer in base.layers]:
        raise OutsideFailed(
            "the engine built on another base than the locked one",
            why="the lowest layers of the image are not the base's",
            fix="remove the engine's images named localhost/builder/base and build again",
        )


def _config(
    plan: ImagePlan, config: Mapping[str, Any], base: BaseImage, layers: tuple[Layer, ...]
) -> Mapping[str, Any]:
    """The engine's config without what it says of the build: no times, no container, no engine version."""
    settings = dict(config.get("config") or {})
    # buildah moves a variable that is set again to the end; the order here is the built-in engine's
    order = {name: place for place, name in enumerate(chosen_settings(plan, _base_env(base)).env)}
    settings["Env"] = sorted(settings.get("Env") or (), key=lambda item: order.get(item.partition("=")[0], len(order)))
    labels = {name: value for name, value in (settings.get("Labels") or {}).items() if name != _BUILDAH_LABEL}
    inherited = ((base.config.get("config") or {}).get("Labels") or {}).get(_BUILDAH_LABEL)
    settings["Labels"] = labels if inherited is None else {**labels, _BUILDAH_LABEL: inherited}
    history = [
        {"created": plan.created, "created_by": f"builder: {'base ' if number < len(base.layers) else ''}{layer.title}"}
        for number, layer in enumerate(layers)
    ]
    return {
        "architecture": config["architecture"],
        "os": config["os"],
        "created": plan.created,
        "config": {key: settings[key] for key in _CONFIG_KEYS if settings.get(key)},
        "rootfs": {"type": "layers", "diff_ids": [str(layer.diff_id) for layer in layers]},
        "history": history,
    }


def _base_env(base: BaseImage) -> list[str]:
    return list((base.config.get("config") or {}).get("Env") or ())


def _name(reference: Reference | None, tag: str | None, digest: Digest) -> str:
    if reference is None:
        return f"{tag}@{digest}" if tag else str(digest)
    return f"{reference.with_tag(tag)}@{digest}" if tag else str(reference.with_digest(digest))
