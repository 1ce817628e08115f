"""From facts to claims: how one wheel relates to each backend, with the evidence for every word of it.

Nothing here knows which backend is being asked about; that is policy.py's part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from types import MappingProxyType
from urllib.parse import unquote

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.audit.facts import DeviceCode, ElfFacts, PythonUse, WheelFacts, device_backends
from builder.audit.nested import MARK
from builder.audit.tables import Library, Tables, library_stem
from builder.audit.values import Archs
from builder.lock.policy import PackagePolicy

__all__ = ["TOKENS", "Claim", "applies", "archs_of", "asked_for", "claims_of", "promised_machine", "tokens_of"]

TOKENS = (
    "hard",
    "via",
    "hard-plugin",
    "static",
    "bundled",
    "device",
    "stub",
    "soft",
    "soft-py",
    "data",
    "src",
    "meta",
    "meta-extra",
    "meta-torch",
)
"""Strongest first (docs/audit.md, "Tokens")."""

_FRAMEWORK_PREFIXES = ("libtorch", "libc10")
_PLUGIN_WORDS = (
    "cuda",
    "cu1",
    "rocm",
    "hip",
    "xpu",
    "sycl",
    "cann",
    "npu",
    "gpu",
    "tensorrt",
    "trt",
    "opencl",
    "vulkan",
    "nvrtc",
    "migraphx",
    "musa",
    "mlu",
    "neuron",
    "tpu",
    "plugin",
    "backend",
    "provider",
)
"""Parts of the name of a file that is loaded only when its backend is chosen."""

_NOTHING: Mapping[str, str] = MappingProxyType({})
_MACHINE_TAGS = (
    ("x86_64", "x86_64"),
    ("aarch64", "aarch64"),
    ("i686", "i386"),
    ("armv7l", "arm"),
    ("ppc64le", "ppc64"),
    ("s390x", "s390x"),
    ("riscv64", "riscv64"),
    ("loongarch64", "loongarch64"),
)
_DEVELOPER_EXTRAS = frozenset(
    {"dev", "develop", "doc", "docs", "lint", "test", "tests", "testing", "typing", "bench", "benchmark", "benchmarks"}
)
"""Extras for who works on the package: what they pull says nothing about what it needs to run."""
_ASIDE_DATA = frozenset({"test", "tests", "testing", "example", "examples", "benchmark", "benchmarks"})
"""Folders of a package (below its top) with files that nobody loads by importing it."""
_ASIDE_CODE = _ASIDE_DATA | {"script", "scripts", "tool", "tools"}
_LOOSE = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?[^;]*(?P<marker>;.*)?")
_WAYS = {"call": "is loaded", "tried": "is loaded where it is there", "listed": "in a list of names"}
_EXTRA = re.compile(r"extra\s*==\s*([\"'])(.*?)\1|([\"'])(.*?)\3\s*==\s*extra")
_ASKED_EXTRAS = re.compile(r"([\"'])([^\"']*)\1\s+in\s+extras")
"""The newer way to ask for an extra (dependency specifiers, "extras")."""
_QUOTED = re.compile(r"([\"'])(.*?)\1")
_DATA_KINDS = frozenset({"device-file", "bitcode", "vendor-tool", "vendor-archive"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One reason why a wheel has a token for a backend."""

    backend: str
    token: str
    path: str
    """Member, or METADATA."""
    evidence: str
    """What was seen there, with offset, line or marker."""
    decided: bool = True
    """False for what is reported but cannot be held against the wheel: a name in a list, code of a shared source."""
    told: bool = False
    """Not decided, and its token is still reported: the code opens the library where there is one."""
    requirement: str = ""
    """For metadata: normalised name of the required distribution."""


def claims_of(
    facts: WheelFacts,
    *,
    tables: Tables,
    packages: PackagePolicy,
    environment: Mapping[str, str],
    provided: Mapping[str, str] = _NOTHING,
) -> tuple[Claim, ...]:
    """Every claim, strongest tokens first; `environment` is the marker environment of the target (PEP 508).

    `provided` maps stems of libraries to the translation layer that stands in for them: using these is reported, and
    not held against the wheel. Carrying the real ones is.
    """
    judge = _Judge(facts, tables, provided)
    metadata = tuple(_metadata(facts, packages, environment))
    found = [
        *judge.in_files,
        *judge.named(),
        *judge.opened({claim.backend for claim in metadata if claim.token == "meta"}),
        *judge.members(),
        *metadata,
    ]
    return tuple(sorted(found, key=lambda claim: (TOKENS.index(claim.token), claim.backend)))


def tokens_of(claims: tuple[Claim, ...]) -> dict[str, tuple[str, ...]]:
    """Backend to its tokens, strongest first; `hard-plugin` is left out where `hard` holds."""
    spoken = {claim.backend for claim in claims if claim.decided or claim.told}
    found: dict[str, set[str]] = {}
    for claim in claims:
        if claim.backend in spoken:  # names in lists alone say nothing: many packages list every vendor's libraries
            found.setdefault(claim.backend, set()).add(claim.token)
    for tokens in found.values():
        if "hard" in tokens:
            tokens.discard("hard-plugin")
    return {backend: tuple(sorted(found[backend], key=TOKENS.index)) for backend in sorted(found)}


def archs_of(facts: WheelFacts) -> Archs:
    """The targets of all device code: NVIDIA's in ELF files, the others' in any member."""
    sm: set[str] = set()
    ptx: set[str] = set()
    gfx: set[str] = set()
    soc: set[str] = set()
    inside = [code for elf in facts.elf for code in elf.device]
    alone = [member.device for member in facts.members if member.device and member.backend != "cuda"]
    for code in (*inside, *alone):
        for target in code.targets:
            base = target.split(":", 1)[0]
            if base.startswith("sm_"):
                sm.add(base)
            elif base.startswith("compute_"):
                ptx.add(base)
            elif base.startswith("gfx"):
                gfx.add(base)
    for member in facts.members:
        if member.device and member.device.kind == "ascend":
            soc.update(
                part for part in member.path.lower().split("/") if part.startswith("ascend") and part[6:7].isdigit()
            )
    return Archs(
        cuda_sm=tuple(sorted(sm, key=_number)),
        cuda_ptx=tuple(sorted(ptx, key=_number)),
        gfx=tuple(sorted(gfx)),
        ascend_soc=tuple(sorted(soc)),
    )


def _number(target: str) -> tuple[int, str]:
    digits = "".join(filter(str.isdigit, target))
    return int(digits or 0), target


class _Judge:
    """One wheel's ELF files as a whole: who provides what, who loads whom."""

    def __init__(self, facts: WheelFacts, tables: Tables, provided: Mapping[str, str]) -> None:
        self._facts = facts
        self._tables = tables
        self._provided = provided

    @cached_property
    def _providers(self) -> dict[tuple[str, str], ElfFacts]:
        """Machine and name to the member that the loader finds: by SONAME and by file name."""
        found: dict[tuple[str, str], ElfFacts] = {}
        for elf in self._facts.elf:
            if elf.type == "shared" and MARK not in elf.path:
                found.setdefault((elf.machine, _basename(elf.path)), elf)
                if elf.soname:
                    found.setdefault((elf.machine, elf.soname), elf)
        return found

    def _provider(self, elf: ElfFacts, name: str) -> ElfFacts | None:
        """The member that answers a needed name of `elf`; a file for another processor does not."""
        return self._providers.get((elf.machine, _basename(name)))

    @cached_property
    def _identities(self) -> dict[str, Library]:
        """Member path to the vendor library it is, whatever its name says."""
        found: dict[str, Library] = {}
        for elf in self._facts.elf:
            library = self._identity(elf)
            if library is not None:
                found[elf.path] = library
        return found

    def _identity(self, elf: ElfFacts) -> Library | None:
        if elf.type != "shared":
            return None
        names = [elf.soname or _basename(elf.path), *elf.version_defs]
        for name in names:
            library = self._tables.library(name)
            if library is not None and not library.shared:
                return library
        for use in elf.api:
            functions = next((api.functions for api in self._tables.apis if api.library == use.library), ())
            # The CUDA runtime's own mark plus its whole API: the library itself under a false name.
            if set(use.defined) == set(functions) and any(stem == use.library for stem, _ in elf.static):
                return self._tables.libraries.get(use.library)
        return None

    @cached_property
    def _loaded_at_import(self) -> frozenset[str]:
        """Paths of the files that the package's import or a program of it loads, directly or through DT_NEEDED."""
        roots = [elf for elf in self._facts.elf if self._is_root(elf)]
        seen: set[str] = set()
        while roots:
            elf = roots.pop()
            if elf.path in seen:
                continue
            seen.add(elf.path)
            for name in (*elf.needed, *elf.filters):
                provider = self._provider(elf, name)
                if provider is not None:
                    roots.append(provider)
        return frozenset(seen)

    def _is_root(self, elf: ElfFacts) -> bool:
        if MARK in elf.path:  # nothing loads it before somebody unpacks it
            return False
        return elf.python_module or elf.program or any(name.startswith(_FRAMEWORK_PREFIXES) for name in elf.needed)

    def _is_plugin(self, elf: ElfFacts) -> bool:
        """Loaded on demand: no import reaches it, a backend is in its name, and the wheel has other files to load."""
        if MARK in elf.path:
            return True
        if elf.path in self._loaded_at_import:
            return False
        name = _basename(elf.path)
        # lib/cuda/libx.so beside lib/avx2/libx.so: one of several builds of one file.
        variant = any(other.path != elf.path and other.needed != elf.needed for other in self._by_basename[name])
        others = any(other.path != elf.path for other in self._facts.elf)
        return others and (variant or any(word in name.lower() for word in _PLUGIN_WORDS))

    @cached_property
    def _by_basename(self) -> dict[str, list[ElfFacts]]:
        found: dict[str, list[ElfFacts]] = {}
        for elf in self._facts.elf:
            found.setdefault(_basename(elf.path), []).append(elf)
        return found

    @cached_property
    def in_files(self) -> tuple[Claim, ...]:
        """What native files are linked with and carry."""
        return (*self._linked(), *self._carried())

    def _linked(self) -> Iterator[Claim]:
        """hard, hard-plugin, via, and soft for DT_AUXILIARY."""
        for elf in self._facts.elf:
            if elf.type == "relocatable":
                continue
            wanted = [
                *((name, "DT_NEEDED") for name in elf.needed),
                *((name, "DT_FILTER") for name in elf.filters),
            ]
            libraries = [(name, tag, self._needed_library(elf, name)) for name, tag in wanted]
            own = {library.backend for _, _, library in libraries if library and not library.shared}
            note = f" ({elf.machine})" if self._is_foreign_machine(elf) else ""
            missing: dict[tuple[str, str, str, str], list[str]] = {}
            for name, tag, library in libraries:
                if library is None or (library.shared and library.backend not in own) or self._provider(elf, name):
                    continue
                token = "via" if library.framework else "hard-plugin" if self._is_plugin(elf) else "hard"
                layer = self._provided.get(library.stem, "")
                missing.setdefault((library.backend, token, tag, layer), []).append(name)
            for (backend, token, tag, layer), names in missing.items():
                by = f", provided by {layer}" if layer else ""
                yield Claim(
                    backend=backend,
                    token=token,
                    path=elf.path,
                    evidence=f"{tag} {', '.join(names)}{note}{_search(elf)}{by}",
                    decided=not layer,
                )
            yield from self._underlinked(elf, own | {backend for backend, _, _, _ in missing}, note)
            optional = [
                *((name, "DT_AUXILIARY") for name in elf.auxiliaries),
                *((name, "DT_AUDIT") for name in elf.audits),
            ]
            for name, tag in optional:
                library = self._tables.library(name)
                if library is not None and not self._provider(elf, name):
                    yield Claim(backend=library.backend, token="soft", path=elf.path, evidence=f"{tag} {name}{note}")

    def _needed_library(self, elf: ElfFacts, name: str) -> Library | None:
        """The vendor library behind a needed name: by the name, or by the versions asked of it."""
        library = self._tables.library(name)
        if library is not None:
            return library
        for version in elf.version_needs.get(name, ()):
            if (library := self._tables.library(version)) is not None:
                return library
        return None

    def _underlinked(self, elf: ElfFacts, linked: set[str], note: str) -> Iterator[Claim]:
        """Undefined functions of a vendor's API that no needed library of that vendor can define."""
        for use in elf.api:
            library = self._tables.libraries.get(use.library)
            missing = use.undefined or (() if use.library in self._imitated else use.also_undefined)
            if library is None or not missing or library.backend in linked:
                continue
            layer = self._provided.get(use.library, "")
            by = f", provided by {layer}" if layer else ""
            if any(self._provides(elf, name, library.backend) for name in elf.needed):
                continue
            yield Claim(
                backend=library.backend,
                token="hard-plugin" if self._is_plugin(elf) else "hard",
                path=elf.path,
                evidence=f"undefined {', '.join(missing[:3])} with no needed library to define them{note}{by}",
                decided=not layer,
            )

    @cached_property
    def _imitated(self) -> frozenset[str]:
        """Libraries in whose style this wheel names functions of its own."""
        return frozenset(use.library for elf in self._facts.elf for use in elf.api if use.defined or use.also_defined)

    def _provides(self, elf: ElfFacts, name: str, backend: str) -> bool:
        provider = self._provider(elf, name)
        if provider is None:
            return False
        identity = self._identities.get(provider.path)
        return (identity is not None and identity.backend == backend) or any(
            self._tables.libraries[use.library].backend == backend and use.defined for use in provider.api
        )

    def _carried(self) -> Iterator[Claim]:
        """static, bundled, device, stub."""
        for elf in self._facts.elf:
            identity = self._identities.get(elf.path)
            if identity is not None and not identity.framework:
                shown = "" if library_stem(_basename(elf.path)) == identity.stem else f" (really {identity.stem})"
                versions = f", defines versions {', '.join(elf.version_defs[:2])}" if elf.version_defs else ""
                yield Claim(
                    backend=identity.backend,
                    token="bundled",
                    path=elf.path,
                    evidence=f"SONAME {elf.soname or 'absent'}{versions}{shown}",
                    decided=not self._stands_in(elf, identity),
                )
            for stem, offset in elf.static:
                if identity is None or identity.stem != stem:
                    yield Claim(
                        backend=self._tables.libraries[stem].backend,
                        token="static",
                        path=elf.path,
                        evidence=f"the mark of a static {stem} at offset {offset}",
                    )
            for code in elf.device:
                if code.kind == "ptx":  # text: a note says so (docs/audit.md, "Tokens")
                    continue
                for backend in device_backends(code):
                    yield Claim(backend=backend, token="device", path=elf.path, evidence=_describe(code))
            yield from self._stubs(elf, identity)

    def _stands_in(self, elf: ElfFacts, identity: Library) -> bool:
        """A declared layer's own file: it has the vendor's name, and needs another vendor's libraries."""
        needed = (self._tables.library(name) for name in (*elf.needed, *(entry.name for entry in elf.dlopen)))
        return identity.stem in self._provided and any(
            library is not None and not library.shared and library.backend != identity.backend for library in needed
        )

    def _stubs(self, elf: ElfFacts, identity: Library | None) -> Iterator[Claim]:
        found: dict[tuple[str, str], list[str]] = {}
        needed = (self._tables.library(name) for name in elf.needed)
        # One vendor's API on top of another vendor's library is a translation, not a way to the first.
        linked = {library.backend for library in needed if library is not None and not library.shared}
        for stem in elf.trampolines:
            backend = self._tables.libraries[stem].backend
            found.setdefault((backend, "stub"), []).append(f"trampolines for {stem}")
        for use in elf.api:
            library = self._tables.libraries[use.library]
            if not use.defined or (identity is not None and identity.backend == library.backend):
                continue
            token = next(api.defines for api in self._tables.apis if api.library == use.library)
            found.setdefault((library.backend, token), []).append(f"defines {', '.join(use.defined[:3])}")
        for (backend, token), evidence in sorted(found.items()):
            others = sorted(linked - {backend})
            note = f", on top of {' and '.join(others)}" if others else ""
            yield Claim(
                backend=backend,
                token=token,
                path=elf.path,
                evidence="; ".join(evidence[:4]) + note,
                decided=not others,
            )

    def named(self) -> Iterator[Claim]:
        """soft and soft-py: libraries opened by name."""
        for elf in self._facts.elf:
            identity = self._identities.get(elf.path)
            libraries = [(entry, self._tables.opened_library(entry.name)) for entry in elf.dlopen]
            own = {library.backend for _, library in libraries if library and not library.shared}
            for entry, library in libraries:
                if library is None or library.framework or (library.shared and library.backend not in own):
                    continue
                from_python = elf.python_module and elf.loads_from_python
                if not (elf.can_dlopen or from_python) or (identity is not None and identity.stem == library.stem):
                    continue
                layer = self._provided.get(library.stem, "")
                by = f"; {layer} provides it" if layer else ""
                way = "dlopen is imported" if elf.can_dlopen else "ctypes' CDLL is named"
                yield Claim(
                    backend=library.backend,
                    token="soft" if elf.can_dlopen else "soft-py",
                    path=elf.path,
                    evidence=f"string {entry.name!r} at offset {entry.offset}, and {way}{by}",
                    decided=not layer,
                )
        yield from self._python()

    def _python(self) -> Iterator[Claim]:
        for use in self._facts.python:
            if use.how not in _WAYS:
                continue
            library = self._tables.library(use.name.replace("*", ""))
            if library is None or library.shared:
                continue
            aside = _aside(use.path, _ASIDE_CODE)
            yield Claim(
                backend=library.backend,
                token="soft-py",
                path=use.path,
                evidence=f"line {use.line}: {use.name!r} {_WAYS[use.how]}",
                told=use.how == "tried" and not aside,
                decided=use.how == "call"
                and library.stem not in self._provided
                and not aside
                and not self._labelled_without(library.backend),
            )
        links: dict[str, PythonUse] = {}
        for use in self._facts.python:
            if _basename(use.path) == "setup.py":  # nothing runs it after installation
                continue
            if use.how == "link" and (library := self._tables.library(f"lib{use.name[2:]}.so")) is not None:
                links.setdefault(library.backend, use)
        sources = any(member.kind == "device-source" for member in self._facts.members)
        if len(links) == 1 and not sources:
            # Helpers that can link to several backends choose at run time and prove nothing.
            for backend, use in links.items():
                yield Claim(
                    backend=backend,
                    token="soft-py",
                    path=use.path,
                    evidence=f"line {use.line}: links code compiled at run time with {use.name}",
                )

    def _labelled_without(self, backend: str) -> bool:
        """A build whose version label names another variant, e.g. +cpu: its Python is shared by all variants."""
        try:
            local = Version(self._facts.version).local
        except InvalidVersion:
            return False
        native = any(claim.backend == backend for claim in self.in_files)
        return bool(local) and not native

    def opened(self, required: set[str]) -> Iterator[Claim]:
        """soft: plug-ins opened through an interface that many vendors implement; metadata says whose."""
        if len(required) != 1:
            return
        backend = next(iter(required))
        for elf in self._facts.elf:
            for interface in elf.interfaces if elf.can_dlopen else ():
                yield Claim(
                    backend=backend,
                    token="soft",
                    path=elf.path,
                    evidence=f"opens a plug-in by its function {interface}; the metadata requires one for {backend}",
                )

    def members(self) -> Iterator[Claim]:
        """data and src."""
        seen: set[tuple[str, str, str]] = set()
        rocm = any(member.backend == "rocm" for member in self._facts.members)
        compiled = bool(self._facts.elf) or any(member.kind == "other-system" for member in self._facts.members)
        for member in self._facts.members:
            if member.kind in _DATA_KINDS:
                token, backend = "data", member.backend
            elif member.kind == "device-source" and not compiled:
                # With compiled files beside them, sources are templates, tests and extras.
                token, backend = "src", "rocm" if rocm and member.backend == "cuda" else member.backend
            else:
                continue
            suffix = _basename(member.path).rsplit(".", 1)[-1]
            if (token, backend, suffix) not in seen:
                seen.add((token, backend, suffix))
                detail = _describe(member.device) if member.device else member.detail
                detail = detail and f": {detail}"
                yield Claim(
                    backend=backend,
                    token=token,
                    path=member.path,
                    evidence=f"{member.kind.replace('-', ' ')}{detail}",
                    decided=not _aside(member.path, _ASIDE_DATA),
                )
        for use in self._facts.python:
            if use.how == "kernel" and not compiled and ("src", "cuda", "") not in seen:
                seen.add(("src", "cuda", ""))
                yield Claim(
                    backend="cuda",
                    token="src",
                    path=use.path,
                    evidence=f"line {use.line}: {use.name} compiles a kernel that the source spells out",
                    decided=not _aside(use.path, _ASIDE_CODE),
                )

    def _is_foreign_machine(self, elf: ElfFacts) -> bool:
        promised = promised_machine(self._facts.file)
        return promised is not None and elf.machine != promised


@lru_cache(maxsize=256)
def promised_machine(file: str) -> str | None:
    """The processor that a wheel's file name promises, as `machine_name` spells it; None when it promises none."""
    tag = file.removesuffix(".whl").rsplit("-", 1)[-1]
    return next((machine for ending, machine in _MACHINE_TAGS if tag.endswith(ending)), None)


def _aside(path: str, folders: frozenset[str]) -> bool:
    """Whether a member lies in a folder that the package itself does not load from."""
    parts = path.lower().split("/")
    if parts[0].endswith(".data"):  # an install scheme: scripts, purelib, data … (PEP 427)
        parts = parts[2:] if parts[1] in ("purelib", "platlib") else parts[:1] + parts[2:]
    return not folders.isdisjoint(parts[1:-1])


def _basename(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _search(elf: ElfFacts) -> str:
    """The search path, when the file has one."""
    path = elf.runpath or elf.rpath
    return f", searched in {path}" if path else ""


def _describe(code: DeviceCode) -> str:
    words = {
        "fatbin": ("fat binary", "fat binaries"),
        "cubin": ("cubin", "cubins"),
        "ptx": ("PTX program", "PTX programs"),
        "bundle": ("offload bundle", "offload bundles"),
        "compressed-bundle": ("compressed offload bundle", "compressed offload bundles"),
        "offload-binary": ("offload binary", "offload binaries"),
        "intelgt": ("Intel GPU program", "Intel GPU programs"),
        "amdgpu": ("AMDGPU code object", "AMDGPU code objects"),
        "ascend": ("Ascend AI-core object", "Ascend AI-core objects"),
        "spirv": ("SPIR-V module", "SPIR-V modules"),
    }
    number = f"{code.count} " if code.count > 1 else ""
    targets = f" for {' '.join(code.targets)}" if code.targets else ""
    detail = f" ({code.detail})" if code.detail else ""
    word = words[code.kind][code.count > 1]
    return f"{number}{word}{targets}{detail}, {'the first ' if code.count > 1 else ''}at offset {code.offset}"


def _metadata(facts: WheelFacts, packages: PackagePolicy, environment: Mapping[str, str]) -> Iterator[Claim]:
    """meta, meta-extra, meta-torch."""
    frameworks = {row.name for row in packages.builds if row.name.startswith("torch")}
    requirements = [(line, found) for line in facts.requires_dist if (found := _requirement(line)) is not None]
    always = _own_extras(facts.name, [found for _, found in requirements], environment)
    for line, requirement in requirements:
        name = canonicalize_name(requirement.name)
        extra = applies(requirement.marker, environment, always=always)
        if extra is None or name == facts.name or extra.lower() in _DEVELOPER_EXTRAS:
            continue
        evidence = f"Requires-Dist: {line}"
        backend = _backend_of(requirement, packages)
        if backend and backend != "cpu":
            yield Claim(
                backend=backend,
                token="meta-extra" if extra else "meta",
                path="METADATA",
                evidence=evidence,
                requirement=name,
            )
        elif not backend and name in frameworks and extra == "" and not _is_pinned(requirement):
            yield Claim(
                backend="cuda",
                token="meta-torch",
                path="METADATA",
                evidence=evidence,
                decided=False,
                told=True,
                requirement=name,
            )


def _backend_of(requirement: Requirement, packages: PackagePolicy) -> str:
    """The one backend whose package, extra or labelled build is asked for; empty when it is none's or several's."""
    name = canonicalize_name(requirement.name)
    owner = next((row for row in packages.packages if fnmatchcase(name, row.pattern)), None)
    backend = "" if owner is None or owner.backend == "none" or owner.also else owner.backend
    return backend or packages.extras_backend(name, requirement.extras) or _labelled(requirement, packages)


def asked_for(words: str, packages: PackagePolicy) -> tuple[tuple[str, str], ...]:
    """Backend and word of what an installer's arguments name of a backend: packages, labels, indexes of a label."""
    found: dict[tuple[str, str], None] = {}
    for word in words.split():
        backend = ""
        if "://" in word:
            rows = (packages.label_backend(f"0+{part}") for part in word.split("/") if part.isalnum())
            backend = next((row.backend for row in rows if row is not None), "")
        elif not word.startswith("-") and (requirement := _requirement(word)) is not None:
            backend = _backend_of(requirement, packages)
        if backend and backend != "cpu":
            found[backend, word] = None
    return tuple(found)


def _requirement(line: str) -> Requirement | None:
    """A Requires-Dist line; of one with an unreadable version, name and marker. None for what has no name."""
    text = " ".join(line.split())
    try:
        return Requirement(text)
    except InvalidRequirement:
        match = _LOOSE.match(text)
    if match is None:
        return None
    for rest in (match["marker"] or "", ""):
        try:
            return Requirement(f"{match['name']}{match['extras'] or ''}{rest}")
        except InvalidRequirement:
            continue
    return None


def _own_extras(name: str, requirements: Iterable[Requirement], environment: Mapping[str, str]) -> frozenset[str]:
    """Extras of itself that a distribution asks for without being asked, e.g. `Requires-Dist: kit[gpu]` of kit."""
    own = [item for item in requirements if item.extras and canonicalize_name(item.name) == name]
    found: frozenset[str] = frozenset()
    while True:
        more = found.union(*(item.extras for item in own if applies(item.marker, environment, always=found) == ""))
        if more == found:
            return found
        found = more


def _label(requirement: Requirement) -> str:
    """The version with a local label that a requirement pins, by `==` or by the file name of its URL."""
    if requirement.url is not None:
        file = unquote(requirement.url.split("#", 1)[0]).rsplit("/", 1)[-1]
        parts = file.split("-")
        return parts[1] if len(parts) > 1 and "+" in parts[1] else ""
    return next((spec.version for spec in requirement.specifier if "+" in spec.version), "")


def _is_pinned(requirement: Requirement) -> bool:
    return bool(_label(requirement))


def _labelled(requirement: Requirement, packages: PackagePolicy) -> str:
    """The backend of the build that is pinned; empty for none or an unknown label."""
    row = packages.label_backend(_label(requirement)) if _is_pinned(requirement) else None
    return row.backend if row else ""


def applies(
    marker: Marker | None, environment: Mapping[str, str], *, always: frozenset[str] = frozenset()
) -> str | None:
    """The extra under which a requirement applies here: "" for without any, None for never.

    `always` are extras that are on in any case.
    """
    if marker is None:
        return ""
    written = str(marker)
    text = _ASKED_EXTRAS.sub(r"extra == \1\2\1", written)
    try:
        if text != written:  # parsing one is most of what a requirement costs
            marker = Marker(text)
        for extra in ("", *sorted(always), *_extras(text)):
            for machine in _machines(text, environment):
                if marker.evaluate({**machine, "extra": extra}):
                    return "" if extra in always else extra
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName):
        return None
    return None


def _machines(marker: str, environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The target, with values for what is not known of it: the patch release of its Python, and its kernel."""
    yield environment
    if "python_full_version" in marker or "implementation_version" in marker:
        newest = f"{environment['python_version']}.99"
        yield {**environment, "python_full_version": newest, "implementation_version": newest}
    if "platform_release" in marker or "platform_version" in marker:
        for value in ("0", "99", *(match[2] for match in _QUOTED.finditer(marker))):
            yield {**environment, "platform_release": value, "platform_version": value}


def _extras(text: str) -> Iterator[str]:
    """The extras that a marker compares with, in order."""
    for match in _EXTRA.finditer(text):
        yield match[2] or match[4]
