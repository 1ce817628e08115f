"""Real packages from the real index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.events import SilentReporter
from builder.lock.files import read_lock, write_lock
from builder.lock.measure import measured
from builder.lock.policy import PackagePolicy
from builder.lock.search import MissingIndex
from builder.lock.trap import blocked, summary
from builder.matrix.values import IndexPin
from builder.store import Store
from builder.wheels.archive import WheelArchive
from builder.wheels.fetch import fetch
from builder.wheels.settings import read_index_settings
from tests.lock.conftest import Locker, stack

pytestmark = pytest.mark.network

CPU_INDEX = IndexPin(index="https://download.pytorch.org/whl/cpu", packages=("torch", "torchaudio", "torchvision"))
TORCH = "torch==2.13.0+cpu"


@pytest.fixture
def real(tmp_path: Path, shared_store: Store, policy: PackagePolicy) -> Locker:
    """A locker with the index settings of whoever runs the tests."""
    return Locker(tmp_path, shared_store, policy, read_index_settings(os.environ), dict(os.environ))


def target(python: str, arch: str) -> dict[str, str]:
    """What markers are evaluated against for a target."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": arch,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }


def test_the_trap_and_the_mend(real: Locker, policy: PackagePolicy) -> None:
    npu = stack("npu", TORCH, pins=(CPU_INDEX,))
    now = "2026-11-30T00:00:00Z"
    trapped = real.lock(npu, "torch-npu==2.13.0", exclude_newer=now)
    found = blocked(trapped, policy)
    vendor = [item for item in found if item.package.startswith(("nvidia-", "cuda-"))]
    assert len(vendor) == 18
    assert {item.chain[:2] for item in found} == {("torch-npu", "torch")}
    text = summary(found, trapped, policy)
    assert "torch 2.13.0 without a label is the cuda build on x86_64 and pulls in 18 nvidia packages" in text
    assert TORCH in text
    mended = real.lock(npu, "torch-npu==2.13.0", TORCH, exclude_newer=now)
    assert len(mended.packages) == 13
    assert blocked(mended, policy) == ()
    assert read_lock(write_lock(mended, real.folder)) == mended


def test_a_service_that_embeds_texts_on_cpu(real: Locker, policy: PackagePolicy) -> None:
    """FR-01 on the packages of the report."""
    lock = real.lock(
        stack("cpu", TORCH, pins=(CPU_INDEX,)), "sentence-transformers", exclude_newer="2026-11-30T00:00:00Z"
    )
    found = measured(blocked(lock, policy), lock, settings=real.settings, environ=os.environ)
    chains = {item.chain[:2] for item in found}
    assert chains == {("sentence-transformers", "torch")}
    assert {"torch", "triton", "nvidia-cublas", "nvidia-cudnn-cu13"} <= {item.package for item in found}
    assert sum(item.size or 0 for item in found) > 2 * 10**9
    assert sum(item.installed or 0 for item in found) > 4 * 10**9
    assert TORCH in found[0].fix
    assert CPU_INDEX.index in found[0].fix


def test_a_conflict_that_is_a_missing_index(real: Locker) -> None:
    """FR-12 on the packages of the report, with the CPU index out of reach."""
    pin = IndexPin(index="http://127.0.0.1:9/whl/cpu", packages=("torch",))
    with pytest.raises(MissingIndex) as caught:
        real.lock(stack("npu", TORCH, pins=(pin,)), "vllm-ascend==0.15.0rc1", exclude_newer="2026-11-30T00:00:00Z")
    assert pin.index in caught.value.what
    assert "torch==2.9.0+cpu" in caught.value.fix


def test_edges_are_what_the_wheels_metadata_says(real: Locker) -> None:
    lock = real.lock(stack("cpu"), "uvicorn[standard]==0.34.0", "requests", exclude_newer="2026-01-01T00:00:00Z")
    house = fetch(lock.packages, real.store, reporter=SilentReporter(), settings=real.settings, environ=os.environ)
    extras = {"uvicorn": ("", "standard")}
    names = {package.name for package in lock.packages}
    for package in lock.packages:
        wanted: set[str] = set()
        with WheelArchive.open(house.files[package.file], filename=package.file) as wheel:
            for line in wheel.metadata().get("requires_dist", []):
                requirement = Requirement(line)
                environments = [
                    {**target("3.11", "x86_64"), "extra": extra} for extra in extras.get(package.name, ("",))
                ]
                if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
                    wanted.add(canonicalize_name(requirement.name))
        assert set(package.requires) == wanted & names == wanted, package.name
