"""A base in a layout, a small project, and every docker client of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.base.values import LockedBase
from builder.image.buildah import Buildah
from builder.image.docker_cli import Docker
from builder.image.values import ImagePlan
from builder.matrix.values import RunLine, Runtime
from builder.names import parse_ref
from builder.project.values import CopyRule
from builder.registry.layout import Layout
from tests.image.plans import make_plan, make_project
from tests.image.wheels import File, build_wheel
from tests.services import program
from tests.smoke import images


def clients() -> list[str]:
    """Every docker client on PATH, first one first."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = [shutil.which("docker", path=folder) for folder in folders]
    return list(dict.fromkeys(os.path.realpath(path) for path in found if path)) or ["docker"]


@pytest.fixture(params=clients())
def client(request: pytest.FixtureRequest) -> str:
    path: str = request.param
    return path


@pytest.fixture
def environ(docker_host: str, tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": docker_host}


@pytest.fixture
def docker(environ: dict[str, str]) -> Docker:
    return Docker.find(environ)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> LockedBase:
    """A base with this machine's Python, in a layout; its settings must be taken over."""
    folder = tmp_path_factory.mktemp("docker-base")
    root = folder / "root"
    root.mkdir()
    images.base_root(root)
    (root / "mnt").mkdir()
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    config = {"User": "65534", "Entrypoint": ["/no/such/program"], "Env": ["PATH=/base/bin", "FROM_BASE=1"]}
    made = images.write_image(
        Layout(folder / "layout"), [images.tar_of_folder(root)], tag="base", labels={"base": "label"}, config=config
    )
    return LockedBase(
        reference=f"oci:{folder / 'layout'}:base",
        digest=made.digest,
        python="3.11",
        python_path=images.PYTHON,
        glibc="2.36",
    )


@pytest.fixture
def plan(tmp_path: Path, base: LockedBase) -> ImagePlan:
    """Wheels of several kinds and an application with a link, modes and hard values."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheels = [
        build_wheel(
            folder,
            "demo",
            files={
                "demo/__init__.py": b"def main():\n    print('hello from the image')\n",
                "demo/data.bin": bytes(range(256)) * 400,
                "demo/tool.sh": File(b"#!/bin/sh\n", mode=0o755),
                "demo-1.0.data/scripts/helper": b"#!python\nprint('help')\n",
                "demo-1.0.data/data/share/demo/readme": b"read me",
            },
            entry_points="[console_scripts]\ndemo = demo:main\n",
        ),
        build_wheel(folder, "other", files={"other/__init__.py": b"", "other/py.typed": b""}),
    ]
    root = tmp_path / "project"
    (root / "app").mkdir(parents=True)
    (root / "app/run.sh").write_text("#!/bin/sh\n")
    (root / "app/run.sh").chmod(0o775)
    (root / "app/notes").write_text("x")
    (root / "app/notes").chmod(0o600)
    (root / "app/link").symlink_to("notes")
    (root / "scratch").write_text("y")
    project = make_project(
        root,
        copy=[CopyRule(source="app", target="/app"), CopyRule(source="scratch", target="/tmp/scratch")],
        entrypoint=("demo",),
        env={"PRICE": '$5 and "more" \\n'},
        labels={"com.example": 'a "b" $c'},
    )
    return make_plan(project, base, wheels, arch=images.machine(), runtime=Runtime(env={"X": "1"}, run=RunLine()))


def open_repository(reference: object) -> Layout:
    parsed = parse_ref(str(reference))
    return Layout(parsed.path)  # type: ignore[union-attr]


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    """buildah with a storage of its own, which works inside a container too."""
    if os.geteuid() != 0:
        pytest.skip("buildah's chroot isolation without user namespaces needs root")
    conf = tmp_path / "storage.conf"
    folders = {name: tmp_path / f"buildah-{name}" for name in ("run", "root")}
    conf.write_text(f'[storage]\ndriver = "vfs"\nrunroot = "{folders["run"]}"\ngraphroot = "{folders["root"]}"\n')
    environ = {
        "PATH": f"{Path(program('buildah')).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CONTAINERS_STORAGE_CONF": str(conf),
        "BUILDAH_ISOLATION": "chroot",
    }
    found = Buildah.find(environ)
    yield found
    subprocess.run([found.program, "rmi", "--all", "--force"], env=environ, capture_output=True, check=False)
