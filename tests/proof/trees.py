"""Small real file systems made by the C compiler, packed into image layers, and the real loader to compare with."""

from __future__ import annotations

import gzip
import io
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from builder.names import Digest
from builder.proof.elf import read_object
from builder.proof.layers import LayerIndex, index_layer
from builder.proof.rootfs import RootFs
from builder.registry.layout import Layout
from builder.registry.values import BlobSource, Descriptor, Manifest, MediaType

_INSIDE = """
import json, os, sys
os.chroot(sys.argv[1])
os.chdir("/")
os.execve(sys.argv[3], sys.argv[3:], json.loads(sys.argv[2]))
"""
"""Changes the root and starts a program with exactly the environment given."""

LOADER = "/lib64/ld-linux-x86-64.so.2"
VENV = "/opt/venv"
SITE = f"{VENV}/lib/python3.11/site-packages"
SUFFIX = ".cpython-311-x86_64-linux-gnu.so"
TRIPLET = "/lib/x86_64-linux-gnu"


@dataclass
class Tree:
    """A root folder that is filled by compiling into it; `needs` name libraries made before by their SONAME."""

    root: Path
    built: dict[str, Path] = field(default_factory=dict)

    def path(self, path: str) -> Path:
        """The host's path of a path in the tree."""
        return self.root / path.lstrip("/")

    def write(self, path: str, data: str | bytes, *, mode: int = 0o644) -> None:
        """A file."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        target.chmod(mode)

    def link(self, path: str, target: str) -> None:
        """A symlink."""
        place = self.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def system(self) -> Tree:
        """The host's loader and C library, at Debian's places."""
        for name in ("libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6"):
            target = self.path(f"{TRIPLET}/{name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(TRIPLET, name).resolve(), target)
        self.link(LOADER, f"..{TRIPLET}/ld-linux-x86-64.so.2")
        return self

    def library(
        self,
        path: str,
        *,
        needs: Iterable[str] = (),
        flags: Sequence[str] = (),
        code: str = "",
        soname: str | None = None,
    ) -> None:
        """A shared library at `path` whose SONAME is its file name unless told."""
        name = soname if soname is not None else Path(path).name
        body = code or f"int f_{re.sub('[^a-z0-9]', '_', Path(path).name)}(void) {{ return 1; }}"
        extra = [f"-Wl,-soname,{name}"] if name else []
        self._compile(path, body, ["-shared", "-fPIC", *extra, *flags], needs)
        self.built[name or Path(path).name] = self.path(path)

    def program(self, path: str, *, needs: Iterable[str] = (), flags: Sequence[str] = ()) -> None:
        """A program that does nothing."""
        self._compile(path, "int main(void) { return 0; }", list(flags), needs)

    def python(self) -> Tree:
        """A program called python3.11 and a virtual environment on it; it runs nothing."""
        self.program("/usr/bin/python3.11")
        self.link(f"{VENV}/bin/python", "/usr/bin/python3.11")
        self.write(f"{VENV}/pyvenv.cfg", "home = /usr/bin\n")
        return self

    def module(self, path: str, *, needs: Iterable[str] = (), flags: Sequence[str] = ()) -> None:
        """An extension module in site-packages, for Python 3.11; `path` without suffix."""
        name = posixpath.basename(path)
        code = f"void *PyInit_{name}(void) {{ return 0; }}"
        self.library(f"{SITE}/{path}{SUFFIX}", needs=needs, flags=flags, code=code, soname="")

    def distribution(self, name: str, *files: str, requires: Iterable[str] = ()) -> None:
        """Metadata of a distribution that owns these files of site-packages."""
        folder = f"{SITE}/{name}-1.0.dist-info"
        lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {item}" for item in requires)]
        self.write(f"{folder}/METADATA", "Metadata-Version: 2.1\n" + "\n".join(lines) + "\n\nText: no field\n")
        self.write(f"{folder}/RECORD", "".join(f"{file},sha256=x,1\n" for file in files))

    def _compile(self, path: str, code: str, flags: list[str], needs: Iterable[str]) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        linked = [str(self.built[name]) for name in needs]
        command = ["gcc", "-x", "c", "-", "-x", "none", "-o", str(target), "-O0", "-Wl,--no-as-needed"]
        command += ["-Wl,--allow-shlib-undefined", "-Wl,--unresolved-symbols=ignore-all", *flags, *linked]
        subprocess.run(command, input=code.encode(), check=True, capture_output=True)

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the tree with the tree as its root and `/` as its working folder."""
        inside = [sys.executable, "-c", _INSIDE, str(self.root), json.dumps(dict(env or {})), *command]
        if os.geteuid() != 0:
            inside = ["unshare", "--user", "--map-root-user", *inside]
        return subprocess.run(inside, capture_output=True, text=True, check=False)

    def loader_says(self, path: str, *, env: Mapping[str, str] | None = None) -> dict[str, str | None]:
        """What the real loader of the tree finds for `path`: name to file, None when not found."""
        done = self.run(LOADER, path, env={"LD_TRACE_LOADED_OBJECTS": "1", **(env or {})})
        if not done.stdout:
            raise AssertionError(f"the loader printed nothing: {done.stderr}")
        found: dict[str, str | None] = {}
        for line in done.stdout.splitlines():
            match = re.fullmatch(r"\s*(\S+) => (?:(not found)|(\S+) \(0x[0-9a-f]+\))", line)
            by_path = re.fullmatch(r"\s*(\S+) \(0x[0-9a-f]+\)", line)
            if match:
                found[match[1]] = None if match[2] else posixpath.join("/", match[3])
            elif by_path and by_path[1] not in (LOADER, "linux-vdso.so.1"):
                found[by_path[1]] = posixpath.join("/", by_path[1])
        return found


def tar_of(root: Path, *, extra: Iterable[tarfile.TarInfo] = ()) -> bytes:
    """The folder as an uncompressed tar."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, str(path.relative_to(root)), recursive=False)
        for info in extra:
            tar.addfile(info)
    return raw.getvalue()


def whiteout(path: str) -> tarfile.TarInfo:
    """An empty file of that name."""
    return tarfile.TarInfo(path)


Compress = Callable[[bytes], bytes]


def _source(data: bytes) -> BlobSource:
    return lambda: iter([data])


def put_image(
    layout: Path,
    tars: Sequence[bytes],
    *,
    env: Mapping[str, str] | None = None,
    entrypoint: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    architecture: str = "amd64",
    tag: str = "t",
    compress: Compress = lambda tar: gzip.compress(tar, 1),
    media_type: str = MediaType.LAYER_GZIP,
) -> tuple[Layout, Digest]:
    """An image of these layers in an OCI layout."""
    repository = Layout(layout)
    layers = []
    for tar in tars:
        blob = compress(tar)
        descriptor = Descriptor(media_type=media_type, digest=Digest.of(blob), size=len(blob))
        repository.put_blob(descriptor, _source(blob))
        layers.append(descriptor)
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in (env or {}).items()],
                "Entrypoint": list(entrypoint),
                "Labels": dict(labels or {}),
            },
            "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(tar)) for tar in tars]},
        }
    ).encode()
    described = Descriptor(media_type=MediaType.CONFIG, digest=Digest.of(config), size=len(config))
    repository.put_blob(described, _source(config))
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MediaType.MANIFEST,
            "config": described.to_json(),
            "layers": [layer.to_json() for layer in layers],
        }
    ).encode()
    return repository, repository.put_manifest(Manifest(MediaType.MANIFEST, manifest), tag=tag).digest


def can_run_inside(tree: Tree) -> str:
    """Empty when a program can be run with the tree as its root, else why not."""
    done = tree.run(LOADER, "--version")
    return "" if done.returncode == 0 else f"cannot change the root here: {done.stderr.strip()}"


def root_of(tree: Tree) -> RootFs:
    """The tree as one layer, indexed as an image's would be."""
    return RootFs.of([index_of(tar_of(tree.root))])


def index_of(tar: bytes) -> LayerIndex:
    """The index of an uncompressed layer."""
    layer = Descriptor(media_type=MediaType.LAYER_TAR, digest=Digest.of(tar), size=len(tar))
    with tempfile.TemporaryDirectory() as folder:
        return index_layer(io.BytesIO(tar), layer, read=read_object, spool=Path(folder, "spool"))
