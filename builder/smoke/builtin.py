"""The built-in runner: Linux namespaces and an unpacked image; no daemon, no root, nothing but the kernel.

The image is unpacked once into a folder of its own and mounted read-only; /tmp, /var/tmp, /run and /dev are fresh for
each program. A program sees the image's user id (mapped onto the caller), no capability, no process but its own, and
no network but loopback. What this runner cannot show are faults of file ownership: all files belong to one user.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from builder.errors import BadInput, CannotTell, OutsideFailed
from builder.events import Reporter
from builder.matrix.values import RunLine
from builder.smoke import enter
from builder.smoke.hostfacts import device_nodes
from builder.smoke.preflight import device_access, groups_for, shared_memory_for
from builder.smoke.process import Process
from builder.smoke.rootfs import make_folder, open_layer, unpack_layer
from builder.smoke.values import Bind, Command, Completed, Container, RunnableImage
from builder.store import disk_errors

__all__ = ["BuiltinRunner", "why_not"]

Mode = Literal["user", "root"]
"""How a program becomes the image's user: mapped onto the caller in a user namespace, or by the caller being root."""

MODES: tuple[Mode, ...] = get_args(Mode)

_MOUNT_POINTS = ("proc", "sys", "dev", "run", "tmp", "var/tmp")
_MEND = (
    "run with --runner docker; or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces > 0); or run as root outside a container"
)


class BuiltinRunner:
    """Unpacks below `scratch`; see the module for what a program sees."""

    name = "builtin"

    def __init__(self, *, scratch: Path, reporter: Reporter, modes: tuple[Mode, ...] = MODES) -> None:
        self._scratch = scratch
        self._reporter = reporter
        self._modes = modes

    @contextmanager
    def open(self, image: RunnableImage, *, run: RunLine) -> Iterator[Container]:
        """The unpacked image, removed at exit. `CannotTell` where the kernel allows no namespaces."""
        if run.arguments:
            told = " ".join(run.arguments)
            self._reporter.note(f"run without {told}: only --runner docker can hand over what that brings")
        with disk_errors(self._scratch):
            self._scratch.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self._scratch, prefix="image-"))
        try:
            root = folder / "root"
            root.mkdir()
            with disk_errors(root):
                _make_mount_points(root)
                mode = _mode(root, self._modes)  # before gigabytes are unpacked for nothing
                self._unpack(image, root)
                _make_mount_points(root)
                make_folder(root, image.workdir)  # as container runtimes do
            nodes = device_nodes(run.devices)
            if mode == "user" and (
                told := device_access(nodes, uid=os.geteuid(), gids=frozenset((os.getegid(), *os.getgroups())))
            ):
                self._reporter.note(f"{told}, or run this as a user of that group")
            yield _Unpacked(
                image=image,
                root=root,
                mode=mode,
                devices=tuple(node.path for node in nodes),
                groups=groups_for(nodes),
                mounts=tuple(Bind(source=Path(path), target=path) for path in run.mounts if Path(path).exists()),
                shm=shared_memory_for(several=len(nodes) > 1),
            )
        finally:
            shutil.rmtree(folder, ignore_errors=False, onerror=_make_removable)

    def _unpack(self, image: RunnableImage, root: Path) -> None:
        total = sum(layer.size for layer in image.layers)
        with self._reporter.task("unpacking the image", total=total) as advance:
            for layer in image.layers:
                with open_layer(image.repository, layer, advance) as stream:
                    unpack_layer(stream, root)


def _make_mount_points(root: Path) -> None:
    for name in _MOUNT_POINTS:
        path = root / name
        if path.is_symlink():
            path.unlink()
        path.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unpacked:
    """An unpacked image and how to enter it."""

    image: RunnableImage
    root: Path
    mode: Mode
    devices: tuple[str, ...]
    groups: tuple[int, ...]
    mounts: tuple[Bind, ...]
    shm: int

    def run(self, command: Command) -> Completed:
        """Run one program. `BadInput` when the image's own settings (user, workdir) cannot be used."""
        uid, gid = _ids(self.image, self.root)
        workdir = self.image.workdir
        self._make_mount_points(command.binds)
        spec: dict[str, Any] = {
            "root": str(self.root),
            "mode": self.mode,
            "argv": list(command.argv),
            "env": {"HOME": "/tmp", "PATH": os.defpath, **self.image.env, **command.env},  # noqa: S108 - in the image
            "workdir": workdir,
            "uid": uid,
            "gid": gid,
            "groups": list(self.groups),
            "network": command.network,
            "binds": [[str(bind.source), bind.target, bind.writable] for bind in (*self.mounts, *command.binds)],
            "devices": list(self.devices),
            "shm": self.shm,
        }
        completed, fault = _enter(spec, command.timeout)
        if fault is not None:
            raise _told(fault, self.image)
        return completed

    def _make_mount_points(self, binds: tuple[Bind, ...]) -> None:
        for bind in (*self.mounts, *binds):
            point = self.root / bind.target.lstrip("/")
            if bind.source.is_dir():
                point.mkdir(parents=True, exist_ok=True)
            elif not point.exists():
                point.parent.mkdir(parents=True, exist_ok=True)
                point.touch()


def why_not(scratch: Path) -> str:
    """Why this machine does not let this runner work, "" when it does. `scratch` is an empty folder for the trial."""
    _make_mount_points(scratch)
    try:
        _mode(scratch, MODES)
    except CannotTell as error:
        return error.why
    return ""


def _mode(root: Path, modes: tuple[Mode, ...]) -> Mode:
    """The first mode that this machine allows; `CannotTell` with each one's fault when there is none."""
    if not sys.platform.startswith("linux") or os.uname().machine not in enter.SYS_PIVOT_ROOT:
        raise CannotTell("the built-in runner works on Linux alone", why=f"this is {sys.platform}", fix=_MEND)
    faults = []
    for mode in modes:
        if mode == "root" and os.geteuid() != 0:
            continue
        spec: dict[str, Any] = {
            "root": str(root), "mode": mode, "argv": ["/"], "env": {}, "workdir": "/", "uid": 1, "gid": 1,
            "groups": [], "network": False, "binds": [], "devices": [], "shm": 4096,
        }  # fmt: skip
        # "/" is no program: reaching 126 means that everything before the program worked.
        done, fault = _enter(spec, 30.0)
        if fault is None and done.code == 126:
            return mode
        faults.append(f"{mode} mode: {fault['error'] if fault else f'exit {done.code}'}")
    raise CannotTell("this machine does not let the built-in runner work", why="; ".join(faults), fix=_MEND)


def _enter(spec: Mapping[str, Any], timeout: float) -> tuple[Completed, dict[str, str] | None]:
    """Run enter.py; what the program did, and what kept it from starting."""
    spec_read, spec_write = os.pipe()
    fault_read, fault_write = os.pipe()
    with (
        os.fdopen(spec_read, "rb"),
        os.fdopen(fault_read, "rb") as fault,
        os.fdopen(spec_write, "wb") as spec_file,
        os.fdopen(fault_write, "wb") as fault_end,
    ):
        process = Process(
            [sys.executable, "-I", "-S", enter.__file__, str(spec_read), str(fault_write)],
            pass_fds=(spec_read, fault_write),
        )
        fault_end.close()
        spec_file.write(json.dumps(spec).encode())
        spec_file.close()
        # Killing the outer process takes process 1 of the namespace along (PR_SET_PDEATHSIG), and that takes all.
        completed = process.finish(timeout, stop=process.kill)
        said = fault.read()
    return completed, json.loads(said) if said else None


def _ids(image: RunnableImage, root: Path) -> tuple[int, int]:
    """Numeric user and group of the image's `User` (image-spec, config.md), names looked up in the image itself."""
    user, _, group = (image.user or "0").partition(":")
    uid, own_gid = _look_up(root / "etc/passwd", user, image)
    gid = _look_up(root / "etc/group", group, image)[0] if group else own_gid
    return uid, gid


def _look_up(file: Path, name: str, image: RunnableImage) -> tuple[int, int]:
    """The number of a user or group, and the fourth field (a user's own group; meaningless for a group)."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    for line in lines:
        fields = line.split(":")
        if len(fields) >= 4 and name in (fields[0], fields[2]):
            return int(fields[2]), int(fields[3]) if fields[3].isdigit() else 0
    if name.isdigit():
        return int(name), 0
    raise BadInput(
        f"{image.name} cannot be run as its user {image.user!r}",
        why=f"its /etc/{file.name} has no {name!r}",
        fix="give a numeric uid:gid as [image] user",
    )


def _told(fault: Mapping[str, str], image: RunnableImage) -> BadInput | OutsideFailed:
    if fault["stage"] == "program":
        return BadInput(
            f"{image.name} cannot be run as its settings say",
            why=fault["error"],
            fix="check the image's working directory and user",
        )
    return OutsideFailed("the built-in runner could not enter the image", why=fault["error"], fix=_MEND)


def _make_removable(function: object, path: str, info: object) -> None:
    """A layer may hold folders that even their owner cannot change: open them up and go on."""
    parent = Path(path).parent
    parent.chmod(0o700)
    if Path(path).is_dir() and not Path(path).is_symlink():
        Path(path).chmod(0o700)
        shutil.rmtree(path)
    else:
        Path(path).unlink()
