"""The rule on what was read from an image, an artefact or a log, and named for nothing."""

from __future__ import annotations

from collections.abc import Collection

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.values import RuleVerdict

__all__ = ["unjudged_settings"]

_READERS = {
    "image": ("image", "require-cuda"),
    "wheel": ("wheel-tag",),
    "feature": ("package-feature",),
    "brand": ("require-cuda",),
    "nvidia-disable-require": ("require-cuda",),
    "nvidia-require-cuda": ("require-cuda",),
    "hsa-override-gfx-version": ("hsa-override",),
    "runtime-compat-id": ("runtime-compat",),
    "driver-compat-ids": ("runtime-compat",),
    "neff-features": ("neff-features",),
    "runtime-neff-features": ("neff-features",),
    "framework-pjrt-api": ("pjrt-api",),
    "plugin-pjrt-api": ("pjrt-api",),
}
"""Setting to the rules that read it; limits read any of them."""


def unjudged_settings(
    question: Question, backend: Backend, spoke: Collection[str], read: Collection[str]
) -> RuleVerdict | None:
    """Settings that were named and that no rule that spoke has read: the rest being right does not make them right.

    Source: the tables of the backend. `spoke` are the rules that answered, `read` the keys of the limits that did.
    """
    stray = [
        f"{name} {value}"
        for name, value in question.settings.items()
        if name not in read and not {*_READERS.get(name, ())} & {*spoke}
    ]
    if not stray:
        return None
    return RuleVerdict(
        rule="setting-known",
        verdict="unknown",
        why=f"no table of {backend.name} says anything of {', '.join(stray)} with what else is named",
        source=backend.spec.source,
        fix="name what it is held against too (a package, the driver, the device), or leave it out to judge the rest",
    )
