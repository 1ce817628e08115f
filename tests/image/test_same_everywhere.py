"""Same inputs, same digest: whoever builds, where, when, with how many workers; and after being killed at any point."""

from __future__ import annotations

import codecs
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from builder.base.values import LockedBase
from builder.events import SilentReporter
from builder.image.oci import assemble
from builder.image.values import BuiltImage, ImagePlan
from builder.names import Digest
from builder.project.values import CopyRule
from builder.registry.layout import Layout
from builder.store import NoRoom, Store
from tests.base.debs import locked_base
from tests.image.plans import make_plan, make_project
from tests.image.test_splice import FILES, NOISE, POINTS
from tests.image.wheels import build_wheel


def a_plan(
    root: Path, base: LockedBase, *, backend: str = "cpu", extra: str = "extra", version: str = "1.0"
) -> ImagePlan:
    """Wheels of every kind, large and small ones; `extra` is one that other plans may not have."""
    wheels = root / "wheels"
    wheels.mkdir(parents=True)
    (root / "app").mkdir()
    (root / "app/main.py").write_text("print('hello')\n")
    (root / "app/run.sh").write_text("#!/bin/sh\n")
    (root / "app/run.sh").chmod(0o755)
    built = [
        build_wheel(wheels, files=FILES, entry_points=POINTS),
        *(build_wheel(wheels, f"large{n}", files={f"large{n}.bin": (NOISE * 8)[n:]}) for n in range(3)),
        *(build_wheel(wheels, f"small{n}", files={f"small{n}.py": b"x = %d\n" % n}) for n in range(5)),
        build_wheel(wheels, extra, version, files={f"{extra}.bin": (NOISE * 5)[7:] + version.encode()}),
    ]
    project = make_project(root, copy=[CopyRule(source="app", target="/app")])
    plan = make_plan(project, base, built)
    return replace(plan, lock=replace(plan.lock, backend=backend))


def build(plan: ImagePlan, out: Path, store: Store, *, workers: int | None = None) -> BuiltImage:
    return assemble(
        plan, target=Layout(out), tag="1.0", store=store, reporter=SilentReporter(), workers=workers, offline=True
    )


def main(folder: str, base: str, store: str, workers: str, now: str, user: str) -> None:
    """Run by a test as a process of its own, as another user and on another day."""
    # The interpreter's own folder may be closed to that user, so all that is imported must be here before.
    codecs.lookup("cp437")
    os.setuid(int(user))
    time.time = lambda: float(now)
    root = Path(folder)
    plan = a_plan(root, LockedBase.from_json(json.loads(Path(base).read_text())))
    for path in root.rglob("*"):
        os.utime(path, (float(now), float(now)))
    sys.stdout.write(str(build(plan, root / "out", Store(Path(store)), workers=int(workers)).digest))


@pytest.fixture
def base(tmp_path: Path, store: Store) -> LockedBase:
    return locked_base(tmp_path / "base", store)


def fresh(store: Store, root: Path) -> Store:
    """A store that knows the base's packages and nothing more."""
    shutil.copytree(store.root / "sha256", root / "sha256")
    return Store(root)


def test_folder_user_day_seed_umask_and_workers_change_nothing(tmp_path: Path, base: LockedBase, store: Store) -> None:
    ways = (
        ("one", 0o022, "1", "0", "UTC", "1700000000", os.geteuid()),
        (
            "some where else",
            0o077,
            "2",
            "4242",
            "Asia/Tokyo",
            "1900000000",
            12345 if os.geteuid() == 0 else os.geteuid(),
        ),
    )
    digests = {str(build(a_plan(tmp_path / "here", base), tmp_path / "out", store).digest)}
    for name, umask, workers, seed, zone, now, user in ways:
        # Not below tmp_path, which other users cannot enter.
        with tempfile.TemporaryDirectory(prefix="builder-test-") as folder:
            place = Path(folder) / name
            fresh(store, place / "store")
            (place / "base.json").write_text(json.dumps(base.to_json()))
            for path in (Path(folder), *Path(folder).rglob("*")):
                os.chown(path, user, -1)
            words = [place / "project", place / "base.json", place / "store", workers, now, user]
            done = subprocess.run(
                [sys.executable, "-c", f"import {__name__} as here, sys; here.main(*sys.argv[1:])", *map(str, words)],
                env={"PYTHONHASHSEED": seed, "TZ": zone, "HOME": folder, "PYTHONPATH": os.pathsep.join(sys.path)},
                umask=umask,
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


def blobs(layout: Path) -> set[str]:
    return {path.name for path in (layout / "blobs/sha256").iterdir()}


def test_backends_share_every_layer_of_their_common_wheels(tmp_path: Path, base: LockedBase, store: Store) -> None:
    cpu = build(a_plan(tmp_path / "cpu", base), tmp_path / "out", store)
    cuda = build(a_plan(tmp_path / "cuda", base, backend="cuda", extra="toolkit"), tmp_path / "out", store)
    shared = {layer.descriptor.digest for layer in cpu.layers}
    own = [layer.title for layer in cuda.layers if layer.descriptor.digest not in shared]
    assert own == ["toolkit 1.0"]


def test_a_changed_dependency_sends_its_layer_and_little_more(tmp_path: Path, base: LockedBase, store: Store) -> None:
    out = tmp_path / "out"
    build(a_plan(tmp_path / "one", base), out, store)
    before = blobs(out)
    after = build(a_plan(tmp_path / "two", base, version="1.1"), out, store)
    sent = blobs(out) - before
    changed = [layer for layer in after.layers if layer.descriptor.digest.hex in sent]
    assert [layer.title for layer in changed] == ["extra 1.1"]
    wheel = next((tmp_path / "two/wheels").glob("extra-*")).stat().st_size
    assert sum((out / "blobs/sha256" / name).stat().st_size for name in sent) < wheel + 100_000
    assert len(sent) == 3, "the layer, the configuration and the manifest"


# Interrupted.


def check_layout(out: Path) -> None:
    """Whatever is there is whole, and a tag names a whole image."""
    if not out.exists():
        return
    for path in (out / "blobs/sha256").glob("[0-9a-f]*"):
        if len(path.name) == 64:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    layout = Layout(out)
    for tag in layout.tags():
        found = layout.resolve(tag)
        assert found is not None
        manifest = layout.manifest(found.digest)
        assert manifest is not None
        document = json.loads(manifest.raw)
        for row in (document["config"], *document["layers"]):
            assert layout.has_blob(Digest.parse(row["digest"]))


def _worker(plan: ImagePlan, out: Path, store: Path) -> None:
    build(plan, out, Store(store))


def test_a_build_that_is_killed_anywhere_leaves_nothing_half_done(
    tmp_path: Path, base: LockedBase, store: Store
) -> None:
    """Ten times by SIGKILL, five times by SIGINT, over the time that a whole build takes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    plan = a_plan(tmp_path / "project", base)
    expected = build(plan, tmp_path / "expected", fresh(store, tmp_path / "other")).digest

    def started(number: int) -> tuple[multiprocessing.process.BaseProcess, Path, Path]:
        out, own = tmp_path / f"out-{number}", fresh(store, tmp_path / f"store-{number}").root
        process = context.Process(target=_worker, args=(plan, out, own))
        process.start()
        return process, out, own

    process, out, _ = started(0)
    begun = time.monotonic()
    process.join()
    whole = time.monotonic() - begun
    assert process.exitcode == 0
    check_layout(out)
    killed = 0
    for number in range(1, 16):
        process, out, own = started(number)
        process.join(whole * number / 16)
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL if number % 3 else signal.SIGINT)
        process.join(120)
        assert process.exitcode is not None, "it did not end"
        killed += process.exitcode != 0
        check_layout(out)
        assert build(plan, out, Store(own)).digest == expected
        check_layout(out)
        shutil.rmtree(own)
    assert killed, "every build had ended before it was killed"


def test_a_full_disk_below_the_layout_leaves_no_tag(
    tmp_path: Path, base: LockedBase, store: Store, full_disk: Path
) -> None:
    plan = a_plan(tmp_path / "project", base)
    with pytest.raises(NoRoom, match="disk full"):
        build(plan, full_disk / "out", store)
    assert Layout(full_disk / "out").tags() == ()
    check_layout(full_disk / "out")
    assert build(plan, tmp_path / "out", store).digest
