"""Chains, mends and what a refusal says."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.lock.policy import PackagePolicy
from builder.lock.trap import blocked, shortest_chains, summary
from builder.lock.values import Lock, LockedPackage
from builder.matrix.values import IndexPin
from builder.names import Digest
from tests.lock.conftest import NOW, base


def package(name: str, version: str = "1.0", *requires: str, size: int | None = 10**9) -> LockedPackage:
    return LockedPackage(
        name=name,
        version=version,
        file=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        sha256=Digest.of(name.encode()),
        url=f"https://host/files/{name}.whl",
        index="https://host/simple",
        size=size,
        requires=tuple(sorted(requires)),
    )


def lock(
    backend: str, requirements: tuple[str, ...], *packages: LockedPackage, constraints: tuple[str, ...] = ()
) -> Lock:
    return Lock(
        backend=backend,
        project="app",
        python="3.11",
        arch="x86_64",
        glibc="2.36",
        toolkit=None,
        frameworks={},
        requirements=requirements,
        packages=packages,
        base=base(),
        exclude_newer=NOW,
        inputs=Digest.of(b""),
        engine="uv 1",
        constraints=constraints,
        indexes=(IndexPin(index="https://cpu", packages=("torch",)),),
    )


CUDA_TORCH = (
    package("torch", "2.13.0", "cuda-toolkit", "filelock", "nvidia-cudnn-cu13", "triton"),
    package("cuda-toolkit", "13.0", "nvidia-cublas", size=2512),
    package("nvidia-cublas", "13.1"),
    package("nvidia-cudnn-cu13", "9.20", "nvidia-cublas"),
    package("triton", "3.7.1"),
    package("filelock"),
)


def test_the_trap(policy: PackagePolicy) -> None:
    trapped = lock(
        "npu",
        ("torch-npu==2.13.0",),
        package("torch-npu", "2.13.0", "torch", "numpy"),
        package("numpy"),
        *CUDA_TORCH,
        constraints=("torch==2.13.0+cpu",),
    )
    found = blocked(trapped, policy)
    assert [(item.package, item.backend) for item in found] == [
        ("torch", "cuda"),
        ("cuda-toolkit", "cuda"),
        ("nvidia-cudnn-cu13", "cuda"),
        ("triton", "cuda"),
        ("nvidia-cublas", "cuda"),
    ]
    assert found[0].chain == ("torch-npu", "torch")
    assert found[4].chain == ("torch-npu", "torch", "cuda-toolkit", "nvidia-cublas")
    assert "the cuda build" in found[4].why
    mend = 'add requirements = ["torch==2.13.0+cpu"] to [backend.npu] (from https://cpu)'
    assert {item.fix for item in found} == {mend}
    assert summary(found, trapped, policy) == (
        "torch 2.13.0 without a label is the cuda build on x86_64 and pulls in 3 nvidia packages and 1 triton package\n"
        "  chain: torch-npu > torch > nvidia-cudnn-cu13\n"
        "  saves: 4.0 GB to download\n"
        f"  fix:   {mend}"
    )


def test_the_same_graph_is_right_for_its_own_backend(policy: PackagePolicy) -> None:
    assert blocked(lock("cuda", ("torch",), *CUDA_TORCH), policy) == ()


def test_a_rocm_build_swapped_for_an_unlabelled_one_is_an_error(policy: PackagePolicy) -> None:
    """FR-02, the lock's part."""
    swapped = lock("rocm", ("torch",), *CUDA_TORCH, constraints=("torch==2.13.0+rocm7.2",))
    assert [item.package for item in blocked(swapped, policy)] == [
        "torch",
        "cuda-toolkit",
        "nvidia-cudnn-cu13",
        "nvidia-cublas",
    ]


@pytest.mark.parametrize(
    ("backend", "items", "fix"),
    [
        ("cpu", (package("onnxruntime-gpu"),), "onnxruntime is the CPU build: ask for that instead of onnxruntime-gpu"),
        ("cpu", (package("nvidia-cublas"),), 'exclude = ["nvidia-cublas"] in [backend.cpu]'),
        ("rocm", (package("app", "1", "nvidia-cublas"), package("nvidia-cublas")), "choose a build of app for rocm"),
        ("cpu", (package("xgboost", "3.2.0", "nvidia-nccl-cu12"), package("nvidia-nccl-cu12")), "xgboost-cpu"),
    ],
)
def test_mends_without_a_bound(policy: PackagePolicy, backend: str, items: tuple[LockedPackage, ...], fix: str) -> None:
    found = blocked(lock(backend, (items[0].name,), *items), policy)
    assert fix in found[-1].fix


def test_sizes_that_are_not_known_make_the_saving_a_lower_bound(policy: PackagePolicy) -> None:
    items = (package("torch", "2.13.0", "triton"), package("triton", size=None))
    trapped = lock("cpu", ("torch",), *items)
    text = summary(blocked(trapped, policy), trapped, policy)
    assert "at least 1.0 GB to download" in text


def test_a_clean_lock_has_nothing_to_say(policy: PackagePolicy) -> None:
    clean = lock("cpu", ("numpy",), package("numpy"))
    assert blocked(clean, policy) == ()
    assert summary((), clean, policy) == ""


@given(st.data())
def test_chains_are_shortest_and_real(data: st.DataObject) -> None:
    names = [f"p{number}" for number in range(data.draw(st.integers(1, 9)))]
    edges = {name: data.draw(st.lists(st.sampled_from(names), max_size=4)) for name in names}
    roots = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
    packages = [package(name, "1", *set(edges[name])) for name in names]
    chains = shortest_chains(packages, roots)
    distance = dict.fromkeys(roots, 0)
    todo = list(distance)
    for name in todo:
        for child in edges[name]:
            if child not in distance:
                distance[child] = distance[name] + 1
                todo.append(child)
    assert {name: len(chain) - 1 for name, chain in chains.items()} == distance
    for name, chain in chains.items():
        assert chain[0] in roots
        assert chain[-1] == name
        assert all(child in edges[parent] for parent, child in pairwise(chain))
