"""A base's tag that was published again, on the real registry: said with what differs, and not followed (FR-06)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.base.drift import Difference, package_drift
from builder.base.oci import lock_oci
from builder.base.values import DebPackage, LockedBase
from builder.errors import BadInput
from builder.events import SilentReporter
from builder.image.base_layers import base_image
from builder.lock.files import write_lock
from builder.names import Digest, RegistryRef
from builder.node import NodeClass
from builder.node.classes import class_file_text
from builder.registry import open_repository
from builder.registry.copy import copy
from builder.registry.layout import Layout
from builder.registry.values import Manifest, Repository
from builder.store import Store
from tests.conftest import RunBuilder
from tests.dockerfile.plans import make_plan
from tests.image.bases import ROOTFS, put_image
from tests.schemas import document, error

OLD = "cuda>=11.8 brand=tesla,driver>=450,driver<451"
NEW = "cuda>=11.8 brand=tesla,driver>=470,driver<471"

NODE = NodeClass(
    name="t4-old",
    backend="cuda",
    arch="x86_64",
    device="Tesla T4",
    device_arch="sm_75",
    driver="450.80.02",
    source="a pool of ours",
)


class Published:
    """A base under one tag of the real registry, and a project whose lock holds it."""

    def __init__(self, host: str, folder: Path, store: Store) -> None:
        self.reference = RegistryRef(host, f"base/{uuid.uuid4().hex[:12]}", "11.8")
        self.layout, self.store = Layout(folder / "made"), store
        self.project = folder / "project"
        self.first = self.publish(OLD)
        self.project.mkdir()
        (self.project / "builder.toml").write_text('name = "demo"\nversion = "1"\nrequirements = ["numpy"]\n')
        self.write_node(NODE)
        self.base = lock_oci(
            self.reference, self.repository, python="3.11", arch="x86_64", store=store, reporter=SilentReporter()
        )
        write_lock(replace(make_plan("cuda").lock, base=self.base), self.project)

    def write_node(self, node: NodeClass) -> None:
        (self.project / "t4-old.toml").write_text(class_file_text(node, checked="2026-11-30"))

    @property
    def repository(self) -> Repository:
        return open_repository(self.reference, environ={}, reporter=SilentReporter())

    def publish(self, require: str) -> Manifest:
        env = ("PATH=/usr/bin", f"NVIDIA_REQUIRE_CUDA={require}")
        made = put_image(self.layout, self.store, [ROOTFS, {"etc/note": require.encode()}], env=env)
        target = self.repository
        before = target.resolve("11.8")
        copy(self.layout, target, made.digest, reporter=SilentReporter())
        target.move_tag("11.8", made.digest, expected=before.digest if before else None)
        return made


@pytest.fixture
def published(registry_host: str, tmp_path: Path, store: Store) -> Published:
    return Published(registry_host, tmp_path, store)


def drift(run_builder: RunBuilder, published: Published, *more: str) -> tuple[int, dict[str, Any]]:
    words = ("base", "drift", "--backend", "cuda", "--node-class", "t4-old.toml", "--json", *more)
    done = run_builder(*words, cwd=published.project)
    return done.returncode, document(done, "base-drift")


@pytest.mark.registry
def test_a_tag_that_stayed_is_the_same(run_builder: RunBuilder, published: Published) -> None:
    code, found = drift(run_builder, published)
    assert (code, found["verdict"], found["differences"], found["nodes"]) == (0, "same", [], [])


@pytest.mark.registry
def test_a_tag_published_again_is_said_with_what_it_asks_of_the_node(
    run_builder: RunBuilder, published: Published
) -> None:
    second = published.publish(NEW)
    code, found = drift(run_builder, published)
    assert (code, found["verdict"], found["kept"]) == (1, "drifted", True)
    assert (found["base"]["locked"], found["base"]["now"]) == (str(published.first.digest), str(second.digest))
    assert found["differences"] == [{"kind": "env", "name": "NVIDIA_REQUIRE_CUDA", "locked": OLD, "now": NEW}]
    (node,) = found["nodes"]
    assert (node["node_class"], node["verdict"]) == ("t4-old", "unsupported")
    assert NEW in node["why"]
    text = run_builder("base", "drift", "--backend", "cuda", "--node-class", "t4-old.toml", cwd=published.project)
    assert f"locked: {OLD}" in text.stdout
    assert "builds go on with the locked base" in text.stdout
    assert "builder lock --backend cuda --upgrade" in text.stdout


@pytest.mark.registry
def test_a_build_keeps_the_locked_base_when_the_tag_moves(published: Published, tmp_path: Path) -> None:
    published.publish(NEW)
    fresh = Store(tmp_path / "elsewhere")  # another machine, which never saw the base
    made = base_image(
        published.base, "x86_64", fresh, SilentReporter(), open_repository=lambda reference: published.repository
    )
    assert f"NVIDIA_REQUIRE_CUDA={OLD}" in made.config["config"]["Env"]


@pytest.mark.registry
def test_without_the_node_s_driver_nothing_is_promised(run_builder: RunBuilder, published: Published) -> None:
    published.publish(NEW)
    published.write_node(replace(NODE, driver=None))
    _, found = drift(run_builder, published)
    assert [node["verdict"] for node in found["nodes"]] == ["unknown"]


def test_a_locked_image_that_is_gone_cannot_be_compared(run_builder: RunBuilder, tmp_path: Path, store: Store) -> None:
    layout = Layout(tmp_path / "bases")
    put_image(layout, store, [ROOTFS])
    project = tmp_path / "project"
    project.mkdir()
    (project / "builder.toml").write_text('name = "demo"\nversion = "1"\nrequirements = ["numpy"]\n')
    base = LockedBase(
        reference=f"oci:{layout.path}:base",
        digest=Digest.of(b"gone"),
        python="3.11",
        python_path="/usr/bin/python3.11",
        glibc="2.36",
    )
    write_lock(replace(make_plan("cuda").lock, base=base), project)
    done = run_builder("base", "drift", "--backend", "cuda", "--json", cwd=project)
    found = document(done, "base-drift")
    assert (done.returncode, found["compared"], found["kept"], found["differences"]) == (1, False, False, [])
    text = run_builder("base", "drift", "--backend", "cuda", cwd=project)
    assert "neither in the registry nor in the store" in text.stdout


def test_packages_of_the_built_in_base_are_compared_one_by_one() -> None:
    def base(**versions: str) -> LockedBase:
        packages = tuple(
            DebPackage(name=name, version=version, architecture="amd64", sha256=Digest.of(b""), size=1, url="u")
            for name, version in sorted(versions.items())
        )
        return LockedBase(
            reference="debian:bookworm",
            digest=Digest.of(repr(versions).encode()),
            python="3.11",
            python_path="/usr/bin/python3.11",
            glibc="2.36",
            packages=packages,
        )

    found = package_drift(base(libc6="2.36-9", openssl="3.0.1", tzdata="1"), base(libc6="2.36-9", openssl="3.0.2"))
    assert found.moved
    assert found.differences == (
        Difference(kind="package", name="openssl", locked="3.0.1", now="3.0.2"),
        Difference(kind="package", name="tzdata", locked="1", now=None),
    )


def test_a_project_without_a_lock_is_told_so(run_builder: RunBuilder, tmp_path: Path) -> None:
    (tmp_path / "builder.toml").write_text('name = "demo"\nversion = "1"\nrequirements = ["numpy"]\n')
    assert (
        "builder lock" in error(run_builder("base", "drift", "--backend", "cuda", "--json"), BadInput.exit_code)["fix"]
    )
