"""What is to be assembled and what came out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.lock.values import Lock
from builder.matrix.values import Runtime
from builder.names import Digest
from builder.project.values import Project
from builder.registry.values import Descriptor
from builder.wheels.values import Wheelhouse

__all__ = ["VENV", "BuiltFrom", "BuiltImage", "ImagePlan", "Layer", "Wheelhouse"]

VENV = "/opt/venv"
"""Where the locked wheels are installed in every image, whatever engine made it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePlan:
    """Everything an engine needs; both engines make the same tree from it."""

    project: Project
    lock: Lock
    wheelhouse: Wheelhouse
    runtime: Runtime
    labels: Mapping[str, str]
    """OCI annotations (org.opencontainers.image.*) and the project's own labels; put on manifest and config both."""
    created: str
    """UTC ISO 8601: SOURCE_DATE_EPOCH when set, else the newest upload among the locked wheels; never the clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One finished layer."""

    descriptor: Descriptor
    """Compressed blob: media type, digest, size."""
    diff_id: Digest
    """Digest of the uncompressed tar (image-spec, config.md)."""
    title: str
    """What is in it, for people: `torch 2.13.0+cpu`, `12 wheels`, `application`."""
    path: Path | None = None
    """The blob's file, when it was made here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltFrom:
    """What an image is put together from, once its layers are made."""

    layers: tuple[Layer, ...]
    """In stacking order, the base's first."""
    base_layers: int
    """How many of them are the base's."""
    base_config: Mapping[str, Any]
    """The base's own image configuration; empty for the built-in base."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """An image in a layout or registry."""

    reference: str
    digest: Digest
    size: int
    """Config and compressed layers, in bytes."""
    layers: tuple[Layer, ...]
