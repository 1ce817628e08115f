"""The table of package names: as shipped, and when it is wrong."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput
from builder.lock.policy import PackagePolicy, load_package_policy
from builder.names import Arch


@pytest.mark.parametrize(
    ("name", "version", "arch", "backend"),
    [
        ("nvidia-cublas", "13.1", "x86_64", "cuda"),
        ("nvidia-cudnn-cu12", "9.1", "aarch64", "cuda"),
        ("nvidia-ml-py", "13.0", "x86_64", None),
        ("cuda-bindings", "13.0", "x86_64", "cuda"),
        ("triton", "3.7.1", "x86_64", "cuda"),
        ("triton-ascend", "3.2.0", "x86_64", "npu"),
        ("pytorch-triton-rocm", "3.5", "x86_64", "rocm"),
        ("torch-npu", "2.13.0", "aarch64", "npu"),
        ("libtpu", "0.0.50", "x86_64", "tpu"),
        ("torch-neuronx", "2.9", "x86_64", "neuron"),
        ("intel-sycl-rt", "2025.1", "x86_64", "xpu"),
        ("jax-cuda12-plugin", "0.5", "x86_64", "cuda"),
        ("jax-rocm7-plugin", "0.5", "x86_64", "rocm"),
        ("torch", "2.13.0", "x86_64", "cuda"),
        ("torch", "2.13.0", "aarch64", "cuda"),
        ("torch", "2.10.0", "aarch64", None),
        ("torch", "2.13.0+cpu", "x86_64", "cpu"),
        ("torch", "2.13.0+cpu.cxx11.abi", "x86_64", "cpu"),
        ("torch", "2.13.0+cu130", "x86_64", "cuda"),
        ("torch", "2.12.0+rocm10.1.0a20260807", "x86_64", "rocm"),
        ("torch", "2.9.0+xpu", "x86_64", "xpu"),
        ("vllm", "0.20.2rc1.dev233+g5497ffbf7.cu129", "x86_64", "cuda"),
        ("flash-attn", "2.8.3+cu12torch2.9", "x86_64", "cuda"),
        ("leaf", "1.0+corp.1", "x86_64", None),
        ("numpy", "2.4.6", "x86_64", None),
    ],
)
def test_owner(policy: PackagePolicy, name: str, version: str, arch: Arch, backend: str | None) -> None:
    owner = policy.owner(name, version, arch)
    assert (owner.backend if owner else None) == backend
    if owner is not None:
        assert owner.source
        assert name in owner.why


def test_where_packages_are_welcome(policy: PackagePolicy) -> None:
    triton = policy.owner("triton", "3.7.1", "x86_64")
    cpu = policy.owner("torch", "2.13.0+cpu", "x86_64")
    assert triton is not None
    assert cpu is not None
    assert [name for name in ("cpu", "cuda", "npu", "rocm") if triton.welcome(name)] == ["cuda", "rocm"]
    assert all(cpu.welcome(name) for name in ("cpu", "cuda", "npu", "rocm"))


def test_no_row_is_hidden_by_an_earlier_one_of_the_same_kind(policy: PackagePolicy) -> None:
    """A row behind a wider one of another backend would never be seen."""
    for number, row in enumerate(policy.packages):
        hidden = [before.pattern for before in policy.packages[:number] if fnmatchcase(row.pattern, before.pattern)]
        assert hidden == [], row.pattern


def test_backends_are_spelled_as_everywhere(policy: PackagePolicy) -> None:
    """Platforms too: their packages belong in no image this tool builds."""
    named = {row.backend for row in policy.packages}
    named |= {row.backend for row in policy.labels} | {row.backend for row in policy.builds}
    assert named <= {"none", *resources.backends(), *resources.platforms()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[package]]\npattern = 'a'\nbackend = 'cuda'\n", "source is missing"),
        ("[[package]]\npatern = 'a'\npattern = 'a'\nbackend = 'b'\nsource = 'c'\n", "did you mean 'pattern'"),
        ("[[packages]]\npattern = 'a'\n", "did you mean 'package'"),
        ("[[build]]\nname='a'\nversions='>>1'\narches=['x86_64']\nbackend='b'\nsource='c'\n", "versions"),
        ("[[build]]\nname='a'\nversions='>1'\narches='x86_64'\nbackend='b'\nsource='c'\n", "not a list"),
        ("[[label]]\npattern = ''\nbackend = 'b'\nsource = 'c'\n", "not a text"),
        (
            "[[package]]\npattern='a'\nbackend='b'\nsource='c'\n[[package]]\npattern='a'\nbackend='d'\nsource='e'\n",
            "twice",
        ),
        ("[[package]\n", "1"),
    ],
)
def test_faults_of_the_table_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "packages.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        load_package_policy(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"packages\.toml"):
        load_package_policy(tmp_path / "packages.toml")
