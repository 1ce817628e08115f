from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.base.values import LockedBase
from builder.errors import BadInput, BuilderError, Refused
from builder.events import SilentReporter
from builder.image.buildah import BuildahFailed
from builder.image.docker_cli import DockerFailed
from builder.image.values import Wheelhouse
from builder.lock.values import BlockedPackage, Lock
from builder.names import Digest, LayoutRef, Reference, RegistryRef, parse_ref
from builder.pipeline.build import BuildOptions, build, plan_image, target_for
from builder.pipeline.document import build_document, build_text
from builder.pipeline.lock import now
from builder.pipeline.values import BuildOutcome, Step, Work
from builder.project import ImageOptions, Project
from builder.store import Store

DIGEST = Digest.of(b"")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(
        path=tmp_path / "builder.toml",
        name="svc",
        version="1.0+local",
        python="3.11",
        requirements=("numpy",),
        image=ImageOptions(env={}, labels={}),
        backends={},
    )


@pytest.fixture
def lock() -> Lock:
    return Lock(
        backend="cuda",
        project="svc",
        python="3.11",
        arch="x86_64",
        glibc="2.36",
        toolkit="13.0",
        frameworks={},
        requirements=("numpy",),
        packages=(),
        base=LockedBase(
            reference="debian:bookworm", digest=DIGEST, python="3.11", python_path="/usr/bin/python3.11", glibc="2.36"
        ),
        exclude_newer="2026-01-02T03:04:05Z",
        inputs=DIGEST,
        engine="uv 1",
    )


def work(tmp_path: Path, **environ: str) -> Work:
    return Work(store=Store(tmp_path / "store"), environ=environ, reporter=SilentReporter())


@pytest.mark.parametrize(
    ("registry", "to", "place", "tag"),
    [
        (None, None, None, "1.0_local-cuda13.0"),
        ("localhost:5000/team/svc", None, RegistryRef("localhost:5000", "team/svc"), "1.0_local-cuda13.0"),
        ("localhost:5000/team/svc", "oci:out", LayoutRef(Path("out")), "1.0_local-cuda13.0"),
        (None, "localhost:5000/other:mine", RegistryRef("localhost:5000", "other", "mine"), "mine"),
    ],
)
def test_where_an_image_goes(
    project: Project, lock: Lock, registry: str | None, to: str | None, place: Reference | None, tag: str
) -> None:
    found = target_for(replace(project, registry=registry), lock, parse_ref(to) if to else None)
    assert found == (place or LayoutRef(project.root / "dist" / "image"), tag)


def test_the_tag_of_a_node_class_moves_only_by_promotion(project: Project, lock: Lock) -> None:
    with pytest.raises(Refused, match="h100") as caught:
        target_for(project, lock, parse_ref("localhost:5000/svc:h100"))
    assert "builder promote" in caught.value.fix


@pytest.mark.parametrize(
    ("options", "fault", "said"),
    [
        (BuildOptions(engine="docker"), DockerFailed, "no docker client"),
        (BuildOptions(runner="docker"), DockerFailed, "no docker client"),
        (BuildOptions(engine="buildah"), BuildahFailed, "no buildah"),
        (BuildOptions(to=parse_ref("localhost:5000/svc:h100")), Refused, "h100"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_locked(
    project: Project, tmp_path: Path, options: BuildOptions, fault: type[BuilderError], said: str
) -> None:
    """Otherwise a first build ends after minutes of locking and fetching."""
    with pytest.raises(fault, match=said):
        build(project, "cuda", options=options, work=work(tmp_path, PATH=str(tmp_path)))
    with pytest.raises(BadInput, match="cannot be compressed by zstd"):
        build(
            project.with_layers(compression="zstd", estargz=True, bytecode=None),
            "cuda",
            options=BuildOptions(),
            work=work(tmp_path),
        )
    assert not list(tmp_path.rglob("pylock.*"))


def test_a_digest_is_no_place_to_publish_to(project: Project, lock: Lock) -> None:
    with pytest.raises(BadInput, match="cannot publish"):
        target_for(project, lock, parse_ref(f"localhost:5000/svc@{DIGEST}"))


def test_the_time_of_an_image_is_the_locks_unless_source_date_epoch_says_otherwise(
    project: Project, lock: Lock, tmp_path: Path
) -> None:
    house = Wheelhouse(files={})
    assert plan_image(project, lock, house, work(tmp_path)).created == "2026-01-02T03:04:05Z"
    chosen = plan_image(project, lock, house, work(tmp_path, SOURCE_DATE_EPOCH="86400"))
    assert chosen.created == "1970-01-02T00:00:00Z"


def test_the_runtime_of_an_image_is_filled_in_with_the_locks_toolkit(
    project: Project, lock: Lock, tmp_path: Path
) -> None:
    plan = plan_image(project, lock, Wheelhouse(files={}), work(tmp_path))
    assert plan.runtime.env["NVIDIA_REQUIRE_CUDA"] == "cuda>=13.0"


@pytest.mark.parametrize("epoch", ["yesterday", "", "9" * 14, "9" * 30])
def test_source_date_epoch_must_be_a_time(tmp_path: Path, epoch: str) -> None:
    with pytest.raises(BadInput, match="SOURCE_DATE_EPOCH"):
        now(work(tmp_path, SOURCE_DATE_EPOCH=epoch))


def test_a_refused_build_names_the_chain_and_the_mend(lock: Lock) -> None:
    blocked = tuple(
        BlockedPackage(
            package=f"nvidia-{number}",
            version="1",
            backend="cuda",
            chain=("torch-npu", "torch", f"nvidia-{number}"),
            why="nvidia-* is CUDA",
            fix="torch==2.13.0+cpu",
        )
        for number in range(8)
    )
    outcome = BuildOutcome(
        verdict="refused",
        steps=(Step(name="lock", verdict="refused", seconds=1.0),),
        lock=lock,
        blocked=blocked,
    )
    text = build_text(outcome, verdict=str)
    assert "torch-npu > torch > nvidia-" in text
    assert "torch==2.13.0+cpu" in text
    document = build_document(outcome)
    assert (document["verdict"], document["image"], len(document["blocked"])) == ("refused", None, 8)
