"""The application's own files as layers: one layer for each copy rule, in the order of the project file.

What the files are decides the bytes: modes are 755 or 644, owners root, times fixed. Version control, caches, virtual
environments and what this tool writes beside the project are left out.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from builder.errors import BadInput, did_you_mean, where_path
from builder.image.layers import LayerWriter, write_layer
from builder.image.packing import GZIP, Packing
from builder.image.values import Layer
from builder.project.values import CopyRule, Project
from builder.store import Store

__all__ = ["IGNORED", "AppFile", "app_layers", "rule_files"]

IGNORED = (
    *(".git", ".hg", ".svn", ".jj", ".bzr", "_darcs"),
    *("__pycache__", "*.py[co]", ".venv", ".nox", ".tox", ".eggs", "*.egg-info"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", ".coverage", ".DS_Store"),
)
"""Names (patterns) left out wherever they occur in a copied folder; a rule that names one copies it nevertheless."""

_IGNORED_AT_ROOT = ("dist", "pylock.*.toml", "requirements.*.txt")
"""Left out only directly in the project's folder: what this tool writes there."""

_REMEMBER = 16 << 20
"""Rules with at least this many bytes are known again by their files' times, so that models are not read each build."""

_SYSTEM = frozenset(
    {
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib64",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "tmp",
    }
    | {
        "usr",
        "var",
        "usr/bin",
        "usr/lib",
        "usr/local",
        "usr/local/bin",
        "usr/local/lib",
        "usr/share",
        "var/lib",
        "var/tmp",
    }
)
"""Folders of every base, which a layer must not give another mode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AppFile:
    """One thing to copy."""

    path: str
    """In the image, relative to its root."""
    source: Path
    status: os.stat_result
    link: str | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.status.st_mode)


def app_layers(project: Project, store: Store, packing: Packing = GZIP) -> tuple[Layer, ...]:
    """The layers of all copy rules that copy something."""
    made = []
    for rule in project.image.copy:
        files = rule_files(project, rule)
        if files:
            made.append(_layer(rule, files, store, packing))
    return tuple(made)


def rule_files(project: Project, rule: CopyRule) -> tuple[AppFile, ...]:
    """What one rule copies, sorted by path, parents first. Raises `BadInput` for what cannot or must not be copied."""
    root = project.root.resolve()
    source = root / rule.source
    target = _target(project, rule)
    if not source.resolve().is_relative_to(root):
        raise BadInput(
            f"copy rule {rule.source!r} leaves the project",
            why=f"it is {source.resolve()}, outside {root}",
            fix="copy only files below the project file's folder",
            where=where_path(project.path, key="image.copy"),
        )
    try:
        status = source.stat()
    except OSError as error:
        names = [item.name for item in source.parent.iterdir()] if source.parent.is_dir() else []
        raise BadInput(
            f"cannot copy {rule.source!r}",
            why=error.strerror or "it does not exist",
            fix=did_you_mean(source.name, names) if names else "",
            where=where_path(project.path, key="image.copy"),
        ) from error
    if stat.S_ISDIR(status.st_mode):
        found = list(_walk(project, source, source, target))
        if target not in _SYSTEM:
            found.insert(0, AppFile(path=target, source=source, status=status))
        return tuple(found)
    return (AppFile(path=target, source=source, status=_plain(source, status)),)


def _target(project: Project, rule: CopyRule) -> str:
    parts = [part for part in rule.target.split("/") if part]
    if not rule.target.startswith("/") or ".." in parts or "." in parts or not parts:
        raise BadInput(
            f"copy rule {rule.source!r} has the target {rule.target!r}",
            why="a target is an absolute path in the image, below its root",
            fix="for example /app",
            where=where_path(project.path, key="image.copy"),
        )
    if rule.target.endswith("/") and not (project.root / rule.source).is_dir():
        parts.append(Path(rule.source).name)
    return "/".join(parts)


def _walk(project: Project, top: Path, folder: Path, target: str) -> Iterator[AppFile]:
    at_root = folder.resolve() == project.root.resolve()
    try:
        entries = sorted(os.scandir(folder), key=lambda item: os.fsencode(item.name))
    except OSError as error:
        raise BadInput(f"cannot read {folder}", why=error.strerror or "", where=where_path(folder)) from error
    for entry in entries:
        if _ignored(entry.name, at_root=at_root):
            continue
        path = f"{target}/{entry.name}"
        source = Path(entry.path)
        status = entry.stat(follow_symlinks=False)
        if entry.is_symlink():
            yield AppFile(path=path, source=source, status=status, link=_link(top, source))
        elif entry.is_dir():
            yield AppFile(path=path, source=source, status=status)
            yield from _walk(project, top, source, path)
        else:
            yield AppFile(path=path, source=source, status=_plain(source, status))


def _ignored(name: str, *, at_root: bool) -> bool:
    patterns = (*IGNORED, *_IGNORED_AT_ROOT) if at_root else IGNORED
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _link(top: Path, source: Path) -> str:
    target = str(source.readlink())
    resolved = (source.parent / target).resolve()
    if target.startswith("/") or not resolved.is_relative_to(top.resolve()):
        raise BadInput(
            f"symbolic link {source} leaves the folder that is copied",
            why=f"it points at {target}, which the image would not have",
            fix="copy the file itself, or make the link relative and inside the folder",
            where=where_path(source),
        )
    return target


def _plain(source: Path, status: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(
            f"cannot copy {source}",
            why="it is a socket, pipe or device",
            where=where_path(source),
        )
    return status


def _layer(rule: CopyRule, files: tuple[AppFile, ...], store: Store, packing: Packing) -> Layer:
    def fill(writer: LayerWriter) -> None:
        for item in files:
            _add(writer, item)

    total = sum(item.status.st_size for item in files if not item.is_folder)
    key = _key(files) if total >= _REMEMBER else None
    return write_layer(store, f"{rule.source} in {rule.target}", fill, key=key, packing=packing)


def _add(writer: LayerWriter, item: AppFile) -> None:
    if item.link is not None:
        writer.symlink(item.path, item.link)
        return
    if item.is_folder:
        writer.directory(item.path)
        return
    try:
        with item.source.open("rb") as file:
            mode = 0o755 if item.status.st_mode & 0o111 else 0o644
            writer.file(item.path, file, item.status.st_size, mode=mode)
    except (FileNotFoundError, PermissionError) as error:
        raise BadInput(
            f"cannot read {item.source}",
            why=error.strerror or "",
            fix="make it readable",
            where=where_path(item.source),
        ) from error


def _key(files: tuple[AppFile, ...]) -> str:
    """Changes whenever a file does: a change of content always changes the inode's change time."""
    digest = hashlib.sha256()
    for item in files:
        status = item.status
        facts = (
            item.path,
            item.link,
            status.st_mode,
            status.st_size,
            status.st_ino,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return f"files {digest.hexdigest()}"
