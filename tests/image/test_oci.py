"""The built-in engine: whole images in a layout, on the built-in base and on OCI bases."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.base.resolve import OpenRepository, resolve_base
from builder.base.values import LockedBase
from builder.errors import BadInput, CannotTell, OutsideFailed, Refused
from builder.events import SilentReporter
from builder.image.config import settings
from builder.image.oci import assemble
from builder.image.values import BuiltImage, ImagePlan
from builder.matrix.values import RunLine, Runtime
from builder.names import Digest, LayoutRef, Reference, RegistryRef, parse_ref
from builder.project.values import CopyRule
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json
from builder.registry.open import open_repository
from builder.registry.values import BlobSource, Descriptor, Manifest, MediaType, Repository
from builder.store import Store
from tests.base.debs import LIBC, locked_base
from tests.image.bases import ROOTFS, put_image
from tests.image.plans import make_plan, make_project
from tests.image.wheels import build_wheel


def open_layout(reference: Reference) -> Repository:
    assert isinstance(reference, LayoutRef)
    return Layout(reference.path)


def build(
    plan: ImagePlan, target: Repository, store: Store, *, tag: str | None = "1.0", reference: Reference | None = None
) -> BuiltImage:
    return assemble(
        plan,
        target=target,
        tag=tag,
        store=store,
        reporter=SilentReporter(),
        reference=reference,
        open_repository=open_layout,
    )


@pytest.fixture
def base(tmp_path: Path, store: Store) -> LockedBase:
    return locked_base(tmp_path / "base", store)


def a_plan(root: Path, base: LockedBase, runtime: Runtime | None = None) -> ImagePlan:
    wheels = root / "wheels"
    wheels.mkdir(parents=True)
    (root / "app").mkdir()
    (root / "app/main.py").write_text("print('hello')\n")
    built = [
        build_wheel(wheels, "big", files={"big/data.bin": bytes(range(256)) * 9000}),
        build_wheel(
            wheels, "small", files={"small.py": b"x = 1\n"}, entry_points="[console_scripts]\nsmall = small:x\n"
        ),
        build_wheel(wheels, "tiny", files={"tiny.py": b"y = 1\n"}),
    ]
    project = make_project(
        root,
        copy=[CopyRule(source="app", target="/app")],
        env={"MODE": "test"},
        labels={"team": "vision"},
    )
    return make_plan(project, base, built, runtime=runtime)


def read_json(layout: Layout, digest: Digest) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(b"".join(layout.read_blob(digest)))
    return value


def test_the_image_is_complete_and_described(tmp_path: Path, base: LockedBase, store: Store) -> None:
    target = Layout(tmp_path / "out")
    plan = a_plan(tmp_path / "project", base)
    built = build(plan, target, store, reference=LayoutRef(tmp_path / "out"))
    assert built.reference == f"oci:{tmp_path / 'out'}:1.0@{built.digest}"
    resolved = target.resolve("1.0")
    assert resolved is not None
    assert resolved.digest == built.digest
    manifest = read_json(target, built.digest)
    config = read_json(target, Digest.parse(manifest["config"]["digest"]))
    assert [layer["digest"] for layer in manifest["layers"]] == [str(layer.descriptor.digest) for layer in built.layers]
    assert config["rootfs"]["diff_ids"] == [str(layer.diff_id) for layer in built.layers]
    assert len(config["history"]) == len(built.layers)
    assert built.size == manifest["config"]["size"] + sum(layer["size"] for layer in manifest["layers"])
    titles = [layer.title for layer in built.layers]
    assert titles[0] == "debian:bookworm"
    assert titles[-1] == "app in /app"
    assert config["architecture"] == "amd64"
    assert config["created"] == plan.created
    run = config["config"]
    assert run["Env"][:2] == [
        "PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "VIRTUAL_ENV=/opt/venv",
    ]
    assert "MODE=test" in run["Env"]
    assert (run["User"], run["WorkingDir"], run["Entrypoint"]) == ("10001:10001", "/app", ["python", "/app/main.py"])
    for place in (run["Labels"], manifest["annotations"]):
        assert place["org.opencontainers.image.title"] == "demo"
        assert place["team"] == "vision"
        assert place["org.opencontainers.image.base.name"] == "debian:bookworm"
    assert manifest["annotations"]["org.opencontainers.image.created"] == plan.created


def test_same_inputs_same_digest_in_another_place(tmp_path: Path, base: LockedBase, store: Store) -> None:
    first = build(a_plan(tmp_path / "one", base), Layout(tmp_path / "out1"), store)
    other = Store(tmp_path / "other store")
    shutil.copytree(store.root / "sha256", other.root / "sha256")
    second = build(a_plan(tmp_path / "two two", base), Layout(tmp_path / "out2"), other)
    assert first.digest == second.digest


def test_a_changed_line_of_the_application_changes_the_last_layer_only(
    tmp_path: Path, base: LockedBase, store: Store
) -> None:
    target = Layout(tmp_path / "out")
    plan = a_plan(tmp_path / "project", base)
    before = build(plan, target, store)
    (tmp_path / "project/app/main.py").write_text("print('changed')\n")
    after = build(plan, target, store)
    assert before.layers[:-1] == after.layers[:-1]
    assert before.digest != after.digest


class _Failing:
    """A repository that breaks at one blob; otherwise the layout it wraps."""

    def __init__(self, layout: Layout, after: int) -> None:
        self._layout = layout
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layout, name)

    def put_blob(self, descriptor: Descriptor, source: BlobSource, *, mount_from: str | None = None) -> bool:
        self._left -= 1
        if self._left < 0:
            raise OutsideFailed("the disk is gone")
        return self._layout.put_blob(descriptor, source, mount_from=mount_from)


@pytest.mark.parametrize("after", range(4))
def test_a_failed_push_leaves_no_tag(tmp_path: Path, base: LockedBase, store: Store, after: int) -> None:
    layout = Layout(tmp_path / "out")
    plan = a_plan(tmp_path / "project", base)
    with pytest.raises(OutsideFailed, match="the disk is gone"):
        build(plan, _Failing(layout, after), store)
    assert layout.tags() == ()
    assert layout.resolve("1.0") is None
    assert build(plan, layout, store).digest


def test_a_damaged_wheel_stops_the_build_without_an_image(tmp_path: Path, base: LockedBase, store: Store) -> None:
    layout = Layout(tmp_path / "out")
    plan = a_plan(tmp_path / "project", base)
    path = plan.wheelhouse.files["big-1.0-py3-none-any.whl"]
    raw = bytearray(path.read_bytes())
    raw[200] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(BadInput, match="is damaged"):
        build(plan, layout, store)
    assert layout.tags() == ()


def test_wheels_that_were_not_fetched_are_named(tmp_path: Path, base: LockedBase, store: Store) -> None:
    plan = a_plan(tmp_path / "project", base)
    files = dict(plan.wheelhouse.files)
    del files["tiny-1.0-py3-none-any.whl"]
    poor = replace(plan, wheelhouse=replace(plan.wheelhouse, files=files))
    with pytest.raises(BadInput, match="1 locked wheels are not in the wheelhouse") as caught:
        build(poor, Layout(tmp_path / "out"), store)
    assert "tiny-1.0" in caught.value.why


def test_setup_files_are_sourced_before_the_entrypoint(tmp_path: Path, base: LockedBase) -> None:
    script = tmp_path / "set env.sh"
    script.write_text("export FROM_SETUP=yes\n")
    runtime = Runtime(
        env={"HOME_{toolkit}": "x", "KIT": "/opt/{toolkit}"}, run=RunLine(), setup=(str(script), "/none.sh")
    )
    chosen = settings(a_plan(tmp_path / "project", base, runtime))
    assert chosen.env["KIT"] == "/opt/"
    wrapper = chosen.entrypoint[: -len(("python", "/app/main.py"))]
    done = subprocess.run(
        [*wrapper, "sh", "-c", 'echo "$FROM_SETUP $0 $1"', "zero", "one two"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "yes zero one two\n"
    assert done.stderr == "builder: /none.sh is missing\n"


# Bases that are OCI images.


@pytest.fixture
def vendor(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "vendor")


def lock(layout: Layout, store: Store, *, tag: str = "base", python: str = "3.11") -> LockedBase:
    return resolve_base(
        f"oci:{layout.path}:{tag}",
        python=python,
        arch="x86_64",
        store=store,
        reporter=SilentReporter(),
        offline=True,
        environ={},
        open_repository=open_layout,
    )


def test_an_oci_base_is_pinned_and_looked_into(vendor: Layout, store: Store) -> None:
    manifest = put_image(vendor, store, [ROOTFS])
    base = lock(vendor, store)
    assert base.digest == manifest.digest
    assert (base.python_path, base.glibc, base.packages) == ("/usr/bin/python3.11", "2.36", ())


def test_upper_layers_hide_lower_ones(vendor: Layout, store: Store) -> None:
    newer = LIBC.replace(b"version 2.36", b"version 2.41")
    upper: dict[str, bytes | str] = {
        "usr/lib/x86_64-linux-gnu/libc.so.6": newer,
        "usr/bin/.wh.python3.11": b"",
        "opt/conda/bin/python3.12": b"\x7fELF",
        "opt/old/.wh..wh..opq": b"",
    }
    put_image(vendor, store, [{**ROOTFS, "opt/old/bin/python3.13": b"\x7fELF"}, upper])
    assert lock(vendor, store, python="3.12").glibc == "2.41"
    for gone in ("3.11", "3.13"):
        with pytest.raises(BadInput, match=f"has no Python {gone}") as caught:
            lock(vendor, store, python=gone)
        assert caught.value.why == "it has 3.12"


def test_the_interpreter_that_is_first_on_the_path_is_chosen(vendor: Layout, store: Store) -> None:
    files = {**ROOTFS, "opt/conda/bin/python3.11": b"\x7fELF", "a/bin/python3.11": b"\x7fELF"}
    put_image(vendor, store, [files], env=("PATH=/opt/conda/bin:/usr/bin",))
    assert lock(vendor, store).python_path == "/opt/conda/bin/python3.11"


def test_an_old_libc_names_its_version_in_the_link(vendor: Layout, store: Store) -> None:
    files = {**ROOTFS, "usr/lib/x86_64-linux-gnu/libc.so.6": "libc-2.31.so"}
    put_image(vendor, store, [files])
    assert lock(vendor, store).glibc == "2.31"


def test_a_base_whose_glibc_is_not_found_cannot_be_judged(vendor: Layout, store: Store) -> None:
    put_image(vendor, store, [{"usr/bin/python3.11": b"\x7fELF"}])
    with pytest.raises(CannotTell, match="glibc of base image") as caught:
        lock(vendor, store)
    assert caught.value.exit_code == 4


def test_musl_is_refused(vendor: Layout, store: Store) -> None:
    put_image(vendor, store, [{"usr/bin/python3.11": b"\x7fELF", "lib/ld-musl-x86_64.so.1": b"\x7fELF"}])
    with pytest.raises(Refused, match="cannot run the locked wheels"):
        lock(vendor, store)


def test_an_index_is_followed_to_the_platform(vendor: Layout, store: Store) -> None:
    manifest = put_image(vendor, store, [ROOTFS])
    arm = put_image(vendor, store, [{**ROOTFS, "arm": b""}], arch="arm64")
    entries = []
    for item, arch in ((arm, "arm64"), (manifest, "amd64")):
        entries.append({**item.descriptor.to_json(), "platform": {"os": "linux", "architecture": arch}})
    index = canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": entries})
    vendor.put_manifest(Manifest(MediaType.INDEX, index), tag="multi")
    assert lock(vendor, store, tag="multi").digest == manifest.digest
    only_arm = canonical_json({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": entries[:1]})
    vendor.put_manifest(Manifest(MediaType.INDEX, only_arm), tag="arm")
    with pytest.raises(BadInput, match="is not made for linux/amd64") as caught:
        lock(vendor, store, tag="arm")
    assert caught.value.why == "it offers linux/arm64"


def test_a_base_of_another_architecture_or_without_the_tag_is_refused(vendor: Layout, store: Store) -> None:
    put_image(vendor, store, [ROOTFS], arch="arm64")
    with pytest.raises(BadInput, match="is not made for linux/amd64"):
        lock(vendor, store)
    with pytest.raises(BadInput, match="does not exist"):
        lock(vendor, store, tag="nope")


@pytest.mark.parametrize("docker", [False, True])
def test_layers_of_an_oci_base_are_taken_as_they_are(
    tmp_path: Path, vendor: Layout, store: Store, docker: bool
) -> None:
    manifest = put_image(vendor, store, [ROOTFS, {"upper": b"1"}], docker=docker)
    base = lock(vendor, store)
    target = Layout(tmp_path / "out")
    built = build(a_plan(tmp_path / "project", base), target, store)
    lower = [row["digest"] for row in json.loads(manifest.raw)["layers"]]
    image = read_json(target, built.digest)
    assert [row["digest"] for row in image["layers"]][:2] == lower
    assert {row["mediaType"] for row in image["layers"]} == {MediaType.LAYER_GZIP}
    config = read_json(target, Digest.parse(image["config"]["digest"]))
    assert "PATH=/opt/venv/bin:/usr/bin" in config["config"]["Env"]
    assert "FROM_BASE=1" in config["config"]["Env"]
    assert config["config"]["Labels"]["vendor"] == "somebody"
    assert image["annotations"]["org.opencontainers.image.base.digest"] == str(base.digest)
    assert len(config["rootfs"]["diff_ids"]) == len(image["layers"])
    for row in image["layers"]:
        assert target.has_blob(Digest.parse(row["digest"]))


def test_a_base_read_from_a_registry_once_is_built_on_without_it(tmp_path: Path, vendor: Layout, store: Store) -> None:
    put_image(vendor, store, [ROOTFS])
    fresh = Store(tmp_path / "fresh")
    opened = []

    def registry(reference: Reference) -> Repository:
        opened.append(str(reference))
        return vendor

    def unreachable(reference: Reference) -> Repository:
        raise OutsideFailed(f"{reference} cannot be reached")

    def locked(opener: OpenRepository, *, offline: bool) -> LockedBase:
        return resolve_base(
            "registry.test/vendor:base",
            python="3.11",
            arch="x86_64",
            store=fresh,
            reporter=SilentReporter(),
            offline=offline,
            environ={},
            open_repository=opener,
        )

    with pytest.raises(OutsideFailed, match="is not known yet"):
        locked(unreachable, offline=True)
    base = locked(registry, offline=False)
    assert opened == ["registry.test/vendor:base"]
    assert locked(unreachable, offline=True) == base
    plan = a_plan(tmp_path / "project", base)
    target = Layout(tmp_path / "out")
    built = assemble(
        plan,
        target=target,
        tag="1.0",
        store=fresh,
        reporter=SilentReporter(),
        open_repository=unreachable,
        offline=True,
    )
    assert target.has_blob(built.layers[0].descriptor.digest)


@pytest.mark.parametrize(
    ("target", "expected"), [("registry.test/app", "vendor"), ("other.test/app", None), ("oci:out", None)]
)
def test_base_layers_are_mounted_only_within_one_registry(
    tmp_path: Path, vendor: Layout, store: Store, target: str, expected: str | None
) -> None:
    put_image(vendor, store, [ROOTFS])
    base = replace(lock(vendor, store), reference="registry.test/vendor:base")
    asked: list[str | None] = []

    class Watching(Layout):
        def put_blob(self, descriptor: Descriptor, source: BlobSource, *, mount_from: str | None = None) -> bool:
            asked.append(mount_from)
            return super().put_blob(descriptor, source, mount_from=mount_from)

    plan = a_plan(tmp_path / "project", base)
    assemble(
        plan,
        target=Watching(tmp_path / "out"),
        tag="1.0",
        store=store,
        reporter=SilentReporter(),
        reference=parse_ref(target),
        open_repository=lambda _reference: vendor,
    )
    assert asked.count("vendor") == (1 if expected else 0)
    assert set(asked) <= {"vendor", None}


# The real thing.


@pytest.fixture
def real_base(shared_store: Store) -> LockedBase:
    return resolve_base(
        "debian:bookworm",
        python="3.11",
        arch="x86_64",
        store=shared_store,
        reporter=SilentReporter(),
        offline=False,
        environ={},
        open_repository=open_layout,
    )


@pytest.mark.network
@pytest.mark.docker
@pytest.mark.registry
def test_docker_pulls_and_runs_what_was_pushed_without_it(
    tmp_path: Path, real_base: LockedBase, shared_store: Store, docker_host: str, registry_host: str
) -> None:
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps"]
    subprocess.run([*pip, "--only-binary=:all:", "-d", str(wheels), "numpy==2.2.6", "click==8.1.8"], check=True)
    project = tmp_path / "project"
    (project / "app").mkdir(parents=True)
    (project / "app/main.py").write_text(
        "import getpass, os, ssl, sys, numpy, click\n"
        "from importlib.metadata import distribution\n"
        "files = distribution('numpy').files\n"
        "print(numpy.ones(3).sum(), sys.prefix, getpass.getuser(), os.getuid(), os.environ['MODE'],\n"
        "      all(f.locate().is_file() for f in files), distribution('numpy').read_text('INSTALLER').strip())\n"
    )
    rule = CopyRule(source="app", target="/app")
    plan = make_plan(make_project(project, copy=[rule], env={"MODE": "x"}), real_base, sorted(wheels.iterdir()))
    reference = RegistryRef(registry_host, "image-test/run")
    target = open_repository(reference, environ={}, reporter=SilentReporter())
    built = build(plan, target, shared_store, reference=reference)
    assert built.reference == f"{registry_host}/image-test/run:1.0@{built.digest}"
    pinned = str(reference.with_digest(built.digest))
    docker = ["docker", "--host", docker_host]
    subprocess.run([*docker, "pull", "--quiet", pinned], check=True, stdout=subprocess.DEVNULL)
    try:
        run = [*docker, "run", "--rm", "--network=none", pinned]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert done.stdout == "3.0 /opt/venv app 10001 x True builder\n", done.stderr
    finally:
        subprocess.run([*docker, "rmi", "--force", pinned], check=True, stdout=subprocess.DEVNULL)


def test_no_two_entries_of_a_layer_share_a_path(tmp_path: Path, base: LockedBase, store: Store) -> None:
    built = build(a_plan(tmp_path / "project", base), Layout(tmp_path / "out"), store)
    for layer in built.layers:
        assert layer.path is not None
        with tarfile.open(layer.path) as archive:
            names = archive.getnames()
        assert len(names) == len(set(names)), layer.title
