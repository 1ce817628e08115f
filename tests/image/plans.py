"""Plans for tests: a project folder, locked wheels and a base, without the rooms that decide them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from builder.base.values import LockedBase
from builder.image.values import ImagePlan, Wheelhouse
from builder.lock.values import Lock, LockedPackage
from builder.matrix.values import RunLine, Runtime
from builder.names import Arch, Digest
from builder.project.values import CopyRule, ImageOptions, Project

CREATED = "2026-01-02T03:04:05Z"


def make_project(
    root: Path,
    *,
    copy: Sequence[CopyRule] = (),
    entrypoint: Sequence[str] = ("python", "/app/main.py"),
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Project:
    return Project(
        path=root / "builder.toml",
        name="demo",
        version="1.0",
        python="3.11",
        requirements=(),
        image=ImageOptions(
            entrypoint=tuple(entrypoint), env=dict(env or {}), labels=dict(labels or {}), copy=tuple(copy)
        ),
        backends={},
    )


def make_plan(
    project: Project,
    base: LockedBase,
    wheels: Sequence[Path],
    *,
    arch: Arch = "x86_64",
    runtime: Runtime | None = None,
    created: str = CREATED,
) -> ImagePlan:
    packages = []
    for path in wheels:
        name, version, _, _ = parse_wheel_filename(path.name)
        packages.append(
            LockedPackage(
                name=canonicalize_name(name),
                version=str(version),
                file=path.name,
                sha256=Digest.of_file(path),
                url=path.as_uri(),
                index=path.parent.as_uri(),
                size=path.stat().st_size,
                requires=(),
            )
        )
    lock = Lock(
        backend="cpu",
        project=project.name,
        python="3.11",
        arch=arch,
        glibc=base.glibc,
        toolkit=None,
        frameworks={},
        requirements=(),
        packages=tuple(sorted(packages, key=lambda item: item.name)),
        base=base,
        exclude_newer=created,
        inputs=Digest.of(b""),
        engine="test",
    )
    return ImagePlan(
        project=project,
        lock=lock,
        wheelhouse=Wheelhouse(files={path.name: path for path in wheels}),
        runtime=runtime or Runtime(env={}, run=RunLine()),
        labels={"org.opencontainers.image.title": project.name},
        created=created,
    )
