"""Which device code runs on which device. Pure comparisons of target names; no names of one vendor mean another's.

NVIDIA: CUDA Programming Guide, "Compute Capabilities", "Binary Compatibility", "PTX Compatibility"; the rows of
matrices/cuda/target-rules.toml. AMD: LLVM AMDGPU usage guide, "Target ID" and "Generic Processor Versioning".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from builder.matrix.values import TargetScheme

__all__ = ["covers", "is_target", "normalise_target", "runs_gfx", "runs_sm"]

_TEGRA = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)}
"""Integrated devices: discrete cubins of the same major do not run there, nor theirs elsewhere (cubin rule, Jetson)."""

_FAMILIES = {10: {0, 3, 7}, 11: {0}, 12: {0, 1}}
"""Minors of each family for the f suffix: 10.x = 100, 103, 107; 11.x = 110; 12.x = 120, 121."""

_GENERIC = {
    "gfx9-generic": {"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"},
    "gfx9-4-generic": {"gfx940", "gfx941", "gfx942", "gfx950"},
    "gfx10-1-generic": {"gfx1010", "gfx1011", "gfx1012", "gfx1013"},
    "gfx10-3-generic": {f"gfx103{minor}" for minor in range(7)},
    "gfx11-generic": {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"},
    "gfx12-generic": {"gfx1200", "gfx1201"},
}


def normalise_target(text: str, scheme: TargetScheme) -> str:
    """The one spelling of a target.

    `9.0`, `90`, `compute_90` and `SM90` are sm_90. A gfx name loses its features and the ISA prefix rocminfo prints
    before it; `9.4.2` (HSA) and `90402` (gfx_target_version of the KFD topology: major * 10000 + minor * 100 +
    stepping, rocm-bootstrap 0.3.0) are gfx942.
    """
    bare = text.strip()
    if scheme == "sm":
        match = re.fullmatch(r"(?:sm_?|compute_?)?(\d+)(?:\.(\d))?([af]?)", bare, re.IGNORECASE)
        if match:
            digits = match[1] + (match[2] or "")
            return f"sm_{digits}{match[3].lower()}"
    if scheme == "gfx":
        bare = re.sub(r":.*", "", bare.lower().rpartition("--")[2])
        dotted = re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})", bare)
        encoded = re.fullmatch(r"(\d{1,2})(\d\d)(\d\d)", bare)
        if number := dotted or encoded:
            return f"gfx{int(number[1])}{int(number[2])}{int(number[3]):x}"
    return bare


def is_target(text: str, scheme: TargetScheme) -> bool:
    """Whether a normalised text has the form of a device target, of this scheme or of another maker's."""
    return scheme not in ("sm", "gfx") or re.fullmatch(r"sm_\d{2,3}[af]?|gfx[0-9a-f]+(?:-.*)?", text) is not None


@lru_cache(maxsize=4096)
def _capability(target: str) -> tuple[int, int, str] | None:
    match = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)([af]?)", target)
    return (int(match[1]), int(match[2]), match[3]) if match else None


@lru_cache(maxsize=16384)
def runs_sm(cubin: str, device: str) -> bool:
    """Whether a cubin `sm_XY[a|f]` runs on a device `sm_XY`.

    Same major and minor not above the device's; `a` only on exactly that capability; `f` within the family; discrete
    and integrated (Tegra) devices of one major do not share cubins.
    """
    code, machine = _capability(cubin), _capability(device)
    if code is None or machine is None:
        return False
    major, minor, suffix = code
    if suffix == "a":
        return (major, minor) == machine[:2]
    if major != machine[0] or minor > machine[1]:
        return False
    if suffix == "f":
        family = _FAMILIES.get(major, set())
        return minor in family and machine[1] in family
    return (major, minor) == machine[:2] or ((major, minor) in _TEGRA) == (machine[:2] in _TEGRA)


def runs_ptx(virtual: str, device: str) -> bool:
    """Whether PTX of `compute_XY[a|f]` can be compiled for a device: any capability from X.Y on; a and f as cubins."""
    code, machine = _capability(virtual), _capability(device)
    if code is None or machine is None:
        return False
    if code[2]:
        return runs_sm("sm_" + virtual.partition("_")[2], device)
    return machine[:2] >= code[:2]


def runs_gfx(code: str, device: str) -> bool:
    """Whether code for a gfx target runs on a gfx device: the same processor, or its generic target."""
    bare = re.sub(r":.*", "", code)
    return bare == device or device in _GENERIC.get(bare, set())


def covers(scheme: TargetScheme, targets: Iterable[str], device: str, ptx: Iterable[str] = ()) -> str | None:
    """The target of `targets` (or PTX) that runs on `device`, the closest one; None when there is none."""
    if scheme == "sm":
        running = [target for target in targets if runs_sm(target, device)]
        found = max(running, key=_order, default=None)
        return found or max((target for target in ptx if runs_ptx(target, device)), key=_order, default=None)
    if scheme == "gfx":
        return next((target for target in targets if runs_gfx(target, device)), None)
    return next((target for target in targets if target.casefold() == device.casefold()), None)


def _order(target: str) -> tuple[int, int, bool]:
    """The closest target is the highest; of one capability the plain one."""
    found = _capability(target)
    return (found[0], found[1], not found[2]) if found else (0, 0, True)
