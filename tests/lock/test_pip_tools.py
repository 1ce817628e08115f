"""The second engine: the same lock for a target like this machine, a reason for any other."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from builder.lock.engine import CannotResolve, NoSuchPackage, WrongHost
from builder.lock.pip_tools import PipTools
from builder.lock.uv import Uv
from builder.matrix.values import IndexPin
from builder.names import Arch, Digest
from builder.project.values import BackendOptions
from builder.store import Store
from builder.wheels.transport import IndexUnreachable
from tests.lock.conftest import Locker, stack
from tests.lock.indexes import Index, make_wheel

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ARCH: Arch = "aarch64" if platform.machine() == "aarch64" else "x86_64"
OTHER: Arch = "x86_64" if ARCH == "aarch64" else "aarch64"
GLIBC = platform.libc_ver()[1]

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="pip resolves for this machine: needs glibc")


@pytest.fixture
def pip(locker: Locker) -> Locker:
    locker.engine = PipTools
    return locker


def test_both_engines_make_the_same_lock(locker: Locker, default: Index, vendor: Index, tmp_path: Path) -> None:
    for name, requires in (("app-lib", ["leaf[extra]>=1"]), ("leaf", ["tip; extra=='extra'"]), ("tip", [])):
        default.add(make_wheel(tmp_path, name, "1.0", requires=requires))
    default.add(make_wheel(tmp_path, "leaf", "2.0rc1"))
    vendor.add(make_wheel(tmp_path, "elsewhere", "1.0"))
    linked = make_wheel(tmp_path / "links", "linked", "1.0")
    locker.with_settings(extra_index_urls=(vendor.url,), find_links=(str(linked.parent),))
    names = ("app-lib", "elsewhere", "linked")
    first = locker.lock(stack("cpu", python=PYTHON), *names, arch=ARCH, glibc=GLIBC)
    locker.engine = PipTools
    second = locker.lock(stack("cpu", python=PYTHON), *names, arch=ARCH, glibc=GLIBC)

    def facts(lock: object) -> list[tuple[object, ...]]:
        return [(p.name, p.version, p.file, p.sha256, p.index, p.requires) for p in lock.packages]  # type: ignore[attr-defined]

    assert facts(second) == facts(first)
    assert [item.name for item in second.packages] == ["app-lib", "elsewhere", "leaf", "linked", "tip"]
    assert second.engine.startswith("pip-tools ")
    assert (first.inputs == second.inputs) is False


@pytest.mark.parametrize(
    ("python", "arch"), [("3.99", ARCH), (PYTHON, OTHER)], ids=["other Python", "other architecture"]
)
def test_other_targets_are_refused_with_the_reason(
    pip: Locker, default: Index, tmp_path: Path, python: str, arch: Arch
) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    with pytest.raises(WrongHost) as caught:
        pip.lock(stack("cpu", python=python), "leaf", arch=arch, glibc=GLIBC)
    assert caught.value.exit_code == 1
    assert PYTHON in caught.value.why
    assert "uv" in caught.value.fix


def test_a_wheel_too_new_for_the_base_is_refused(pip: Locker, default: Index, tmp_path: Path) -> None:
    here = GLIBC.replace(".", "_")
    tag = f"cp{PYTHON.replace('.', '')}-cp{PYTHON.replace('.', '')}-manylinux_{here}_{ARCH}"
    default.add(make_wheel(tmp_path, "ext", "1.0", tag=tag))
    assert pip.lock(stack("cpu", python=PYTHON), "ext", arch=ARCH, glibc=GLIBC).packages[0].version == "1.0"
    with pytest.raises(WrongHost, match=r"glibc 2\.17"):
        pip.lock(stack("cpu", python=PYTHON), "ext", arch=ARCH, glibc="2.17")


def test_what_pip_cannot_do_is_said(pip: Locker, default: Index, vendor: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "torch", "2.13.0"))
    vendor.add(make_wheel(tmp_path, "torch", "2.13.0+cpu"))
    pinned = stack("cpu", "torch==2.13.0+cpu", pins=(IndexPin(index=vendor.url, packages=("torch",)),), python=PYTHON)
    with pytest.raises(WrongHost, match="alone"):
        pip.lock(pinned, "torch", arch=ARCH, glibc=GLIBC)
    options = {"cpu": BackendOptions(env={}, overrides=("torch==2.13.0",))}
    with pytest.raises(WrongHost, match="overrides"):
        pip.lock(stack("cpu", python=PYTHON), "torch", arch=ARCH, glibc=GLIBC, backends=options)
    first_only = replace(pip, settings=replace(pip.settings, extra_index_urls=(vendor.url,), best_match=False))
    with pytest.raises(WrongHost, match="one index after the other"):
        first_only.lock(stack("cpu", python=PYTHON), "torch", arch=ARCH, glibc=GLIBC)
    with pytest.raises(WrongHost, match="offline"):
        pip.lock(stack("cpu", python=PYTHON), "torch", arch=ARCH, glibc=GLIBC, offline=True)


def test_a_labelled_build_in_a_folder_is_taken_when_asked_for_and_only_then(
    pip: Locker, default: Index, tmp_path: Path
) -> None:
    default.add(make_wheel(tmp_path, "torch", "2.13.0"))
    default.add(make_wheel(tmp_path, "torch-npu", "2.13.0", requires=["torch==2.13.0"]))
    folder = make_wheel(tmp_path / "links", "torch", "2.13.0+cpu").parent
    pip.with_settings(find_links=(str(folder),))
    pin = IndexPin(index="http://127.0.0.1:9/cpu", packages=("torch",))
    npu = stack("npu", "torch==2.13.0+cpu", pins=(pin,), python=PYTHON)
    plain = pip.lock(npu, "torch-npu", arch=ARCH, glibc=GLIBC)
    assert [item.version for item in plain.packages] == ["2.13.0", "2.13.0"]
    asked = pip.lock(npu, "torch-npu", "torch==2.13.0+cpu", arch=ARCH, glibc=GLIBC)
    assert [(item.version, item.index) for item in asked.packages] == [
        ("2.13.0+cpu", folder.as_uri()),
        ("2.13.0", default.url),
    ]


def test_upload_times_bound_pip_too(pip: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"), uploaded="2020-01-01T00:00:00Z")
    default.add(make_wheel(tmp_path, "leaf", "2.0"), uploaded="2026-06-01T00:00:00Z")
    lock = pip.lock(stack("cpu", python=PYTHON), "leaf", arch=ARCH, glibc=GLIBC)
    assert (lock.packages[0].version, lock.undated) == ("1.0", ())


@pytest.mark.parametrize("html", [True, False])
def test_the_digest_is_that_of_the_file(pip: Locker, default: Index, tmp_path: Path, store: Store, html: bool) -> None:
    """FR-23 with the second engine."""
    default.html = html
    wheel = default.add(make_wheel(tmp_path, "leaf", "1.0"), hashed=False, metadata_hash=True)
    (leaf,) = pip.lock(stack("cpu", python=PYTHON), "leaf", arch=ARCH, glibc=GLIBC).packages
    assert leaf.sha256 == Digest.of_file(wheel)
    assert leaf.size == wheel.stat().st_size
    assert store.has(leaf.sha256)


def test_refusals_have_the_same_kinds(pip: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0", requires=["tip<2"]))
    default.add(make_wheel(tmp_path, "tip", "1.0"))
    default.add(make_wheel(tmp_path, "tip", "2.0"))
    cpu = stack("cpu", python=PYTHON)
    with pytest.raises(NoSuchPackage, match="nowhere"):
        pip.lock(cpu, "nowhere", arch=ARCH, glibc=GLIBC)
    with pytest.raises(CannotResolve):
        pip.lock(cpu, "leaf", "tip>=2", arch=ARCH, glibc=GLIBC)
    with pytest.raises(IndexUnreachable):
        pip.with_settings(index_url="http://127.0.0.1:9/simple").lock(cpu, "leaf", arch=ARCH, glibc=GLIBC)


def test_names() -> None:
    assert (Uv.name, PipTools.name) == ("uv", "pip-tools")
