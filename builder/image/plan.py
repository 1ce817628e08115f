"""Which wheels share a layer: large ones alone, small ones in stable groups, and never more layers than engines take.

Pure: sizes and names in, groups out. A wheel's group depends on its name, so a new version of one dependency changes
one layer; the application's layers come last, so a changed line of it changes none of these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from builder.errors import Refused

__all__ = ["Limits", "WheelSize", "group_title", "group_wheels"]

_ALONE = 1 << 20
"""Wheels of this many bytes have a layer of their own while there are layers left."""
_GROUP = 1 << 19
"""Small wheels are spread over groups of about this many bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What engines and registries take."""

    layers: int = 127
    """Docker's overlay driver mounts no more (moby, graphdriver/overlay2, `maxDepth`, less the container's own)."""
    layer_bytes: int | None = None
    """Largest blob that the registry takes, None when it sets no limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSize:
    """What grouping needs to know of a wheel."""

    name: str
    """Normalised project name: it decides the group, whatever the version."""
    file: str
    size: int
    """Length of the wheel in bytes; its layer is about as long."""


def group_wheels(
    wheels: Iterable[WheelSize], *, other_layers: int, limits: Limits | None = None
) -> tuple[tuple[WheelSize, ...], ...]:
    """The wheels of each layer, in the order layers are stacked and wheels installed.

    `other_layers` counts base, environment and application. `Refused` when no grouping fits the limits.
    """
    limits = limits or Limits()
    ordered = sorted(wheels, key=lambda wheel: (wheel.name, wheel.file))
    if limits.layer_bytes is not None:
        _check_sizes(ordered, limits.layer_bytes)
    room = limits.layers - other_layers
    alone, spread = _ALONE, _GROUP
    while True:
        groups = _grouped(ordered, alone, spread)
        if len(groups) <= room:
            if limits.layer_bytes is None or all(_total(group) <= limits.layer_bytes for group in groups):
                return groups
            raise _no_fit(ordered, other_layers, limits)
        if len(groups) <= 1:
            raise _no_fit(ordered, other_layers, limits)
        alone, spread = alone * 2, spread * 2


def group_title(titles: Sequence[str], names: Sequence[str]) -> str:
    """What a layer of these wheels is called: `torch 2.13.0` for one, count and names for several."""
    return titles[0] if len(titles) == 1 else f"{len(titles)} wheels: {', '.join(names)}"


def _grouped(ordered: Sequence[WheelSize], alone: int, spread: int) -> tuple[tuple[WheelSize, ...], ...]:
    large = [(wheel,) for wheel in ordered if wheel.size >= alone]
    small = [wheel for wheel in ordered if wheel.size < alone]
    if not small:
        return tuple(large)
    wanted = -(-_total(small) // spread)
    buckets = 1 << max(0, wanted - 1).bit_length()
    groups: dict[int, list[WheelSize]] = {}
    for wheel in small:
        groups.setdefault(_bucket(wheel.name, buckets), []).append(wheel)
    return (*large, *(tuple(groups[index]) for index in sorted(groups)))


def _bucket(name: str, buckets: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % buckets


def _total(wheels: Iterable[WheelSize]) -> int:
    return sum(wheel.size for wheel in wheels)


def _check_sizes(wheels: Sequence[WheelSize], limit: int) -> None:
    large = [wheel for wheel in wheels if wheel.size > limit]
    if large:
        named = ", ".join(f"{wheel.file} ({wheel.size / 1e9:.1f} GB)" for wheel in large)
        raise Refused(
            "the registry does not take this image",
            why=f"a layer may have {limit / 1e9:.1f} GB, and a wheel is not split: {named}",
            fix="use a registry with a higher limit, or a smaller build of the package",
        )


def _no_fit(wheels: Sequence[WheelSize], other_layers: int, limits: Limits) -> Refused:
    limit = f" of at most {limits.layer_bytes / 1e9:.1f} GB" if limits.layer_bytes is not None else ""
    return Refused(
        "the image does not fit the layers that engines take",
        why=f"{limits.layers} layers{limit}, of which base, environment and application take {other_layers}; "
        f"{len(wheels)} wheels with {_total(wheels) / 1e9:.1f} GB do not fit the rest",
        fix="use a base with fewer layers",
    )
