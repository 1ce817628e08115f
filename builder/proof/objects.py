"""What the loader looks at in one ELF file, small enough to be remembered for every file of an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from builder.names import Arch

__all__ = ["MACHINES", "DeviceCode", "ElfObject", "NeededVersion"]

MACHINES: Mapping[Arch, int] = {"x86_64": 62, "aarch64": 183}
"""`e_machine` of the two architectures (ELF gABI, "e_machine"): EM_X86_64, EM_AARCH64."""


@dataclass(frozen=True, slots=True)
class NeededVersion:
    """One entry of a DT_VERNEED table: the loader looks for `version` in the object called `file`."""

    file: str
    version: str
    weak: bool = False
    """VER_FLG_WEAK: a missing version is reported by the loader, not fatal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCode:
    """Accelerator code inside one file; each sorted."""

    sm: tuple[str, ...] = ()
    """Compiled NVIDIA targets: sm_90, sm_90a, sm_100f."""
    ptx: tuple[str, ...] = ()
    """NVIDIA PTX targets: compute_90."""
    gfx: tuple[str, ...] = ()
    """AMD targets with their features: gfx942, gfx90a:xnack-."""

    def __bool__(self) -> bool:
        return bool(self.sm or self.ptx or self.gfx)


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfObject:
    """The loader's view of one file (glibc, elf/dl-load.c and elf/dl-version.c)."""

    machine: int
    bits: int
    """32 or 64."""
    kind: Literal["program", "shared", "other"]
    """program: names an interpreter or is ET_EXEC; shared: has a dynamic section; other: relocatable, core, static."""
    interpreter: str | None = None
    """PT_INTERP."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    """DT_NEEDED in order, then DT_FILTER."""
    rpath: str | None = None
    runpath: str | None = None
    no_default_search: bool = False
    """DF_1_NODEFLIB: neither ld.so.cache entries of default folders nor the default folders are searched."""
    needs: tuple[NeededVersion, ...] = ()
    defines: tuple[str, ...] = ()
    """DT_VERDEF names; without any the loader takes every version for granted."""
    isa_level: int = 0
    """x86-64 level the file says it needs (GNU_PROPERTY_X86_ISA_1_NEEDED): 1 to 4, 0 when it says nothing."""
    module_of: str | None = None
    """The `X` of an exported `PyInit_X`."""
    system_dirs: tuple[str, ...] = ()
    """Only for the loader itself: the default folders compiled into it, in order."""
    device: DeviceCode = DeviceCode()

    def to_json(self) -> dict[str, Any]:
        """As JSON, fields with their default value left out."""
        value: dict[str, Any] = {}
        for field in fields(self):
            found = getattr(self, field.name)
            if found == field.default:
                continue
            if field.name == "needs":
                found = [[need.file, need.version, need.weak] for need in found]
            elif field.name == "device":
                found = {item.name: getattr(found, item.name) for item in fields(found)}
            value[field.name] = found
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ElfObject:
        """The inverse of `to_json`."""
        given: dict[str, Any] = {
            name: tuple(found) if isinstance(found, list) else found for name, found in value.items()
        }
        if "needs" in given:
            given["needs"] = tuple(NeededVersion(*need) for need in given["needs"])
        if "device" in given:
            given["device"] = DeviceCode(**{name: tuple(found) for name, found in given["device"].items()})
        return cls(**given)
