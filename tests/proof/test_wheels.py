"""Real wheels in a real interpreter's tree: every extension module linked as the real loader links it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.node.values import NodeClass
from builder.proof.loader import Process
from builder.proof.prove import prove
from builder.proof.search import Searcher, SearchRules
from builder.store import Store
from tests.proof.test_loader import ours
from tests.proof.trees import TRIPLET, Tree, put_image, root_of, tar_of

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"/opt/venv/lib/python{VERSION}/site-packages"
WHEELS = ("numpy", "scipy")
BASE = (
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libz.so.1",
    "libexpat.so.1",
)
"""Libraries that manylinux wheels and interpreters may take from the system (PEP 600 and its policies)."""
NODE = NodeClass(name="n", backend="cpu", arch="x86_64", cpu_level="x86-64-v3")


@pytest.fixture
def installed(oracle: Tree) -> Tree:
    """This interpreter, moved to /usr/local, and a virtual environment with numpy and scipy."""
    for name in BASE:
        source = Path(TRIPLET, name)
        if source.exists():
            shutil.copy(source.resolve(), oracle.path(f"{TRIPLET}/{name}"))
    program = oracle.path(f"/usr/local/bin/python{VERSION}")
    program.parent.mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), program)
    library = Path(sysconfig.get_config_var("LIBDIR") or "/", sysconfig.get_config_var("INSTSONAME") or "none.so")
    if library.is_file() and library.suffix != ".a":
        oracle.write(f"/usr/local/lib/{library.name}", library.read_bytes())
        oracle.write(f"{TRIPLET}/{library.name}", library.read_bytes())
    oracle.link("/opt/venv/bin/python", f"/usr/local/bin/python{VERSION}")
    oracle.write("/opt/venv/pyvenv.cfg", "home = /usr/local/bin\n")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--target", str(oracle.path(SITE)), *WHEELS], check=True, capture_output=True)
    return oracle


@pytest.mark.network
def test_modules_link_as_the_real_loader_links_them(installed: Tree, store: Store, tmp_path: Path) -> None:
    root = root_of(installed)
    rules = SearchRules.of_image(root, machine=62, bits=64, env={}, workdir="/", level=3)
    modules = [path for path, item in root.objects() if path.startswith(SITE) and item.kind == "shared"]
    assert len(modules) > 100
    bundled = 0
    for path in modules[::4]:
        process = Process(Searcher(root, rules))
        process.start(path)
        mine = ours(process)
        said = installed.loader_says(path)
        assert {name: found for name, found in mine.items() if name in said} == said, path
        bundled += sum(found is not None and ".libs/" in found for found in said.values())
    # wheels repaired by auditwheel find what they bundle through their RPATH
    assert bundled > 5

    repository, digest = put_image(
        tmp_path / "l", [tar_of(installed.root)], env={"PATH": "/opt/venv/bin"}, entrypoint=["python"]
    )
    found = prove(repository, digest, NODE, store=store, reporter=SilentReporter())
    assert (found.answer, found.reasons) == ("proven", ())

    # without one of the bundled libraries numpy does not import, and the proof says which
    bundle = next(installed.path(f"{SITE}/numpy.libs").glob("libscipy_openblas*"))
    bundle.unlink()
    repository, digest = put_image(
        tmp_path / "l", [tar_of(installed.root)], env={"PATH": "/opt/venv/bin"}, entrypoint=["python"]
    )
    found = prove(repository, digest, NODE, store=store, reporter=SilentReporter())
    assert found.answer == "refused", found.reasons
    required = [fault for fault in found.link.unresolved if fault.weight == "required"]
    assert {(fault.needed, Path(fault.object).name.split(".")[0]) for fault in required} >= {
        (bundle.name, "_multiarray_umath")
    }
    told = {fault.why for fault in required if "_multiarray_umath" in fault.object}
    assert all("imported at /opt/venv/lib/python" in why and "/numpy/" in why for why in told), told
