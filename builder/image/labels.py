"""The label keys of an image: what `smoke`, `publish` and `promote` need to know from the image alone.

Labels stand in the image's config (`config.Labels`) and, with the same keys, in the manifest's annotations. The
`org.opencontainers.image.*` keys are the OCI image-spec's (annotations.md); `dev.builder.*` are this tool's. Values
are text; those with structure are compact JSON with sorted keys, so that equal inputs give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from builder.errors import BadInput, Where
from builder.lock.values import Lock
from builder.names import Digest
from builder.project.values import Project, Warmup

__all__ = ["BACKEND", "LOCK", "ImageFacts", "image_labels", "lock_digest", "read_labels"]

BACKEND = "dev.builder.backend"
TOOLKIT = "dev.builder.toolkit"
"""Toolkit version; absent where the backend has none."""
PYTHON = "dev.builder.python"
"""Minor version of the interpreter, `3.11`."""
LOCK = "dev.builder.lock"
"""`lock_digest` of the lock the image was made from."""
PACKAGES = "dev.builder.packages"
"""JSON object: normalised distribution name to exact version, everything the lock holds."""
WARMUP = "dev.builder.warmup"
"""JSON `{"command": […], "timeout": seconds}`; absent when the project has no warmup."""
UNKNOWN_ALLOWED = "dev.builder.unknown-allowed"
"""JSON array of the matrix questions that had no row and were let pass; absent when there was none."""
RUN_LINE = "dev.builder.run"
"""What starts a container of this image, as one shell line; the image's reference comes after it."""

_OCI = "org.opencontainers.image."
_OWN = "dev.builder."


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFacts:
    """The labels, parsed."""

    backend: str
    toolkit: str | None
    python: str
    lock: Digest
    packages: Mapping[str, str]
    """Normalised distribution name to version."""
    warmup: Warmup | None


def lock_digest(lock: Lock) -> Digest:
    """Digest of what the lock puts into the image: backend, Python, base and the hash of every wheel.

    Two locks with the same digest give the same site-packages on the same base, whatever engine or day made them.
    """
    return Digest.of(
        _compact(
            {
                "backend": lock.backend,
                "python": lock.python,
                "arch": lock.arch,
                "base": str(lock.base.digest),
                "packages": sorted([package.name, package.file, str(package.sha256)] for package in lock.packages),
            }
        ).encode()
    )


def image_labels(project: Project, lock: Lock, *, run_line: str = "") -> dict[str, str]:
    """The labels of an image (`ImagePlan.labels`), sorted by key; the base's are added by the image's settings.

    `BadInput` when the project's own labels use this tool's names, which other commands rely on.
    """
    taken = sorted(key for key in project.image.labels if key.startswith(_OWN))
    if taken:
        raise BadInput(
            f"the label {taken[0]!r} cannot be set by a project",
            why=f"names under {_OWN} tell other commands what the image is made of",
            fix="choose a name under a domain of your own",
            where=Where(file=str(project.path), key="image.labels"),
        )
    values: dict[str, str | None] = {
        f"{_OCI}title": project.name,
        f"{_OCI}version": project.version,
        f"{_OCI}description": project.description,
        f"{_OCI}licenses": project.license,
        f"{_OCI}source": project.source,
        BACKEND: lock.backend,
        TOOLKIT: lock.toolkit,
        PYTHON: lock.python,
        LOCK: str(lock_digest(lock)),
        PACKAGES: _compact({package.name: package.version for package in lock.packages}),
        WARMUP: _warmup(project.warmup),
        UNKNOWN_ALLOWED: _compact(list(lock.unknown_allowed)) if lock.unknown_allowed else None,
        RUN_LINE: run_line,
    }
    return {key: value for key, value in sorted(values.items()) if value}


def read_labels(labels: Mapping[str, str], *, image: str) -> ImageFacts:
    """Parse an image's labels; `BadInput` naming `image` when they are not there or not readable."""
    missing = [key for key in (BACKEND, PYTHON, LOCK, PACKAGES) if key not in labels]
    if missing:
        raise BadInput(
            f"{image} does not say what it is made of",
            why=f"its labels lack {', '.join(missing)}",
            fix="give an image that `builder build` made",
        )
    try:
        packages = {str(name): str(version) for name, version in json.loads(labels[PACKAGES]).items()}
        warmup = None
        if WARMUP in labels:
            value = json.loads(labels[WARMUP])
            warmup = Warmup(command=tuple(map(str, value["command"])), timeout=float(value["timeout"]))
        return ImageFacts(
            backend=labels[BACKEND],
            toolkit=labels.get(TOOLKIT),
            python=labels[PYTHON],
            lock=Digest.parse(labels[LOCK]),
            packages=packages,
            warmup=warmup,
        )
    except (ValueError, KeyError, TypeError, AttributeError, BadInput) as error:
        raise BadInput(f"the labels of {image} cannot be read", why=str(error), fix="build the image again") from error


def _warmup(warmup: Warmup | None) -> str | None:
    return _compact({"command": list(warmup.command), "timeout": warmup.timeout}) if warmup else None


def _compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
