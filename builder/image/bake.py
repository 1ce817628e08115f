"""Several backends at once: targets for `docker buildx bake`, and a matrix for GitHub Actions. Pure.

Sources: Docker's Bake file reference (target keys), HCL native syntax specification ("Template Literals": `${` and `%{`
begin templates), GitHub's workflow syntax (`jobs.<id>.strategy.matrix.include`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from builder.names import Arch, Platform

__all__ = ["BakeTarget", "bake_hcl", "github_matrix"]

_RUNNERS: dict[Arch, str] = {"x86_64": "ubuntu-24.04", "aarch64": "ubuntu-24.04-arm"}
"""GitHub's own runners by architecture (GitHub docs, "About GitHub-hosted runners")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BakeTarget:
    """One backend's image."""

    backend: str
    arch: Arch
    toolkit: str | None
    lock: str
    """Name of the lock's file, beside the project file."""
    reference: str
    """Where `builder build --to` puts the image, with its version tag."""
    name: str
    """What an engine calls it: the same where that is a registry, else a local name."""
    context: str
    """Folder of the build context, relative to the bake file."""
    node_classes: tuple[str, ...]


def bake_hcl(targets: Sequence[BakeTarget]) -> str:
    """The text of docker-bake.hcl: one target for each backend, all of them in the default group."""
    lines = [
        "# Made by `builder bake`; the contexts are those of `builder dockerfile --write`.",
        'group "default" {',
        f"  targets = {_list([target.backend for target in targets])}",
        "}",
    ]
    for target in targets:
        lines += [
            "",
            f"target {_text(target.backend)} {{",
            f"  context    = {_text(target.context)}",
            '  dockerfile = "Dockerfile"',
            f"  platforms  = {_list([str(Platform(target.arch))])}",
            f"  tags       = {_list([target.name])}",
            '  network    = "none"',
            "}",
        ]
    return "\n".join(lines) + "\n"


def github_matrix(targets: Sequence[BakeTarget]) -> dict[str, Any]:
    """The value of `strategy.matrix`: one job for each backend, on a runner of its architecture."""
    return {
        "include": [
            {
                "backend": target.backend,
                "arch": target.arch,
                "platform": str(Platform(target.arch)),
                "runner": _RUNNERS[target.arch],
                "toolkit": target.toolkit or "",
                "lock": target.lock,
                "ref": target.reference,
                "node_classes": list(target.node_classes),
            }
            for target in targets
        ]
    }


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_text(value) for value in values)}]"
