"""What makers' images hold, by their names: the questions of a build that starts from one."""

from __future__ import annotations

import pytest

from builder.matrix import Explanation, RuleVerdict, explain, load_backend, parse_question
from builder.matrix.images import read_image

CUDA = "nvidia/cuda:12.8.1-runtime-ubuntu22.04"
CANN = "quay.io/ascend/cann:9.0.0-910b-ubuntu22.04-py3.11"
NEURON = "public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.31.1-ubuntu24.04"
GAUDI = "vault.habana.ai/gaudi-docker/1.22.0/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.0-740"


def ask(backend: str, **settings: str) -> Explanation:
    loaded = load_backend(backend)
    return explain(loaded, parse_question({key.replace("_", "-"): value for key, value in settings.items()}, loaded))


def rule(answer: Explanation, name: str = "image") -> RuleVerdict:
    (found,) = [one for one in answer.rules if one.rule == name]
    return found


@pytest.mark.parametrize(
    ("backend", "image", "toolkit", "os", "python", "packages"),
    [
        ("cuda", CUDA, "12.8.1", "ubuntu 22.04", None, {}),
        ("cuda", "docker.io/nvidia/cuda:12.4.1-cudnn-devel-rockylinux9", "12.4.1", "rocky 9", None, {}),
        ("npu", CANN, "9.0.0", "ubuntu 22.04", "3.11", {}),
        ("npu", "ascend/torch-npu:2.9.0.post2-910b-ubuntu22.04-py3.11", None, "ubuntu 22.04", "3.11",
         {"torch-npu": "2.9.0.post2"}),
        ("npu", "quay.io/ascend/vllm-ascend:v0.11.0-a3", None, None, None, {"vllm-ascend": "0.11.0"}),
        ("rocm", "rocm/pytorch:rocm7.2_ubuntu22.04_py3.10_pytorch_release_2.9.1", "7.2", "ubuntu 22.04", "3.10",
         {"torch": "2.9.1"}),
        ("rocm", "rocm/dev-almalinux-8:7.1-complete", "7.1", "almalinux 8", None, {}),
        ("neuron", NEURON, "2.31.1", "ubuntu 24.04", "3.12", {"torch": "2.9.0"}),
        ("neuron", NEURON.rpartition("/")[2], "2.31.1", "ubuntu 24.04", "3.12", {"torch": "2.9.0"}),
        ("hpu", "habanalabs/pytorch-installer-2.7.1:1.22.0-740", "1.22.0", None, None, {"torch": "2.7.1"}),
        ("npu", CANN.rpartition("/")[2], "9.0.0", "ubuntu 22.04", "3.11", {}),
        ("hpu", GAUDI, "1.22.0", "ubuntu 22.04", None, {"torch": "2.7.1"}),
    ],
)  # fmt: skip
def test_a_name_tells_what_is_inside(
    backend: str, image: str, toolkit: str | None, os: str | None, python: str | None, packages: dict[str, str]
) -> None:
    found = read_image(load_backend(backend), image)
    assert found is not None
    assert (found.toolkit, found.os, found.python) == (toolkit, os, python)
    assert dict(found.packages) == packages


def test_a_digest_does_not_hide_the_tag() -> None:
    found = read_image(load_backend("cuda"), f"{CUDA}@sha256:{'0' * 64}")
    assert found is not None
    assert found.toolkit == "12.8.1"


@pytest.mark.parametrize("backend", ["npu", "neuron", "hpu"])
def test_every_image_a_lock_can_choose_is_read_and_listed(backend: str) -> None:
    loaded = load_backend(backend)
    for row in loaded.rows("base"):
        reference = row.text("reference") or ""
        fields = {"toolkit": row.text("toolkit"), "chip": row.text("chip")}
        for name, cells in (("os", row.texts("os")), ("python", row.texts("python"))):
            fields[name] = (cells or (None,))[0]
        for name, value in fields.items():
            reference = reference.replace(f"{{{name}}}", (value or "").lower())
        found = rule(ask(backend, image=reference))
        assert found.verdict == "supported", (reference, found.why)


def test_the_other_rules_take_their_parts_from_the_image() -> None:
    answer = ask("cuda", image=CUDA, driver="470.82.01")
    assert rule(answer, "driver-floor").verdict == "unsupported"
    assert "ubuntu 22.04" in rule(answer).why


@pytest.mark.parametrize(
    ("backend", "image", "settings", "why"),
    [
        ("cuda", "nvidia/cuda:12.2.0-cudnn9-runtime-ubuntu22.04", {}, "tags of this form are of ==12.3.2"),
        ("cuda", "nvidia/cuda:13.0.0-base-ubuntu20.04", {}, "ubuntu20.04 images are of <13"),
        ("cuda", "nvidia/cuda:12.8.1-base-debian12", {}, "images are on ubuntu20.04"),
        ("cuda", CUDA, {"toolkit": "13.0"}, "asked is CUDA 13.0"),
        ("npu", CANN, {"python": "3.10"}, "asked is Python 3.10"),
        ("npu", CANN, {"device": "Ascend310P3"}, "whose images are those for 310p"),
        ("neuron", NEURON, {"torch": "2.8.0"}, "asked is torch 2.8.0"),
    ],
)
def test_what_there_is_not_or_does_not_fit(backend: str, image: str, settings: dict[str, str], why: str) -> None:
    answer = ask(backend, image=image, **settings)
    assert answer.verdict == "unsupported"
    assert why in rule(answer).why


def test_what_no_table_lists_is_unknown() -> None:
    other = rule(ask("cuda", image="pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"))
    assert (other.verdict, "nvidia/cuda:{toolkit}-base-{os}" in other.fix) == ("unknown", True)
    unlisted = rule(ask("npu", image="ascend/cann:9.7.0-910b-ubuntu22.04-py3.12"))
    assert unlisted.verdict == "unknown"
    assert "it is not among the images that are listed" in unlisted.why


@pytest.mark.parametrize(
    ("device", "driver", "verdict"),
    [
        ("GeForce RTX 4090", "550.144.03", "unsupported"),
        ("H100", "550.144.03", "unknown"),
        ("GeForce RTX 4090", "570.124.06", "supported"),
    ],
)
def test_fr_05_of_an_image_by_its_name(device: str, driver: str, verdict: str) -> None:
    asked = rule(ask("cuda", image=CUDA, driver=driver, device=device), "require-cuda")
    assert asked.verdict == verdict
    assert "asks NVIDIA_REQUIRE_CUDA=cuda>=12.8" in asked.why


@pytest.mark.parametrize(
    ("backend", "image", "machine", "why"),
    [
        ("cuda", "nvidia/cuda:latest", "x86_64", "no tag is called latest"),
        ("cuda", "nvidia/cuda:12.6.3-base-ubi8", "ppc64le", "ppc64le images are of <12.5"),
        ("npu", "ascend/cann:8.5.0-310b-ubuntu22.04-py3.11", "aarch64", "images are for 310p, 910b, a3, 910, 950"),
        ("npu", "ascend/cann:8.5.0-950-ubuntu22.04-py3.11", "aarch64", "950 images are of >=9.0.0"),
    ],
)
def test_an_image_that_nobody_makes_is_refused(backend: str, image: str, machine: str, why: str) -> None:
    found = rule(ask(backend, image=image, machine=machine))
    assert found.verdict == "unsupported"
    assert why in found.why


def test_a_release_whose_images_nobody_read_is_unknown() -> None:
    found = rule(ask("cuda", image="nvidia/cuda:13.5.0-base-ubuntu24.04"))
    assert found.verdict == "unknown"
    assert "tags of <13.4 were read" in found.why


def test_a_development_image_is_not_there_because_the_plain_one_is() -> None:
    assert rule(ask("npu", image="ascend/cann:9.0.1-910b-ubuntu22.04-py3.11-devel")).verdict == "supported"
    assert rule(ask("npu", image="ascend/cann:8.5.0-910b-ubuntu22.04-py3.11-devel")).verdict == "unknown"


@pytest.mark.parametrize(
    ("image", "device", "fix"),
    [
        ("ascend/vllm-ascend:v0.10.0rc1-openeuler", "Ascend310P3", "ascend/vllm-ascend:v0.10.0rc1-310p-openeuler"),
        ("quay.io/ascend/vllm-ascend:v0.11.0", "Ascend910_9392", "ascend/vllm-ascend:v0.11.0-a3"),
        (
            "quay.io/ascend/cann:8.5.0-910b-ubuntu22.04-py3.11",
            "Atlas 300I Duo",
            "ascend/cann:8.5.0-310p-ubuntu22.04-py3.11",
        ),
        ("ascend/cann:8.5.0-910b-ubuntu22.04-py3.11", "Ascend310B1", "an image that holds it, or what this one holds"),
    ],
)
def test_an_image_for_another_chip_names_the_one_for_this(image: str, device: str, fix: str) -> None:
    """FR-13: the plain tag holds operators for 910B, the device is a 310P3."""
    found = rule(ask("npu", image=image, device=device))
    assert (found.verdict, found.fix) == ("unsupported", fix)
