"""Devices for build steps: what each engine is told, and what it is refused with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.errors import BadInput, Refused
from builder.image.devices import build_devices, buildah_devices, buildx_devices, is_cdi
from builder.image.dockerfile import render
from builder.matrix import load_backend
from builder.matrix.values import Runtime
from builder.node import NodeClass
from tests.conftest import RunBuilder
from tests.dockerfile.plans import make_plan
from tests.schemas import error

NODE = NodeClass(name="pool", backend="cuda", arch="x86_64")
GPU = "nvidia.com/gpu=all"


def runtime(backend: str) -> Runtime:
    return load_backend(backend).spec.runtime


def test_the_class_s_names_win_over_the_backend_s_nodes() -> None:
    assert build_devices(replace(NODE, cdi=(GPU,)), runtime("cuda")) == (GPU,)
    rocm = replace(NODE, backend="rocm")
    assert build_devices(rocm, runtime("rocm")) == ("/dev/kfd", "/dev/dri")
    assert build_devices(replace(rocm, cdi=("amd.com/gpu=0",)), runtime("rocm")) == ("amd.com/gpu=0",)
    with pytest.raises(Refused, match="no device of node class pool"):
        build_devices(NODE, runtime("cuda"))


@pytest.mark.parametrize("name", ["gpu", "nvidia.com/gpu", "/etc/passwd", "/dev/a b", "--privileged", "a.b/c=d e"])
def test_what_is_no_device_is_a_wrong_question(name: str) -> None:
    with pytest.raises(BadInput, match="not a device"):
        build_devices(replace(NODE, cdi=(name,)), runtime("cuda"))


@pytest.mark.parametrize(
    ("name", "answer"), [(GPU, True), ("huawei.com/Ascend910=0", True), ("/dev/kfd", False), ("a=b", False)]
)
def test_names_are_told_from_nodes(name: str, answer: bool) -> None:
    assert is_cdi(name) is answer


def test_buildah_takes_nodes_always_and_names_from_1_36() -> None:
    assert buildah_devices(("/dev/kfd", "/dev/dri"), "1.28.2") == ("--device=/dev/kfd", "--device=/dev/dri")
    assert buildah_devices((GPU,), "1.36.0") == (f"--device={GPU}",)
    with pytest.raises(Refused, match=r"buildah 1\.28\.2 cannot give nvidia\.com/gpu=all") as caught:
        buildah_devices((GPU,), "1.28.2")
    assert "1.36" in caught.value.why


def test_docker_takes_names_only_and_says_what_it_needs() -> None:
    given = buildx_devices((GPU,), build_with="buildx", buildx="0.29.1", engine="28.5.2")
    assert given == (f"--allow=device={GPU}",)
    with pytest.raises(Refused, match="docker cannot give /dev/kfd") as caught:
        buildx_devices(("/dev/kfd",), build_with="buildx", buildx="0.29.1", engine="28.5.2")
    assert "CDI specification" in caught.value.fix
    for build_with, buildx, engine in (
        ("buildx", "0.21.0", "28.5.2"),
        ("buildx", "0.29.1", "26.1.5"),
        ("buildkit", "", "28.5.2"),
        ("classic", "", "20.10.24+dfsg1"),
    ):
        with pytest.raises(Refused, match="this docker cannot give") as caught:
            buildx_devices((GPU,), build_with=build_with, buildx=buildx, engine=engine)
        assert f"Docker {engine}" in caught.value.why
        assert "--engine buildah" in caught.value.fix


def test_the_dockerfile_names_the_frontend_first_and_the_devices_of_its_step() -> None:
    plan = make_plan("cuda")
    text = render(plan, base_image="localhost/base", devices=(GPU,)).text
    assert text.startswith("# syntax=docker/dockerfile:1-labs\n")
    assert f"RUN --device={GPU} --mount=type=bind,target=/mnt [" in text
    plain = render(plan, base_image="localhost/base").text
    assert "syntax=" not in plain
    assert plain == text.replace("# syntax=docker/dockerfile:1-labs\n", "").replace(f"--device={GPU} ", "")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--devices"], "the built-in engine gives no device to a build"),
        (["--devices", "--engine", "buildah"], "whose devices are meant?"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_done(
    run_builder: RunBuilder, words: list[str], what: str
) -> None:
    run_builder("init", ".")
    assert error(run_builder("build", "--backend", "cpu", *words, "--json"), 2)["what"] == what
