"""The rules of installing a wheel, held against pip on real wheels and against the program's own output."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import os
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
