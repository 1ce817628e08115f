"""What the tables and the solver answer with. Rows and rules live beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = [
    "BackendSpec",
    "Explanation",
    "IndexPin",
    "IndexRow",
    "Label",
    "NodeFacts",
    "Reason",
    "Refusal",
    "RuleVerdict",
    "RunLine",
    "Runtime",
    "Solution",
    "Stack",
    "TargetScheme",
    "Verdict",
    "worst",
]

Verdict = Literal["supported", "unsupported", "unknown"]

TargetScheme = Literal["sm", "gfx", "exact", "jit", "none"]
"""How device targets of a backend are compared: NVIDIA's cubin and PTX rules, AMD's generic targets, plain equality,
equality with compilation at first use for the rest, or there are none."""

_ORDER: tuple[Verdict, ...] = ("supported", "unknown", "unsupported")


def worst(verdicts: tuple[Verdict, ...]) -> Verdict:
    """The verdict of a whole from those of its rules: unsupported beats unknown beats supported; none is unknown."""
    return max(verdicts, key=_ORDER.index) if verdicts else "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleVerdict:
    """What one rule says about one combination."""

    rule: str
    """Stable kebab-case name."""
    verdict: Verdict
    why: str
    """One sentence with the figures that decide."""
    source: str
    """Where the fact is written."""
    fix: str = ""
    """The nearest change that would turn the verdict; empty when supported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why a cell of a stack has its value."""

    cell: str
    """`toolkit`, `python`, `base` or a distribution name."""
    why: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexPin:
    """Packages that may come from one index only."""

    index: str
    """URL of a simple index (PEP 503)."""
    packages: tuple[str, ...]
    """Normalised names, sorted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLine:
    """How a container with this backend is started: what the engine must be told."""

    devices: tuple[str, ...] = ()
    """Device nodes, e.g. /dev/kfd."""
    mounts: tuple[str, ...] = ()
    """Host paths mounted read-only at the same place."""
    groups: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """Further engine arguments, e.g. --gpus=all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """What an image of this backend needs at run time; from matrices/<backend>/backend.toml."""

    env: Mapping[str, str]
    """Environment of the image; values may hold {toolkit}."""
    run: RunLine
    setup: tuple[str, ...] = ()
    """Files sourced before the entrypoint, e.g. the vendor's set_env.sh."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """One coherent choice for a backend, with the reason for each cell."""

    backend: str
    toolkit: str | None
    """Toolkit version, e.g. "13.0" (CUDA), "7.2" (ROCm), "9.1.0" (CANN); None where the backend has none (cpu)."""
    python: str
    frameworks: Mapping[str, str]
    """Distribution name to exact version, local label included; the lock takes these as bounds where asked for."""
    constraints: tuple[str, ...]
    """PEP 508 bounds for the lock, e.g. "torch==2.13.0+cpu"; they bind only what the graph contains."""
    indexes: tuple[IndexPin, ...]
    base: str | None
    """The vendor's own base image reference, when the backend has one."""
    archs: tuple[str, ...]
    """Device targets the frameworks are compiled for, e.g. sm_90, gfx942."""
    runtime: Runtime
    why: tuple[Reason, ...]
    unknown: tuple[str, ...] = ()
    """What no source decides and --allow-unknown let pass, for the lock and the image's labels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """On this machine architecture a package must be the build with this local version label."""

    package: str
    arch: str
    label: str
    required: bool = True
    """Whether another build does not work at all; otherwise it only brings what is not needed."""
    since: str | None = None
    """The first release for which this holds, when not for all; a lock does not ask for such a label by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexRow:
    """An index of a backend, from backend.toml."""

    name: str
    url: str
    """May hold {variant}, filled from the row of the set that is chosen."""
    packages: tuple[str, ...]
    """Normalised names, sorted: these may come from no other index."""
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendSpec:
    """matrices/<backend>/backend.toml: what all images of the backend have in common."""

    name: str
    title: str
    toolkit: str | None
    """What the toolkit is called; None where the backend has none."""
    targets: TargetScheme
    prefer: tuple[str, ...]
    """Lead packages of the set tables, the one to choose first in front."""
    default_index: bool
    """Whether the backend's wheels are on the default index."""
    vendor_base: bool
    """Whether the wheels need libraries that only the vendor's base image has."""
    default_chip: str | None
    """Chip tag of the base image when no node class says which."""
    wheels: str | None
    """Where the wheels come from that no index has, and how a lock finds them; one sentence."""
    labels: tuple[Label, ...]
    indexes: tuple[IndexRow, ...]
    runtime: Runtime
    source: str
    checked: str
    """ISO date."""

    def runtime_for(self, toolkit: str | None) -> Runtime:
        """The runtime with {toolkit} filled in; an entry that needs a toolkit nobody named is left out."""
        env = {
            key: value.replace("{toolkit}", toolkit or "")
            for key, value in self.runtime.env.items()
            if toolkit is not None or "{toolkit}" not in value
        }
        return Runtime(env=env, run=self.runtime.run, setup=self.runtime.setup)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a set of the tables is not among the stacks."""

    name: str
    """The set, e.g. `torch-2.15.0-cu132`."""
    verdict: Verdict
    """unsupported, or unknown when only --allow-unknown would let it pass."""
    rules: tuple[RuleVerdict, ...]
    """Only those that refuse."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """All coherent stacks, newest first, and what was refused, nearest miss first."""

    stacks: tuple[Stack, ...]
    refused: tuple[Refusal, ...]
    not_judged: tuple[str, ...] = ()
    """Packages that were asked for and no table of stacks knows: they restricted nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What the rules say about one combination."""

    verdict: Verdict
    rules: tuple[RuleVerdict, ...]
    needs: tuple[str, ...]
    """Keys that would let more rules speak, each with the rule that waits for it."""
    notes: tuple[str, ...] = ()
    """What was taken for granted, and what was not judged."""


class NodeFacts(Protocol):
    """What the solver reads of a machine; a node class is one. None means not known."""

    @property
    def name(self) -> str:
        """Name of the node class."""

    @property
    def backend(self) -> str:
        """Backend the machine is for."""

    @property
    def arch(self) -> str:
        """x86_64 or aarch64."""

    @property
    def device(self) -> str | None:
        """Product name."""

    @property
    def device_arch(self) -> str | None:
        """Device target."""

    @property
    def driver(self) -> str | None:
        """Kernel driver version."""

    @property
    def firmware(self) -> str | None:
        """Firmware version."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What every container on it finds set, and no image holds."""

    @property
    def code_target(self) -> str | None:
        """Device target whose code is loaded there, when that is another than its own."""
