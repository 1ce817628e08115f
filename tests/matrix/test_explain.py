"""What the rules answer to real combinations. Field reports are named FR-nn."""

from __future__ import annotations

import pytest

from builder.errors import BadInput
from builder.matrix import Explanation, RuleVerdict, Verdict, explain, load_backend, parse_question
from builder.matrix.values import worst


def ask(backend: str, **settings: str) -> Explanation:
    loaded = load_backend(backend)
    return explain(loaded, parse_question({key.replace("_", "-"): value for key, value in settings.items()}, loaded))


def rule(answer: Explanation, name: str) -> RuleVerdict:
    (found,) = [verdict for verdict in answer.rules if verdict.rule == name]
    return found


CASES: list[tuple[str, dict[str, str], Verdict, str]] = [
    # CUDA toolkit and driver: exact floor, minor-version compatibility, other major, library patch, branch only.
    ("cuda", {"toolkit": "12.8", "driver": "570.86.10"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "12.8", "driver": "550.54.14"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "12.8", "driver": "525.60.12"}, "unsupported", "driver-floor"),
    ("cuda", {"toolkit": "12.8.2", "driver": "570.86.10"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "13.0", "driver": "575.57.08"}, "unsupported", "driver-floor"),
    ("cuda", {"toolkit": "13.0", "driver": "580.65.06"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "13.4.1", "driver": "615.31"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "13.5", "driver": "580.82.07"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "11.8", "driver": "450.80.02"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "11.8", "driver": "450.51.06"}, "unsupported", "driver-floor"),
    ("cuda", {"toolkit": "cu128", "driver": "R575"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "13.0", "driver": "R580"}, "supported", "driver-floor"),
    ("cuda", {"toolkit": "11.8", "driver": "R450"}, "unknown", "driver-floor"),
    ("cuda", {"toolkit": "19.0", "driver": "580.65.06"}, "unknown", "driver-floor"),
    # Device targets of toolkits: dropped and not yet there.
    ("cuda", {"toolkit": "13.0", "device": "V100"}, "unsupported", "toolkit-target"),
    ("cuda", {"toolkit": "12.9", "device": "V100"}, "supported", "toolkit-target"),
    ("cuda", {"toolkit": "12.4", "arch": "12.0"}, "unsupported", "toolkit-target"),
    ("cuda", {"toolkit": "12.8", "arch": "sm_120"}, "supported", "toolkit-target"),
    ("cuda", {"driver": "590.44.01", "device": "V100"}, "unsupported", "device-driver"),
    ("cuda", {"driver": "565.57.01", "device": "RTX 5090"}, "unsupported", "device-driver"),
    ("cuda", {"device": "RTX 9999", "toolkit": "13.0"}, "unknown", "device-known"),
    ("cuda", {"device": "H100", "arch": "sm_80"}, "unsupported", "device-known"),
    # FR-08: device code of torch builds.
    ("cuda", {"torch": "2.6.0+cu124", "device": "RTX 5090"}, "unsupported", "framework-target"),
    ("cuda", {"torch": "2.6.0+cu124", "device": "L4"}, "supported", "framework-target"),
    ("cuda", {"torch": "2.15.0", "device": "GB10"}, "supported", "framework-target"),
    ("cuda", {"torch": "2.13.0+cu126", "device": "P100"}, "supported", "framework-target"),
    ("cuda", {"torch": "2.13.0+cu130", "device": "P100"}, "unsupported", "framework-target"),
    # torch and its CUDA variants.
    ("cuda", {"torch": "2.13.0", "toolkit": "13.0"}, "supported", "framework-set"),
    ("cuda", {"torch": "2.13.0+cu130", "toolkit": "12.6"}, "unsupported", "framework-set"),
    ("cuda", {"torch": "2.13.0", "toolkit": "12.8"}, "unsupported", "framework-set"),
    ("cuda", {"torch": "2.13.0", "toolkit": "12.6.3"}, "supported", "framework-set"),
    ("cuda", {"torch": "2.13.0+cpu"}, "unknown", "framework-set"),
    ("cuda", {"torch": "2.15.0+cu134"}, "unknown", "framework-set"),
    ("cuda", {"torch": "2.99.0"}, "unknown", "framework-set"),
    ("cuda", {"torch": "2.14.0", "torch_tensorrt": "2.14.0"}, "supported", "framework-set"),
    ("cuda", {"torch": "2.12.0", "torch_tensorrt": "2.14.0"}, "unsupported", "framework-set"),
    ("cuda", {"torch": "2.15.0", "python": "3.10"}, "unsupported", "framework-python"),
    ("cuda", {"torch": "2.15.0", "python": "3.11"}, "supported", "framework-python"),
    ("cuda", {"torch": "2.13.0", "libc": "2.26"}, "unsupported", "framework-libc"),
    ("cuda", {"torch": "2.13.0", "os": "ubuntu 22.04"}, "supported", "framework-libc"),
    ("cuda", {"torch": "2.13.0", "os": "alpine 3.20"}, "unsupported", "framework-libc"),
    ("cuda", {"torch": "2.13.0", "os": "plan9"}, "unknown", "framework-libc"),
    # ROCm.
    ("rocm", {"toolkit": "7.2.3", "driver": "30.20.1"}, "supported", "driver-window"),
    ("rocm", {"toolkit": "7.2.3", "driver": "6.4.2"}, "supported", "driver-window"),
    ("rocm", {"toolkit": "7.2.3", "driver": "6.3.1"}, "unsupported", "driver-window"),
    ("rocm", {"toolkit": "7.2.0", "driver": "30.10.2"}, "supported", "driver-window"),
    ("rocm", {"toolkit": "6.4", "driver": "6.0.5"}, "unsupported", "driver-window"),
    ("rocm", {"torch": "2.14.0+rocm7.2", "driver": "30.30.1"}, "supported", "driver-window"),
    ("cuda", {"torch": "2.13.0+cu130", "driver": "550.54.14"}, "unsupported", "driver-floor"),
    ("cuda", {"torch": "2.13.0", "driver": "580.65.06"}, "supported", "driver-floor"),
    ("npu", {"torch_npu": "2.12.0", "driver": "25.0.1"}, "unsupported", "driver-window"),
    ("rocm", {"toolkit": "10.1.0", "driver": "6.3.1"}, "unknown", "driver-window"),
    ("rocm", {"torch": "2.9.1+rocm6.4", "device": "MI355X"}, "unsupported", "framework-target"),
    ("rocm", {"torch": "2.14.0+rocm7.2", "device": "MI355X"}, "supported", "framework-target"),
    ("rocm", {"torch": "2.14.0+rocm7.2", "arch": "gfx1103"}, "unknown", "framework-target"),
    ("rocm", {"torch": "2.15.0+rocm10.0"}, "unknown", "framework-set"),
    ("rocm", {"toolkit": "7.2.3", "arch": "gfx942:sramecc+:xnack-"}, "supported", "toolkit-target"),
    ("rocm", {"toolkit": "7.2.3", "arch": "gfx1103"}, "unsupported", "toolkit-target"),
    ("rocm", {"toolkit": "7.2.3", "arch": "gfx1010"}, "unsupported", "toolkit-target"),
    # FR-11: torch_npu belongs to one torch; FR-12: on x86_64 it is the +cpu build.
    ("npu", {"torch": "2.12.0", "torch_npu": "2.8.0.post2", "toolkit": "8.5.0"}, "unsupported", "framework-set"),
    ("npu", {"torch": "2.8.0+cpu", "torch_npu": "2.8.0.post2", "toolkit": "8.5.0"}, "supported", "framework-set"),
    ("npu", {"torch": "2.8.0", "torch_npu": "2.8.0.post3"}, "unknown", "framework-set"),
    ("npu", {"torch": "2.12.0", "torch_npu": "2.8.0.post3"}, "unsupported", "framework-set"),
    ("npu", {"torch": "2.9.0", "torch_npu": "2.9.0", "arch": "x86_64"}, "unsupported", "framework-label"),
    ("npu", {"torch": "2.9.0+cpu", "torch_npu": "2.9.0", "arch": "x86_64"}, "supported", "framework-label"),
    ("npu", {"torch": "2.9.0+cu128", "torch_npu": "2.9.0"}, "unsupported", "framework-label"),
    ("npu", {"torch_npu": "2.13.0", "toolkit": "9.1.0"}, "unknown", "framework-set"),
    ("npu", {"torch_npu": "2.12.0", "toolkit": "9.1.0"}, "supported", "framework-set"),
    ("npu", {"torch_npu": "2.12.0", "toolkit": "8.5.0"}, "unknown", "framework-set"),
    ("npu", {"torch_npu": "2.7.1", "toolkit": "8.2.RC1"}, "supported", "framework-set"),
    ("npu", {"torch_npu": "2.12.0", "python": "3.14"}, "unsupported", "framework-python"),
    ("npu", {"torch_npu": "2.13.0", "python": "3.14"}, "supported", "framework-python"),
    ("npu", {"toolkit": "9.1.0", "driver": "25.0.3"}, "unsupported", "driver-window"),
    ("npu", {"toolkit": "9.1.0", "driver": "25.5.1"}, "supported", "driver-window"),
    ("npu", {"toolkit": "9.1.0", "firmware": "24.1.0"}, "unknown", "driver-window"),
    ("npu", {"vllm_ascend": "0.23.0", "torch_npu": "2.10.0.post4", "toolkit": "9.1.0"}, "supported", "framework-set"),
    ("npu", {"vllm_ascend": "0.23.0", "torch_npu": "2.9.0"}, "unsupported", "framework-set"),
    ("npu", {"torch": "2.9.0+cpu", "toolkit": "8.5.0"}, "supported", "framework-set"),
    ("npu", {"torch": "1.2.3", "toolkit": "9.1.0"}, "unknown", "framework-set"),
    ("npu", {"torch_npu": "1.11.0", "python": "3.9"}, "unknown", "framework-python"),
    # Neuron: sets, native back end, driver exceptions.
    ("neuron", {"torch_neuronx": "2.14.3.0.1", "arch": "trn1"}, "unsupported", "framework-target"),
    ("neuron", {"torch_neuronx": "2.14.3.0.1", "arch": "trn2", "python": "3.12"}, "supported", "framework-target"),
    ("neuron", {"torch_neuronx": "2.9.0.2.15.32035", "torch": "2.8.0"}, "unsupported", "framework-set"),
    ("neuron", {"toolkit": "2.30.0", "driver": "2.26.5.0"}, "unsupported", "driver-window"),
    ("neuron", {"toolkit": "2.30.0", "driver": "2.29.0.0"}, "unsupported", "driver-window"),
    ("neuron", {"toolkit": "2.31.0", "driver": "2.31.7.0"}, "supported", "driver-window"),
    # TPU: one libtpu for each framework release (FR-16), bounds without labels.
    ("tpu", {"jax": "0.12.0", "libtpu": "0.0.50.1"}, "supported", "framework-set"),
    ("tpu", {"jax": "0.12.0", "libtpu": "0.0.48"}, "unsupported", "framework-set"),
    ("tpu", {"torch_tpu": "0.2.0", "torch": "2.15.0+cpu"}, "supported", "framework-set"),
    ("tpu", {"torch_tpu": "0.2.0", "torch": "2.15.1"}, "unsupported", "framework-set"),
    ("tpu", {"torch_tpu": "0.2.0", "arch": "aarch64"}, "unsupported", "framework-machine"),
    ("tpu", {"torch_tpu": "0.2.0", "libc": "2.28"}, "unsupported", "framework-libc"),
    # XPU: a device without ahead-of-time code is slow at first use, not refused.
    ("xpu", {"torch": "2.13.0", "arch": "pvc", "toolkit": "2026.0.0"}, "supported", "framework-target"),
    ("xpu", {"torch": "2.13.0", "arch": "ats-m150"}, "supported", "framework-target"),
    ("xpu", {"torch": "2.15.0"}, "unknown", "framework-set"),
    ("cpu", {"torch": "2.13.0+cpu", "python": "3.11", "libc": "2.36"}, "supported", "framework-set"),
    ("cpu", {"torch": "2.13.0+cu130"}, "unsupported", "framework-label"),
]


@pytest.mark.parametrize(("backend", "settings", "verdict", "name"), CASES)
def test_the_rule_answers(backend: str, settings: dict[str, str], verdict: Verdict, name: str) -> None:
    answer = ask(backend, **settings)
    found = rule(answer, name)
    assert (found.verdict, found.why) == (verdict, found.why)
    assert answer.verdict == worst(tuple(one.verdict for one in answer.rules))
    for one in answer.rules:
        assert one.why
        assert one.source
        assert not (one.verdict == "supported" and one.fix)


@pytest.mark.parametrize(
    ("backend", "settings", "name", "fix"),
    [
        ("cuda", {"toolkit": "13.0", "driver": "575.57.08"}, "driver-floor", "driver >= 580.65.06, or a toolkit 12.x"),
        ("cuda", {"toolkit": "13.0", "device": "V100"}, "toolkit-target", "a toolkit from 11.0 to 12.9"),
        ("npu", {"torch": "2.12.0", "torch_npu": "2.8.0.post2"}, "framework-set", "torch==2.8.0"),
        ("npu", {"torch": "2.9.0", "torch_npu": "2.9.0", "arch": "x86_64"}, "framework-label", "torch==2.9.0+cpu"),
        ("tpu", {"jax": "0.12.0", "libtpu": "0.0.48"}, "framework-set", "libtpu==0.0.50.*"),
        ("cuda", {"driver": "590.44.01", "device": "V100"}, "device-driver", "driver branch 580"),
    ],
)
def test_the_nearest_change_is_named(backend: str, settings: dict[str, str], name: str, fix: str) -> None:
    assert rule(ask(backend, **settings), name).fix == fix


def test_minor_version_compatibility_says_what_it_does_not_lift() -> None:
    why = rule(ask("cuda", toolkit="12.8", driver="550.144.03"), "driver-floor").why
    assert "made for (>= 570.26)" in why
    assert "PTX newer than the driver cannot be compiled" in why


def test_a_toolkit_taken_from_the_packages_is_said_to_be() -> None:
    answer = ask("cuda", torch="2.13.0+cu126", driver="550.54.14")
    assert answer.notes == ("driver-floor: CUDA 12.6.3 is that of the set torch-2.13.0-cu126",)
    assert ask("rocm", torch="2.14.0", driver="30.30.1").notes == ()


def test_parts_no_rule_reads_are_named() -> None:
    answer = ask("cuda", torch="2.13.0", kernel="6.8.0")
    assert answer.notes == ("no rule of backend cuda reads kernel: it was not judged",)


def test_machine_and_target_can_both_be_asked() -> None:
    loaded = load_backend("cuda")
    question = parse_question({"arch": "sm_90", "machine": "arm64"}, loaded)
    assert (question.target, question.machine) == ("sm_90", "aarch64")
    with pytest.raises(BadInput, match="unknown architecture 'arm'"):
        parse_question({"machine": "arm"}, loaded)


def test_partial_input_says_what_it_would_need() -> None:
    answer = ask("cuda", toolkit="13.0")
    assert (answer.verdict, answer.rules) == ("unknown", ())
    assert "driver-floor would need driver" in answer.needs


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tolkit": "12.8"}, "did you mean 'toolkit'"),
        ({"torhc": "2.13.0"}, "did you mean 'torch'?"),
        ({"torch": "newest"}, "not a version"),
        ({"toolkit": "latest"}, "not a version"),
        ({"driver": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."}, "did not reach"),
        ({"driver": "none"}, "there is no number in it"),
        ({"python": "snake"}, "not a Python version"),
        ({"libc": "uclibc"}, "not a C library"),
        ({"toolkit": " "}, "has no value"),
    ],
)
def test_what_cannot_be_asked_is_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_question(settings, load_backend("cuda"))
    assert message in str(caught.value)


def test_a_backend_without_a_toolkit_says_so() -> None:
    with pytest.raises(BadInput, match="backend cpu has no toolkit"):
        parse_question({"toolkit": "1"}, load_backend("cpu"))


@pytest.mark.parametrize(
    ("text", "found"), [("cp311", "3.11"), ("3.11.4", "3.11"), ("3.14t", "3.14t"), ("python3.12", "3.12")]
)
def test_pythons_in_their_spellings(text: str, found: str) -> None:
    assert parse_question({"python": text}, load_backend("cuda")).python == found


@pytest.mark.parametrize(
    ("text", "found"),
    [("12.8", "12.8"), ("cu128", "12.8"), ("CUDA 12.8.1", "12.8.1"), ("cu132", "13.2"), ("v13.0", "13.0")],
)
def test_toolkits_in_their_spellings(text: str, found: str) -> None:
    assert parse_question({"toolkit": text}, load_backend("cuda")).toolkit == found


def test_os_names_in_their_spellings() -> None:
    assert parse_question({"os": "ubuntu22.04"}, load_backend("cuda")).os == "ubuntu 22.04"
    assert parse_question({"os": "Debian 12"}, load_backend("cuda")).os == "debian 12"


def test_only_what_people_would_name_is_asked_for() -> None:
    needs = ask("cuda", toolkit="12.9", driver="535.104.05", device="H100").needs
    assert needs == ("framework-target would need a framework", "framework-ptx would need a framework")


def test_a_driver_branch_tells_how_long_it_lives() -> None:
    notes = ask("cuda", driver="535.104.05", device="H100").notes
    assert any(note.startswith("driver branch 535: LTS, EOL 2026-06") for note in notes)


@pytest.mark.parametrize(
    ("driver", "said"),
    [("551.61", "drivers for Windows are numbered so"), ("900.1", "newer than all"), ("390.1", "older than all")],
)
def test_a_driver_of_no_linux_branch_is_told(driver: str, said: str) -> None:
    notes = ask("cuda", toolkit="12.8", driver=driver).notes
    assert any(note.startswith(f"driver {driver} is ") and said in note for note in notes), notes
    assert not any("Linux branches" in note for note in ask("cuda", toolkit="12.8", driver="570.124.06").notes)


def test_the_brand_of_a_board_decides_a_requirement() -> None:
    text = "cuda>=13.0 brand=tesla,driver>=535,driver<536"
    node = {"nvidia_require_cuda": text, "driver": "535.183.06"}
    assert ask("cuda", **node, brand="Tesla").verdict == "supported"
    assert ask("cuda", **node, brand="GeForce").verdict == "unsupported"
    unknown = ask("cuda", **node, device="NVIDIA H100 80GB HBM3")
    assert unknown.verdict == "unknown"
    (told,) = [one for one in unknown.rules if one.rule == "require-cuda"]
    assert "its brand" in told.why
    assert told.fix.startswith("give brand=")


def test_a_requirement_that_lists_every_brand_but_geforce_lets_a_data_centre_board_in() -> None:
    brands = [
        "unknown",
        "grid",
        "tesla",
        "nvidia",
        "quadro",
        "quadrortx",
        "nvidiartx",
        "vapps",
        "vpc",
        "vcs",
        "vws",
        "cloudgaming",
    ]
    text = " ".join(["cuda>=13.0", *(f"brand={brand},driver>=535,driver<536" for brand in brands)])
    node = {"nvidia_require_cuda": text, "driver": "535.183.06"}
    assert ask("cuda", **node, device="NVIDIA H100 80GB HBM3").verdict == "supported"
    assert ask("cuda", **node, device="GeForce RTX 4090").verdict == "unsupported"


def test_what_was_read_and_no_rule_reads_is_not_passed_over() -> None:
    answer = ask("cuda", torch="2.9.1", feature="time travel")
    assert answer.verdict == "unknown"
    (told,) = [one for one in answer.rules if one.rule == "setting-known"]
    assert "feature time travel" in told.why


def test_a_release_that_lists_two_packages_does_not_make_them_a_pair() -> None:
    answer = ask("neuron", toolkit="2.28.1", torch_neuronx="2.7.0.2.12.22436", torch="2.8.0")
    assert answer.verdict == "unsupported"
    assert "torch-neuronx 2.7.0.2.12.22436 goes with torch 2.7.0" in answer.rules[0].why


@pytest.mark.parametrize(
    ("text", "settings", "fix"),
    [
        ("cuda>=12.8", {"driver": "550.144.03"}, "driver 570 or newer, or a build for CUDA 12.4"),
        ("cuda>12.4", {"driver": "550.90.07"}, "driver 555 or newer, or a build for CUDA 12.4"),
        ("cuda>=12.0,driver<550", {"driver": "550.54.14"}, "a driver<550"),
        ("arch>=8.0", {"driver": "570.26", "arch": "7.5"}, "a device of compute capability >=8.0"),
        ("cuda>=99.0", {"driver": "570.26"}, "a driver that offers cuda>=99.0, or a build for CUDA 12.8"),
    ],
)
def test_a_requirement_that_is_not_met_tells_what_would_meet_it(text: str, settings: dict[str, str], fix: str) -> None:
    found = rule(ask("cuda", nvidia_require_cuda=text, **settings), "require-cuda")
    assert (found.verdict, found.fix) == ("unsupported", fix)


@pytest.mark.parametrize(
    ("settings", "name", "fix"),
    [
        (
            {"torch": "2.4.1+cu121", "machine": "aarch64"},
            "framework-machine",
            "another build (torch-2.4.1-cu124), or a machine with x86_64",
        ),
        (
            {"tensorrt": "10.5.0", "device": "V100"},
            "tensorrt-device",
            "TensorRT 10.4 for Volta; a device of 7.5 and newer",
        ),
    ],
)
def test_the_nearest_change_is_another_build_or_version(settings: dict[str, str], name: str, fix: str) -> None:
    assert rule(ask("cuda", **settings), name).fix == fix


def test_what_is_wrong_with_a_wheel_is_what_is_mended() -> None:
    wheel = "foo-1.0-cp313-cp313-manylinux_2_17_x86_64.whl"
    assert "musllinux wheel" in rule(ask("cpu", wheel=wheel, os="alpine"), "wheel-tag").fix
    assert "a wheel for that Python" in rule(ask("cpu", wheel=wheel, python="3.13t"), "wheel-tag").fix
    assert "that machine" in rule(ask("cpu", wheel=wheel, machine="aarch64"), "wheel-tag").fix
