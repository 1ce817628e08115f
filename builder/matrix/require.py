"""NVIDIA_REQUIRE_CUDA: what an image asks of the host driver, and whether a host meets it.

Source: NVIDIA/nvidia-container-toolkit@d34b3046, NVIDIA/libnvidia-container src/dsl.c@5823754b: a space divides
alternatives, a comma joins conditions; properties are cuda (that of the host driver), driver, arch (compute capability)
and brand. An unknown property is skipped by the Go code and an invalid expression to the C code: the sources disagree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from builder.errors import BadInput
from builder.matrix.versions import parse

__all__ = ["PROPERTIES", "Term", "met", "parse_requirement"]

PROPERTIES = ("cuda", "driver", "arch", "brand")


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One condition, e.g. `cuda>=12.4`."""

    property: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.property}{self.operator}{self.value}"


def parse_requirement(text: str) -> tuple[tuple[Term, ...], ...]:
    """Alternatives, each a group of terms that must all hold; `BadInput` for a malformed term."""
    groups = []
    for group in text.split():
        terms = []
        for part in group.split(","):
            match = re.fullmatch(r"([a-z]+)(<=|>=|!=|=|<|>)([^<>=!]+)", part)
            if match is None:
                fix = "property, operator and value without spaces, e.g. cuda>=12.4"
                raise BadInput(f"{part!r} is no condition of NVIDIA_REQUIRE_CUDA", fix=fix)
            terms.append(Term(property=match[1], operator=match[2], value=match[3]))
        groups.append(tuple(terms))
    return tuple(groups)


def met(groups: tuple[tuple[Term, ...], ...], host: Mapping[str, str]) -> bool | None:
    """Whether a host (property to value) meets the requirement; None when it depends on a property not given."""
    answers = [_group(group, host) for group in groups]
    if True in answers or not answers:
        return True
    return None if None in answers else False


def _group(group: tuple[Term, ...], host: Mapping[str, str]) -> bool | None:
    answers = [_term(term, host) for term in group]
    if False in answers:
        return False
    return None if None in answers else True


def _term(term: Term, host: Mapping[str, str]) -> bool | None:
    have = host.get(term.property)
    if have is None:
        return None
    if term.property == "brand":
        return (have == term.value) == (term.operator == "=")
    mine, theirs = parse(have), parse(term.value)
    if mine is None or theirs is None:
        return None
    match term.operator:
        case "=":
            return mine == theirs
        case "!=":
            return mine != theirs
        case "<":
            return mine < theirs
        case "<=":
            return mine <= theirs
        case ">":
            return mine > theirs
        case _:
            return mine >= theirs
