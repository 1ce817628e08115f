"""The file tree of the built-in base: packages laid over each other, and what their maintainer scripts would have made.

Rules (BASE_LAYOUT in values.py counts their changes):

- /bin, /sbin, /lib and on x86_64 /lib64 are links into /usr, and packages' files go there (Debian's merged /usr).
- Documentation, manual pages and translations are left out, copyright files stay.
- The package database (/var/lib/dpkg) is kept, so that scanners and `dpkg -l` elsewhere see what is installed;
  maintainer scripts are not, as they were never run.
- Made here instead of by scripts: passwd and group, nsswitch.conf, the bundle of certificate authorities, local time
  (UTC), the loader's cache, /usr/bin/python3, an account `app` (10001) with a home folder, and mount points.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from builder.base.deb import DebFile, DebMember
from builder.base.ldcache import TRIPLETS, ld_cache, soname
from builder.base.packages import fields
from builder.base.values import LockedBase, TreeEntry
from builder.errors import BadInput
from builder.names import Arch
from builder.store import Store

__all__ = ["APP_UID", "debian_tree", "read_tree"]

APP_UID = 10001
"""User and group of the account `app`, the default of `image.user`."""

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_LEFT_OUT = ("usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bug/")
_KEPT_CONTROL = ("md5sums", "conffiles", "symbols", "shlibs", "triggers")


def read_tree(base: LockedBase, store: Store, arch: Arch) -> tuple[TreeEntry, ...]:
    """The tree of a locked base whose packages are in the store."""
    packages = []
    for package in base.packages:
        with store.open(package.sha256) as file:
            packages.append(DebFile.read(file, name=f"{package.name}_{package.version}_{package.architecture}.deb"))
    return debian_tree(packages, python_path=base.python_path, arch=arch)


def debian_tree(packages: Sequence[DebFile], *, python_path: str, arch: Arch) -> tuple[TreeEntry, ...]:
    """The tree, sorted by path. Pure; `packages` in the order they are laid down."""
    tree: dict[str, TreeEntry] = {}
    for link in ("bin", "sbin", "lib", *(("lib64",) if arch == "x86_64" else ())):
        tree[link] = TreeEntry(path=link, kind="symlink", mode=0o777, link=f"usr/{link}")
        tree[f"usr/{link}"] = _folder(f"usr/{link}")
    status: list[str] = []
    for package in packages:
        for member in package.members:
            _lay(tree, member)
        status.append(_database(tree, package))
    _put(tree, "var/lib/dpkg/status", "\n".join(status).encode())
    _put(tree, "var/lib/dpkg/info/format", b"1\n")
    _configure(tree, python_path)
    _put(tree, "etc/ld.so.cache", ld_cache(_libraries(tree, arch), arch))
    for path in list(tree):
        _parents(tree, path)
    _check(tree)
    return tuple(tree[path] for path in sorted(tree))


def _folder(path: str, mode: int = 0o755, owner: int = 0) -> TreeEntry:
    return TreeEntry(path=path, kind="directory", mode=mode, uid=owner, gid=owner)


def _put(tree: dict[str, TreeEntry], path: str, data: bytes, mode: int = 0o644) -> None:
    tree[path] = TreeEntry(path=path, kind="file", mode=mode, data=data)


def _parents(tree: dict[str, TreeEntry], path: str) -> None:
    for parent in PurePosixPath(path).parents:
        if str(parent) != "." and str(parent) not in tree:
            tree[str(parent)] = _folder(str(parent))


def _check(tree: Mapping[str, TreeEntry]) -> None:
    for path in tree:
        parent = path.rpartition("/")[0]
        if parent and tree[parent].kind != "directory":
            raise BadInput(
                "the packages of the base do not fit together", why=f"{path} lies below a {tree[parent].kind}"
            )


def _merged(path: str) -> str:
    return f"usr/{path}" if path.split("/", 1)[0] in _MERGED else path


def _left_out(path: str) -> bool:
    if path.startswith("usr/share/doc/"):
        return PurePosixPath(path).name != "copyright"
    return f"{path}/".startswith(_LEFT_OUT)


def _lay(tree: dict[str, TreeEntry], member: DebMember) -> None:
    path = _merged(member.path)
    if not path or _left_out(path) or member.path in _MERGED:  # newer base-files bring the links into /usr themselves
        return
    if member.kind == "hardlink":
        target = tree.get(_merged(member.link))
        if target is None or target.kind != "file":
            raise BadInput(
                "a Debian package is damaged", why=f"{member.path} is a hard link to {member.link}, which is not there"
            )
        tree[path] = TreeEntry(
            path=path, kind="file", mode=target.mode, uid=target.uid, gid=target.gid, data=target.data
        )
        return
    if member.kind == "directory":
        tree.setdefault(path, TreeEntry(path=path, kind="directory", mode=member.mode, uid=member.uid, gid=member.gid))
    elif member.kind == "symlink":
        tree[path] = TreeEntry(path=path, kind="symlink", mode=0o777, link=_merged_link(path, member))
    else:
        tree[path] = TreeEntry(
            path=path, kind="file", mode=member.mode, uid=member.uid, gid=member.gid, data=member.data
        )


def _merged_link(path: str, member: DebMember) -> str:
    """The link's target; one that climbed out of /lib now has one folder more to climb."""
    if path == member.path or not member.link.startswith("../"):
        return member.link
    depth = len(PurePosixPath(member.path).parts) - 1
    climbs = 0
    rest = member.link
    while rest.startswith("../"):
        climbs, rest = climbs + 1, rest[3:]
    return f"/{_merged(rest)}" if climbs >= depth else member.link


def _database(tree: dict[str, TreeEntry], package: DebFile) -> str:
    """Write the package's files under /var/lib/dpkg/info and return its stanza of /var/lib/dpkg/status."""
    control = package.control["control"].decode()
    found = fields(control)
    name = found["Package"]
    if found.get("Multi-Arch") == "same":
        name += f":{found['Architecture']}"
    info = f"var/lib/dpkg/info/{name}"
    listed = "".join(f"/{member.path or '.'}\n" for member in package.members)
    _put(tree, f"{info}.list", listed.encode())
    for part in _KEPT_CONTROL:
        if part in package.control:
            _put(tree, f"{info}.{part}", package.control[part])
    first, _, rest = control.strip("\n").partition("\n")
    stanza = f"{first}\nStatus: install ok installed\n{rest}\n"
    rows = [line.strip() for line in package.control.get("conffiles", b"").decode().splitlines()]
    sums = [(row, tree.get(_merged(row.lstrip("/")))) for row in rows if row.startswith("/")]
    if sums:
        stanza += "Conffiles:\n"
        stanza += "".join(f" {row} {_md5(entry.data)}\n" for row, entry in sums if entry is not None)
    return stanza


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _configure(tree: dict[str, TreeEntry], python_path: str) -> None:
    """What the packages' scripts make at installation, made from the same sources."""
    for name in ("passwd", "group"):
        master = tree.get(f"usr/share/base-passwd/{name}.master")
        text = master.data.decode() if master is not None else ""
        account = (
            f"app:x:{APP_UID}:{APP_UID}:app:/home/app:/usr/sbin/nologin\n"
            if name == "passwd"
            else f"app:x:{APP_UID}:\n"
        )
        _put(tree, f"etc/{name}", (text.replace(":*:", ":x:") + account).encode())
    for path, source in _COPIES.items():
        if source in tree and path not in tree:
            _put(tree, path, tree[source].data)
    authorities = sorted(
        path for path in tree if path.startswith("usr/share/ca-certificates/") and path.endswith(".crt")
    )
    if authorities:
        _put(tree, "etc/ssl/certs/ca-certificates.crt", b"".join(_pem(tree[path].data) for path in authorities))
        names = (path.removeprefix("usr/share/ca-certificates/") for path in authorities)
        _put(tree, "etc/ca-certificates.conf", "".join(f"{name}\n" for name in names).encode())
        _link(tree, "usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt")
    if "usr/share/zoneinfo/Etc/UTC" in tree:
        _link(tree, "etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
        _put(tree, "etc/timezone", b"Etc/UTC\n")
    _link(tree, "usr/bin/python3", PurePosixPath(python_path).name)
    _link(tree, "usr/bin/sh", "dash")
    _link(tree, "var/run", "/run")
    _link(tree, "var/lock", "/run/lock")
    for path, mode in _FOLDERS.items():
        tree[path] = _folder(path, mode)
    tree["home/app"] = _folder("home/app", 0o755, APP_UID)


_COPIES: Mapping[str, str] = {
    "etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
    "root/.profile": "usr/share/base-files/dot.profile",
    "etc/profile": "usr/share/base-files/profile",
}
_FOLDERS: Mapping[str, int] = {
    **dict.fromkeys(("dev", "etc", "home", "mnt", "opt", "proc", "run", "run/lock", "srv", "sys", "usr", "var"), 0o755),
    **dict.fromkeys(("tmp", "var/tmp", "run/lock"), 0o1777),
    "root": 0o700,
}


def _libraries(tree: Mapping[str, TreeEntry], arch: Arch) -> dict[str, str]:
    """Soname to path of every library in the loader's folders, where the file of that name has that soname."""
    found: dict[str, str] = {}
    for folder in ("lib", f"lib/{TRIPLETS[arch]}"):
        for path, entry in tree.items():
            if path.rpartition("/")[0] != f"usr/{folder}" or ".so" not in path:
                continue
            name = path.rpartition("/")[2]
            target = tree.get(f"usr/{folder}/{entry.link}") if entry.kind == "symlink" else entry
            if target is not None and target.kind == "file" and soname(target.data) == name:
                found[name] = f"/{folder}/{name}"
    return found


def _link(tree: dict[str, TreeEntry], path: str, target: str) -> None:
    if path not in tree:
        tree[path] = TreeEntry(path=path, kind="symlink", mode=0o777, link=target)


def _pem(data: bytes) -> bytes:
    return data if data.endswith(b"\n") else data + b"\n"
