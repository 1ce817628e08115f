"""Bytecode layers: what they hold, that they run, and that nobody but the sources and the interpreter decides them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from builder.base.values import LockedBase
from builder.errors import OutsideFailed, Refused
from builder.events import SilentReporter
from builder.image import install
from builder.image.bytecode import bytecode_layer, interpreter, source_size
from builder.image.install import Venv
from builder.image.oci import assemble
from builder.image.packing import GZIP, Packing
from builder.image.preview import preview
from builder.image.splice import wheel_layer
from builder.image.values import BuiltImage, ImagePlan, Layer
from builder.registry.layout import Layout
from builder.store import Store
from tests.base.debs import locked_base
from tests.image.plans import make_plan, make_project
from tests.image.test_oci import open_layout
from tests.image.test_splice import listing, unpacked, wheel_file
from tests.image.wheels import build_wheel

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
VENV = Venv(root="/opt/venv", python=PYTHON)
SITE = f"opt/venv/lib/python{PYTHON}/site-packages"

SOURCES: dict[str, bytes] = {
    "demo/__init__.py": b'"""Says where it is."""\nANSWER = 42\nNAMES = {"b", "a", "c", "d"}\n',
    "demo/sets.py": b'def f(x):\n    return x in {"q", "w", "e", "r", "t", "y"} or x in (1.5, "q", b"z")\n',
    "demo/latin.py": b"# -*- coding: latin-1 -*-\nNAME = '\xe9'\n",
    "demo/escape.py": b'X = "\\d"\n',
    "demo/old.py": b"print 'python 2'\n",
    "demo/not-a-module.py": b"Y = 1\n",
    "demo/data.txt": b"text",
    "demo-1.0.data/scripts/tool.py": b"#!python\nZ = 1\n",
}


class HostPython:
    """This machine's interpreter, as if it were the base's: the paths of the base become those of a folder."""

    def __init__(self, *, seed: str = "0") -> None:
        self.seed = seed
        self.runs = 0

    def run(self, arguments: Sequence[str], *, read: Mapping[str, Path], write: Mapping[str, Path]) -> str:
        self.runs += 1
        with tempfile.TemporaryDirectory() as folder:
            for target, source in {**read, **write}.items():
                place = Path(folder + target)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(source)
            words = [word.replace("/run/builder", f"{folder}/run/builder") for word in arguments]
            environ = {"PATH": os.defpath, "PYTHONHASHSEED": self.seed}
            command = [sys.executable, *words]
            return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def compiled(wheels: Sequence[Path], store: Store, python: HostPython | None = None, packing: Packing = GZIP) -> Layer:
    return bytecode_layer(
        [wheel_file(path) for path in wheels],
        VENV,
        store,
        python=python or HostPython(),
        by="this one",
        title="bytecode",
        reporter=SilentReporter(),
        packing=packing,
    )


def test_every_source_that_compiles_is_there_under_the_name_that_python_looks_for(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files=SOURCES)
    tree = unpacked(compiled([wheel], store), tmp_path / "tree")
    found = {path.relative_to(tree / SITE).as_posix() for path in tree.rglob("*") if path.is_file()}
    tag = f"cpython-{PYTHON.replace('.', '')}"
    assert found == {
        f"demo/__pycache__/{name}.{tag}.pyc" for name in ("__init__", "sets", "latin", "escape", "not-a-module")
    }
    for path in tree.rglob("*.pyc"):
        raw = path.read_bytes()
        source = SOURCES[f"demo/{path.name.split('.')[0]}.py"]
        assert raw[:4] == importlib.util.MAGIC_NUMBER
        assert raw[4:8] == b"\x01\x00\x00\x00", "by hash, unchecked (PEP 552)"
        assert raw[8:16] == importlib.util.source_hash(source)
        assert b"/opt/venv/lib" in raw, "tracebacks name the place in the image"
        assert path.stat().st_mode & 0o777 == 0o644


def test_python_runs_it_in_place_of_the_source(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files=SOURCES)
    tree = unpacked(compiled([wheel], store), tmp_path / "tree")
    unpacked(wheel_layer([wheel_file(wheel)], VENV, store, title="wheel"), tree)
    (tree / SITE / "demo/__init__.py").write_text("raise SystemExit('the source was read')\n")
    program = "import demo, demo.sets; print(demo.ANSWER, demo.sets.f('q'), demo.__cached__.endswith('.pyc'))"
    done = subprocess.run(
        [sys.executable, "-S", "-B", "-c", program],
        env={"PYTHONPATH": str(tree / SITE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "42 True True\n", done.stderr


def test_nothing_but_the_sources_decides_the_bytes(tmp_path: Path, store: Store) -> None:
    """Not the hash seed, the folder, the order of wheels, or what was compiled before."""
    one = build_wheel(tmp_path, files=SOURCES)
    names = {
        f"more/m{n}.py": b"def g(a, b):\n    return a in {'q', 'w'} and {b: 'demo', 'x': (1.5, 'q')}\n"
        for n in range(9)
    }
    two = build_wheel(tmp_path, "more", files=names)
    first = compiled([one], store)
    other = tmp_path / "else where"
    other.mkdir()
    moved = other / one.name
    moved.write_bytes(one.read_bytes())
    assert compiled([moved], Store(other / "store"), HostPython(seed="77")).descriptor == first.descriptor
    both = unpacked(compiled([two, one], store), tmp_path / "both")
    alone = unpacked(first, tmp_path / "alone")
    assert listing(alone).items() <= listing(both).items()
    assert len(listing(both)) == len(listing(alone)) + 9


def test_the_installer_compiles_the_same_when_it_runs_in_another_engine(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files=SOURCES)
    row = {"file": wheel.name, "path": str(wheel), "sha256": wheel_file(wheel).sha256.hex}
    (tmp_path / "wheels.json").write_text(json.dumps([row]))
    options = ["--target=/opt/venv", f"--python={PYTHON}", "--base-python=/usr/bin/python3", "--compile-bytecode"]
    options += [f"--wheels={tmp_path / 'wheels.json'}", f"--destdir={tmp_path / 'out'}"]
    command = [sys.executable, "-I", "-S", "-B", install.__file__, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "5"})
    assert done.stdout == "1 wheels, 12 files, 5 compiled, 1 do not compile\n"
    theirs = listing(tmp_path / "out")
    ours = listing(unpacked(compiled([wheel], store), tmp_path / "ours"))
    assert {path: told for path, told in theirs.items() if path.endswith(".pyc")} == ours
    plain = listing(unpacked(wheel_layer([wheel_file(wheel)], VENV, store, title="wheel"), tmp_path / "plain"))
    assert plain.items() <= theirs.items(), "RECORD and all else stay as they are without bytecode"


def test_a_source_that_another_wheel_replaces_leaves_no_bytecode_behind(tmp_path: Path, store: Store) -> None:
    """Unchecked bytecode runs whatever the source says, so none may stay of a file that is not there any more."""
    one = build_wheel(tmp_path, "one", files={"tests/helper.py": b"X = 1\n", "one.py": b""})
    two = build_wheel(tmp_path, "two", files={"tests/helper.py": b"does not compile\n"})
    made = bytecode_layer(
        [wheel_file(one), wheel_file(two)],
        VENV,
        store,
        python=HostPython(),
        by="this one",
        title="bytecode",
        reporter=SilentReporter(),
        left_out={one.name: frozenset({f"{SITE.removeprefix('opt/venv/')}/tests/helper.py"})},
    )
    names = [path.name for path in unpacked(made, tmp_path / "tree").rglob("*.pyc")]
    assert [name.split(".")[0] for name in names] == ["one"]


def test_a_layer_made_before_needs_no_interpreter(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files=SOURCES)
    python = HostPython()
    first = compiled([wheel], store, python)
    assert compiled([wheel], store, python) == first
    assert python.runs == 1
    assert not list((store.root / "tmp").iterdir())


def test_sources_are_measured_once(tmp_path: Path, store: Store) -> None:
    wheel = build_wheel(tmp_path, files=SOURCES)
    with zipfile.ZipFile(wheel) as archive:
        expected = sum(info.compress_size for info in archive.infolist() if info.filename.endswith(".py"))
    known = wheel_file(wheel)
    assert source_size(known, store) == expected > 0
    wheel.unlink()
    assert source_size(known, store) == expected


# In an image.


@pytest.fixture
def base(tmp_path: Path, store: Store) -> LockedBase:
    return locked_base(tmp_path / "base", store)


def a_plan(tmp_path: Path, base: LockedBase, *, version: str = "1.0") -> ImagePlan:
    folder = tmp_path / f"wheels-{version}"
    folder.mkdir()
    lines = b"".join(b"v%d = %d\n" % (n, n * n * n) for n in range(200_000))
    wheels = [
        build_wheel(folder, "large", files={"large/__init__.py": lines}),
        build_wheel(folder, "small", version, files={"small.py": f"V = {version!r}\n".encode()}),
        build_wheel(folder, "data", files={"data.txt": b"no Python"}),
    ]
    plan = make_plan(make_project(tmp_path).with_layers(bytecode=True), base, wheels)
    return replace(plan, lock=replace(plan.lock, python=PYTHON))


def built(plan: ImagePlan, store: Store, folder: Path, python: HostPython | None) -> BuiltImage:
    return assemble(
        plan,
        target=Layout(folder),
        tag="1",
        store=store,
        reporter=SilentReporter(),
        open_repository=open_layout,
        python=python,
    )


def test_bytecode_lies_in_layers_of_its_own_above_the_wheels(tmp_path: Path, base: LockedBase, store: Store) -> None:
    plan = a_plan(tmp_path, base)
    with_it = built(plan, store, tmp_path / "out", HostPython())
    without = built(replace(plan, project=plan.project.with_layers(bytecode=False)), store, tmp_path / "out", None)
    titles = [layer.title for layer in with_it.layers]
    assert titles[-2:] == ["bytecode of large 1.0", "bytecode of small 1.0"]
    assert with_it.layers[: len(without.layers)] == without.layers, "wheels' layers are the same with and without"
    newer = built(a_plan(tmp_path, base, version="1.1"), store, tmp_path / "out", HostPython())
    before = {layer.descriptor.digest for layer in with_it.layers}
    assert [layer.title for layer in newer.layers if layer.descriptor.digest not in before] == [
        "2 wheels: data, small",
        "bytecode of small 1.1",
    ]
    planned = preview(
        plan.project,
        plan.lock,
        {p.file: p.size or 0 for p in plan.lock.packages},
        store=store,
        reporter=SilentReporter(),
    )
    assert "bytecode of 3 wheels" in planned.layers[-1].title


def test_an_interpreter_of_another_kind_is_refused(tmp_path: Path, base: LockedBase, store: Store) -> None:
    other = Venv(root="/opt/venv", python="3.99")
    with pytest.raises(Refused, match="cannot be compiled for this base") as caught:
        interpreter(HostPython(), base, other, store)
    assert "cpython-399" in caught.value.why
    assert interpreter(HostPython(), base, VENV, store).endswith(sys.version.split()[-1])


def test_bytecode_is_never_left_out_in_silence(tmp_path: Path, base: LockedBase, store: Store) -> None:
    class Broken(HostPython):
        def run(self, arguments: Sequence[str], *, read: Mapping[str, Path], write: Mapping[str, Path]) -> str:
            raise OutsideFailed("the base cannot be started")

    with pytest.raises(OutsideFailed, match="cannot be started"):
        built(a_plan(tmp_path, base), store, tmp_path / "out", Broken())
    assert Layout(tmp_path / "out").tags() == ()
