"""Small real images for tests: a copy of this machine's own Python, wheels installed by the tool's installer."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from builder.image.install import main as install
from builder.names import ARCHES, Arch, Digest, Platform
from builder.registry.layout import Layout
from builder.registry.values import Descriptor, Manifest, MediaType
from builder.smoke.image import open_image
from builder.smoke.values import RunnableImage

PYTHON = "/usr/local/bin/python-of-the-base"
"""Path of the interpreter in the base below."""


def machine() -> Arch:
    """This machine's architecture, as names.Arch has it."""
    return next(arch for arch in ARCHES if arch == platform.machine())


class Tarred:
    """A layer to be: its uncompressed tar, and what is made of it once."""

    def __init__(self, tar: bytes) -> None:
        self.tar = tar
        self.diff_id = Digest.of(tar)

    @cached_property
    def gzip(self) -> bytes:
        return gzip.compress(self.tar, 1, mtime=0)


def entry(
    name: str, data: bytes = b"", *, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """One tar entry."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.linkname = len(data), mode, kind, link
    return info, data


def tar_of(entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> Tarred:
    """A layer of these entries."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return Tarred(out.getvalue())


def tar_of_folder(folder: Path) -> Tarred:
    """A layer of a folder's content, owned by root, without times."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        return info

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name, filter=plain)
    return Tarred(out.getvalue())


def base_root(folder: Path) -> None:
    """A root folder that holds this machine's Python (standard library without tests) and what it links to."""
    target = folder / PYTHON.lstrip("/")
    target.parent.mkdir(parents=True)
    binary = Path(os.path.realpath(sys.executable))
    shutil.copy2(binary, target)
    home = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        home,
        folder / "usr/local/lib" / home.name,
        ignore=shutil.ignore_patterns(
            "__pycache__", "test", "tests", "config-*", "idlelib", "tkinter", "turtledemo", "lib2to3", "site-packages",
            "dist-packages", "ensurepip", "*.a", "unittest", "xmlrpc", "distutils", "curses", "dbm", "wsgiref",
            "pydoc_data", "sqlite3", "msilib", "venv",
        ),
    )  # fmt: skip
    objects = [binary, *Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so")]
    for line in {line for item in objects for line in _linked(item)}:
        library = folder / line.lstrip("/")
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(line, library)
    etc = folder / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n")
    (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (folder / "app").mkdir()


def _linked(path: Path) -> list[str]:
    told = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(?:=> |^\s)(/\S+)", told, re.MULTILINE)


def venv_root(folder: Path, wheels: Sequence[Path]) -> None:
    """/opt/venv with these wheels, made by the installer that the engines use."""
    listing = folder.parent / f"{folder.name}-wheels.json"
    listing.write_text(
        json.dumps(
            [
                {"file": wheel.name, "path": str(wheel), "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}
                for wheel in wheels
            ]
        )
    )
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    arguments = ["--target", "/opt/venv", "--python", python, "--base-python", PYTHON]
    assert install([*arguments, "--wheels", str(listing), "--destdir", str(folder)]) == 0


def write_image(
    layout: Layout,
    layers: Sequence[Tarred],
    *,
    tag: str = "test",
    labels: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    arch: Arch | None = None,
) -> Descriptor:
    """Store an image of these layers; `config` is merged into the config's `config` object."""
    stored = [_put(layout, MediaType.LAYER_GZIP, layer.gzip) for layer in layers]
    settings = {
        "User": "10001:10001",
        "WorkingDir": "/app",
        "Env": ["PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1"],
        "Labels": dict(labels or {}),
        **(config or {}),
    }
    document = {
        "architecture": Platform(arch or machine()).oci_arch,
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [str(layer.diff_id) for layer in layers]},
    }
    blob = _put(layout, MediaType.CONFIG, json.dumps(document, sort_keys=True).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": MediaType.MANIFEST,
        "config": blob.to_json(),
        "layers": [layer.to_json() for layer in stored],
    }
    raw = json.dumps(manifest, sort_keys=True).encode()
    return layout.put_manifest(Manifest(MediaType.MANIFEST, raw), tag=tag)


def opened(layout: Layout, tag: str = "test") -> RunnableImage:
    """The image under a tag, ready to run."""
    return open_image(layout, tag, arch=machine(), name=f"oci:{layout.path}:{tag}")


def _put(layout: Layout, media_type: str, data: bytes) -> Descriptor:
    descriptor = Descriptor(media_type=media_type, digest=Digest.of(data), size=len(data))
    layout.put_blob(descriptor, lambda: iter([data]))
    return descriptor
