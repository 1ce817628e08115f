"""From wheels on disk to a pushed image: the built-in engine beside `docker build` and `docker push`.

Both start from the same base image and the same wheels, and end with an image in the same registry. Docker gets
BuildKit, the wheels as a bind mount, and pip without byte compilation, as a careful Dockerfile would.

    python bench/image.py --wheels DIR [--rounds 3] [--write]

DIR holds the wheels of one environment, for instance from `pip download torch==2.13.0+cpu`. Needs root, dockerd,
docker-registry, and a docker client that builds with BuildKit (before 23, or with buildx); --docker names it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from report import conditions, write_section

sys.path.insert(0, str(Path(__file__).parent.parent))

from builder.base.resolve import resolve_base
from builder.base.values import LockedBase
from builder.events import SilentReporter
from builder.image.base_layers import debian_layer
from builder.image.oci import assemble
from builder.image.values import ImagePlan
from builder.names import RegistryRef
from builder.project.values import CopyRule
from builder.registry.open import open_repository
from builder.store import Store, default_store
from tests import services
from tests.image.plans import make_plan, make_project

QUIET = SilentReporter()
COLD, REBUILD = 5.0, 2.0
"""Targets: times faster than docker from wheels to pushed image; seconds for a changed line of the application."""

DOCKER = ["docker"]
"""The client; --docker replaces it."""

DOCKERFILE = """
FROM {base}
USER root
RUN --mount=type=bind,target=/wheels,source=wheels /opt/venv/bin/python -m pip install --no-index --no-deps \\
    --no-compile --quiet --disable-pip-version-check --root-user-action=ignore {names}
COPY app /app
USER 10001:10001
"""


@dataclass(frozen=True)
class Figures:
    """Seconds of every round."""

    cold: dict[str, list[float]]
    rebuild: dict[str, list[float]]


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Append the seconds that the block takes."""
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)


def run(*command: str, **environ: str) -> None:
    """Run a program quietly; its output is shown when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def a_store(folder: Path, base: LockedBase, source: Store) -> Store:
    """A store that knows the base and no wheel's layer."""
    store = Store(folder)
    for package in base.packages:
        target = store.path(package.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.path(package.sha256), target)
    debian_layer(base, "x86_64", store, QUIET)
    return store


def push(plan: ImagePlan, store: Store, reference: RegistryRef, tag: str) -> None:
    """Assemble into the registry."""
    target = open_repository(reference, environ={}, reporter=QUIET)
    assemble(plan, target=target, tag=tag, store=store, reporter=QUIET, reference=reference)


def measure(wheels: list[Path], rounds: int, work: Path) -> Figures:
    """Both engines in turn, `rounds` times, each round into new repositories and with empty caches of its own."""
    figures = Figures(cold={"builder": [], "docker": []}, rebuild={"builder": [], "docker": []})
    own = default_store(os.environ)
    base = resolve_base(
        "debian:bookworm",
        python="3.11",
        arch="x86_64",
        store=own,
        reporter=QUIET,
        offline=False,
        environ=os.environ,
        open_repository=lambda reference: open_repository(reference, environ={}, reporter=QUIET),
    )
    debian_layer(base, "x86_64", own, QUIET)
    with services.registry(work / "registry") as registry, services.engine(work / "docker") as docker_host:
        docker_base = prepare_docker(work, base, own, registry, docker_host)
        for number in range(rounds):
            ours, theirs = work / f"ours-{number}", work / f"theirs-{number}"
            project = make_project(ours, copy=[CopyRule(source="app", target="/app")])
            write_app(ours, "1")
            store = a_store(work / f"store-{number}", base, own)
            plan = make_plan(project, base, wheels)
            reference = RegistryRef(registry, f"bench/ours-{number}")
            with timed(figures.cold["builder"]):
                push(plan, store, reference, "1")
            write_app(ours, "2")
            with timed(figures.rebuild["builder"]):
                push(plan, store, reference, "2")
            write_app(theirs, "1")
            with timed(figures.cold["docker"]):
                docker_build(theirs, wheels, docker_base, f"{registry}/bench/theirs-{number}:1", docker_host)
            write_app(theirs, "2")
            with timed(figures.rebuild["docker"]):
                docker_build(theirs, wheels, docker_base, f"{registry}/bench/theirs-{number}:2", docker_host)
            shutil.rmtree(store.root)
            run(DOCKER[0], "--host", docker_host, "builder", "prune", "--all", "--force")
    return figures


def write_app(root: Path, text: str) -> None:
    """The application: one file of one line."""
    (root / "app").mkdir(parents=True, exist_ok=True)
    (root / "app/main.py").write_text(f"print({text!r})\n", encoding="utf-8")


def prepare_docker(work: Path, base: LockedBase, store: Store, registry: str, docker_host: str) -> str:
    """The same base with pip added, in the registry and in the engine."""
    pip = work / "pip"
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(pip), "pip")
    plan = make_plan(make_project(work, entrypoint=()), base, sorted(pip.iterdir()))
    reference = RegistryRef(registry, "bench/base")
    push(plan, store, reference, "1")
    name = str(reference.with_tag("1"))
    run(DOCKER[0], "--host", docker_host, "pull", name)
    return name


def docker_build(project: Path, wheels: list[Path], base: str, name: str, docker_host: str) -> None:
    """docker build and docker push, the wheels in the build context."""
    context = project / "context"
    (context / "wheels").mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        target = context / "wheels" / wheel.name
        if not target.exists():
            os.link(wheel, target) if wheel.stat().st_dev == context.stat().st_dev else shutil.copyfile(wheel, target)
    shutil.copytree(project / "app", context / "app", dirs_exist_ok=True)
    names = " ".join(f"/wheels/{wheel.name}" for wheel in wheels)
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=base, names=names), encoding="utf-8")
    run(DOCKER[0], "--host", docker_host, "build", "--network=host", "--tag", name, str(context), DOCKER_BUILDKIT="1")
    run(DOCKER[0], "--host", docker_host, "push", name)


def table(figures: Figures, wheels: list[Path], rounds: int) -> str:
    """The figures as Markdown."""
    size = sum(wheel.stat().st_size for wheel in wheels) / (1 << 20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    about = (
        f"{conditions()}; medians of {rounds} rounds, both engines in turn; {len(wheels)} wheels, {size:.0f} MiB "
        "(torch 2.13.0+cpu and what it needs); base and registry on the same disk. "
        f"Peak memory of the built-in engine: {peak:.0f} MiB."
    )
    lines = [
        about,
        "",
        "| what | builder, s | docker build + push, s | ratio | target |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for title, values, target in (
        ("wheels to pushed image", figures.cold, f"≥ {COLD:.0f}"),
        ("one line of the application changed, pushed", figures.rebuild, f"≤ {REBUILD:.0f}"),
    ):
        ours, theirs = statistics.median(values["builder"]), statistics.median(values["docker"])
        lines.append(f"| {title} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f} | {target} |")
    return "\n".join(lines)


def main() -> int:
    """The benchmark; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    parser.add_argument("--docker", default="docker", help="the docker client")
    options = parser.parse_args()
    DOCKER[0] = options.docker
    wheels = sorted(options.wheels.resolve().glob("*.whl"))
    with tempfile.TemporaryDirectory(prefix="builder-bench-") as work:
        figures = measure(wheels, options.rounds, Path(work))
    text = table(figures, wheels, options.rounds)
    print(text)
    if options.write:
        write_section("image", text)
    cold = statistics.median(figures.cold["docker"]) / statistics.median(figures.cold["builder"])
    return 0 if cold >= COLD and statistics.median(figures.rebuild["builder"]) <= REBUILD else 1


if __name__ == "__main__":
    sys.exit(main())
