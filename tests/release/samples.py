"""A lock, an audit and a smoke report with real-looking values, for any image."""

from __future__ import annotations

from dataclasses import replace

from builder.audit.values import Archs, AuditReport, Finding, Level, TargetAudit
from builder.base.values import DebPackage, LockedBase
from builder.lock.values import Lock, LockedPackage
from builder.names import Digest
from builder.proof.values import Answer, DriverNeed, LinkResult, Proof
from builder.smoke.values import CheckResult, CheckVerdict, LeftOut, SmokeReport

NODE_CLASS = "cpu-x86-64-v3"


def wheel(name: str, version: str, *requires: str, url: str = "") -> LockedPackage:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return LockedPackage(
        name=name,
        version=version,
        file=file,
        sha256=Digest.of(file.encode()),
        url=url or f"https://user:secret@index.example/{file}?token=hush",
        index="https://index.example/simple",
        size=1000,
        requires=tuple(requires),
    )


def lock() -> Lock:
    return Lock(
        backend="cpu",
        project="demo",
        python="3.11",
        arch="x86_64",
        glibc="2.36",
        toolkit=None,
        frameworks={"torch": "2.13.0+cpu"},
        requirements=("torch==2.13.0+cpu", "numpy>=2; python_version >= '3.9'"),
        packages=(
            wheel("numpy", "2.3.5"),
            wheel("sympy", "1.14.0", "mpmath"),
            wheel("mpmath", "1.3.0", url="file:///home/ann/wheels/mpmath-1.3.0-py3-none-any.whl"),
            wheel("torch", "2.13.0+cpu", "sympy"),
        ),
        base=LockedBase(
            reference="debian:bookworm",
            digest=Digest.of(b"base"),
            python="3.11",
            python_path="/usr/bin/python3.11",
            glibc="2.36",
            packages=(
                DebPackage(
                    name="libstdc++6",
                    version="12.2.0-14+deb12u1",
                    architecture="amd64",
                    sha256=Digest.of(b"libstdc++6"),
                    size=613_000,
                    url="https://deb.example/pool/libstdc++6.deb",
                ),
            ),
        ),
        exclude_newer="2026-09-01T00:00:00Z",
        inputs=Digest.of(b"inputs"),
        engine="uv 0.9",
    )


def audit(level: Level = "ok", backend: str = "cpu") -> AuditReport:
    finding = Finding(
        rule="foreign-needed",
        severity="error" if level == "block" else "info",
        backend="cuda",
        path="demo/ext.so",
        evidence="DT_NEEDED libcudart.so.12",
        chain=("demo", "ext"),
        fix="use ext==1+cpu",
    )
    target = TargetAudit(
        name="ext",
        version="1",
        file="ext-1-py3-none-any.whl",
        sha256=Digest.of(b"ext"),
        level=level,
        tokens={"cuda": ("hard", "device")},
        archs=Archs(cuda_sm=("sm_80", "sm_90")),
        findings=(finding,),
    )
    clean = replace(target, name="numpy", file="numpy-2-py3-none-any.whl", level="ok", tokens={}, findings=())
    return AuditReport(backend=backend, targets=(target, clean), policy="2026.1")


def smoke(
    image: Digest,
    *,
    node_class: str | None = NODE_CLASS,
    verdict: CheckVerdict = "passed",
    started: str = "2026-10-01T08:00:00Z",
) -> SmokeReport:
    return SmokeReport(
        image=image,
        backend="cpu",
        node_class=node_class,
        runner="builtin",
        checks=(
            CheckResult(name="import", verdict="passed", seconds=0.75, measures={"modules": 12}),
            CheckResult(
                name="matmul",
                verdict=verdict,
                seconds=0.1,
                measures={"matmul_seconds": 0.031, "dtype": "float32"},
                detail="" if verdict == "passed" else "differs from the reference by 0.2",
            ),
        ),
        started=started,
        lock=Digest.of(b"lock"),
        left_out=(LeftOut(name="warmup", why="the project has none"),),
    )


def proof(
    image: Digest, *, node_class: str = NODE_CLASS, answer: Answer = "proven", reasons: tuple[str, ...] = ()
) -> Proof:
    return Proof(
        image=image,
        node_class=node_class,
        backend="cpu",
        answer=answer,
        reasons=reasons,
        glibc="2.36",
        link=LinkResult(
            objects=3,
            foreign=0,
            programs=("/usr/bin/python3.11",),
            modules=1,
            unresolved=(),
            assumed=(),
            host=(),
            versions=(),
        ),
        cpu=(),
        devices=(),
        driver=DriverNeed(answer="proven", why="the image asks for no driver"),
    )
