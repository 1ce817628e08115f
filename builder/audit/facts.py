"""What one pass over a wheel saw, whatever backend is asked about later: plain facts, stored as JSON by wheel hash."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "ApiUse",
    "DeviceCode",
    "DlopenName",
    "ElfFacts",
    "How",
    "MemberFact",
    "PythonUse",
    "WheelFacts",
    "device_backends",
    "elf_from_json",
    "member_from_json",
]

DeviceKind = Literal[
    "fatbin", "cubin", "ptx", "bundle", "compressed-bundle", "offload-binary", "amdgpu", "ascend", "intelgt", "spirv"
]

How = Literal["call", "tried", "link", "listed", "computed", "kernel", "install"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCode:
    """Device programs of one kind in one member."""

    kind: DeviceKind
    targets: tuple[str, ...]
    """Sorted: sm_90a, compute_120, gfx90a:xnack-; empty when the format does not say."""
    offset: int
    """Place of the first one in the member, in bytes."""
    count: int
    detail: str = ""
    """Compression, relocatable code, damage."""


_KIND_BACKENDS = {"fatbin": "cuda", "cubin": "cuda", "ptx": "cuda", "amdgpu": "rocm", "ascend": "npu", "intelgt": "xpu"}
_TARGET_BACKENDS = {
    "sm": "cuda", "compute": "cuda", "nvptx": "cuda", "nvptx64": "cuda", "amdgcn": "rocm", "spir64": "xpu",
    "spirv64": "xpu", "spirv": "xpu", "mtgpu": "musa",
}  # fmt: skip


def device_backends(code: DeviceCode) -> tuple[str, ...]:
    """Whose devices the programs are for, sorted."""
    if code.kind in _KIND_BACKENDS:
        return (_KIND_BACKENDS[code.kind],)
    words = (target.split("_", 1)[0] for target in code.targets)
    found = {"rocm" if word.startswith("gfx") else _TARGET_BACKENDS.get(word, "") for word in words} - {""}
    return tuple(sorted(found)) or ("rocm",)


@dataclass(frozen=True, kw_only=True, slots=True)
class DlopenName:
    """A string constant that is nothing but a library's file name."""

    name: str
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiUse:
    """Functions of a vendor's API in the dynamic symbol table."""

    library: str
    """Stem of the library that really defines them, e.g. libcudart."""
    defined: tuple[str, ...]
    undefined: tuple[str, ...]
    """Undefined and not weak: somebody must define them when the file is loaded."""
    also_defined: int = 0
    """Number of other functions it defines that begin like the vendor's."""
    also_undefined: tuple[str, ...] = ()
    """Other functions, undefined and not weak, that begin like the vendor's; the first few."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFacts:
    """One ELF file for a host processor."""

    path: str
    machine: str
    type: str
    """shared, executable or relocatable."""
    size: int
    crc32: int
    """CRC-32 of its bytes (from the archive): tells copies from different files of one name."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    auxiliaries: tuple[str, ...] = ()
    audits: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    version_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version_defs: tuple[str, ...] = ()
    program: bool = False
    """Has an entry for people to run: an executable, position-independent or not."""
    python_module: bool = False
    """Defines PyInit_…: `import` loads it."""
    exec_stack: bool | None = None
    can_dlopen: bool = False
    """Imports dlopen or another function that opens a library by its name."""
    loads_from_python: bool = False
    """Has the name of ctypes' loader among its constants: Python compiled to C."""
    names: int = 0
    """String constants that are nothing but a library's file name, any vendor's or none's."""
    dlopen: tuple[DlopenName, ...] = ()
    """Vendor libraries among its string constants, outside symbol names and DT_NEEDED."""
    parts: tuple[str, ...] = ()
    """Constants from which names of libraries are put together: an ending, a pattern for printf."""
    words: tuple[DlopenName, ...] = ()
    """Strings that contain a vendor library's name among other text: a mere mention."""
    static: tuple[tuple[str, int], ...] = ()
    """Runtimes linked in: (stem of the library, offset of its mark)."""
    trampolines: tuple[str, ...] = ()
    """Stems of libraries whose functions it defines as stubs that load the real library."""
    interfaces: tuple[str, ...] = ()
    """Functions it looks up in plug-ins of any vendor, e.g. GetPjrtApi."""
    api: tuple[ApiUse, ...] = ()
    device: tuple[DeviceCode, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonUse:
    """A vendor library named in Python code that loads libraries."""

    path: str
    name: str
    line: int
    how: How
    """call: argument of CDLL, dlopen, find_library …; tried: the same by a name kept elsewhere, in a try statement
    that goes on without it; link: a linker flag for code compiled at run time; listed: a string constant in a file
    that loads libraries by names kept elsewhere; computed: the argument of a call, as it is written, made at run
    time; kernel: a function that compiles device code, in a file that spells some out; install: what pip is asked for
    when the code runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberFact:
    """A member that is no host ELF file and still matters."""

    path: str
    kind: str
    """device-file, vendor-tool, vendor-archive, device-source, bitcode, symlink, not-elf (named like a library),
    other-system (for Windows or macOS)."""
    backend: str
    detail: str = ""
    device: DeviceCode | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFacts:
    """One wheel."""

    name: str
    version: str
    file: str
    requires_dist: tuple[str, ...]
    elf: tuple[ElfFacts, ...]
    python: tuple[PythonUse, ...]
    members: tuple[MemberFact, ...]
    duplicates: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """What makes it unsafe to install, or unreadable in part."""
    record: tuple[str, ...] = ()
    """Where RECORD and the archive disagree."""
    paths: int = 0
    """Number of files."""

    def to_json(self) -> dict[str, Any]:
        """For the store."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WheelFacts:
        """The value written by `to_json` of this version (the store's key names the version)."""
        return cls(
            name=value["name"],
            version=value["version"],
            file=value["file"],
            requires_dist=tuple(value["requires_dist"]),
            elf=tuple(elf_from_json(item) for item in value["elf"]),
            python=tuple(PythonUse(**item) for item in value["python"]),
            members=tuple(member_from_json(item) for item in value["members"]),
            duplicates=tuple(value["duplicates"]),
            faults=tuple(value["faults"]),
            record=tuple(value["record"]),
            paths=value["paths"],
        )


def _device(item: Mapping[str, Any]) -> DeviceCode:
    return DeviceCode(**{**item, "targets": tuple(item["targets"])})


def _api_use(entry: Mapping[str, Any]) -> ApiUse:
    return ApiUse(**entry)


def member_from_json(item: Mapping[str, Any]) -> MemberFact:
    """One member as `dataclasses.asdict` wrote it."""
    return MemberFact(**{**item, "device": _device(item["device"]) if item["device"] else None})


def elf_from_json(item: Mapping[str, Any]) -> ElfFacts:
    """One ELF file as `dataclasses.asdict` wrote it."""
    value: dict[str, Any] = {key: tuple(entry) if isinstance(entry, list) else entry for key, entry in item.items()}
    value["version_needs"] = {library: tuple(names) for library, names in item["version_needs"].items()}
    value["dlopen"] = tuple(DlopenName(**entry) for entry in item["dlopen"])
    value["words"] = tuple(DlopenName(**entry) for entry in item["words"])
    value["static"] = tuple((entry[0], entry[1]) for entry in item["static"])
    value["api"] = tuple(
        _api_use({key: tuple(item) if isinstance(item, list) else item for key, item in entry.items()})
        for entry in item["api"]
    )
    value["device"] = tuple(_device(entry) for entry in item["device"])
    return ElfFacts(**value)
