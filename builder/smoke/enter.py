"""Enters an unpacked image and becomes one of its programs: namespaces, mounts, pivot_root, exec.

Run as a program of its own (`python -I -S enter.py SPEC FAULT`), so that the caller's threads and files stay out of
it; standard library only, imports nothing of this package. SPEC and FAULT are numbers of open file descriptors. From
SPEC it reads a JSON object:

    root      the unpacked image              argv     the program
    env       its whole environment           workdir  its working directory
    uid, gid  numbers the program sees        groups   further numeric groups, which only real root can grant
    network   keep the host's network         binds    [[host path, path in the image, writable], …]
    devices   host device nodes to let in     shm      size of /dev/shm in bytes
    mode      "user": a new user namespace maps the caller to uid:gid; "root": the caller is root and switches to them

Exit status: the program's; 128 + n after signal n; and 125 when it could not be started, with a JSON object on FAULT
that says what failed.
Sources: user_namespaces(7), mount_namespaces(7), pid_namespaces(7), pivot_root(2).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 1024, 2048, 1 << 21
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 1, 28, 38
SECBIT_NOROOT_LOCKED = 3
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

_KEPT_FLAGS = (
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, MS_NOEXEC),
    (os.ST_NOATIME, MS_NOATIME),
    (os.ST_NODIRATIME, MS_NODIRATIME),
    (os.ST_RELATIME, MS_RELATIME),
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, result: int) -> None:
    """Raise the C library's error, named."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    options = None if data is None else data.encode()
    call(f"mount {kind or source} on {target}", libc.mount(*encoded, ctypes.c_ulong(flags), options))


def read_only(target: str) -> None:
    """Make a bind mount read-only, keeping the flags that a user namespace may not take away."""
    found = os.statvfs(target).f_flag
    kept = sum(flag for seen, flag in _KEPT_FLAGS if found & seen)
    mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def write(path: str, text: str) -> None:
    """Write a /proc control file."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def unshare(spec: dict) -> None:  # type: ignore[type-arg]
    """Leave the caller's namespaces; in user mode become uid:gid of a namespace of our own, without any real right."""
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID
    if not spec["network"]:
        flags |= CLONE_NEWNET
    uid, gid = os.geteuid(), os.getegid()
    if spec["mode"] == "user":
        flags |= CLONE_NEWUSER
    call("unshare", libc.unshare(flags))
    if spec["mode"] == "user":
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{spec['uid']} {uid} 1")
        write("/proc/self/gid_map", f"{spec['gid']} {gid} 1")


def loopback_up() -> None:
    """Programs talk to themselves over 127.0.0.1; a new network namespace has it down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def build_tree(spec: dict) -> None:  # type: ignore[type-arg]
    """Everything the program will see, mounted over the unpacked image."""
    root = spec["root"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount(root, root, None, MS_BIND | MS_REC)
    for name in ("tmp", "var/tmp", "run"):
        mount("tmpfs", f"{root}/{name}", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=4g")
    mount("tmpfs", f"{root}/dev", "tmpfs", MS_NOSUID, "mode=755,size=1m")
    for device in [f"/dev/{name}" for name in _DEVICES] + spec["devices"]:
        if os.path.exists(device):
            place(device, root + device)
    os.mkdir(f"{root}/dev/shm")
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={spec['shm']}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    mount("/sys", f"{root}/sys", None, MS_BIND | MS_REC)
    try:
        mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        # Inside a container whose /proc is partly covered the kernel allows no new one; the host's does as well here.
        mount("/proc", f"{root}/proc", None, MS_BIND | MS_REC)
    for source, target, writable in spec["binds"]:
        place(source, root + target)
        if not writable:
            read_only(root + target)
    read_only(root)


def place(source: str, target: str) -> None:
    """Bind a host path; its mount point is made in one of the new tmpfs or was made when the image was unpacked."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "ab"):
            pass
    mount(source, target, None, MS_BIND | MS_REC)


def pivot(root: str) -> None:
    """Make `root` the root of everything, the old one unreachable (pivot_root(2), "pivot_root(., .)")."""
    os.chdir(root)
    call("pivot_root", libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."))
    call("umount", libc.umount2(b".", MNT_DETACH))
    os.chdir("/")


def become(spec: dict) -> None:  # type: ignore[type-arg]
    """Take on the program's ids (root mode) and give up gaining others; then exec. Returns only by raising."""
    # A program that runs as root inside gets no capability either, so nothing can undo the read-only mounts.
    call("prctl", libc.prctl(PR_SET_SECUREBITS, SECBIT_NOROOT_LOCKED, 0, 0, 0))
    if spec["mode"] == "root":
        os.setgroups(spec["groups"])
        os.setgid(spec["gid"])
        os.setuid(spec["uid"])
    call("prctl", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    os.chdir(spec["workdir"])
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            signal.signal(number, signal.SIG_DFL)
    execute(spec["argv"], spec["env"])


def execute(argv: list[str], env: dict[str, str]) -> None:
    """execve(2) along the image's PATH; os.execvpe would import a module, and the caller's Python is gone by now."""
    name = argv[0]
    folders = env["PATH"].split(":") if "/" not in name else [""]
    refused = OSError(2, os.strerror(2), name)
    for folder in folders:
        try:
            os.execve(f"{folder}/{name}" if folder else name, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = error
    refused.filename = name
    raise refused


def tell(fault: int, stage: str, error: OSError) -> None:
    """To the caller: which part failed and why."""
    os.write(fault, json.dumps({"stage": stage, "error": str(error)}).encode())
    os._exit(125)


def status_of(wait: int) -> int:
    """A shell's exit status from wait(2)'s."""
    code = os.waitstatus_to_exitcode(wait)
    return code if code >= 0 else 128 - code


def reap(program: int) -> int:
    """Wait as process 1 does: for every orphan, until the program itself has ended."""
    while True:
        pid, wait = os.wait()
        if pid == program:
            return status_of(wait)


def main(spec_number: int, fault: int) -> None:
    """Three processes: the outer one waits, process 1 of the new namespace reaps, the program runs."""
    with os.fdopen(spec_number, "rb") as file:
        spec = json.load(file)
    os.set_inheritable(fault, False)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        unshare(spec)
    except OSError as error:
        tell(fault, "namespaces", error)
    first = os.fork()
    if first:
        os._exit(status_of(os.waitpid(first, 0)[1]))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        if not spec["network"]:
            loopback_up()
        build_tree(spec)
        pivot(spec["root"])
    except OSError as error:
        tell(fault, "mounts", error)
    program = os.fork()
    if program:
        os._exit(reap(program))
    try:
        become(spec)
    except OSError as error:
        if error.filename == spec["argv"][0]:
            os.write(2, f"{spec['argv'][0]}: {error.strerror}\n".encode())
            os._exit(127 if error.errno == 2 else 126)
        tell(fault, "program", error)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
