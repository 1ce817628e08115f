"""From wheels on disk to a pushed image: the built-in engine beside docker, buildah and skopeo, all in one run.

Every engine starts from the same base image and the same wheels, and ends with an image in the same registry. Docker
gets BuildKit; docker and buildah get the wheels as a bind mount, and pip without byte compilation, as a careful
Dockerfile would. A changed line of the application is measured in three situations: a careful Dockerfile and a warm
cache; a Dockerfile that copies the application before it installs; a machine whose cache is empty.

    python bench/image.py --wheels DIR [--large DIR] [--rounds 3] [--write]

DIR holds the wheels of one environment, for instance from `pip download torch==2.13.0+cpu`; --large those of a CUDA
stack, whose layers are made once for the peak of memory. Needs root, dockerd, docker-registry, buildah, skopeo, and a
docker client that builds with BuildKit (before 23, or with buildx); --docker names it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from isal import isal_zlib
from report import conditions, write_section

sys.path.insert(0, str(Path(__file__).parent.parent))

from builder.base.resolve import resolve_base
from builder.base.values import LockedBase
from builder.events import SilentReporter
from builder.image.base_layers import debian_layer
from builder.image.install import Venv
from builder.image.oci import assemble
from builder.image.splice import WheelFile, wheel_layer
from builder.image.values import ImagePlan
from builder.names import Digest, RegistryRef
from builder.project.values import CopyRule
from builder.registry.layout import Layout
from builder.registry.open import open_repository
from builder.store import Store, default_store
from builder.wheels.archive import DEFLATED, WheelArchive
from tests import services
from tests.image.plans import make_plan, make_project

QUIET = SilentReporter()

DOCKER = ["docker"]
"""The client; --docker replaces it."""

OTHERS = ("docker", "buildah")

REBUILDS = 3
"""Changed lines of the application in each round."""

FROM = "FROM {base}\nUSER root\n"
INSTALL = """\
RUN --mount=type=bind,target=/wheels,source=wheels /opt/venv/bin/python -m pip install --no-index --no-deps \\
    --no-compile --quiet --disable-pip-version-check --root-user-action=ignore {names}
"""
COPY = "COPY app /app\n"
USER = "USER 10001:10001\n"

CAREFUL = FROM + INSTALL + COPY + USER
COPIED_FIRST = FROM + COPY + INSTALL + USER
"""As many are written: what changes most comes before what takes longest."""


@dataclass(frozen=True)
class Figures:
    """Of every round, by program: seconds, or bytes for `uploaded`."""

    cold: dict[str, list[float]] = field(default_factory=dict)
    rebuild: dict[str, list[float]] = field(default_factory=dict)
    """A changed line, with a careful Dockerfile and a warm cache."""
    copied_first: dict[str, list[float]] = field(default_factory=dict)
    """A changed line, where the application is copied before the wheels are installed."""
    empty: dict[str, list[float]] = field(default_factory=dict)
    """A changed line, on a machine that has the base and the wheels and an empty cache."""
    uploaded: dict[str, list[float]] = field(default_factory=dict)
    push: dict[str, list[float]] = field(default_factory=dict)
    pull: dict[str, list[float]] = field(default_factory=dict)
    splice: dict[str, list[float]] = field(default_factory=dict)
    changed_wheel: list[int] = field(default_factory=list)
    """Length of the wheel that was exchanged, in bytes."""
    peaks: dict[str, float] = field(default_factory=dict)
    """MiB of memory by what was built."""


@contextmanager
def timed(into: dict[str, list[float]], name: str) -> Iterator[None]:
    """Append the seconds that the block takes."""
    start = time.perf_counter()
    yield
    into.setdefault(name, []).append(time.perf_counter() - start)


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


def the_base(own: Store) -> LockedBase:
    """The built-in base, from the store of this user where it is there."""
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
    return base


def measure(wheels: list[Path], rounds: int, work: Path) -> Figures:
    """All engines in turn, `rounds` times, each round into new repositories and with empty caches of its own."""
    figures = Figures()
    own = default_store(os.environ)
    base = the_base(own)
    changed = change_a_wheel(wheels, work / "changed")
    figures.changed_wheel.append(next(path.stat().st_size for path in changed if path.parent == work / "changed"))
    with services.registry(work / "registry") as registry, services.engine(work / "docker") as docker_host:
        prepared = prepare_others(work, base, own, registry, docker_host)
        whole_builds(figures, work, wheels, own, registry)
        for number in range(rounds):
            ours = work / f"ours-{number}"
            project = make_project(ours, copy=[CopyRule(source="app", target="/app")])
            store = a_store(work / f"store-{number}", base, own)
            reference = RegistryRef(registry, f"bench/ours-{number}")
            plans = {id(given): make_plan(project, base, given) for given in (wheels, changed)}  # a lock has digests

            def build(tag: str, given: list[Path]) -> None:
                push(plans[id(given)], store, reference, tag)  # noqa: B023 - called in this round

            a_round(figures, "builder", ours, build, wheels, changed, work / "registry")
            write_app(ours, "4")
            emptied = a_store(work / f"emptied-{number}", base, own)
            with timed(figures.empty, "builder"):
                push(plans[id(wheels)], emptied, reference, "4")
            shutil.rmtree(emptied.root)
            for name in OTHERS:
                theirs = work / f"{name}-{number}"
                image = f"{registry}/bench/{name}-{number}"

                def build_other(tag: str, given: list[Path]) -> None:
                    dockerfile_build(name, theirs, given, prepared[name], f"{image}:{tag}", docker_host, work)  # noqa: B023

                a_round(figures, name, theirs, build_other, wheels, changed, work / "registry")
                shutil.rmtree(theirs)
            other_situations(figures, work / f"situations-{number}", wheels, prepared["docker"], registry, docker_host)
            shutil.rmtree(store.root)
        for number in range(max(rounds, 3)):
            transfers(figures, f"{registry}/bench/ours-0:1", work, number)
    for _ in range(max(rounds, 3)):
        splicing(figures, max(wheels, key=lambda path: path.stat().st_size), work)
    return figures


def a_round(
    figures: Figures,
    name: str,
    root: Path,
    build: Callable[[str, list[Path]], None],
    wheels: list[Path],
    changed: list[Path],
    registry: Path,
) -> None:
    """Cold; then a changed line of the application; then a changed dependency."""
    write_app(root, "1")
    with timed(figures.cold, name):
        build("1", wheels)
    for number in range(REBUILDS):
        write_app(root, f"2.{number}")
        with timed(figures.rebuild, name):
            build(f"2.{number}", wheels)
    if name == "buildah":
        return  # its cache does not look into bind mounts: it would push the old dependency
    before = stored(registry)
    build("3", changed)
    figures.uploaded.setdefault(name, []).append(stored(registry) - before)


def other_situations(
    figures: Figures, folder: Path, wheels: list[Path], base: str, registry: str, docker_host: str
) -> None:
    """A changed line by docker where its cache is of little or no use."""
    image = f"{registry}/bench/{folder.name}"
    forget = (DOCKER[0], "--host", docker_host)

    def build(tag: str, dockerfile: str, *more: str) -> None:
        dockerfile_build(
            "docker", folder, wheels, base, f"{image}:{tag}", docker_host, folder, dockerfile=dockerfile, more=more
        )

    write_app(folder, "1")
    run(*forget, "builder", "prune", "--all", "--force")
    build("first-1", COPIED_FIRST)
    write_app(folder, "2")
    with timed(figures.copied_first, "docker"):
        build("first-2", COPIED_FIRST)
    run(*forget, "builder", "prune", "--all", "--force")
    build("1", CAREFUL, "--build-arg", "BUILDKIT_INLINE_CACHE=1")
    for number, (name, more) in enumerate(
        (("docker, nothing", ()), ("docker, --cache-from the registry", ("--cache-from", f"{image}:1")))
    ):
        write_app(folder, f"3.{number}")
        listed = subprocess.run(
            [*forget, "image", "ls", "--quiet", "--filter", f"reference={registry}/bench/*-*"],
            capture_output=True,
            text=True,
            check=True,
        )
        if listed.stdout:
            run(*forget, "image", "rm", "--force", *set(listed.stdout.split()))
        run(*forget, "builder", "prune", "--all", "--force")
        with timed(figures.empty, name):
            build(f"3.{number}", CAREFUL, *more)
    run(*forget, "builder", "prune", "--all", "--force")
    shutil.rmtree(folder)


def whole_builds(figures: Figures, work: Path, wheels: list[Path], own: Store, registry: str) -> None:
    """`builder build` as it is typed: lock checked, wheels audited, image pushed, evidence attached, tag written."""
    folder = work / "whole"
    write_app(folder, "1")
    pins = [f"{parts[0]}=={parts[1]}" for parts in (wheel.name.split("-") for wheel in wheels)]
    (folder / "builder.toml").write_text(
        f'name = "bench"\nversion = "1.0"\npython = "3.11"\nrequirements = {pins!r}\n'
        '[image]\nentrypoint = ["python", "/app/main.py"]\ncopy = [{ from = "app", to = "/app" }]\n[backend.cpu]\n',
        encoding="utf-8",
    )
    environ = {
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "BUILDER_STORE": str(own.root),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels[0].parent),
    }
    command = (sys.executable, "-m", "builder", "build", "--backend", "cpu", "--no-smoke", "--quiet")
    project = ("--project", str(folder))
    run(*command, *project, "--to", f"{registry}/bench/whole:1", **environ)
    for number in range(REBUILDS):
        write_app(folder, f"2.{number}")
        with timed(figures.rebuild, "builder build"):
            run(*command, *project, "--locked", "--to", f"{registry}/bench/whole:2.{number}", **environ)


def stored(registry: Path) -> int:
    """Bytes of all blobs in the registry."""
    return sum(path.stat().st_size for path in (registry / "storage").rglob("blobs/**/data"))


def change_a_wheel(wheels: list[Path], folder: Path) -> list[Path]:
    """The wheels, the median one of those above 1 MiB with one file more."""
    folder.mkdir()
    large = sorted((path for path in wheels if path.stat().st_size >= 1 << 20), key=lambda path: path.stat().st_size)
    chosen = large[len(large) // 2 - 1]
    copy = folder / chosen.name
    shutil.copyfile(chosen, copy)
    with zipfile.ZipFile(copy, "a") as archive:
        archive.writestr(zipfile.ZipInfo("a_new_module.py"), "CHANGED = True\n")
    return [copy if path == chosen else path for path in wheels]


def transfers(figures: Figures, image: str, work: Path, number: int) -> None:
    """One image out of the registry into a layout and on to an empty registry, by `builder copy` and by skopeo.

    Into another registry, because skopeo remembers where it saw a blob and has it mounted from there.
    """
    environ = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    for name in ("builder", "skopeo") if number % 2 else ("skopeo", "builder"):
        folder, storage = work / f"copy-{name}", work / f"registry-{name}-{number}"
        with services.registry(storage) as registry:
            pull, back = transfer_commands(name, image, folder, f"{registry}/bench/copy:1")
            with timed(figures.pull, name):
                run(*pull, **environ)
            with timed(figures.push, name):
                run(*back, **environ)
        shutil.rmtree(folder)
        shutil.rmtree(storage)


def transfer_commands(name: str, image: str, folder: Path, target: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Pull and push of one program."""
    if name == "builder":
        copy = (sys.executable, "-m", "builder", "copy", "--quiet")
        return (*copy, image, f"oci:{folder}:1"), (*copy, f"oci:{folder}:1", target)
    copy = ("skopeo", "copy", "--quiet", "--src-tls-verify=false", "--dest-tls-verify=false")
    return (*copy, f"docker://{image}", f"oci:{folder}:1"), (*copy, f"oci:{folder}:1", f"docker://{target}")


def splicing(figures: Figures, wheel: Path, work: Path) -> None:
    """The largest wheel as a layer, beside a bare loop that inflates it and takes the same two digests."""
    digest = Digest.of_file(wheel)
    known = WheelFile(file=wheel.name, name="bench", path=wheel, sha256=digest, title="bench")
    store = Store(work / "splice-store")
    with timed(figures.splice, "builder"):
        wheel_layer([known], Venv(root="/opt/venv", python="3.11"), store, title="bench")
    shutil.rmtree(store.root)
    with timed(figures.splice, "bare loop"):
        bare_loop(wheel)


def bare_loop(wheel: Path) -> None:
    """Inflate each member by ISA-L, one SHA-256 over what comes out and one over what goes in."""
    plain, packed = hashlib.sha256(), hashlib.sha256()
    with WheelArchive.open(wheel) as archive:
        for member in archive.members:
            with archive.raw(member) as data:
                packed.update(data)
                if member.method != DEFLATED:
                    plain.update(data)
                    continue
                inflater = isal_zlib.decompressobj(-15)
                for start in range(0, len(data), 1 << 20):
                    piece = inflater.decompress(data[start : start + (1 << 20)])
                    plain.update(piece)


def peak_of(wheels: Path) -> float:
    """MiB of memory that a process of its own takes to assemble these wheels into a layout."""
    done = subprocess.run([sys.executable, __file__, "--peak", str(wheels)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def print_peak(wheels: Path) -> int:
    """The other end of `peak_of`: wheels and base into a layout, and the most memory that took, in MiB."""
    with tempfile.TemporaryDirectory(prefix="builder-bench-") as name:
        work = Path(name)
        own = default_store(os.environ)
        base = the_base(own)
        plan = make_plan(make_project(work), base, sorted(wheels.glob("*.whl")))
        store = a_store(work / "store", base, own)
        assemble(plan, target=Layout(work / "out"), tag="1", store=store, reporter=QUIET)
    # Not getrusage: its maximum starts with that of the process which started this one.
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            print(int(line.split()[1]) / 1024)
    return 0


def write_app(root: Path, text: str) -> None:
    """The application: one file of one line."""
    (root / "app").mkdir(parents=True, exist_ok=True)
    (root / "app/main.py").write_text(f"print({text!r})\n", encoding="utf-8")


def prepare_others(work: Path, base: LockedBase, store: Store, registry: str, docker_host: str) -> dict[str, str]:
    """The same base with pip added, in the registry and in both engines; its name by engine."""
    pip = work / "pip"
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(pip), "pip")
    plan = make_plan(make_project(work, entrypoint=()), base, sorted(pip.iterdir()))
    reference = RegistryRef(registry, "bench/base")
    push(plan, store, reference, "1")
    name = str(reference.with_tag("1"))
    run(DOCKER[0], "--host", docker_host, "pull", name)
    storage = work / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{work}/buildah-run"\ngraphroot = "{work}/buildah-graph"\n',
        encoding="utf-8",
    )
    run("buildah", "pull", "--quiet", "--tls-verify=false", name, **buildah_environ(work))
    return dict.fromkeys(OTHERS, name)


def buildah_environ(work: Path) -> dict[str, str]:
    """Storage of its own; chroot, because namespaces may not be allowed where this runs."""
    return {
        "CONTAINERS_STORAGE_CONF": str(work / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "_CONTAINERS_OVERLAY_DISABLE_IDMAP": "1",
    }


def dockerfile_build(
    engine: str,
    project: Path,
    wheels: list[Path],
    base: str,
    name: str,
    docker_host: str,
    work: Path,
    *,
    dockerfile: str = CAREFUL,
    more: tuple[str, ...] = (),
) -> None:
    """Build by docker or buildah and push, the wheels in the build context; `more` are options of `docker build`."""
    context = project / "context"
    shutil.rmtree(context, ignore_errors=True)
    (context / "wheels").mkdir(parents=True)
    for wheel in wheels:
        target = context / "wheels" / wheel.name
        try:
            os.link(wheel, target)
        except OSError:
            shutil.copy2(wheel, target)
    shutil.copytree(project / "app", context / "app")
    names = " ".join(f"/wheels/{wheel.name}" for wheel in wheels)
    (context / "Dockerfile").write_text(dockerfile.format(base=base, names=names), encoding="utf-8")
    if engine == "docker":
        docker = (DOCKER[0], "--host", docker_host)
        run(*docker, "build", "--network=host", *more, "--tag", name, str(context), DOCKER_BUILDKIT="1")
        run(*docker, "push", name)
        return
    environ = buildah_environ(work)
    run("buildah", "build", "--layers", "--quiet", "--pull=never", "--tag", name, str(context), **environ)
    run("buildah", "push", "--quiet", "--tls-verify=false", name, **environ)


@dataclass(frozen=True)
class Row:
    """One measured thing beside another, and what it should come to."""

    what: str
    builder: str
    other: str
    ratio: str
    target: str
    met: bool

    def line(self) -> str:
        """As a row of Markdown."""
        mark = "" if self.met else " (missed)"
        return f"| {self.what} | {self.builder} | {self.other} | {self.ratio} | {self.target}{mark} |"


def rows(figures: Figures) -> list[Row]:
    """Every target, with what it came to."""
    median = statistics.median
    found = []
    changed = "one line of the application changed, pushed"
    rebuilt = figures.rebuild["builder"]
    for title, mine, values, targets in (
        ("wheels to pushed image", figures.cold["builder"], figures.cold, {"docker": 10.0, "buildah": 6.0}),
        (
            f"{changed}: careful Dockerfile, warm cache",
            rebuilt,
            figures.rebuild,
            {"docker": 20.0, "buildah": None},
        ),
        (f"{changed}: application copied before the install", rebuilt, figures.copied_first, {"docker": 20.0}),
        (
            f"{changed}: cache and store empty, layers in the registry",
            figures.empty["builder"],
            figures.empty,
            {name: None for name in figures.empty if name != "builder"},
        ),
    ):
        ours = median(mine)
        for name, target in targets.items():
            theirs = median(values[name])
            wanted = f"≥ {target:.0f}" if target else ""
            met = target is None or theirs / ours >= target
            found.append(Row(title, f"{ours:.2f} s", f"{name} {theirs:.2f} s", f"{theirs / ours:.1f}", wanted, met))
    seconds = median(rebuilt)
    found.append(Row(f"{changed}, in seconds", f"{seconds:.2f} s", "", "", "≤ 2 s", seconds <= 2))
    seconds = median(figures.rebuild["builder build"])
    title = f"{changed}: the whole `builder build`, with audit, bill of materials and provenance"
    found.append(Row(title, f"{seconds:.2f} s", "", "", "≤ 2 s", seconds <= 2))
    (wheel,) = figures.changed_wheel
    ours = median(figures.uploaded["builder"])
    theirs = median(figures.uploaded["docker"])
    found.append(
        Row(
            f"one dependency of {wheel / 1e6:.1f} MB changed, uploaded",
            f"{ours / 1e6:.1f} MB",
            f"docker {theirs / 1e6:.1f} MB",
            f"{theirs / ours:.1f}",
            "≤ wheel + 1 MB",
            ours <= wheel + 1e6,
        )
    )
    for title, values in (("push an image from a layout", figures.push), ("pull it into a layout", figures.pull)):
        ours, theirs = median(values["builder"]), median(values["skopeo"])
        found.append(
            Row(title, f"{ours:.2f} s", f"skopeo {theirs:.2f} s", f"{theirs / ours:.2f}", "≥ 0.8", theirs / ours >= 0.8)
        )
    ours, theirs = median(figures.splice["builder"]), median(figures.splice["bare loop"])
    found.append(
        Row(
            "largest wheel to layer",
            f"{ours:.2f} s",
            f"bare ISA-L inflate and two SHA-256 {theirs:.2f} s",
            f"{theirs / ours:.2f}",
            "≥ 0.7",
            theirs / ours >= 0.7,
        )
    )
    for name, peak in figures.peaks.items():
        peak_mb = peak * (1 << 20) / 1e6
        found.append(Row(f"peak memory, {name}", f"{peak_mb:.0f} MB", "", "", "≤ 250 MB", peak_mb <= 250))
    return found


def table(found: list[Row], wheels: list[Path], rounds: int, load: float) -> str:
    """The figures as Markdown."""
    size = sum(wheel.stat().st_size for wheel in wheels) / (1 << 20)
    measured = f"medians of {rounds} rounds" if rounds > 1 else "one round"
    about = (
        f"{conditions()}; {measured}, all engines in turn; {len(wheels)} wheels, {size:.0f} MiB "
        "(torch 2.13.0+cpu and what it needs); base and registry on the same disk; "
        f"load of the machine before the run {load:.1f}."
    )
    head = ["| what | builder | beside it | ratio | target |", "| --- | ---: | ---: | ---: | ---: |"]
    return "\n".join([about, "", *head, *(row.line() for row in found)])


def main() -> int:
    """The benchmark; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--large", type=Path, help="wheels of a CUDA stack")
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    parser.add_argument("--docker", default="docker", help="the docker client")
    options = parser.parse_args()
    if options.peak:
        return print_peak(options.peak)
    if not options.wheels:
        parser.error("--wheels is missing")
    DOCKER[0] = options.docker
    wheels = sorted(options.wheels.resolve().glob("*.whl"))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="builder-bench-", ignore_cleanup_errors=True) as name:
        try:
            figures = measure(wheels, options.rounds, Path(name))
        finally:
            with contextlib.suppress(SystemExit):
                run("buildah", "rmi", "--all", "--force", **buildah_environ(Path(name)))
    figures.peaks["these wheels"] = peak_of(options.wheels.resolve())
    if options.large:
        size = sum(path.stat().st_size for path in options.large.glob("*.whl"))
        figures.peaks[f"a CUDA stack of {size / 1e9:.1f} GB"] = peak_of(options.large.resolve())
    found = rows(figures)
    text = table(found, wheels, options.rounds, load)
    print(text)
    if options.write:
        write_section("image", text)
    return 0 if all(row.met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
