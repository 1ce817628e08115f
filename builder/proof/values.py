"""The static verdict that an image will load on a node class, with the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.matrix.values import RuleVerdict
from builder.names import Arch, Digest

__all__ = [
    "Answer",
    "Assumption",
    "CpuNeed",
    "DeviceCoverage",
    "DriverNeed",
    "HostLibrary",
    "ImageConfig",
    "LinkResult",
    "Proof",
    "Role",
    "SymbolVersion",
    "Unresolved",
    "Weight",
    "worst_answer",
]

Answer = Literal["proven", "refused", "unknown"]

Weight = Literal["required", "undecided", "optional"]
"""required: the image's own program, its interpreter, or a module of an installed distribution does not load.
undecided: nothing in the image says whether it is ever opened; the answer is unknown.
optional: something that is opened on demand only; it never refuses an image."""

Role = Literal["program", "module", "library"]
"""How the object is entered: started, imported by Python, or opened by other code."""


def worst_answer(answers: tuple[Answer, ...]) -> Answer:
    """refused beats unknown beats proven; none at all is proven."""
    order: tuple[Answer, ...] = ("proven", "unknown", "refused")
    return max(answers, key=order.index, default="proven")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageConfig:
    """What of an image's configuration decides how it starts (image-spec, config.md)."""

    arch: Arch | None
    """None for an architecture this tool has no name for."""
    architecture: str
    """As written."""
    env: Mapping[str, str]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workdir: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> tuple[str, ...]:
        """What the engine runs when nothing else is asked for."""
        return self.entrypoint + self.command


@dataclass(frozen=True, kw_only=True, slots=True)
class Unresolved:
    """A file that will not be found when it is needed."""

    object: str
    """The object that asks, as an absolute path in the image."""
    needed: str
    """The library, interpreter or program it asks for."""
    opened: str
    """What was started, imported or opened so that `object` came to be loaded; equal to it when it was itself."""
    role: Role
    """Of `opened`."""
    weight: Weight
    why: str
    searched: tuple[str, ...] = ()
    """Places looked at, in order, each with the reason it is looked at."""
    nearest: str | None = None
    """The most similar file in the image."""
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """A library that the search does not find, taken to be in the process already, and why."""

    object: str
    needed: str
    provider: str
    """Path of the file that has the SONAME."""
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLibrary:
    """A library of the node's driver, put into the container when it starts."""

    name: str
    backend: str
    objects: int
    """How many objects of the image ask for it."""
    source: str
    inside: str | None = None
    """Path of a copy in the image that is found instead of the node's own, e.g. a forward-compatibility package."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SymbolVersion:
    """A symbol version that the file found does not define."""

    object: str
    library: str
    """Name it was asked of, e.g. libc.so.6."""
    provider: str
    """The file found under that name."""
    version: str
    newest: str | None
    """Newest version of the same family that the file does define."""
    opened: str
    role: Role
    weight: Weight
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuNeed:
    """An object that says it needs more than the x86-64 baseline."""

    object: str
    level: str
    """x86-64-v2 … x86-64-v4, from GNU_PROPERTY_X86_ISA_1_NEEDED."""
    answer: Answer
    weight: Weight
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCoverage:
    """Whether the device code in one object runs on the node's device."""

    object: str
    targets: tuple[str, ...]
    """Everything it holds for the vendor: sm_90, compute_90, gfx942."""
    by: tuple[str, ...]
    """The targets that cover the device, empty when none does."""
    answer: Answer
    weight: Weight
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverNeed:
    """What the image's toolkit asks of the node's driver."""

    answer: Answer
    why: str
    toolkit: str | None = None
    driver: str | None = None
    rules: tuple[RuleVerdict, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkResult:
    """What linking the whole image statically gave."""

    objects: int
    """ELF files for the node's processor that the loader could be asked to load."""
    foreign: int
    """ELF files for another processor, device code among them."""
    programs: tuple[str, ...]
    """What the image starts: the files behind its entrypoint, then the interpreter."""
    modules: int
    """Python extension modules of installed distributions."""
    unresolved: tuple[Unresolved, ...]
    assumed: tuple[Assumption, ...]
    host: tuple[HostLibrary, ...]
    versions: tuple[SymbolVersion, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """The whole answer."""

    image: Digest
    """Of the image's manifest."""
    node_class: str
    backend: str
    answer: Answer
    reasons: tuple[str, ...]
    """Why it is not proven, the worst first; empty when it is."""
    glibc: str | None
    """Release of the C library in the image."""
    link: LinkResult
    cpu: tuple[CpuNeed, ...]
    devices: tuple[DeviceCoverage, ...]
    driver: DriverNeed
    notes: tuple[str, ...] = ()
    """What was not looked at, and why it does not change the answer."""
