"""The file system that an image's layers add up to, as names: applied in order, with whiteouts (image-spec, layer.md,
"Applying Changesets"), symlinks resolved inside the root as an engine's chroot does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from builder.proof.layers import LayerEntry, LayerIndex
from builder.proof.objects import ElfObject

__all__ = ["Folder", "Plain", "RootFs", "Symlink"]

_LINKS = 40
"""Symlinks followed in one look-up before it fails (Linux, path_resolution(7))."""


@dataclass(slots=True)
class Folder:
    """A directory."""

    children: dict[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plain:
    """A regular file: where it first appeared (its identity) and what is known of it."""

    layer: int
    path: str
    executable: bool
    object: ElfObject | None = None
    text: bytes | None = None
    script: str | None = None
    """What follows `#!`."""
    loads: tuple[str, ...] | None = None
    """For Python files that load libraries themselves: the names in them."""


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link as written."""

    target: str


Node = Folder | Plain | Symlink


class RootFs:
    """One image's merged tree. Paths given and returned are absolute."""

    def __init__(self) -> None:
        self._root = Folder()

    @classmethod
    def of(cls, layers: Sequence[LayerIndex]) -> RootFs:
        """The tree of these layers, lowest first."""
        tree = cls()
        for number, layer in enumerate(layers):
            tree._apply(number, layer)
        return tree

    def _apply(self, number: int, layer: LayerIndex) -> None:
        # a layer's own whiteouts hide only what lies below it, wherever they stand in the tar
        for entry in layer.entries:
            if entry.kind == "whiteout":
                folder, _, name = entry.path.rpartition("/")
                below = self._folder(folder, make=False)
                if below is not None:
                    below.children.pop(name, None)
            elif entry.kind == "opaque":
                below = self._folder(entry.path, make=False)
                if below is not None:
                    below.children.clear()
        for entry in layer.entries:
            self._put(number, layer, entry)

    def _put(self, number: int, layer: LayerIndex, entry: LayerEntry) -> None:
        if entry.kind in ("whiteout", "opaque"):
            return
        parent_path, _, name = entry.path.rpartition("/")
        parent = self._folder(parent_path, make=True)
        if parent is None or not name:
            return
        if entry.kind == "dir":
            if not isinstance(parent.children.get(name), Folder):
                parent.children[name] = Folder()
        elif entry.kind == "symlink":
            parent.children[name] = Symlink(entry.target)
        elif entry.kind == "hardlink":
            linked = self.node(f"/{entry.target}", follow=False)
            if linked is not None:
                parent.children[name] = linked
        else:
            path = entry.path
            parent.children[name] = Plain(
                number,
                f"/{path}",
                entry.executable,
                layer.objects.get(path),
                layer.texts.get(path),
                layer.scripts.get(path),
                layer.loads.get(path),
            )

    def _folder(self, path: str, *, make: bool) -> Folder | None:
        """The folder an entry lands in: its parents may be symlinks of a lower layer (usr-merged `lib`)."""
        here: list[str] = []
        node: Node = self._root
        for part in path.split("/"):
            if not part:
                continue
            if not isinstance(node, Folder):
                return None
            here.append(part)
            child = node.children.get(part)
            if isinstance(child, Symlink):
                real = self.real("/" + "/".join(here))
                if real is None:
                    return None
                child = self.node(real)
                here = real.strip("/").split("/")
            if child is None or (make and not isinstance(child, Folder)):
                if not make:
                    return None
                child = Folder()
                node.children[part] = child
            node = child
        return node if isinstance(node, Folder) else None

    def _walk_to(self, path: str, *, follow: bool) -> tuple[str, Node] | None:
        waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        trail: list[tuple[str, Folder]] = []
        node: Node = self._root
        links = 0
        while waiting:
            part = waiting.pop()
            if part == ".":
                continue
            if part == "..":
                if not isinstance(node, Folder):
                    return None
                if trail:
                    node = trail.pop()[1]
                continue
            if not isinstance(node, Folder):
                return None
            child = node.children.get(part)
            if child is None:
                return None
            if isinstance(child, Symlink) and (waiting or follow):
                links += 1
                if links > _LINKS:
                    return None
                if child.target.startswith("/"):
                    trail, node = [], self._root
                waiting.extend(step for step in reversed(child.target.split("/")) if step)
                continue
            trail.append((part, node))
            node = child
        return "/" + "/".join(name for name, _ in trail), node

    def real(self, path: str) -> str | None:
        """The path with every symlink resolved, None when it does not exist or loops."""
        found = self._walk_to(path, follow=True)
        return found[0] if found else None

    def node(self, path: str, *, follow: bool = True) -> Node | None:
        """What is at a path; the last symlink is followed unless told otherwise."""
        found = self._walk_to(path, follow=follow)
        return found[1] if found else None

    def plain(self, path: str) -> Plain | None:
        """The regular file at a path, symlinks followed."""
        found = self.node(path)
        return found if isinstance(found, Plain) else None

    def folder(self, path: str) -> Folder | None:
        """The folder at a path, symlinks followed."""
        found = self.node(path)
        return found if isinstance(found, Folder) else None

    def text(self, path: str) -> bytes | None:
        """Content of one of the small files that were kept, symlinks followed."""
        found = self.plain(path)
        return found.text if found else None

    def files(self) -> Iterator[tuple[str, Plain]]:
        """Every regular file by path, folders sorted by name; hard links appear under each of their names."""
        pending: list[tuple[str, Node]] = [("", self._root)]
        while pending:
            path, node = pending.pop()
            if isinstance(node, Plain):
                yield path, node
            elif isinstance(node, Folder):
                pending.extend((f"{path}/{name}", child) for name, child in sorted(node.children.items(), reverse=True))

    def objects(self) -> Iterator[tuple[str, ElfObject]]:
        """Every ELF file once, by its first path."""
        seen: set[tuple[int, str]] = set()
        for path, found in self.files():
            if found.object is not None and (found.layer, found.path) not in seen:
                seen.add((found.layer, found.path))
                yield path, found.object
