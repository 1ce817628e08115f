"""What comes closest to a library or version that is missing: the evidence that shows how to mend it."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterable, Mapping

from builder.proof.objects import ElfObject
from builder.proof.rootfs import RootFs

__all__ = ["Names", "configured_folders", "newest_version"]


class Names:
    """Objects of an image by the names they can be asked for."""

    def __init__(self, native: Mapping[str, ElfObject]) -> None:
        self._exact: dict[str, list[str]] = {}
        for path, item in native.items():
            if item.kind == "shared":
                for name in dict.fromkeys((item.soname or "", posixpath.basename(path))):
                    self._exact.setdefault(name, []).append(path)

    def exact(self, name: str) -> tuple[str, ...]:
        """Paths of files with that SONAME or file name, shortest first."""
        base = posixpath.basename(name)
        return tuple(sorted(self._exact.get(base, ()), key=lambda path: (len(path), path))) if base else ()

    def nearest(self, name: str) -> str | None:
        """A file whose name is closest: another version of the same library before a similar name."""
        stem = name.partition(".so")[0]
        same = sorted(known for known in self._exact if known.partition(".so")[0] == stem)
        close = same or difflib.get_close_matches(name, self._exact, n=1, cutoff=0.8)
        return self._exact[close[-1]][0] if close else None


def newest_version(version: str, defined: Iterable[str]) -> str | None:
    """The newest of the versions a library defines in the family of `version` (GLIBC_2.36 for GLIBC_2.99)."""
    family = version.rpartition("_")[0]
    known = [name for name in defined if name.rpartition("_")[0] == family and re.search(r"_\d", name)]
    return max(known, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default=None)


def configured_folders(root: RootFs) -> frozenset[str]:
    """Folders that ldconfig would put into the cache (ldconfig(8): ld.so.conf and what it includes)."""
    folder = root.folder("/etc/ld.so.conf.d")
    parts = [f"/etc/ld.so.conf.d/{name}" for name in sorted(folder.children)] if folder else []
    texts = [root.text(path) or b"" for path in ("/etc/ld.so.conf", *parts)]
    lines = (line.split("#")[0].strip() for text in texts for line in text.decode(errors="replace").splitlines())
    return frozenset(line.rstrip("/") for line in lines if line.startswith("/"))
