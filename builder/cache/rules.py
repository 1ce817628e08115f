"""What it takes for an engine's property to suit what is wanted. Pure; which property has which rule is data.

A rule answers None when it is satisfied, else `differs` or `costs`. It is asked only when both values are known. The
engine's value is `found`, the machine's `wanted`: the two sides are not alike, code for 8.0 runs on 8.6 and not the
other way round. What compares versions and targets is loaded when two differ: an exact hit needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from builder.cache.values import Meaning

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = ["ASKS_THE_MACHINE", "NEEDS_BY", "OF_ITSELF", "RULES", "Case", "Rule"]


class Case(NamedTuple):
    """One property of one engine beside the same property of what is wanted.

    A tuple, because a lookup makes one for each engine of a model.
    """

    wanted: str
    found: str
    want: Mapping[str, str]
    """All factors of what is wanted."""
    have: Mapping[str, str]
    """All factors of the engine."""
    by: str | None = None
    """The property that this one depends on."""
    limits: tuple[str, ...] = ()
    """Words of the row that the rule reads."""


Rule = Callable[[Case], Meaning | None]


def _equal(case: Case) -> Meaning | None:
    return None if case.wanted == case.found else "differs"


def _version(text: str) -> Version | None:
    from builder.matrix.versions import parse

    return parse(text)


def _release(text: str) -> tuple[int, ...] | None:
    version = _version(text)
    return version.release if version is not None else None


def _compared(case: Case) -> int | None:
    """Negative, zero or positive as the wanted version is below, equal to or above the engine's."""
    wanted, found = _version(case.wanted), _version(case.found)
    if wanted is None or found is None:
        return None
    return (wanted > found) - (wanted < found)


def _at_least(case: Case) -> Meaning | None:
    """The machine's version is the engine's or newer."""
    order = _compared(case)
    return None if order is not None and order >= 0 else "differs"


def _same_major(case: Case) -> Meaning | None:
    wanted, found = _release(case.wanted), _release(case.found)
    return None if wanted and found and wanted[0] == found[0] else "differs"


def _same_minor(case: Case) -> Meaning | None:
    wanted, found = _release(case.wanted), _release(case.found)
    return None if wanted and found and wanted[:2] == found[:2] else "differs"


def _version_compatible(case: Case) -> Meaning | None:
    """Equal; or built to be version compatible, and the runtime is newer in the same major or in a pair of `limits`.

    A pair is written `8>10`: engines of major 8 run with a runtime of major 10.
    """
    if case.have.get(case.by or "") != "on":
        return "differs"
    wanted, found = _release(case.wanted), _release(case.found)
    order = _compared(case)
    if not wanted or not found or order is None or order < 0:
        return "differs"
    pairs = {tuple(map(int, pair.split(">"))) for pair in case.limits}
    return "costs" if wanted[0] == found[0] or (found[0], wanted[0]) in pairs else "differs"


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def _hardware_compatible(case: Case) -> Meaning | None:
    """Equal; or built for Ampere and newer (`ampere-plus`), and both capabilities are 8.0 or higher."""
    if case.have.get(case.by or "") != "ampere-plus":
        return "differs"
    return "costs" if min(_capability(case.wanted), _capability(case.found)) >= (8, 0) else "differs"


def _among(case: Case) -> Meaning | None:
    """The machine's one value is among the engine's several."""
    return None if case.wanted in case.found.split() else "differs"


def _covers(case: Case) -> Meaning | None:
    """Everything wanted is among what the engine has, such as shapes it was warmed for."""
    return None if set(case.wanted.split()) <= set(case.found.split()) else "differs"


def _bits_within(case: Case) -> Meaning | None:
    """Every bit the engine needs is one the machine has."""
    return None if int(case.found, 0) & ~int(case.wanted, 0) == 0 else "differs"


def _in_range(case: Case) -> Meaning | None:
    """The engine's number, or its whole range, lies in the machine's range `low-high`."""
    (low, high), (first, last) = _bounds(case.wanted), _bounds(case.found)
    return None if low <= first and last <= high else "differs"


def _bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def _noted(case: Case) -> Meaning | None:
    """Decides nothing itself: other rules read it. An engine made more widely than asked for costs something."""
    return None if case.wanted == case.found else "costs"


def _gfx(case: Case) -> Meaning | None:
    """The same processor, or code for its generic target; a feature both name must be the same.

    A feature that one side leaves out is `any` there (LLVM AMDGPU usage, "Target ID").
    """
    wanted, *here = case.wanted.split(":")
    found, *built = case.found.split(":")
    if {f"{name[:-1]}{'-' if name[-1] == '+' else '+'}" for name in here} & set(built):
        return "differs"
    if wanted == found:
        return None
    from builder.matrix.targets import covers

    return "costs" if covers("gfx", [found], wanted) else "differs"


def _level(text: str) -> tuple[str, tuple[int, ...]] | None:
    match = re.fullmatch(r"x86-64-v([1-4])|armv(\d+)\.(\d+)-a", text)
    if match is None:
        return None
    return ("x86", (int(match[1]),)) if match[1] else ("arm", (int(match[2]), int(match[3])))


def _level_within(case: Case) -> Meaning | None:
    """The machine's processor has the engine's level or a higher one of the same family."""
    wanted, found = _level(case.wanted), _level(case.found)
    if wanted is None or found is None or wanted[0] != found[0]:
        return "differs"
    return "costs" if wanted[1] >= found[1] else "differs"


def _device_listed(case: Case) -> Meaning | None:
    """The device's own code is in the list of targets that the machine's libraries were built for.

    Judged on what is wanted alone: a device outside the list is served through PTX, whatever the cache holds.
    """
    device = case.want.get(case.by or "")
    if device is None:
        return None
    from builder.matrix.targets import normalise_target

    targets = [normalise_target(target, "sm") for target in case.wanted.split()]
    return None if normalise_target(device, "sm") in targets else "costs"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "equal": _equal,
        "at-least": _at_least,
        "same-major": _same_major,
        "same-minor": _same_minor,
        "version-compatible": _version_compatible,
        "hardware-compatible": _hardware_compatible,
        "among": _among,
        "covers": _covers,
        "bits-within": _bits_within,
        "in-range": _in_range,
        "gfx-target": _gfx,
        "level-within": _level_within,
        "noted": _noted,
        "device-listed": _device_listed,
    }
)
"""Names of the column `rule` of matrices/engines."""

NEEDS_BY = frozenset({"version-compatible", "hardware-compatible", "device-listed"})
"""Rules that look at a second property."""

ASKS_THE_MACHINE = frozenset({"bits-within", "in-range"})
"""Rules for needs that an artefact's header states: what the machine offers must be known to satisfy one. Any other
property of the header is told by the builder's version as well, and judged only where both sides state it."""

OF_ITSELF = frozenset({"device-listed"})
"""Rules that equal values do not satisfy."""
