"""Links a whole image statically: starts its programs, imports every extension module, opens every other library,
and says what would be missing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from builder.proof.dists import Distributions
from builder.proof.faults import WEIGHTS, Faults, Opened, why_missing
from builder.proof.launch import Interpreter, Launch, find_launch
from builder.proof.libraries import Libraries
from builder.proof.loader import Missing, Process, VersionMissing
from builder.proof.modules import SITES, importable, on_path
from builder.proof.nearest import Names, configured_folders, newest_version
from builder.proof.reach import Reach
from builder.proof.rootfs import RootFs
from builder.proof.search import Loaded, Searcher, SearchRules
from builder.proof.values import (
    Assumption,
    HostLibrary,
    ImageConfig,
    LinkResult,
    SymbolVersion,
    Unresolved,
    Weight,
)

__all__ = ["Linker", "matches"]


class Linker:
    """One image's link on one node class: `link` everything, then ask how much an object matters.

    `allow` holds glob patterns of paths whose faults the caller knows and accepts; they become optional, and say so.
    """

    def __init__(
        self,
        root: RootFs,
        config: ImageConfig,
        rules: SearchRules,
        *,
        backend: str,
        libraries: Libraries,
        reach: Reach,
        allow: tuple[str, ...] = (),
    ) -> None:
        self.root = root
        self.config = config
        self.searcher = Searcher(root, rules)
        self.backend = backend
        self.libraries = libraries
        self.reach = reach
        self.allow = allow
        self.launch: Launch = find_launch(root, config)
        self.dists = Distributions(root)
        self.faults = Faults()
        everything = list(root.objects())
        self.native = {
            path: item for path, item in everything if item.machine == rules.machine and item.kind != "other"
        }
        self.foreign = sum(item.machine != rules.machine for _, item in everything)
        self.names = Names(self.native)
        self.reached: set[str] = set()
        self.openers: dict[str, list[Opened]] = {}
        """What led to an object: programs and modules that matter, in order."""
        self.loaders: dict[str, str] = {}
        """By library path, the first module whose import brings it into the process."""

    def weight(self, path: str) -> tuple[Weight, str]:
        """How much a fault of the object at `path` itself matters, and why not more."""
        weights = [self._weight(opened, path) for opened in self.openers.get(path, ())]
        return max(weights, key=lambda item: WEIGHTS.index(item[0]), default=("optional", "nothing needs it by name"))

    def link(self) -> LinkResult:
        """Everything the loader would miss in this image, by how much it matters."""
        for fault in self.launch.missing:
            self.faults.add(fault)
        python = self._programs()
        modules = self._modules(python)
        self._libraries(python)
        unresolved = sorted(
            self.faults.unresolved.values(), key=lambda item: (-WEIGHTS.index(item.weight), item.object, item.needed)
        )
        versions = sorted(
            self.faults.versions.values(), key=lambda item: (-WEIGHTS.index(item.weight), item.object, item.version)
        )
        return LinkResult(
            objects=len(self.native),
            foreign=self.foreign,
            programs=self.launch.programs,
            modules=modules,
            unresolved=tuple(unresolved),
            assumed=tuple(self.faults.assumed[key] for key in sorted(self.faults.assumed)),
            host=tuple(self._host(name) for name in sorted(self.faults.host)),
            versions=tuple(versions),
        )

    # --- what is opened

    def _programs(self) -> Process | None:
        """Start every program; the interpreter's process is what modules are imported into."""
        python: Process | None = None
        preload = tuple(re.split(r"[ :]+", self.config.env.get("LD_PRELOAD", "").strip()))
        always = tuple((self.root.text("/etc/ld.so.preload") or b"").decode(errors="replace").split())
        preload = tuple(name for name in (*preload, *always) if name)
        for path in self.launch.programs:
            process = self._start(path, "required", preload)
            if self.launch.python is not None and path == self.launch.python.program:
                python = process
        for path, item in self.native.items():
            if item.kind == "program" and path not in self.launch.programs:
                self._start(path, "optional", preload)
        return python

    def _start(self, path: str, weight: Weight, preload: tuple[str, ...]) -> Process:
        process = Process(self.searcher)
        opened = Opened(path, "program", weight, "the image does not start this program itself")
        process.start(path, preload=preload)
        item = self.native.get(path)
        if item is not None and item.interpreter is not None and self.root.plain(item.interpreter) is None:
            self.faults.add(self._no_interpreter(path, item.interpreter, opened))
        self._note(process, opened)
        return process

    def _modules(self, python: Process | None) -> int:
        interpreter = self.launch.python
        if python is None or interpreter is None:
            return 0
        modules = [path for path, item in self.native.items() if importable(path, item, interpreter)]
        failing: list[tuple[Opened, Process]] = []
        for path in modules:
            process = self._import(python, path)
            opened = self._module(path, interpreter)
            if process.missing:
                failing.append((opened, process))
                continue
            self._note(process, opened)
            self._brings(process, python, path)
        for opened, process in failing:
            # a module that refuses the image by itself need not drag along those that rely on it
            if self._weight(opened, opened.path)[0] == "required":
                self._brings(process, python, opened.path)
        for opened, _ in failing:
            self._note(self._import_after(python, opened.path), opened)
        return len(modules)

    def _brings(self, process: Process, python: Process, module: str) -> None:
        """Remember what importing a module puts into the process."""
        for item in process.objects[len(python.objects) :]:
            self.loaders.setdefault(self._real(item), module)

    def _libraries(self, python: Process | None) -> None:
        """Open what nothing above led to: plug-ins and libraries that other code opens by name."""
        for path, item in self.native.items():
            if path in self.reached or item.kind == "program":
                continue
            in_python = python is not None and any(f"/{site}/" in path for site in SITES)
            process = python.fork() if python is not None and in_python else Process(self.searcher)
            if not process.objects:
                for place in self.root_loaders():
                    process.map_interpreter(place)
            process.open(path, process.program)
            if process.missing and python is not None and in_python:
                process = self._import_after(python, path)
            opened = Opened(path, "library", "optional", "nothing in the image needs it by name")
            if process.missing or process.versions:
                opened = self._library(opened)
            self._note(process, opened)

    def root_loaders(self) -> tuple[str, ...]:
        """The loaders in the image."""
        return tuple(path for path, item in self.native.items() if item.system_dirs)

    def _import(self, python: Process, path: str) -> Process:
        process = python.fork()
        process.open(path, process.program)
        return process

    def _import_after(self, python: Process, path: str) -> Process:
        """Open it again with what other packages evidently bring into the process before."""
        before: dict[str, str] = {}
        process = self._import(python, path)
        while True:
            found: dict[str, str] = {}
            for missing in process.missing:
                provider = self._provider(self._real(missing.asking), missing)
                if provider is not None and provider not in before:
                    found[provider] = missing.name
            if not found:
                return process
            before |= found
            process = python.fork()
            for provider in before:
                process.open(provider, process.program)
            process.missing.clear()
            process.versions.clear()
            process.open(path, process.program)

    def _provider(self, asking: str, missing: Missing) -> str | None:
        """A file with the wanted SONAME that an earlier import has put into the process, and the evidence for it."""
        owner = self.dists.owner(asking)
        if owner is None:
            return None
        for path in self.names.exact(missing.name):
            theirs = self.dists.owner(path)
            if theirs is None or not (theirs.name == owner.name or self.dists.needs(owner.name, theirs.name)):
                continue
            why = self._evidence(owner.name, theirs.name, path, missing.name)
            if why:
                self.faults.assumed[asking, missing.name] = Assumption(
                    object=asking, needed=missing.name, provider=path, why=why
                )
                return path
        return None

    def _evidence(self, owner: str, theirs: str, path: str, name: str) -> str:
        loader = self.loaders.get(path)
        loads = f"importing {theirs} loads it ({loader} needs it)" if loader else ""
        if not loads:
            for dist in dict.fromkeys((theirs, owner)):
                for source, names in self.dists.loading.get(dist, ()):
                    if name in names or posixpath.basename(path) in names:
                        loads = f"{source} opens it by name"
        if not loads:
            return ""
        return loads if owner == theirs else f"{owner} requires {theirs}, and {loads}"

    def _module(self, path: str, interpreter: Interpreter) -> Opened:
        if not on_path(path, interpreter, self.config):
            return Opened(path, "module", "optional", "only imported when a program asks for it")
        owner = self.dists.owner(path)
        if owner is None:
            return Opened(path, "module", "undecided", "no distribution's RECORD lists it")
        return Opened(path, "module", "required")

    def _library(self, opened: Opened) -> Opened:
        """A library that does not load, weighed by whether Python code of its distribution names it."""
        owner = self.dists.owner(opened.path)
        loading = [source for source, _ in self.dists.loading.get(owner.name, ())] if owner else []
        found = self.reach.library(opened.path, loading) if loading else None
        return opened if found is None else Opened(opened.path, "library", found.weight, found.why)

    # --- what is noted

    def _note(self, process: Process, opened: Opened) -> None:
        for item in process.objects:
            real = self._real(item)
            self.reached.add(real)
            if item.object.soname and self.libraries.injected(item.object.soname, self.backend):
                self._note_inside(process, item)
            if opened.weight != "optional":
                self.openers.setdefault(real, []).append(opened)
        for missing in process.missing:
            injected = self.libraries.injected(missing.name, self.backend)
            if injected is not None:
                self.faults.host.setdefault(missing.name, set()).add(self._real(missing.asking))
            else:
                self.faults.add(self._unresolved(missing, opened))
        for fault in process.versions:
            self.faults.add_version(self._version(fault, opened))

    def _note_inside(self, process: Process, item: Loaded) -> None:
        """A copy of the driver's library in the image, where others of the process ask for it by name."""
        name = item.object.soname or ""
        asking = {self._real(other) for other in process.objects if name in other.object.needed}
        if asking:
            self.faults.host.setdefault(name, set()).update(asking)
            self.faults.inside[name] = self._real(item)

    def _weight(self, opened: Opened, asking: str, *, foreign: bool = False) -> tuple[Weight, str]:
        """How much a fault matters, and why not more than that."""
        pattern = next((glob for glob in self.allow if matches(glob, (asking, opened.path))), None)
        if pattern is not None:
            return "optional", f"allowed by {pattern!r}"
        if opened.weight == "required" and opened.role == "module":
            owner = self.dists.owner(opened.path)
            if owner is not None:
                found = self.reach.module(opened.path, site=owner.site, files=self.dists.files.get(owner.name, ()))
                # code for another backend stands under a condition that asks for its device
                conditional = found.conditional and foreign
                return ("optional" if conditional else found.weight), found.why
        return opened.weight, opened.why if opened.weight != "required" else ""

    def _unresolved(self, missing: Missing, opened: Opened) -> Unresolved:
        asking = self._real(missing.asking)
        foreign = self.libraries.foreign(missing.name, self.backend)
        weight, excuse = self._weight(opened, asking, foreign=foreign is not None)
        why = why_missing(missing)
        if foreign is not None:
            why += f"; it is {foreign.backend}'s {foreign.role}, the node is {self.backend}"
        if excuse:
            why += f" ({weight}: {excuse})"
        nearest, fix = self._mend(missing, asking)
        return Unresolved(
            object=asking,
            needed=missing.name,
            opened=opened.path,
            role=opened.role,
            weight=weight,
            why=why,
            searched=tuple(str(place) for place in missing.outcome.searched),
            nearest=nearest,
            fix=fix,
        )

    def _mend(self, missing: Missing, asking: str) -> tuple[str | None, str]:
        exact = self.names.exact(missing.name)
        if exact:
            folder = posixpath.dirname(exact[0])
            if folder in configured_folders(self.root):
                return exact[0], f"run ldconfig while the image is built: {folder} is configured but not in the cache"
            return exact[0], f"put {folder} on the search path: LD_LIBRARY_PATH of the image, or an RPATH of {asking}"
        row = self.libraries.of(missing.name)
        nearest = self.names.nearest(missing.name)
        owner = self.dists.owner(asking)
        if self.libraries.foreign(missing.name, self.backend) is not None and owner is not None:
            return nearest, f"use the build of {owner.name} {owner.version} for {self.backend}"
        if row is not None:
            return nearest, f"use a base or a package that carries {row.backend}'s libraries"
        return nearest, f"install the package that ships {missing.name}"

    def _version(self, fault: VersionMissing, opened: Opened) -> SymbolVersion:
        asking = self._real(fault.asking)
        weight, excuse = self._weight(opened, asking)
        if fault.need.weak:
            weight, excuse = "optional", "a weak need: the loader only reports it"
        newest = newest_version(fault.need.version, fault.provider.object.defines)
        why = f"{self._real(fault.provider)} defines {f'up to {newest}' if newest else 'no version of that family'}"
        return SymbolVersion(
            object=asking,
            library=fault.need.file,
            provider=self._real(fault.provider),
            version=fault.need.version,
            newest=newest,
            opened=opened.path,
            role=opened.role,
            weight=weight,
            why=f"{why} ({weight}: {excuse})" if excuse else why,
        )

    def _no_interpreter(self, path: str, interpreter: str, opened: Opened) -> Unresolved:
        return Unresolved(
            object=path,
            needed=interpreter,
            opened=path,
            role="program",
            weight=self._weight(opened, path)[0],
            why="the kernel starts the program through this loader, and it is not in the image",
            nearest=next(iter(self.root_loaders()), None),
            fix="use a base with the C library the program was linked for",
        )

    def _host(self, name: str) -> HostLibrary:
        row = self.libraries.injected(name, self.backend)
        return HostLibrary(
            name=name,
            backend=self.backend,
            objects=len(self.faults.host[name]),
            source=row.source if row else "",
            inside=self.faults.inside.get(name),
        )

    def _real(self, item: Loaded) -> str:
        return self.root.real(item.path) or item.path


def matches(glob: str, paths: Iterable[str]) -> bool:
    """Whether a pattern of --allow takes in one of these paths; it may leave out the folders they start with."""
    return any(fnmatchcase(path, glob) or fnmatchcase(path, f"*/{glob.lstrip('/')}") for path in paths)
