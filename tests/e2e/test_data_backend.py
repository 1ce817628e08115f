"""A backend is data: tables, policy rows, a template and a table of checks make one, and no line of Python.

The data of this repository is copied, what a made-up accelerator needs is added to the copy, and the program runs on
it unchanged: the package itself is a link. The last tests do the same with the backend `hpu`, as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder import resources
from builder.registry.layout import Layout
from tests.audit.make import library
from tests.conftest import RunBuilder
from tests.e2e.index import Index
from tests.image.wheels import File, build_wheel
from tests.schemas import document, error
from tests.smoke.images import entry, tar_of, write_image

BACKEND = """\
title = "Example accelerator"
toolkit = "EXA"
targets = "exact"
prefer = ["exa-math"]
default_index = true
vendor_base = true
wheels = "EXA's wheels are handed out by its maker"
checked = 2026-11-30
source = "Example handbook"

[runtime]
source = "Example handbook"

[runtime.env]
EXA_TOOLKIT = "{toolkit}"

[runtime.run]
devices = ["/dev/exa0"]
"""

SETS = """\
kind = "set"
title = "exa-math"
key = ["set"]
columns = ["set", "packages", "toolkit", "python", "arch"]
lead = "exa-math"

[sources.handbook]
text = "Example handbook, table 1"
checked = 2026-11-30

[[rows]]
set = "exa-math-2"
packages = { exa-math = "2.0" }
toolkit = "5.0"
python = ["3.11"]
arch = ["x86_64"]
source = "handbook"
confidence = "primary"
"""

CLASSES = """\
kind = "nodeclass"
title = "Example machines"
key = ["name"]
columns = ["name", "backend", "arch", "device_arch"]

[sources.handbook]
text = "Example handbook, table 4"
checked = 2026-11-30

[[rows]]
name = "exa-small"
backend = "exa"
arch = "x86_64"
device_arch = "exa-a"
source = "handbook"
confidence = "primary"
"""

CHECKS = """\
[frameworks.exa-math]
module = "numpy"
device = "exa"
imports = ["exa_math"]

[[check]]
name = "device"
program = "common/device_nodes.py"

[check.options]
nodes = [["/dev/exa0"]]

[[check]]
name = "matmul"
program = "common/matmul.py"
needs = ["device"]
frameworks = ["exa-math"]
"""

LIBRARY = """
[[library]]
stem = "libexart"
backend = "exa"
role = "runtime"
source = "Example handbook"
"""

PACKAGE = """
[[package]]
pattern = "exa-*"
backend = "exa"
source = "Example handbook"
"""

PROJECT = """\
name = "svc"
version = "1.0"
python = "3.11"
base = "{base}"

[image]
entrypoint = ["python", "-m", "svc"]

[backend.{backend}]
requirements = [{requirements}]

[backend.cpu]
requirements = [{requirements}]
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """A folder that holds the program and its data, and a base image."""

    root: Path
    base: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What makes `python -m builder` the program there."""
        return {"PYTHONPATH": str(self.root)}

    def project(self, backend: str, *requirements: str) -> Path:
        """A project for one backend, and for cpu; its folder."""
        folder = self.root / "project"
        folder.mkdir(exist_ok=True)
        quoted = ", ".join(f'"{line}"' for line in requirements)
        text = PROJECT.format(base=self.base, backend=backend, requirements=quoted)
        (folder / "builder.toml").write_text(text, encoding="utf-8")
        return folder


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """The program with a copy of its data, and an image that has a Python and a C library."""
    root = tmp_path / "ground"
    root.mkdir()
    without = shutil.ignore_patterns("_data", "__pycache__")  # an installed package would take the data inside it
    shutil.copytree(Path(resources.__file__).parent, root / "builder", ignore=without)
    for folder in (resources.matrices_dir(), resources.dockerfiles_dir(), resources.checks_dir()):
        shutil.copytree(folder, root / folder.name)
    libc = Path("/lib/x86_64-linux-gnu/libc.so.6").read_bytes()
    layer = tar_of(
        [
            entry("usr/bin/python3.11", b"#!", mode=0o755),
            entry("usr/lib/x86_64-linux-gnu/libc.so.6", libc, mode=0o755),
        ]
    )
    write_image(Layout(tmp_path / "base"), [layer], tag="1", arch="x86_64")
    return Ground(root=root, base=f"oci:{tmp_path}/base:1")


def add_example(root: Path) -> None:
    """The four parts of a backend named `exa`."""
    tables = root / "matrices" / "exa"
    tables.mkdir()
    (tables / "backend.toml").write_text(BACKEND, encoding="utf-8")
    (tables / "sets.toml").write_text(SETS, encoding="utf-8")
    (root / "matrices/nodeclasses/exa.toml").write_text(CLASSES, encoding="utf-8")
    shutil.copy(root / "dockerfiles/xpu.Dockerfile.j2", root / "dockerfiles/exa.Dockerfile.j2")
    (root / "checks/exa").mkdir()
    (root / "checks/exa/checks.toml").write_text(CHECKS, encoding="utf-8")
    for name, text in (("libraries", LIBRARY), ("packages", PACKAGE)):
        with (root / f"checks/policies/{name}.toml").open("a", encoding="utf-8") as file:
            file.write(text)


def native_wheel(folder: Path, name: str, version: str, soname: str, tag: str) -> Path:
    """A wheel whose module needs a shared library."""
    extension = library(folder / "build", "_core.so", needs=(soname,))
    module = name.replace("-", "_")
    files = {
        f"{module}/__init__.py": File(b""),
        f"{module}/_core.cpython-311-x86_64-linux-gnu.so": File(extension.read_bytes()),
    }
    return build_wheel(folder, module, version, files=files, tag=tag)


def test_a_made_up_backend_is_locked_audited_rendered_and_built(
    ground: Ground, run_builder: RunBuilder, index: Index, tmp_path: Path
) -> None:
    add_example(ground.root)
    environment = {**ground.environment, **index.environment()}
    wheel = native_wheel(tmp_path, "exa-math", "2.0", "libexart.so.5", "cp311-cp311-manylinux_2_17_x86_64")
    index.wheels[wheel.name] = wheel.read_bytes()
    folder = ground.project("exa", "exa-math")

    locked = run_builder("lock", "--backend", "exa", "--json", env=environment, cwd=folder)
    assert locked.returncode == 0, locked.stderr
    found = document(locked, "lock")
    assert (found["toolkit"], [package["version"] for package in found["packages"]]) == ("5.0", ["2.0"])
    assert "EXA's wheels are handed out by its maker" in locked.stderr

    refused = document(run_builder("lock", "--backend", "cpu", "--json", env=environment, cwd=folder), "lock")
    assert [(item["package"], item["backend"]) for item in refused["blocked"]] == [("exa-math", "exa")]

    audited = run_builder("audit", "pylock.exa.toml", "--json", env=environment, cwd=folder)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert document(audited, "audit")["targets"][0]["level"] == "ok"
    foreign = run_builder("audit", wheel, "--backend", "cpu", "--json", env=environment, cwd=folder)
    assert foreign.returncode == 1
    assert document(foreign, "audit")["targets"][0]["findings"][0]["backend"] == "exa"

    rendered = document(
        run_builder("dockerfile", "--backend", "exa", "--json", env=environment, cwd=folder), "dockerfile"
    )
    assert 'EXA_TOOLKIT="5.0"' in rendered["dockerfile"]
    assert "--device=/dev/exa0" in rendered["run"]

    built = run_builder(
        "build",
        "--backend",
        "exa",
        "--no-smoke",
        "--to",
        "oci:out:1",
        "--json",
        env=environment,
        cwd=folder,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert document(built, "build")["verdict"] == "built"


def test_gaudi_is_locked_from_its_makers_archive(ground: Ground, run_builder: RunBuilder, index: Index) -> None:
    links = ground.root / "archive"
    links.mkdir()
    plugin = native_wheel(links, "habana-torch-plugin", "1.23.0.695", "libSynapse.so.1", "cp311-cp311-linux_x86_64")
    built = "2.9.0+hpu.1.23.0.695"
    torch = build_wheel(links, "torch", built, files={"torch/__init__.py": File(b"")}, tag="cp311-cp311-linux_x86_64")
    index.add("torch", "2.9.0")
    environment = {**ground.environment, **index.environment(), "UV_FIND_LINKS": str(links)}
    folder = ground.project("hpu", "habana-torch-plugin==1.23.*", "torch")
    trapped = document(run_builder("lock", "--backend", "hpu", "--json", env=environment, cwd=folder), "lock")
    assert [item["package"] for item in trapped["blocked"]] == ["torch"]
    assert "torch==2.9.0+hpu*" in trapped["blocked"][0]["fix"]

    folder = ground.project("hpu", "habana-torch-plugin==1.23.*", f"torch=={built}")
    locked = run_builder("lock", "--backend", "hpu", "--json", env=environment, cwd=folder)
    assert locked.returncode == 0, locked.stdout + locked.stderr
    found = document(locked, "lock")
    assert (found["toolkit"], sorted(package["file"] for package in found["packages"])) == (
        "1.23.0",
        sorted([plugin.name, torch.name]),
    )
    audited = run_builder("audit", "pylock.hpu.toml", "--json", env=environment, cwd=folder)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    rendered = document(
        run_builder("dockerfile", "--backend", "hpu", "--json", env=environment, cwd=folder), "dockerfile"
    )
    assert 'HABANA_VISIBLE_DEVICES="all"' in rendered["dockerfile"]
    assert "--runtime=habana" in rendered["run"]


def test_without_the_archive_the_lock_says_where_the_wheels_are(
    ground: Ground, run_builder: RunBuilder, index: Index
) -> None:
    folder = ground.project("hpu", "habana-torch-plugin")
    environment = {**ground.environment, **index.environment()}
    result = run_builder("lock", "--backend", "hpu", "--json", env=environment, cwd=folder)
    assert error(result, 2)["what"] == "no index has a package named habana-torch-plugin"
    assert "gaudi-pt-modules" in result.stderr
    assert "UV_FIND_LINKS=FOLDER" in result.stderr


def test_names_that_a_maker_took_over_are_at_home_in_its_images(run_builder: RunBuilder, tmp_path: Path) -> None:
    wheel = native_wheel(tmp_path, "torch", "2.10.0+das.dtk2604", "librocblas.so.4", "cp311-cp311-linux_x86_64")
    levels = {}
    for backend in ("dtk", "cuda"):
        audited = run_builder("audit", wheel, "--backend", backend, "--json")
        levels[backend] = document(audited, "audit")["targets"][0]["level"]
    assert levels == {"dtk": "ok", "cuda": "block"}


def test_without_a_known_image_the_base_must_be_named(ground: Ground, run_builder: RunBuilder, index: Index) -> None:
    folder = ground.project("dtk", "torch==2.10.0+das.dtk2604")
    text = (folder / "builder.toml").read_text(encoding="utf-8")
    (folder / "builder.toml").write_text(text.replace(f'base = "{ground.base}"\n', ""), encoding="utf-8")
    environment = {**ground.environment, **index.environment()}
    found = error(run_builder("lock", "--backend", "dtk", "--json", env=environment, cwd=folder), 4)
    assert found["what"] == "no base image is known for this dtk stack"
    assert "base = " in found["fix"]


def test_a_platform_is_told_apart_from_a_backend(run_builder: RunBuilder) -> None:
    found = error(run_builder("lock", "--backend", "hggc", "--json"), 2)
    assert found["what"] == "no image is built for hggc"
    assert "builder matrix explain --backend hggc" in found["fix"]
