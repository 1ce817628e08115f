"""One plan for each backend, from the real backend tables and a lock written down here.

python -m tests.dockerfile.plans        renew tests/dockerfile/golden
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builder import resources
from builder.base.values import DebPackage, LockedBase
from builder.image.dockerfile import BuilderKind, public_base, render, run_prefix
from builder.image.labels import image_labels
from builder.image.values import ImagePlan, Wheelhouse
from builder.lock.values import Lock, LockedPackage
from builder.matrix.load import load_backend
from builder.names import Digest
from builder.project.values import CopyRule, ImageOptions, Project, Warmup

GOLDEN = Path(__file__).parent / "golden"

LOCKED = {
    "cpu": (None, {"numpy": "2.3.5", "onnxruntime": "1.23.2"}),
    "cuda": ("13.0", {"numpy": "2.3.5", "torch": "2.13.0"}),
    "rocm": ("7.2", {"numpy": "2.3.5", "torch": "2.13.0+rocm7.2"}),
    "npu": ("9.1.0", {"torch": "2.13.0+cpu", "torch-npu": "2.13.0"}),
    "neuron": ("2.31.1", {"torch-neuronx": "2.9.0"}),
    "tpu": ("0.0.52", {"jax": "0.12.0.1", "libtpu": "0.0.52"}),
    "xpu": ("2026.2", {"torch": "2.13.0+xpu"}),
    "hpu": ("1.23.0", {"habana-torch-plugin": "1.23.0.695", "torch": "2.9.0+hpu.1.23.0.695"}),
    "musa": ("4.3.2", {"torch": "2.7.1+musa.4.0.0", "torch-musa": "2.7.1"}),
    "mlu": ("2.15", {"torch": "2.4.0+cpu", "torch-mlu": "1.22.0+torch2.4.0"}),
    "dtk": ("26.04", {"torch": "2.10.0+das.dtk2604"}),
    "maca": ("3.7", {"torch": "2.8.0+metax3.7.1.3"}),
    "corex": ("4.2", {"torch": "2.4.1+corex.4.2.0"}),
}
"""Toolkit and packages, as locks of the examples hold them."""

VENDOR_BASE = "registry.example.org/vendor/base"


def make_plan(backend: str) -> ImagePlan:
    """The plan of a small service for this backend."""
    toolkit, packages = LOCKED[backend]
    project = Project(
        path=Path("project/builder.toml"),
        name="demo",
        version="1.2.0",
        python="3.11",
        description='Says "hello" for $5.',
        requirements=tuple(packages),
        image=ImageOptions(
            entrypoint=("python", "-m", "demo"),
            command=("--port", "8080"),
            ports=("8080/tcp",),
            env={"DEMO_GREETING": 'cost $5, "really" \\o/', "PYTHONUNBUFFERED": "1"},
            labels={"com.example.team": "platform"},
            copy=(CopyRule(source="demo", target="/app/demo"),),
        ),
        backends={},
        warmup=Warmup(command=("python", "-m", "demo", "--once"), timeout=60),
    )
    lock = Lock(
        backend=backend,
        project="demo",
        python="3.11",
        arch="x86_64",
        glibc="2.36",
        toolkit=toolkit,
        frameworks={},
        requirements=tuple(packages),
        packages=tuple(_locked(name, version) for name, version in sorted(packages.items())),
        base=_base(backend),
        exclude_newer="2026-11-30T00:00:00Z",
        inputs=Digest.of(backend.encode()),
        engine="uv 0.9.0",
    )
    plan = ImagePlan(
        project=project,
        lock=lock,
        wheelhouse=Wheelhouse(files={}),
        runtime=load_backend(backend, resources.matrices_dir()).spec.runtime,
        labels={},
        created="2026-11-30T00:00:00Z",
    )
    return replace(plan, labels=image_labels(project, lock, run_line=run_prefix(plan)))


def text(backend: str, builder: BuilderKind = "buildkit") -> str:
    """The Dockerfile of that plan."""
    plan = make_plan(backend)
    image, note = public_base(plan.lock.base)
    return render(plan, base_image=image, base_note=note, builder=builder).text


def _locked(name: str, version: str) -> LockedPackage:
    file = f"{name.replace('-', '_')}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    return LockedPackage(
        name=name,
        version=version,
        file=file,
        sha256=Digest.of(file.encode()),
        url=f"https://index.example.org/{file}",
        index="https://index.example.org/simple",
        size=1000,
        requires=(),
    )


def _base(backend: str) -> LockedBase:
    vendor = load_backend(backend).spec.vendor_base
    package = DebPackage(
        name="python3.11-minimal",
        version="3.11.2",
        architecture="amd64",
        sha256=Digest.of(b"deb"),
        size=1,
        url="pool/x",
    )
    return LockedBase(
        reference=f"{VENDOR_BASE}:1.0" if vendor else "debian:bookworm",
        digest=Digest.of(b"base of " + (backend.encode() if vendor else b"debian")),
        python="3.11",
        python_path="/usr/bin/python3.11",
        glibc="2.36",
        packages=() if vendor else (package,),
    )


def renew() -> None:
    """Write every golden file."""
    GOLDEN.mkdir(exist_ok=True)
    for backend in LOCKED:
        (GOLDEN / f"{backend}.Dockerfile").write_text(text(backend), encoding="utf-8")
    (GOLDEN / "cpu-classic.Dockerfile").write_text(text("cpu", "classic"), encoding="utf-8")


if __name__ == "__main__":
    renew()
