"""Taking a folder in: its files as parts, its paths made relative, its links kept inside."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from builder.cache.copying import workers
from builder.cache.incoming import Incoming
from builder.cache.relocate import method_for, to_relative
from builder.cache.trees import TreeItem, stays_inside
from builder.errors import BadInput

__all__ = ["notes", "take_tree"]


def notes(holding_path: list[str]) -> tuple[str, ...]:
    """What an entry says of files that hold the folder they were made in."""
    if not holding_path:
        return ()
    shown = ", ".join(sorted(holding_path)[:5]) + (
        f" and {len(holding_path) - 5} more" if len(holding_path) > 5 else ""
    )
    return (f"holds the folder it was made in: {shown}; elsewhere these files may point to what is not there",)


def take_tree(kind: str, source: Path, built_at: str, incoming: Incoming) -> tuple[list[TreeItem], list[str]]:
    """The items of a folder, each file taken in; and the files that hold the folder's path and were not rewritten."""
    items: list[TreeItem] = []
    waiting: list[tuple[str, Path, frozenset[str]]] = []
    for folder, names in _walk(source):
        inside = folder.relative_to(source).as_posix()
        if not names and inside != ".":
            items.append(TreeItem(path=inside, kind="folder"))
        siblings = frozenset(names)
        for name in names:
            path = folder / name
            relative = name if inside == "." else f"{inside}/{name}"
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                items.append(_link(relative, path, source))
            elif stat.S_ISREG(mode):
                waiting.append((relative, path, siblings))
            elif not stat.S_ISDIR(mode):
                raise BadInput(f"{path} is neither a file, a folder nor a link", fix="remove it from the cache folder")
    holding_path: list[str] = []

    def take(one: tuple[str, Path, frozenset[str]]) -> TreeItem:
        relative, path, siblings = one
        executable = bool(path.stat().st_mode & 0o111)
        method = method_for(kind, relative)
        data = (
            to_relative(path.read_bytes(), method=method, path=relative, built_at=built_at, siblings=siblings)
            if method
            else None
        )
        if data is not None:
            return TreeItem(
                path=relative,
                kind="file",
                size=len(data),
                digest=incoming.add_bytes(data),
                executable=executable,
                paths=method,
            )
        copied = incoming.add_file(path, search=built_at.encode())
        if copied.found:
            holding_path.append(relative)
        return TreeItem(path=relative, kind="file", size=copied.size, digest=copied.digest, executable=executable)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers()) as pool:
        items += pool.map(take, waiting)
    return items, holding_path


def _walk(source: Path) -> Iterator[tuple[Path, list[str]]]:
    def failed(error: OSError) -> None:
        raise BadInput(f"cannot read {error.filename}", why=error.strerror or str(error), fix="let this user read it")

    for folder, folders, files in os.walk(source, onerror=failed):
        names = sorted([*folders, *files])
        for name in names:
            try:
                name.encode()
            except UnicodeEncodeError:
                raise BadInput(
                    f"{os.path.join(folder, name)!r} has a name that is not UTF-8", fix="rename or remove it"
                ) from None
        yield Path(folder), names


def _link(relative: str, path: Path, source: Path) -> TreeItem:
    target = os.readlink(path)
    if target.startswith(f"{source}/"):
        target = os.path.relpath(target, path.parent)
    if not stays_inside(relative, target):
        raise BadInput(
            f"{path} is a link to {target}, outside the folder",
            why="an engine must hold all it needs",
            fix="replace the link by what it leads to",
        )
    return TreeItem(path=relative, kind="link", target=target)
