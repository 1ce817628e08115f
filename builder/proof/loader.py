"""A process as the loader builds it: which files end up in it, what is missing, which symbol versions are not there.

Follows glibc's order: breadth first over DT_NEEDED, an object already in the process taken by the name it was asked
for, its SONAME, or its identity (elf/dl-deps.c, elf/dl-load.c); versions afterwards (elf/dl-version.c). Where the
loader would stop at the first fault, this goes on, to report all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from builder.proof.objects import NeededVersion
from builder.proof.search import Found, Loaded, NotFound, Searcher

__all__ = ["Missing", "Process", "VersionMissing"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A library that the loader does not get."""

    asking: Loaded
    name: str
    outcome: NotFound

    @property
    def chain(self) -> tuple[str, ...]:
        """From the object that was opened to the one that asks."""
        links = [self.asking.path]
        link = self.asking.loader
        while link is not None:
            links.append(link.path)
            link = link.loader
        return tuple(reversed(links))


@dataclass(frozen=True, slots=True)
class VersionMissing:
    """A symbol version that the file found does not define."""

    asking: Loaded
    provider: Loaded
    need: NeededVersion


class Process:
    """Objects in one address space. `fork` is cheap; `program` is what DT_RPATH inheritance ends at."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.program: Loaded | None = None
        self.objects: list[Loaded] = []
        self.missing: list[Missing] = []
        self.versions: list[VersionMissing] = []
        self._by_name: dict[str, Loaded] = {}
        self._by_file: dict[tuple[int, str], Loaded] = {}

    def fork(self) -> Process:
        """A copy with the same objects and no faults noted yet."""
        copy = Process(self.searcher)
        copy.program = self.program
        copy.objects = list(self.objects)
        copy._by_name = dict(self._by_name)
        copy._by_file = dict(self._by_file)
        return copy

    def start(self, path: str, *, preload: tuple[str, ...] = ()) -> bool:
        """Make the program at `path` (resolved) the first object and load what it needs; False when it is no ELF file.

        Its interpreter is in the process from the start. A preload that is not found is only reported by the loader.
        """
        root = self.searcher.root
        real = root.real(path)
        file = root.plain(path)
        if real is None or file is None or file.object is None:
            return False
        program = Loaded(real, file, file.object, None)
        self.program = program
        self._enter(program)
        if file.object.interpreter is not None:
            self.map_interpreter(file.object.interpreter)
        queue = [program]
        for name in preload:
            found = self._map(name, program)
            if isinstance(found, Loaded) and found not in queue:
                queue.append(found)
        self._load_needed(queue)
        return True

    def map_interpreter(self, path: str) -> None:
        """Enter the loader itself, known by its SONAME."""
        file = self.searcher.root.plain(path)
        if file is not None and file.object is not None:
            self._enter(Loaded(path, file, file.object, None))

    def open(self, path: str, caller: Loaded | None) -> Loaded | None:
        """dlopen a file by its path; None when it is no ELF file for this machine."""
        found = self._map(path, caller)
        if not isinstance(found, Loaded):
            return None
        self._load_needed([found])
        return found

    def loaded(self, name: str) -> Loaded | None:
        """The object that answers to a SONAME or a name it was asked for by."""
        return self._by_name.get(name)

    def holds(self, loaded: Loaded) -> bool:
        """Whether this very file is in the process."""
        return (loaded.file.layer, loaded.file.path) in self._by_file

    def _enter(self, loaded: Loaded) -> None:
        self.objects.append(loaded)
        self._by_file.setdefault((loaded.file.layer, loaded.file.path), loaded)
        self._by_name.setdefault(loaded.path, loaded)
        if loaded.object.soname is not None:
            self._by_name.setdefault(loaded.object.soname, loaded)

    def _map(self, name: str, asking: Loaded | None) -> Loaded | NotFound:
        known = self._by_name.get(name)
        if known is not None:
            return known
        found = self.searcher.find(name, asking, self.program)
        if isinstance(found, NotFound):
            return found
        return self._adopt(name, found, asking)

    def _adopt(self, name: str, found: Found, asking: Loaded | None) -> Loaded:
        loaded = self._by_file.get((found.file.layer, found.file.path))
        if loaded is None:
            loaded = Loaded(found.path, found.file, found.object, asking)
            self._enter(loaded)
        self._by_name.setdefault(name, loaded)
        return loaded

    def _load_needed(self, first: list[Loaded]) -> None:
        queue = list(first)
        seen = {id(item) for item in queue}
        before = len(self.objects)
        for asking in queue:
            for name in asking.object.needed:
                known = len(self.objects)
                found = self._map(name, asking)
                if isinstance(found, NotFound):
                    self.missing.append(Missing(asking, name, found))
                    continue
                if len(self.objects) > known and id(found) not in seen:
                    seen.add(id(found))
                    queue.append(found)
        for item in [*first, *(item for item in self.objects[before:] if item not in first)]:
            self._check_versions(item)

    def _check_versions(self, asking: Loaded) -> None:
        for need in asking.object.needs:
            provider = self._by_name.get(need.file)
            if provider is None or not provider.object.defines or need.version in provider.object.defines:
                continue
            self.versions.append(VersionMissing(asking, provider, need))
