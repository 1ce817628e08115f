"""Where the loader of the GNU C library looks for a library, in order (ld.so(8); glibc, elf/dl-load.c).

1. DT_RPATH of the object that asks, then of what loaded it, up to the program — unless the object has a DT_RUNPATH
2. LD_LIBRARY_PATH
3. DT_RUNPATH of the object that asks
4. /etc/ld.so.cache
5. the folders compiled into the loader — 4 and 5 not for objects linked with `-z nodefaultlib`

In each folder the glibc-hwcaps sub-folders that the processor can use come first.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from builder.errors import BadInput
from builder.proof.ldcache import LoaderCache
from builder.proof.objects import ElfObject
from builder.proof.rootfs import Plain, RootFs

__all__ = ["Found", "Loaded", "NotFound", "Place", "SearchRules", "Searcher", "glibc_version", "hwcaps_for"]

_SYSTEM_DIRS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
"""When the loader in the image does not say: the configuration glibc has by default on 64-bit machines."""
_TOKEN = re.compile(r"\$(?:ORIGIN|LIB|PLATFORM)\b|\$\{(?:ORIGIN|LIB|PLATFORM)\}")
_FIRST_HWCAPS = (2, 33)
"""glibc release that searches glibc-hwcaps (glibc 2.33 NEWS)."""


@dataclass(frozen=True, slots=True)
class Place:
    """One folder (or the cache) that was searched, and on whose word."""

    path: str
    why: str
    """`RUNPATH of /x/y.so`, `LD_LIBRARY_PATH`, `ld.so.cache`, `default`."""

    def __str__(self) -> str:
        return f"{self.path} ({self.why})"


@dataclass(frozen=True, slots=True)
class Found:
    """The file the loader opens: by the path it was found under, which is also what $ORIGIN comes from."""

    path: str
    file: Plain
    object: ElfObject


@dataclass(frozen=True, slots=True)
class NotFound:
    """Nothing to open, or something the loader gives up at."""

    searched: tuple[Place, ...]
    skipped: tuple[str, ...] = ()
    """Files of that name for another class or machine, which the loader passes over."""
    broken: str = ""
    """A file of that name that is no ELF file: the loader stops there instead of searching on."""


@dataclass(eq=False, slots=True)
class Loaded:
    """An object in a process."""

    path: str
    file: Plain
    object: ElfObject
    loader: Loaded | None
    """Who asked for it first: the chain along which DT_RPATH is inherited."""

    @property
    def origin(self) -> str:
        """$ORIGIN."""
        return posixpath.dirname(self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRules:
    """What is the same for every look-up in one image on one node class."""

    machine: int
    bits: int
    library_path: tuple[str, ...]
    """Folders of LD_LIBRARY_PATH, absolute."""
    cache: LoaderCache | None
    system_dirs: tuple[str, ...]
    hwcaps: tuple[str, ...]
    """Sub-folders of glibc-hwcaps in use, best first."""
    platform: str
    workdir: str
    """Where the process starts: what empty and relative folders mean."""

    @property
    def lib(self) -> str:
        """What $LIB stands for: the first default folder without its leading slash, e.g. `lib/x86_64-linux-gnu`."""
        return self.system_dirs[0].lstrip("/")

    @classmethod
    def of_image(
        cls, root: RootFs, *, machine: int, bits: int, env: Mapping[str, str], workdir: str, level: int | None
    ) -> SearchRules:
        """The rules that this tree and environment give; `level` is the node's x86-64 level, None when not known."""
        loaders = [item for _, item in root.objects() if item.system_dirs and item.machine == machine]
        text = root.text("/etc/ld.so.cache")
        try:
            cache = None if text is None else LoaderCache.parse(text, machine=machine)
        except BadInput:
            cache = None  # the loader ignores a cache it cannot read, too
        path = env.get("LD_LIBRARY_PATH", "")
        x86 = machine == 62
        return cls(
            machine=machine,
            bits=bits,
            library_path=tuple(posixpath.join(workdir, part) for part in re.split("[:;]", path)) if path else (),
            cache=cache,
            system_dirs=loaders[0].system_dirs if loaders else _SYSTEM_DIRS,
            hwcaps=hwcaps_for(level) if x86 and glibc_version(root, machine) >= _FIRST_HWCAPS else (),
            platform=("haswell" if (level or 1) >= 3 else "x86_64") if x86 else "aarch64",
            workdir=workdir,
        )


def hwcaps_for(level: int | None) -> tuple[str, ...]:
    """glibc-hwcaps sub-folders for an x86-64 level, best first; the baseline has none."""
    return tuple(f"x86-64-v{number}" for number in range(level or 1, 1, -1))


def glibc_version(root: RootFs, machine: int) -> tuple[int, ...]:
    """Release of the C library in the image, by the newest version it defines; (0,) when there is none."""
    names = (
        name
        for _, item in root.objects()
        if item.soname == "libc.so.6" and item.machine == machine
        for name in item.defines
        if re.fullmatch(r"GLIBC_[0-9]+(\.[0-9]+)+", name)
    )
    return max((tuple(int(part) for part in name[6:].split(".")) for name in names), default=(0,))


class Searcher:
    """Looks up names in one image."""

    def __init__(self, root: RootFs, rules: SearchRules) -> None:
        self.root = root
        self.rules = rules

    def expand(self, text: str, origin: str) -> str:
        """Dynamic string tokens replaced (ld.so(8), "Dynamic string tokens")."""
        values = {"ORIGIN": origin, "LIB": self.rules.lib, "PLATFORM": self.rules.platform}
        return _TOKEN.sub(lambda match: values[match[0].strip("${}")], text)

    def _folders(self, text: str, origin: str) -> Iterator[str]:
        for part in text.split(":"):
            folder = posixpath.join(self.rules.workdir, self.expand(part, origin))
            yield folder.rstrip("/") or "/"

    def places(self, asking: Loaded | None, program: Loaded | None) -> Iterator[Place]:
        """Every place searched for a name without a slash that `asking` needs in the process of `program`."""
        if asking is None or asking.object.runpath is None:
            seen = False
            link = asking
            while link is not None:
                if link.object.rpath is not None and link.object.runpath is None:
                    for folder in self._folders(link.object.rpath, link.origin):
                        yield Place(folder, f"RPATH of {link.path}")
                seen = seen or link is program
                link = link.loader
            if program is not None and not seen and program.object.rpath is not None and program.object.runpath is None:
                for folder in self._folders(program.object.rpath, program.origin):
                    yield Place(folder, f"RPATH of {program.path}")
        for folder in self.rules.library_path:
            yield Place(folder.rstrip("/") or "/", "LD_LIBRARY_PATH")
        if asking is not None and asking.object.runpath is not None:
            for folder in self._folders(asking.object.runpath, asking.origin):
                yield Place(folder, f"RUNPATH of {asking.path}")
        defaults = asking is None or not asking.object.no_default_search
        if self.rules.cache is not None:
            yield Place("/etc/ld.so.cache", "cache" if defaults else "cache, default folders left out")
        if defaults:
            for folder in self.rules.system_dirs:
                yield Place(folder, "default")

    def find(self, name: str, asking: Loaded | None, program: Loaded | None) -> Found | NotFound:
        """What the loader opens for a DT_NEEDED name (with or without a slash)."""
        origin = asking.origin if asking else self.rules.workdir
        name = self.expand(name, origin)
        searched: list[Place] = []
        skipped: list[str] = []
        for place, path in self._candidates(name, asking, program):
            if not searched or searched[-1] != place:
                searched.append(place)
            if path is None:
                continue
            file = self.root.plain(path)
            if file is None:
                continue
            found = file.object
            if found is None:
                return NotFound(tuple(searched), tuple(skipped), broken=path)
            if found.machine != self.rules.machine or found.bits != self.rules.bits:
                skipped.append(path)
                continue
            return Found(path, file, found)
        return NotFound(tuple(searched), tuple(skipped))

    def _candidates(
        self, name: str, asking: Loaded | None, program: Loaded | None
    ) -> Iterator[tuple[Place, str | None]]:
        if "/" in name:
            path = posixpath.join(self.rules.workdir, name)
            yield Place(posixpath.dirname(path), "name with a slash"), path
            return
        for place in self.places(asking, program):
            if place.path == "/etc/ld.so.cache":
                entry = self.rules.cache.find(name, hwcaps=self.rules.hwcaps) if self.rules.cache else None
                usable = entry is not None and (
                    place.why == "cache" or posixpath.dirname(entry.path) not in self.rules.system_dirs
                )
                yield place, entry.path if entry is not None and usable else None
                continue
            for level in self.rules.hwcaps:
                yield place, posixpath.join(place.path, "glibc-hwcaps", level, name)
            yield place, posixpath.join(place.path, name)
