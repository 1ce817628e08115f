"""What must hold whatever happens: no tag on a part, no bytes under another's name, and a rerun that ends it."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from builder.errors import BuilderError, OutsideFailed
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.registry.client import Remote
from builder.registry.copy import copy
from builder.registry.errors import RegistryRefused
from builder.registry.layout import Layout
from builder.registry.manifests import is_referrers_tag, pointed_blobs
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType, Repository
from builder.release.publish import TagTaken, publish
from builder.store import NoRoom
from tests import services
from tests.conftest import RunBuilder
from tests.registry.conftest import Opener
from tests.registry.little import Answer, Asked, Little, error, random_bytes
from tests.registry.samples import image, referrer

SEED = 20261130
SILENT = SilentReporter()


def release(repository: Repository, text: str = "release", tag: str | None = "1.0") -> Manifest:
    """An image of several blobs with two things attached."""
    extra = tuple(random_bytes(40_000, f"{text}{number}") for number in range(3))
    made = image(repository, text=text, tag=tag, extra=extra)
    for number in range(2):
        repository.put_manifest(referrer(made, repository, artifact_type="a/b", body=f"{text} {number}".encode()))
    return made


def whole(little: Little, name: str, tag: str) -> bool:
    """Whether all that a tag names is there, byte for byte."""
    raw = little.manifests[name, tag][1]
    blobs = pointed_blobs(Manifest(little.manifests[name, tag][0], raw))
    return all(Digest.of(little.blobs.get((name, str(blob.digest)), b"")) == blob.digest for blob in blobs)


def ended(
    words: list[str], environment: dict[str, str], folder: Path, number: signal.Signals, go: threading.Event
) -> int:
    """Start a command, send the signal when `go` is set, and give its exit status."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "builder", *words],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not go.wait(0.05):
        pass
    process.send_signal(number)
    return process.wait(60)


POINTS = sorted(random.Random(SEED).sample(range(1, 26), 3))  # noqa: S311 - the same places each time
SIGNALS = [signal.SIGINT, signal.SIGKILL]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("point", POINTS)
def test_a_push_stopped_anywhere_leaves_no_tag_on_a_part_and_the_next_one_ends_it(
    little_registry: Little,
    builder_environment: dict[str, str],
    run_builder: RunBuilder,
    tmp_path: Path,
    point: int,
    number: signal.Signals,
) -> None:
    little_registry.referrers_endpoint = False
    layout = Layout(tmp_path / "dist")
    made = release(layout)
    reached = threading.Event()

    def stop_here(asked: Asked) -> Answer | None:
        if len(little_registry.log) >= point:
            reached.set()
            time.sleep(0.2)  # long enough for the signal to come before the answer, or while later ones are sent
        return None

    little_registry.fault = stop_here
    words = ["publish", "oci:dist:1.0", "--to", f"{little_registry.host}/app:1.0"]
    code = ended(words, builder_environment, tmp_path, number, reached)
    assert code in ((0, 130) if number is signal.SIGINT else (0, -signal.SIGKILL))
    little_registry.fault = lambda asked: None
    for name, tag in list(little_registry.manifests):
        if ":" not in tag and not is_referrers_tag(tag):
            assert whole(little_registry, name, tag)
    assert run_builder(*words).returncode == 0
    assert little_registry.manifests["app", "1.0"][1] == made.raw
    assert whole(little_registry, "app", "1.0")
    listed = json.loads(little_registry.manifests["app", f"sha256-{made.digest.hex}"][1])["manifests"]
    assert {entry["digest"] for entry in listed} == {str(entry.digest) for entry in layout.referrers(made.digest)}


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("point", [point % 12 + 1 for point in POINTS])
def test_a_pull_stopped_anywhere_leaves_a_sound_layout_and_the_next_one_ends_it(
    little_registry: Little,
    open_little: Opener,
    builder_environment: dict[str, str],
    run_builder: RunBuilder,
    tmp_path: Path,
    point: int,
    number: signal.Signals,
) -> None:
    made = release(open_little())
    little_registry.log.clear()
    reached = threading.Event()

    def stop_here(asked: Asked) -> Answer | None:
        if len(little_registry.log) >= point:
            reached.set()
            time.sleep(0.2)
        return None

    little_registry.fault = stop_here
    words = ["copy", f"{little_registry.host}/app:1.0", "oci:out"]
    ended(words, builder_environment, tmp_path, number, reached)
    little_registry.fault = lambda asked: None
    layout = Layout(tmp_path / "out")
    for tag in layout.tags():
        found = layout.manifest(tag)
        assert found is not None
        assert all(b"".join(layout.read_blob(blob.digest)) for blob in pointed_blobs(found))
    for path in (tmp_path / "out/blobs/sha256").glob("[0-9a-f]*"):
        assert Digest.of_file(path).hex == path.name
    assert run_builder(*words).returncode == 0
    assert layout.manifest("1.0") == made
    assert len(layout.referrers(made.digest)) == 2


@pytest.mark.parametrize("code", [413, 500, 507])
@pytest.mark.parametrize("where", ["POST", "PATCH", "PUT", "manifest", "tag"])
def test_a_full_registry_is_told_and_no_tag_is_left(
    little_registry: Little, open_little: Opener, tmp_path: Path, code: int, where: str
) -> None:
    """Wherever the space ends: at the start of an upload, in a chunk, at its end, at the manifest or at the tag."""
    layout = Layout(tmp_path)
    made = release(layout)

    def full(asked: Asked) -> Answer | None:
        manifest = "/manifests/" in asked.path and asked.method == "PUT"
        here = {
            "manifest": manifest and "sha256" in asked.path,
            "tag": manifest and asked.path.endswith("/1.0"),
        }.get(where, asked.method == where and "/blobs/" in asked.path)
        return error(code, "UNKNOWN", "no space left on device") if here else None

    little_registry.fault = full
    target = open_little(chunk_size=16_000)
    with pytest.raises(RegistryRefused, match="no space left on device") as caught:
        publish(source=layout, digest=made.digest, target=target, tag="1.0", reporter=SILENT)
    assert ("disk may be full" in caught.value.fix) == (code != 413)
    assert ("app", "1.0") not in little_registry.manifests
    little_registry.fault = lambda asked: None
    publish(source=layout, digest=made.digest, target=open_little(), tag="1.0", reporter=SILENT)
    assert whole(little_registry, "app", "1.0")


def test_a_full_registry_keeps_what_it_got_and_the_next_push_sends_the_rest(
    little_registry: Little, open_little: Opener, tmp_path: Path
) -> None:
    layout = Layout(tmp_path)
    made = release(layout)
    puts: list[str] = []
    said: list[str] = []

    class Notes(SilentReporter):
        def note(self, text: str) -> None:
            said.append(text)

    def full_after_two(asked: Asked) -> Answer | None:
        if asked.method == "PUT" and "/blobs/" in asked.path:
            puts.append(asked.path)
            if len(puts) > 2:
                return error(507, "UNKNOWN", "no space left on device")
        return None

    little_registry.fault = full_after_two
    with pytest.raises(RegistryRefused):
        copy(layout, open_little(), made.digest, reporter=SILENT, workers=1)
    kept = sum(len(data) for data in little_registry.blobs.values())
    little_registry.fault = lambda asked: None
    done = copy(layout, open_little(), made.digest, reporter=Notes(), workers=1)
    assert said == ["2 of 5 blobs were there already, the rest was sent"]
    total = sum(len(data) for data in little_registry.blobs.values())
    assert kept > 0
    assert done.sent_bytes == total - kept


def more_room(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)


@pytest.mark.registry
def test_the_real_registry_on_a_full_disk_keeps_no_tag_and_takes_the_rest_when_there_is_room(
    full_disk: Path, tmp_path: Path
) -> None:
    layout = Layout(tmp_path / "dist")
    blobs = tuple(random_bytes(400_000, f"full{number}") for number in range(6))
    made = image(layout, tag="1.0", extra=blobs)
    layout.put_manifest(referrer(made, layout, artifact_type="a/b", body=b"evidence"))
    with services.registry(full_disk) as host:
        target = Remote.open(RegistryRef(host, "app"), environ={}, reporter=SILENT)
        with pytest.raises(OutsideFailed) as caught:
            publish(source=layout, digest=made.digest, target=target, tag="1.0", reporter=SILENT)
        assert "disk may be full" in caught.value.fix or "no space left" in caught.value.why
        assert target.tags() == ()
        more_room(full_disk)
        done = publish(source=layout, digest=made.digest, target=target, tag="1.0", reporter=SILENT)
        assert check_all(target)
        assert len(target.referrers(made.digest)) == 1
        assert done.sent_bytes <= sum(blob.size for blob in pointed_blobs(made))
        target.close()


def test_a_full_disk_below_a_pull_leaves_no_tag_and_no_part(
    little_registry: Little, open_little: Opener, full_disk: Path
) -> None:
    blobs = tuple(random_bytes(400_000, f"full{number}") for number in range(6))
    made = image(open_little(), tag="1.0", extra=blobs)
    layout = Layout(full_disk / "out")
    with pytest.raises(NoRoom, match="disk full"):
        copy(open_little(), layout, made.digest, reporter=SILENT)
    assert layout.tags() == ()
    assert layout.manifest(made.digest) is None
    for path in (full_disk / "out/blobs/sha256").iterdir():
        assert Digest.of_file(path).hex == path.name
    more_room(full_disk)
    done = copy(open_little(), layout, made.digest, reporter=SILENT)
    assert 0 < done.sent_bytes < sum(blob.size for blob in pointed_blobs(made)), "what had arrived is not sent again"
    assert layout.manifest(made.digest) == made


def many_blobs(repository: Repository, text: str) -> Manifest:
    """An image of 24 MB in twelve blobs, with two things attached: long enough to be killed in the middle."""
    blobs = tuple(random_bytes(2_000_000, f"{text}{number}") for number in range(12))
    made = image(repository, text=text, tag="1.0", extra=blobs)
    for number in range(2):
        repository.put_manifest(referrer(made, repository, artifact_type="a/b", body=f"{text} {number}".encode()))
    return made


def push_all(layout: Path, reference: RegistryRef, digest: Digest) -> int:
    """Publish, in a process of its own or here; the bytes that had to be sent."""
    target = Remote.open(reference, environ={}, reporter=SILENT)
    try:
        done = publish(source=Layout(layout), digest=digest, target=target, tag="1.0", reporter=SILENT)
        return done.sent_bytes
    finally:
        target.close()


def pull_all(layout: Path, reference: RegistryRef, digest: Digest) -> int:
    """Copy into a layout and tag it there; the bytes that had to be fetched."""
    source, target = Remote.open(reference, environ={}, reporter=SILENT), Layout(layout)
    try:
        done = copy(source, target, digest, reporter=SILENT)
        target.move_tag("1.0", digest, expected=found.digest if (found := target.resolve("1.0")) else None)
        return done.sent_bytes
    finally:
        source.close()


def check_all(repository: Repository) -> bool:
    """Whatever a tag of the repository names is whole; whether there is one."""
    found = repository.manifest("1.0")
    if found is None:
        return False
    for blob in pointed_blobs(found):
        assert sum(map(len, repository.read_blob(blob.digest))) == blob.size  # read_blob verifies
    return True


KILLS = 10


@pytest.mark.registry
@pytest.mark.parametrize("way", ["push", "pull"])
def test_transfers_killed_at_many_moments_leave_nothing_half_done_and_go_on(
    registry_host: str, repository_name: str, tmp_path: Path, way: str
) -> None:
    """SIGKILL at ten moments, spread by chance over the time that one takes, on the real registry."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    chance = random.Random(SEED)  # noqa: S311 - the same moments each time
    source = Layout(tmp_path / "source")
    made = many_blobs(source, repository_name)
    size = sum(blob.size for blob in pointed_blobs(made))
    whole = RegistryRef(registry_host, f"{repository_name}/whole")
    push_all(source.path, whole, made.digest)

    def started(number: int) -> tuple[multiprocessing.process.BaseProcess, tuple[Path, RegistryRef, Digest]]:
        if way == "push":
            asked = source.path, RegistryRef(registry_host, f"{repository_name}/{number}"), made.digest
        else:
            asked = tmp_path / f"out-{number}", whole, made.digest
        process = context.Process(target=push_all if way == "push" else pull_all, args=asked)
        process.start()
        return process, asked

    process, _ = started(0)
    begun = time.monotonic()
    process.join()
    takes = time.monotonic() - begun
    assert process.exitcode == 0
    killed, resumed = 0, 0
    for number in range(1, KILLS + 1):
        process, asked = started(number)
        process.join(takes * chance.random() ** 1.5)  # more of them while blobs are sent, before all is looked at again
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        layout, reference, _ = asked
        remote = Remote.open(reference, environ={}, reporter=SILENT)
        reached: Repository = remote if way == "push" else Layout(layout)
        check_all(reached)
        for path in layout.glob("blobs/sha256/[0-9a-f]*"):
            assert Digest.of_file(path).hex == path.name
        sent = (push_all if way == "push" else pull_all)(*asked)
        resumed += 0 < sent < size
        assert check_all(reached)
        attached = {entry.digest for entry in reached.referrers(made.digest)}
        assert attached == {entry.digest for entry in source.referrers(made.digest)}
        remote.close()
    assert killed >= KILLS // 2, "most had ended before they were killed"
    assert resumed, "no rerun went on from what the one before had sent"


@pytest.mark.registry
def test_of_two_who_push_one_tag_one_is_told_and_both_images_are_whole(
    registry_host: str, repository_name: str, tmp_path: Path
) -> None:
    """FR-28 on the real registry: two builds of one version end at the same time."""
    reference = RegistryRef(registry_host, repository_name)
    layouts = [Layout(tmp_path / name) for name in ("one", "two")]
    made = [release(layout, text=f"{repository_name} {n}") for n, layout in enumerate(layouts)]
    start = threading.Barrier(2)
    outcomes: list[BuilderError | None] = [None, None]

    def push(number: int) -> None:
        own = Remote.open(reference, environ={}, reporter=SILENT)
        copy(layouts[number], own, made[number].digest, reporter=SILENT)
        start.wait()
        try:
            publish(source=layouts[number], digest=made[number].digest, target=own, tag="1.0", reporter=SILENT)
        except BuilderError as error:
            outcomes[number] = error
        finally:
            own.close()

    threads = [threading.Thread(target=push, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [number for number, outcome in enumerate(outcomes) if outcome is not None]
    assert len(told) == 1
    assert isinstance(outcomes[told[0]], TagTaken)
    remote = Remote.open(reference, environ={}, reporter=SILENT)
    assert remote.manifest("1.0") == made[1 - told[0]]
    for item in made:
        assert remote.manifest(item.digest) == item
        assert len(remote.referrers(item.digest)) == 2
        assert all(b"".join(remote.read_blob(blob.digest)) for blob in pointed_blobs(item))
    remote.close()


def test_a_mount_asks_for_both_scopes_and_its_refusal_is_no_failure(
    little_registry: Little, open_little: Opener
) -> None:
    """FR-29, the right verdict: both scopes in one token, 401 is followed by a plain upload, the push succeeds."""
    little_registry.scheme = "bearer"
    little_registry.fault = lambda asked: (
        error(401, "UNAUTHORIZED", headers={"WWW-Authenticate": f'Bearer realm="http://{little_registry.host}/token"'})
        if "mount=" in asked.path
        else None
    )
    data = random_bytes(10_000, "mounted")
    target = open_little("team-b/app")
    blob = Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(data), size=len(data))
    assert target.put_blob(blob, BytesSource(data), mount_from="team-a/base")
    assert little_registry.blobs["team-b/app", str(blob.digest)] == data
    asked = [line.path for line in little_registry.log if line.path.startswith("/token")]
    assert any("team-b%2Fapp%3Apull%2Cpush" in path and "team-a%2Fbase%3Apull" in path for path in asked)


def test_nothing_is_mounted_across_registries(little_registry: Little, open_little: Opener, tmp_path: Path) -> None:
    """FR-29: never try a mount across registries."""
    layout = Layout(tmp_path)
    made = release(layout)
    copy(layout, open_little(), made.digest, reporter=SILENT)
    assert not any("mount=" in asked.path for asked in little_registry.log)
