"""The Dockerfile of a plan, and what its build context holds. Pure: nothing is fetched, read or stamped.

Two forms of one file. BuildKit's mounts the context while installing, so that wheels are never in a layer; the classic
builder's installs in a first stage and copies the environment over. Neither needs a `# syntax=` frontend, which would
have to be pulled, nor `RUN --network=none`, which Docker 20.10's own frontend does not know: the network is taken away
by the build command, and the installer opens none.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from builder import resources
from builder.base.values import LockedBase
from builder.errors import BadInput
from builder.image.config import settings
from builder.image.devices import CDI_SYNTAX
from builder.image.values import VENV, ImagePlan
from builder.matrix.values import RunLine
from builder.names import Digest, Reference, RegistryRef, parse_ref
from builder.project.values import CopyRule

__all__ = [
    "BuilderKind",
    "ContextFile",
    "Dockerfile",
    "build_line",
    "context_document",
    "copy_paths",
    "local_base",
    "local_name",
    "public_base",
    "render",
    "run_arguments",
    "run_line",
    "run_prefix",
]

BuilderKind = Literal["buildkit", "classic"]
"""Which of Docker's two builders reads the file."""

_MOUNT = "/mnt"
"""Where the context is seen while installing: a folder that every base has, so that no mount point is left behind."""
_INHERITED_PATH = "\0"
"""Stands for the base's PATH until values are quoted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextFile:
    """One file or folder of the build context."""

    path: str
    """Relative to the context, `/`-separated."""
    kind: Literal["installer", "wheel-list", "wheel", "application"]
    source: str
    """The wheel's file name, or the copy rule's source relative to the project file; "" when `text` is the content."""
    target: str = ""
    """Where a copy rule puts it in the image."""
    digest: Digest | None = None
    """Of the file's bytes, when the lock fixes them."""
    text: str | None = None
    """The whole content, when it is made here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dockerfile:
    """A rendered Dockerfile."""

    text: str
    context: tuple[ContextFile, ...]
    """Sorted by path."""


def render(
    plan: ImagePlan,
    *,
    base_image: str,
    base_note: str = "",
    builder: BuilderKind = "buildkit",
    devices: tuple[str, ...] = (),
) -> Dockerfile:
    """The Dockerfile of this plan on `base_image`, a reference that the engine can resolve.

    `base_note` is put above FROM as a comment: the readable tag of a base pinned by digest. `devices` are CDI names
    that BuildKit gives to the install step. `BadInput` when a value cannot be written in a Dockerfile.
    """
    # The built-in base has no settings of its own, so its PATH is known; any other base's is taken over while building.
    chosen = settings(plan, () if plan.lock.base.packages else (f"PATH={_INHERITED_PATH}",))
    context = _context(plan)
    template = _environment().get_template(f"{plan.lock.backend}.Dockerfile.j2")
    text = template.render(
        title=f"{plan.project.name} {plan.project.version} for {plan.lock.backend}",
        application=[
            _exec((file.path, file.target)).replace("$", "\\\\$") for file in context if file.kind == "application"
        ],
        build_line=build_line(plan),
        run_line=run_line(plan),
        base_image=base_image,
        base_note=base_note,
        classic=builder == "classic",
        foreign=not plan.lock.base.packages,
        venv=VENV,
        install=_exec(_install_command(plan)),
        syntax=CDI_SYNTAX if devices else "",
        devices=devices,
        environment=[_pair(name, value) for name, value in chosen.env.items()],
        labels=[_pair(name, value) for name, value in chosen.labels.items()],
        workdir=_word("workdir", chosen.workdir),
        ports=chosen.ports,
        user=chosen.user,
        entrypoint=_exec(chosen.entrypoint),
        command=_exec(chosen.command),
    )
    return Dockerfile(text=text, context=context)


def local_base(base: LockedBase) -> str:
    """The name under which the tool loads a base into an engine: of this very base, whatever its tag says tomorrow."""
    slug = re.sub(r"[^a-z0-9]+", "-", base.reference.partition("@")[0].lower()).strip("-")[-60:].strip("-")
    return f"localhost/builder/base:{slug}-{base.digest.hex[:16]}"


def public_base(base: LockedBase) -> tuple[str, str]:
    """What a printed Dockerfile builds on, and the comment above it.

    A registry's image by digest; a base that is in no registry by the name of `local_base`.
    """
    if base.packages or base.reference.startswith("oci:"):
        return local_base(base), f"{base.reference}, {base.digest}; `builder build --engine docker` loads it"
    reference = parse_ref(base.reference)
    return str(reference.with_digest(base.digest)), base.reference


def build_line(plan: ImagePlan) -> str:
    """The command that builds it, where Docker has BuildKit; run in the folder of the context."""
    return f"DOCKER_BUILDKIT=1 docker build --network=none --tag {local_name(plan)} ."


def run_prefix(plan: ImagePlan) -> str:
    """What starts a container on a node of the backend, up to the image's name, as shell words.

    It says nothing of where an image lies, so that it can be a label: the same image has the same digest everywhere.
    """
    run = plan.runtime.run
    ports = (f"--publish={port.partition('/')[0]}:{port}" for port in plan.project.image.ports)
    return " ".join(["docker run --rm", *run_arguments(run), *ports])


def run_line(plan: ImagePlan, image: Reference | None = None) -> str:
    """How a container of `image` is started on a node of the backend, as one shell line.

    Without `image`, of what `build_line` or `--engine docker` leaves in the engine. An engine runs nothing from a
    layout, so a tag of one is brought into the engine first.
    """
    if isinstance(image, RegistryRef):
        return f"{run_prefix(plan)} {image}"
    if image is None:
        return f"{run_prefix(plan)} {local_name(plan)}"
    name = f"{plan.project.name}:{image.tag}"
    return f"skopeo copy {shlex.quote(str(image))} docker-daemon:{name} && {run_prefix(plan)} {name}"


def run_arguments(run: RunLine) -> tuple[str, ...]:
    """Arguments for `docker run`, each a shell word; groups by the number that the node gives them (FR-33)."""
    return (
        *(shlex.quote(argument) for argument in run.arguments),
        *(shlex.quote(f"--device={device}") for device in run.devices),
        *(f'--group-add="$(getent group {shlex.quote(group)} | cut -d: -f3)"' for group in run.groups),
        *(shlex.quote(f"--volume={path}:{path}:ro") for path in run.mounts),
    )


def local_name(plan: ImagePlan) -> str:
    """The image's name in a Docker Engine that built it."""
    return f"{plan.project.name}:{plan.lock.backend}"


def _context(plan: ImagePlan) -> tuple[ContextFile, ...]:
    wheels = sorted(plan.lock.packages, key=lambda package: (package.name, package.file))
    listing = [
        {"file": package.file, "path": f"wheels/{package.file}", "sha256": package.sha256.hex} for package in wheels
    ]
    installer = Path(__file__).with_name("install.py").read_text(encoding="utf-8")
    files = [
        ContextFile(
            path="install.py", kind="installer", source="", text=installer, digest=Digest.of(installer.encode())
        ),
        ContextFile(path="wheels.json", kind="wheel-list", source="", text=json.dumps(listing, indent=1) + "\n"),
        *(
            ContextFile(path=f"wheels/{package.file}", kind="wheel", source=package.file, digest=package.sha256)
            for package in wheels
        ),
        *(
            ContextFile(path=path, kind="application", source=rule.source, target=rule.target)
            for path, rule in zip(copy_paths(plan.project.image.copy), plan.project.image.copy, strict=True)
        ),
    ]
    return tuple(sorted(files, key=lambda file: file.path))


def copy_paths(rules: tuple[CopyRule, ...]) -> tuple[str, ...]:
    """Where each copy rule's file or folder lies in the context.

    COPY gives a file its target's name, or its own in a target that ends with `/`; of a folder it copies the content.
    A rule's parent folders are never in the context, since COPY would give their modes to those of the base.
    """
    return tuple(
        f"application/{number}/{PurePosixPath(rule.source).name or 'files' if rule.target.endswith('/') else 'files'}"
        for number, rule in enumerate(rules)
    )


def _install_command(plan: ImagePlan) -> tuple[str, ...]:
    base = plan.lock.base
    options = {"target": VENV, "python": plan.lock.python, "base-python": base.python_path}
    return (
        *(base.python_path, "-I", "-S", "-B", f"{_MOUNT}/install.py"),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
        *("--wheels", f"{_MOUNT}/wheels.json"),
        *(("--compile-bytecode",) if plan.project.image.compile_bytecode else ()),
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(resources.dockerfiles_dir()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a Dockerfile is not HTML; values are quoted for it below
    )


def _exec(words: tuple[str, ...]) -> str:
    """The exec form: no shell reads it, and the base needs none."""
    return json.dumps(list(words), ensure_ascii=False) if words else ""


def _pair(name: str, value: str) -> str:
    return f"{_word('name', name)}={_quoted(name, value)}"


def _quoted(name: str, value: str) -> str:
    """A value in double quotes with nothing substituted (Dockerfile reference, "Environment replacement")."""
    return '"' + "".join(_escaped(name, value)).replace(_INHERITED_PATH, "${PATH}") + '"'


def _word(name: str, value: str) -> str:
    return "".join(_escaped(name, value)).replace(" ", "\\ ")


def _escaped(name: str, value: str) -> Iterator[str]:
    for character in value:
        if character in "\r\n":
            raise BadInput(
                f"the value of {name!r} cannot be written in a Dockerfile",
                why="it has a line break",
                fix="write it in one line",
            )
        yield f"\\{character}" if character in '\\"$' else character


def context_document(context: tuple[ContextFile, ...]) -> list[dict[str, Any]]:
    """The context as JSON for `builder dockerfile --json` (docs/schemas/dockerfile.json)."""
    return [
        {
            "path": file.path,
            "kind": file.kind,
            "source": file.source or None,
            "target": file.target or None,
            "digest": str(file.digest) if file.digest else None,
        }
        for file in context
    ]
