"""What a table file may hold: the kinds of table, their columns, and the type of each column.

A kind is what rules and the solver can read; `fact` is for everything that is only shown. Every file declares its
columns, so a key that no header names is an error in any kind. docs/matrix-tables.md describes the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = ["CONFIDENCES", "KINDS", "Cell", "ColumnType", "Confidence", "Kind"]

Cell = str | bool | int | tuple[str, ...] | Mapping[str, str]
"""A value of a row: text, flag, whole number, list of texts, or package-to-version table."""

ColumnType = Literal["text", "version", "texts", "specifiers", "flag", "count", "packages", "conditions"]

Confidence = Literal["measured", "primary", "secondary", "uncertain"]
"""measured: read from the published file itself; primary: the maker's document or source; secondary: quoted by
others or inferred, nothing against it; uncertain: no such row found, or sources disagree."""

CONFIDENCES: tuple[Confidence, ...] = ("measured", "primary", "secondary", "uncertain")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of table."""

    name: str
    columns: Mapping[str, ColumnType]
    required: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    """Columns that hold one word of a list."""
    ranges: str | None = None
    """Column of version bounds that must not overlap between rows."""
    partial_key: bool = False
    """Whether a row may leave a key column out: "no such" is then part of its key."""


def _kind(
    name: str,
    columns: dict[str, ColumnType],
    *,
    required: tuple[str, ...],
    words: dict[str, tuple[str, ...]] | None = None,
    ranges: str | None = None,
    partial_key: bool = False,
) -> Kind:
    return Kind(
        name=name,
        columns=MappingProxyType(columns),
        required=required,
        words=MappingProxyType(words or {}),
        ranges=ranges,
        partial_key=partial_key,
    )


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            # One coherent set of packages a row: what stacks are made of.
            _kind(
                "set",
                {
                    "set": "text",
                    "packages": "packages",
                    "toolkit": "text",
                    "toolkit_release": "version",
                    "also_toolkit": "specifiers",
                    "label": "text",
                    "python": "texts",
                    "python_unsure": "texts",
                    "requires_python": "text",
                    "arch": "texts",
                    "arch_unsure": "texts",
                    "glibc": "version",
                    "index": "text",
                    "variant": "text",
                    "targets": "texts",
                    "targets_aarch64": "texts",
                    "targets_unsure": "texts",
                    "ptx": "texts",
                    "status": "text",
                    "released": "text",
                    "default": "flag",
                    "cudnn": "text",
                    "nccl": "text",
                    "triton": "text",
                },
                required=("set", "packages"),
                words={"status": ("stable", "experimental", "extra", "preview", "beta", "candidate")},
            ),
            # Releases of the toolkit, in the maker's own order when versions do not tell it.
            _kind(
                "release",
                {"toolkit": "text", "released": "text", "status": "text", "members": "conditions"},
                required=("toolkit",),
                words={"status": ("production", "preview", "nightly", "legacy")},
            ),
            # Oldest driver an exact toolkit release was made for.
            _kind(
                "driver-floor",
                {"toolkit": "version", "release": "text", "driver": "version", "branch": "text", "same_as": "version"},
                required=("toolkit",),
            ),
            # Oldest driver of a toolkit major, when its minors are compatible with each other.
            _kind(
                "driver-family",
                {"family": "text", "driver": "version", "drivers": "text"},
                required=("family", "driver", "drivers"),
                ranges="drivers",
            ),
            # What a driver branch brings.
            _kind(
                "driver-branch",
                {"branch": "text", "toolkit": "version", "lifecycle": "text"},
                required=("branch",),
            ),
            # Which drivers go with which toolkits, where that is a list and not a floor.
            _kind(
                "driver-window",
                {
                    "toolkit": "specifiers",
                    "driver": "specifiers",
                    "verdict": "text",
                    "closed": "text",
                    "closed_until": "version",
                    "subject": "text",
                },
                required=("toolkit", "driver", "verdict"),
                words={
                    "verdict": ("supported", "unsupported"),
                    "closed": ("toolkit", "driver"),
                    "subject": ("driver", "firmware"),
                },
            ),
            # Device targets the toolkit compiles for.
            _kind(
                "target",
                {"toolkit": "text", "targets": "texts", "ptx_isa": "version"},
                required=("toolkit", "targets"),
            ),
            # Products and the target each one is.
            _kind(
                "device",
                {
                    "target": "text",
                    "products": "texts",
                    "architecture": "text",
                    "image_chip": "text",
                    "driver_last": "text",
                    "driver_first": "version",
                    "memory_mib": "text",
                    "xnack": "text",
                    "sramecc": "text",
                },
                required=("target", "products"),
            ),
            # The maker's own images.
            _kind(
                "base",
                {
                    "reference": "text",
                    "toolkit": "text",
                    "chip": "text",
                    "os": "texts",
                    "python": "texts",
                    "devel": "flag",
                    "framework": "text",
                    "devices": "texts",
                },
                required=("reference",),
            ),
            # Forms of the names of makers' images, and what a name tells of what is in one.
            _kind(
                "image",
                {
                    "form": "text",
                    "absent": "text",
                    "toolkits": "specifiers",
                    "toolkits_read": "specifiers",
                    "systems": "texts",
                    "chips": "texts",
                    "arches": "texts",
                    "system": "text",
                    "chip": "text",
                    "holds": "text",
                    "listed": "flag",
                    "devel": "flag",
                    "asks_cuda": "flag",
                },
                required=("form",),
                partial_key=True,
            ),
            # What holds, or does not, under conditions: footnotes, floors, lists of what a maker supports.
            _kind(
                "limit",
                {
                    "rule": "text",
                    "when": "conditions",
                    "allow": "conditions",
                    "verdict": "text",
                    "otherwise": "text",
                    "why": "text",
                    "fix": "text",
                    "lifts": "texts",
                },
                required=("rule", "when", "why"),
                words={
                    "verdict": ("supported", "unsupported", "unknown"),
                    "otherwise": ("unsupported", "unknown"),
                },
                partial_key=True,
            ),
            # What one package's metadata asks of others.
            _kind(
                "pins",
                {
                    "package": "text",
                    "version": "text",
                    "label": "text",
                    "machine": "text",
                    "python": "text",
                    "requires": "conditions",
                },
                required=("package", "version"),
                partial_key=True,
            ),
            # What is told of a package when it is named: status, licence, what it cannot do.
            _kind(
                "about",
                {
                    "package": "text",
                    "versions": "text",
                    "machine": "text",
                    "status": "text",
                    "licence": "text",
                    "modes": "texts",
                    "gaps": "texts",
                    "remark": "text",
                },
                required=("package",),
                partial_key=True,
                words={"status": ("stable", "experimental", "prototype", "preview", "beta", "private beta", "retired")},
            ),
            # Code of one target that runs on another device, against the general rules.
            _kind(
                "target-exception",
                {"code": "text", "device": "text", "toolkit": "specifiers", "why": "text"},
                required=("code", "device", "why"),
            ),
            # Packages of a newer user-mode driver, by the branch of the kernel driver below.
            _kind(
                "forward-compat",
                {"package": "text", "toolkit": "version", "works": "texts", "needless": "texts", "refused": "texts"},
                required=("package", "toolkit"),
            ),
            # Classes of products by words of their names, the first that fits.
            _kind(
                "device-class",
                {"class": "text", "words": "texts"},
                required=("class", "words"),
                words={"class": ("consumer", "workstation", "datacentre")},
            ),
            # Operating systems and their C library.
            _kind(
                "os",
                {
                    "os": "text",
                    "libc": "text",
                    "glibc": "version",
                    "python": "text",
                    "manylinux": "text",
                    "kernel": "text",
                },
                required=("os", "libc"),
                words={"libc": ("glibc", "musl")},
            ),
            # Pools of identical machines; read by builder.node.
            _kind(
                "nodeclass",
                {
                    "name": "text",
                    "backend": "text",
                    "arch": "text",
                    "device": "text",
                    "device_arch": "text",
                    "device_count": "count",
                    "device_memory_mib": "count",
                    "driver": "text",
                    "firmware": "text",
                    "kernel": "text",
                    "os": "text",
                    "glibc": "version",
                    "cpu_level": "text",
                    "runtime": "text",
                    "cdi": "texts",
                    "env": "texts",
                },
                required=("name", "backend", "arch"),
                words={"arch": ("x86_64", "aarch64")},
            ),
            # What makes an engine of one kind valid, a property a row; read by builder.cache.
            _kind(
                "engine-key",
                {
                    "property": "text",
                    "group": "text",
                    "class": "text",
                    "rule": "text",
                    "form": "text",
                    "by": "text",
                    "limits": "texts",
                    "ignore": "texts",
                    "default": "text",
                    "node": "text",
                    "why": "text",
                    "cost": "text",
                },
                required=("property", "group", "class", "rule", "why"),
                words={
                    "group": ("model", "option", "builder", "device", "env", "format"),
                    "class": ("hard", "soft", "forgotten"),
                },
            ),
            # Facts that are shown and cited, and read by no rule yet.
            _kind("fact", {}, required=(), partial_key=True),
        )
    }
)
