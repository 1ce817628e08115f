"""Gathers what a program will find: inside an image, read without running it, or on the machine at hand."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.cache.doctor import Place, Surroundings, folder_of, user_word
from builder.cache.folders import EngineFolder
from builder.cache.switches import Program
from builder.errors import BadInput
from builder.events import Reporter
from builder.names import Arch
from builder.proof.image import open_image
from builder.proof.rootfs import Folder, Plain, RootFs
from builder.registry.layers import BlobStream, clean_path, decompressed, reading, tar_members
from builder.registry.values import Descriptor, Repository
from builder.smoke.values import RunnableImage
from builder.store import Store

__all__ = ["Start", "look_here", "look_into"]

_COUNTED = 10_000
"""Files of a folder that are counted at most: more tell nothing more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How a container of the image will be started."""

    env: Mapping[str, str]
    """Added to the image's own environment."""
    mounts: tuple[str, ...] = ()
    """Folders that are mounted when it runs."""
    read_only: bool = False
    """Whether everything but the mounts is read-only."""
    user: str = ""
    """Another user than the image's: a name, `uid` or `uid:gid`."""


def look_here(
    environ: Mapping[str, str],
    *,
    backend: str | None,
    folders: Iterable[EngineFolder],
    programs: Collection[Program],
    now: float,
) -> Surroundings:
    """This machine or container, for a program of this very user and environment."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        user = home = ""
    else:
        user, home = entry.pw_name, entry.pw_dir
    home = environ.get("HOME", "") or home
    temporary = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - where programs look, nothing is written there
    wanted = _paths(folders, environ, home=home, temporary=temporary, user=user_word(user, uid))
    return Surroundings(
        env=environ,
        uid=uid,
        user=user,
        home=home,
        temporary=temporary,
        image=False,
        backend=backend,
        programs={
            name: found
            for name in _names(programs, environ)
            if (found := shutil.which(name, path=environ.get("PATH", os.defpath))) is not None
        },
        places={path: _place(Path(path)) for path in wanted},
        now=now,
    )


def _names(programs: Iterable[Program], env: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for one in programs:
        found.update(one.names)
        if env.get(one.variable, "").strip():
            found.add(env[one.variable].split()[0])
    return found


def _paths(
    folders: Iterable[EngineFolder], env: Mapping[str, str], *, home: str, temporary: str, user: str
) -> list[str]:
    found = [folder_of(one, env, home=home, temporary=temporary, user=user)[0] for one in folders]
    return [path for path in dict.fromkeys([*found, temporary]) if path.startswith("/")]


def _place(path: Path) -> Place:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Place(exists=False)
    except OSError as error:
        return Place(exists=True, readable=False, writable=False, owner=error.strerror or "")
    system = os.statvfs(path)
    readable = os.access(path, os.R_OK | os.X_OK)
    files, newest = _count(path) if readable else (None, None)
    return Place(
        exists=True,
        files=files,
        readable=readable,
        # access(2) of root says yes on any mode, and no on a read-only mount
        writable=os.access(path, os.W_OK | os.X_OK),
        owner=_owner(status.st_uid, status.st_mode, read_only=bool(system.f_flag & os.ST_RDONLY)),
        executable=not system.f_flag & os.ST_NOEXEC,
        free=system.f_bavail * system.f_frsize,
        newest=newest,
    )


def _count(path: Path) -> tuple[int, float | None]:
    count, newest = 0, None
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                count += 1
                newest = status.st_mtime if newest is None else max(newest, status.st_mtime)
        if count >= _COUNTED:
            break
    return count, newest


def _owner(uid: int, mode: int, *, read_only: bool) -> str:
    return f"uid {uid}, mode {stat.S_IMODE(mode):04o}{', on a read-only mount' if read_only else ''}"


def look_into(
    image: RunnableImage,
    repository: Repository,
    *,
    arch: Arch,
    start: Start,
    backend: str | None,
    folders: Iterable[EngineFolder],
    programs: Collection[Program],
    store: Store,
    reporter: Reporter,
) -> Surroundings:
    """An image, as its settings and `start` will run it. Nothing is run; each layer is read once and remembered."""
    opened = open_image(repository, image.digest, arch=arch)
    root = RootFs.of(opened.index(store=store, reporter=reporter))
    read = opened.files(root, [path for path in ("/etc/passwd", "/etc/group") if root.plain(path) is not None])
    users = _fields(read.get("/etc/passwd", b""))
    env = {**image.env, **start.env}
    uid, gid, user, folder = _user(start.user or image.user, users, _fields(read.get("/etc/group", b"")), image.name)
    home = env.get("HOME", "") or folder
    temporary = env.get("TMPDIR") or "/tmp"  # noqa: S108 - where programs look, nothing is written there
    wanted = _paths(folders, env, home=home, temporary=temporary, user=user_word(user, uid))
    real = {path: root.real(path) for path in wanted if root.folder(path) is not None}
    owners = _owners(repository, image.layers, {one for one in real.values() if one}, reporter) if real else {}
    places = {}
    for path in wanted:
        if any(path == mount or path.startswith(mount.rstrip("/") + "/") for mount in start.mounts):
            places[path] = Place(exists=True, mounted=True)
        elif path in real:
            mode, owner, group = owners.get(real[path] or "", (0o755, 0, 0))
            found = root.folder(path)
            may = _bits(mode, owner, group, uid=uid, gid=gid)
            places[path] = Place(
                exists=True,
                files=_files_in(found) if found is not None else None,
                readable=may & 5 == 5,
                writable=may & 3 == 3 and not start.read_only,
                owner=_owner(owner, mode, read_only=start.read_only),
            )
        else:
            places[path] = Place(exists=False)
    return Surroundings(
        env=env,
        uid=uid,
        user=user,
        home=home,
        temporary=temporary,
        image=True,
        backend=backend,
        programs=_programs(root, programs, env),
        places=places,
    )


def _fields(text: bytes) -> list[list[str]]:
    return [line.split(":") for line in text.decode(errors="replace").splitlines() if line.count(":") >= 3]


def _user(asked: str, users: list[list[str]], groups: list[list[str]], image: str) -> tuple[int, int, str, str]:
    """Number, group, name and folder of a user; a name must be in the image, a number need not be."""
    name, _, group = (asked or "0").partition(":")
    entry = next((one for one in users if name in (one[0], one[2])), None)
    if entry is None and not name.isdecimal():
        raise BadInput(
            f"{image} cannot be run as {asked!r}", why=f"its /etc/passwd has no {name!r}", fix="give a numeric uid:gid"
        )
    uid = int(entry[2]) if entry else int(name)
    gid = int(entry[3]) if entry and entry[3].isdecimal() else 0
    if group:
        known = next((one[2] for one in groups if group in (one[0], one[2])), group)
        if not known.isdecimal():
            raise BadInput(
                f"{image} cannot be run as {asked!r}", why=f"its /etc/group has no {group!r}", fix="give numbers"
            )
        gid = int(known)
    return uid, gid, entry[0] if entry else "", entry[5] if entry and len(entry) > 5 else ""


def _bits(mode: int, owner: int, group: int, *, uid: int, gid: int) -> int:
    if uid == 0:
        return 7
    return mode >> (6 if uid == owner else 3 if gid == group else 0) & 7


def _files_in(folder: Folder) -> int:
    count, pending = 0, [folder]
    while pending and count < _COUNTED:
        for child in pending.pop().children.values():
            if isinstance(child, Plain):
                count += 1
            elif isinstance(child, Folder):
                pending.append(child)
    return count


def _owners(
    repository: Repository, layers: Sequence[Descriptor], paths: Collection[str], reporter: Reporter
) -> dict[str, tuple[int, int, int]]:
    """Mode, owner and group of these folders, as the uppermost layer that names them has it.

    Layers below the last of these are not read: what the program's own layers make lies on top of gigabytes.
    """
    found: dict[str, tuple[int, int, int]] = {}
    with reporter.task("reading owners of folders") as advance:
        for layer in reversed(layers):
            if found.keys() >= set(paths):
                break
            here: dict[str, tuple[int, int, int]] = {}
            stream = BlobStream(repository.read_blob(layer.digest), advance)
            with reading(layer):
                for _, member in tar_members(decompressed(stream, layer)):
                    path = "/" + clean_path(member.name)
                    if path in paths and member.isdir():
                        here[path] = (stat.S_IMODE(member.mode), member.uid, member.gid)
            stream.drain()
            found = here | found
    return found


def _programs(root: RootFs, programs: Iterable[Program], env: Mapping[str, str]) -> dict[str, str]:
    found = {}
    folders = env.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").split(":")
    for name in _names(programs, env):
        for path in [name] if name.startswith("/") else [f"{folder}/{name}" for folder in folders if folder]:
            file = root.plain(path)
            if file is not None and file.executable:
                found[name] = path
                break
    return found
