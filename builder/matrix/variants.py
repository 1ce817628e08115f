"""Wheel variants (PEP 817 and 825, drafts): what variant.json says of the builds of a wheel, held against a question.

Shown, and used to explain a choice; nothing here or elsewhere depends on them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from builder.errors import BadInput
from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.driver import reported_toolkit
from builder.matrix.targets import normalise_target
from builder.matrix.versions import sort_key, within

__all__ = ["Variant", "explain_variants", "parse_variants", "variant_label"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One build of a wheel."""

    label: str
    """Last part of the wheel's name, e.g. `cu130`."""
    properties: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Namespace, feature, values; sorted."""

    def __str__(self) -> str:
        return "; ".join(f"{space} :: {feature} :: {', '.join(values)}" for space, feature, values in self.properties)


def variant_label(file: str) -> str | None:
    """The label of a wheel's name, `x-1-cp312-cp312-linux_x86_64-cu130.whl` → `cu130`; None without one."""
    parts = file.removesuffix(".whl").split("-")
    if len(parts) < 6 or _is_platform(parts[-1]) or not _is_platform(parts[-2]):
        return None
    return parts[-1]


def _is_platform(text: str) -> bool:
    return re.match(r"any$|manylinux|musllinux|linux_|win|macosx", text) is not None


def parse_variants(text: str) -> tuple[Variant, ...]:
    """The variants of a variant.json or NAME-VERSION-variants.json, by label; `BadInput` when it is none."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput("the variants are not JSON", why=str(error)) from error
    variants = data.get("variants") if isinstance(data, dict) else None
    if not isinstance(variants, dict):
        raise BadInput("no table 'variants'", why="PEP 817: label to namespace to feature to values")
    return tuple(Variant(label=label, properties=_properties(label, variants[label])) for label in sorted(variants))


def _properties(label: str, spaces: object) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    if not isinstance(spaces, Mapping):
        raise BadInput(f"variant {label!r} is not a table of namespaces")
    found = []
    for space, features in sorted(spaces.items()):
        if not isinstance(features, Mapping):
            raise BadInput(f"variant {label!r}: {space} is not a table of features")
        for feature, values in sorted(features.items()):
            if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
                raise BadInput(f"variant {label!r}: {space} :: {feature} is not a list of texts")
            found.append((space, feature, tuple(values)))
    return tuple(found)


def explain_variants(variants: tuple[Variant, ...], question: Question, backend: Backend) -> tuple[str, ...]:
    """One sentence a variant: whether its properties fit what was asked, and which one does not."""
    return tuple(_sentence(variant, question, backend) for variant in variants)


def _sentence(variant: Variant, question: Question, backend: Backend) -> str:
    answers = {
        (space, feature): _fits(space, feature, values, question, backend)
        for space, feature, values in variant.properties
    }
    wrong = [f"{space} :: {feature}" for (space, feature), answer in answers.items() if answer is False]
    open_ = [f"{space} :: {feature}" for (space, feature), answer in answers.items() if answer is None]
    if wrong:
        verdict = f"does not fit ({', '.join(wrong)})"
    elif open_:
        verdict = f"cannot be judged ({', '.join(open_)})"
    else:
        verdict = "fits" if answers else "fits everywhere"
    shown = str(variant) or "no properties"
    return f"variant {variant.label}: {verdict}; {shown} (PEP 817 and 825, drafts: nothing depends on it)"


def _fits(space: str, feature: str, values: tuple[str, ...], question: Question, backend: Backend) -> bool | None:
    """Source of the features: matrices/common/wheel-variants.toml."""
    offered = reported_toolkit(backend, question.driver) if question.driver is not None else question.toolkit
    match f"{space}::{feature}":
        case "nvidia::cuda_version_lower_bound":
            return None if offered is None else any(sort_key(offered) >= sort_key(value) for value in values)
        case "nvidia::cuda_version_upper_bound":
            return None if offered is None else any(sort_key(offered) <= sort_key(value) for value in values)
        case "nvidia::sm_arch" | "amd::gfx_arch":
            targets = [normalise_target(value, "sm" if space == "nvidia" else "gfx") for value in values]
            return None if question.target is None else question.target in targets
        case "amd::rocm_version" | "ascend::cann_version":
            return None if question.toolkit is None else any(within(question.toolkit, f"{value}.*") for value in values)
        case "ascend::driver_version":
            return None if question.driver is None else question.driver in values
        case "ascend::npu_type":
            target = (question.target or "").lower()
            return None if not target else any(value.lower() in target for value in values)
        case _:
            return None
