"""What an image will be made of, before a layer is made; and whether a made one keeps its budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from builder.base.resolve import OpenRepository
from builder.events import Reporter
from builder.image.app import rule_files
from builder.image.base_layers import base_sizes
from builder.image.packing import Packing
from builder.image.plan import Limits, WheelSize, group_title, group_wheels
from builder.image.values import BuiltImage
from builder.lock.values import Lock
from builder.project.values import Project
from builder.store import Store

__all__ = ["Budget", "LayerPlan", "PlannedLayer", "check_budget", "preview"]

_NAMED = 5
"""Layers that a broken budget names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedLayer:
    """One layer to be."""

    title: str
    size: int
    """Bytes: of the wheels for wheels, of the files before compression for the application."""
    exact: bool
    """The layer lies in the store or registry already, so this is its length to the byte."""
    wheels: tuple[str, ...] = ()
    """Wheel file names, in the order they are installed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPlan:
    """The layers of an image in stacking order."""

    layers: tuple[PlannedLayer, ...]
    limit: int
    """Layers that engines take."""

    @property
    def size(self) -> int:
        """About how many bytes the image will have."""
        return sum(layer.size for layer in self.layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How a made image stands to the size it may have."""

    limit: int
    """Bytes."""
    size: int
    """Bytes of configuration and compressed layers."""
    largest: tuple[tuple[str, int], ...]
    """The largest layers, largest first: title and bytes."""

    @property
    def kept(self) -> bool:
        """Whether the image is small enough."""
        return self.size <= self.limit


def preview(
    project: Project,
    lock: Lock,
    sizes: Mapping[str, int],
    *,
    store: Store,
    reporter: Reporter,
    offline: bool = False,
    open_repository: OpenRepository | None = None,
    limits: Limits | None = None,
) -> LayerPlan:
    """The layers that the built-in engine would make; `sizes` are the wheels' lengths in bytes by file name.

    `Refused` when no grouping fits the limits, `BadInput` for a copy rule that cannot be followed, as in a build.
    """
    limits = limits or Limits()
    base = [
        PlannedLayer(title=title, size=size, exact=exact)
        for title, size, exact in base_sizes(
            lock.base,
            lock.arch,
            store,
            reporter,
            offline=offline,
            open_repository=open_repository,
            packing=Packing.of(project.image),
        )
    ]
    titles = {package.file: f"{package.name} {package.version}" for package in lock.packages}
    wheels = [WheelSize(name=item.name, file=item.file, size=sizes[item.file]) for item in lock.packages]
    others = len(base) + 1 + len(project.image.copy) + int(project.image.compile_bytecode)
    groups = group_wheels(wheels, other_layers=others, limits=limits)
    packed = [
        PlannedLayer(
            title=group_title([titles[item.file] for item in group], [item.name for item in group]),
            size=sum(item.size for item in group),
            exact=False,
            wheels=tuple(item.file for item in group),
        )
        for group in groups
    ]
    if project.image.compile_bytecode:
        # How much Python a wheel holds is not known before it is here, hence not how many layers there will be.
        packed.append(
            PlannedLayer(title=f"bytecode of {len(wheels)} wheels, in as many layers as it needs", size=0, exact=False)
        )
    environment = PlannedLayer(title=f"environment for Python {lock.python}", size=0, exact=False)
    copied = []
    for rule in project.image.copy:
        files = rule_files(project, rule)
        if files:
            size = sum(item.status.st_size for item in files if not item.is_folder and item.link is None)
            copied.append(PlannedLayer(title=f"{rule.source} in {rule.target}", size=size, exact=False))
    return LayerPlan(layers=(*base, environment, *packed, *copied), limit=limits.layers)


def check_budget(image: BuiltImage, limit: int | None) -> Budget | None:
    """How the image stands to its budget; None when it has none."""
    if limit is None:
        return None
    ordered = sorted(image.layers, key=lambda layer: (-layer.descriptor.size, layer.title))
    return Budget(
        limit=limit,
        size=image.size,
        largest=tuple((layer.title, layer.descriptor.size) for layer in ordered[:_NAMED]),
    )
