"""Engines at an image in a registry: found with few requests, verified before anything is opened, fetched once."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from builder.cache import EngineCache, Entry, engine_key, engine_kind
from builder.cache.parts import LARGEST
from builder.cache.pull import Found, find, lacking, pull, suiting
from builder.cache.push import NotForNode, differs_from_node, push
from builder.cache.statement import ENGINE_TYPE, PAYLOAD_TYPE, engine_manifest, read_engine_statement
from builder.errors import BadInput, OutsideFailed
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.node.values import NodeClass
from builder.registry.client import Remote
from builder.registry.collect import collect_layout
from builder.registry.copy import copy
from builder.registry.dsse import PublicKey, seal
from builder.registry.errors import MissingContent
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json
from builder.registry.values import BlobSource, BytesSource, Descriptor, Repository
from builder.store import CorruptBlob, NoRoom
from tests.cache.registry import NODE, TENSORRT, image, kernels, plan, sign_pair

QUIET = SilentReporter()


class Counting(httpx.BaseTransport):
    """Notes each request, and the bytes that came back."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()
        self.lines: list[str] = []
        self.received = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.lines.append(f"{request.method} {request.url.path.split('/')[-2]}")
        answer = self.inner.handle_request(request)
        if request.method == "GET":
            self.received += int(answer.headers.get("Content-Length", 0))
        return answer

    def close(self) -> None:
        self.inner.close()


@pytest.fixture(params=["layout", pytest.param("registry", marks=pytest.mark.registry)])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Repository]:
    if request.param == "layout":
        yield Layout(tmp_path / "layout")
        return
    reference = RegistryRef(request.getfixturevalue("registry_host"), f"cache/{uuid.uuid4().hex[:12]}")
    opened = Remote.open(reference, environ={}, reporter=QUIET)
    yield opened
    opened.close()


@pytest.fixture
def ours(tmp_path: Path) -> EngineCache:
    return EngineCache(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> EngineCache:
    return EngineCache(tmp_path / "theirs")


FILES = {f"{number:02}/kernel.cubin": bytes([number]) * (1000 + number) for number in range(40)}


def noise(size: int, seed: int) -> bytes:
    return (seed.to_bytes(4, "little") * (size // 4 + 1))[:size]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ok(found: tuple[Found, ...]) -> list[Found]:
    assert [one.problem for one in found] == [""] * len(found)
    return list(found)


def test_what_is_pushed_is_pulled_and_is_the_same(
    repository: Repository, ours: EngineCache, theirs: EngineCache, tmp_path: Path
) -> None:
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    tree = kernels(ours, tmp_path / "triton", {**FILES, "empty": b"", "large.cubin": noise(300_000, 7)})
    single = plan(ours, tmp_path / "plans", noise(200_000, 3))
    done = push(ours, [tree, single], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    assert [one.adopted for one in done.engines] == [False, False]
    found = ok(find(repository, made, node=NODE, keys=[public]))
    assert {one.told.entry for one in found if one.told} == {tree, single}
    assert [one.signers for one in found] == [("ours.pub",)] * 2
    for one in found:
        assert one.told is not None
        got = pull(theirs, repository, one.told, reporter=QUIET)
        assert not got.kept
        assert got.entry == one.told.entry
        assert lacking(theirs, one.told) == ()
    theirs.restore(tree, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(tmp_path / "triton")
    assert theirs.restore(single, tmp_path / "back.plan").read_bytes() == noise(200_000, 3)
    assert theirs.lookup(single.key).verdict == "hit"
    assert list((theirs.store.root / "pulls").iterdir()) == []


def test_pushing_again_sends_nothing_and_attaches_nothing(
    repository: Repository, ours: EngineCache, tmp_path: Path
) -> None:
    private, _ = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = kernels(ours, tmp_path / "triton", FILES)
    first = push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    again = push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    assert again.engines[0].adopted
    assert again.engines[0].manifest == first.engines[0].manifest
    assert (again.sent_blobs, again.sent_bytes) == (0, 0)
    assert len(repository.referrers(made, artifact_type=ENGINE_TYPE)) == 1


@pytest.mark.registry
def test_a_second_node_fetches_only_what_it_lacks(
    registry_host: str, ours: EngineCache, theirs: EngineCache, tmp_path: Path
) -> None:
    """Two engines that share all but one file: the second push and pull are that file, counted on the wire."""
    private, public = sign_pair(tmp_path / "keys")
    reference = RegistryRef(registry_host, f"cache/{uuid.uuid4().hex[:12]}")
    counting = Counting()
    with_count = Remote.open(reference, environ={}, reporter=QUIET, transport=counting)
    made = image(with_count)
    shared = {**FILES, "shared.cubin": noise(2 << 20, 1)}
    old = kernels(ours, tmp_path / "old", {**shared, "own.cubin": noise(1 << 20, 2)})
    new = kernels(ours, tmp_path / "new", {**shared, "own.cubin": noise(1 << 20, 3)}, torch="2.13.0")
    first = push(ours, [old], with_count, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    second = push(ours, [new], with_count, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    assert first.sent_bytes > 3 << 20
    assert 1 << 20 < second.sent_bytes < 1.2 * (1 << 20)
    told = {one.told.entry.digest: one.told for one in ok(find(with_count, made, node=NODE, keys=[public])) if one.told}
    counting.received = 0
    whole = pull(theirs, with_count, told[old.digest], reporter=QUIET)
    assert whole.size == counting.received
    assert counting.received > 3 << 20
    counting.received = 0
    part = pull(theirs, with_count, told[new.digest], reporter=QUIET)
    assert part.size == counting.received
    assert 1 << 20 < counting.received < 1.2 * (1 << 20)
    with_count.close()
    theirs.restore(new, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(tmp_path / "new")


@pytest.mark.registry
def test_an_engine_is_found_with_one_request_and_one_more_for_each(
    registry_host: str, ours: EngineCache, tmp_path: Path
) -> None:
    private, public = sign_pair(tmp_path / "keys")
    counting = Counting()
    reference = RegistryRef(registry_host, f"cache/{uuid.uuid4().hex[:12]}")
    remote = Remote.open(reference, environ={}, reporter=QUIET, transport=counting)
    made = image(remote)
    entries = [plan(ours, tmp_path / "plans", bytes([number]) * 100, model=bytes([number])) for number in range(5)]
    push(ours, entries[:3], remote, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    other = replace(NODE, name="h200-test")
    push(ours, entries[3:], remote, made, image_name="app", node=other, key=private, reporter=QUIET)
    find(remote, made, node=NODE, keys=[public])  # the client learns whether there is an endpoint for referrers
    counting.lines.clear()
    assert len(ok(find(remote, made, node=NODE, keys=[public]))) == 3
    assert len(counting.lines) == 4
    counting.lines.clear()
    wanted = str(entries[1].digest)
    assert len(ok(find(remote, made, node=NODE, keys=[public], wanted=lambda one: one.key == wanted))) == 1
    assert len(counting.lines) == 2
    remote.close()


# --- what is not believed


EMPTY_ENVELOPE = b'{"payload": "e30=", "payloadType": "x", "signatures": []}'


def statement_of(repository: Repository, made: Digest, keys: list[PublicKey]) -> bytes:
    [one] = ok(find(repository, made, node=NODE, keys=keys))
    assert one.told is not None
    return one.told.payload("app")


def test_an_engine_of_an_unknown_key_is_named_and_nothing_of_it_is_fetched(
    repository: Repository, ours: EngineCache, theirs: EngineCache, tmp_path: Path
) -> None:
    stranger, _ = sign_pair(tmp_path / "keys", "stranger")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    evil = plan(ours, tmp_path / "plans", b"evil" * 50)
    good = plan(ours, tmp_path / "plans", b"good" * 50, model=b"other")
    push(ours, [evil], repository, made, image_name="app", node=NODE, key=stranger, reporter=QUIET)
    push(ours, [good], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    found = {one.listed.key: one for one in find(repository, made, node=NODE, keys=[public])}
    assert found[str(evil.digest)].problem == "it is signed by none of the given keys"
    assert found[str(evil.digest)].told is None
    told = found[str(good.digest)].told
    assert told is not None
    pull(theirs, repository, told, reporter=QUIET)
    assert [entry for entry in theirs.entries() if isinstance(entry, Entry)] == [good]
    assert not theirs.store.has_part(evil.content, evil.size)


def test_a_statement_about_another_image_counts_for_nothing(
    repository: Repository, ours: EngineCache, tmp_path: Path
) -> None:
    private, public = sign_pair(tmp_path / "keys")
    made, other = image(repository), image(repository, b"other")
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    told = read_engine_statement(statement_of(repository, made, [public]))
    subject = repository.manifest(other)
    assert subject is not None
    envelope = seal(told.payload("app"), PAYLOAD_TYPE, private)
    blob = Descriptor(media_type="x/y", digest=Digest.of(envelope), size=len(envelope))
    repository.put_blob(blob, BytesSource(envelope))
    repository.put_referrers([engine_manifest(told, envelope, subject.descriptor)])
    [found] = find(repository, other, node=NODE, keys=[public])
    assert found.problem == f"it is signed for another image, {made}"


def test_a_list_that_shows_something_else_than_was_signed_is_refused(
    repository: Repository, ours: EngineCache, tmp_path: Path
) -> None:
    """Annotations are not signed: an engine of another class cannot be passed off as one of this class."""
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    other = replace(NODE, name="h200-test")
    push(ours, [entry], repository, made, image_name="app", node=other, key=private, reporter=QUIET)
    [true] = ok(find(repository, made, node=other, keys=[public]))
    assert true.told is not None
    envelope = seal(true.told.payload("app"), PAYLOAD_TYPE, private)
    blob = Descriptor(media_type="x/y", digest=Digest.of(envelope), size=len(envelope))
    repository.put_blob(blob, BytesSource(envelope))
    subject = repository.manifest(made)
    assert subject is not None
    repository.put_referrers([engine_manifest(replace(true.told, node_class=NODE.name), envelope, subject.descriptor)])
    [found] = find(repository, made, node=NODE, keys=[public])
    assert found.problem == "the list shows it as something else than what is signed"


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", EMPTY_ENVELOPE])
def test_a_damaged_statement_is_named_and_the_others_go_on(ours: EngineCache, tmp_path: Path, content: bytes) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    told = read_engine_statement(statement_of(repository, made, [public]))
    subject = repository.manifest(made)
    assert subject is not None
    blob = Descriptor(media_type="x/y", digest=Digest.of(content), size=len(content))
    repository.put_blob(blob, BytesSource(content))
    repository.put_referrers([engine_manifest(told, content, subject.descriptor)])
    problems = sorted(one.problem for one in find(repository, made, node=NODE, keys=[public]))
    assert problems[0] == ""
    assert problems[1].startswith(("its statement cannot be read", "it is signed by none"))


def test_a_part_whose_bytes_changed_is_not_kept(ours: EngineCache, theirs: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", noise(200_000, 4))
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    assert one.told is not None
    path = repository.blob_path(entry.content)
    path.chmod(0o644)
    path.write_bytes(noise(200_000, 5))
    with pytest.raises(CorruptBlob):
        pull(theirs, repository, one.told, reporter=QUIET)
    assert list(theirs.entries()) == []
    assert [path.name for path in (theirs.store.root / "pulls").iterdir() if not path.name.startswith(".")] == []
    path.write_bytes(noise(200_000, 4))
    assert pull(theirs, repository, one.told, reporter=QUIET).entry == entry


def test_a_tree_whose_manifest_names_more_than_came_is_refused(
    ours: EngineCache, theirs: EngineCache, tmp_path: Path
) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = kernels(ours, tmp_path / "triton", {"a.cubin": noise(200_000, 1), "b.cubin": noise(200_000, 2)})
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    assert one.told is not None
    short = replace(
        one.told, parts=tuple(part for part in one.told.parts if part.digest != Digest.of(noise(200_000, 2)))
    )
    with pytest.raises(BadInput, match="is not whole"):
        pull(theirs, repository, short, reporter=QUIET)
    assert list(theirs.entries()) == []


# --- broken off, and gone on with


class Breaking:
    """A repository whose connection breaks for good after some bytes."""

    def __init__(self, inner: Layout, after: int) -> None:
        self.inner = inner
        self.left = after
        self.read: list[Digest] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def read_blob(self, digest: Digest) -> Iterator[bytes]:
        self.read.append(digest)
        for chunk in self.inner.read_blob(digest):
            self.left -= len(chunk)
            if self.left < 0:
                raise OutsideFailed("the connection broke")
            yield chunk


def test_a_broken_pull_goes_on_where_it_was(ours: EngineCache, theirs: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    files = {f"{number}.cubin": noise(1 << 20, number) for number in range(8)}
    entry = kernels(ours, tmp_path / "triton", files)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    assert one.told is not None
    breaking = Breaking(repository, after=5 << 20)
    with pytest.raises(OutsideFailed, match="broke"):
        pull(theirs, breaking, one.told, reporter=QUIET)  # type: ignore[arg-type]  # a Layout but for one method
    assert list(theirs.entries()) == []
    waiting = [path for path in (theirs.store.root / "pulls").iterdir() if not path.name.startswith(".")]
    assert len(waiting) >= 1
    done = pull(theirs, repository, one.told, reporter=QUIET)
    assert done.parts == len(one.told.parts) - len(waiting)
    theirs.restore(entry, tmp_path / "back")
    assert files_of(tmp_path / "back") == files


def test_parts_that_rotted_while_they_waited_are_fetched_again(
    ours: EngineCache, theirs: EngineCache, tmp_path: Path
) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", noise(200_000, 4))
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    assert one.told is not None
    folder = theirs.store.root / "pulls"
    folder.mkdir(parents=True)
    (folder / entry.content.hex).write_bytes(noise(200_000, 9))
    assert pull(theirs, repository, one.told, reporter=QUIET).parts == 1
    assert theirs.restore(entry, tmp_path / "back.plan").read_bytes() == noise(200_000, 4)


def test_a_file_that_rotted_in_the_cache_is_fetched_again(
    ours: EngineCache, theirs: EngineCache, tmp_path: Path
) -> None:
    """The second engine shares a file with the first, and that file is damaged on this machine."""
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    files = {"a.cubin": noise(200_000, 1), "b.cubin": noise(200_000, 2)}
    first = kernels(ours, tmp_path / "first", files)
    second = kernels(ours, tmp_path / "second", {**files, "c.cubin": noise(200_000, 3)}, torch="2.13.0")
    push(ours, [first, second], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    told = {one.told.entry.digest: one.told for one in ok(find(repository, made, node=NODE, keys=[public])) if one.told}
    pull(theirs, repository, told[first.digest], reporter=QUIET)
    damaged = theirs.store.part_path(Digest.of(files["a.cubin"]))
    damaged.chmod(0o644)
    damaged.write_bytes(noise(200_000, 9))
    pull(theirs, repository, told[second.digest], reporter=QUIET)
    theirs.restore(second, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(tmp_path / "second")


def test_left_overs_of_a_pull_nobody_went_on_with_are_cleared(
    theirs: EngineCache, ours: EngineCache, tmp_path: Path
) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    assert one.told is not None
    folder = theirs.store.root / "pulls"
    folder.mkdir(parents=True)
    for name, age in (("old", 8 * 24 * 3600), ("young", 3600)):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (theirs.store.clock() - age,) * 2)
    pull(theirs, repository, one.told, reporter=QUIET)
    assert [path.name for path in folder.iterdir()] == ["young"]


class Refusing:
    """A repository that takes some blobs and then breaks for good; it knows what it was sent."""

    def __init__(self, inner: Layout, takes: int) -> None:
        self.inner = inner
        self.left = takes
        self.took: set[Digest] = set()

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def put_blob(self, descriptor: Descriptor, source: BlobSource, *, mount_from: str | None = None) -> bool:
        self.left -= 1
        if self.left < 0:
            raise OutsideFailed("the connection broke")
        sent = self.inner.put_blob(descriptor, source, mount_from=mount_from)
        if sent:
            self.took.add(descriptor.digest)
        return sent


def test_a_broken_push_goes_on_where_it_was(ours: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    files = {f"{number}.cubin": noise(1 << 20, number) for number in range(8)}
    entry = kernels(ours, tmp_path / "triton", files)
    refusing = Refusing(repository, takes=5)
    with pytest.raises(OutsideFailed, match="broke"):
        push(ours, [entry], refusing, made, image_name="app", node=NODE, key=private, reporter=QUIET)  # type: ignore[arg-type]  # a Layout but for one method
    assert find(repository, made, node=NODE, keys=[public]) == ()
    again = Refusing(repository, takes=10_000)
    done = push(ours, [entry], again, made, image_name="app", node=NODE, key=private, reporter=QUIET)  # type: ignore[arg-type]
    assert refusing.took
    assert not refusing.took & again.took
    elsewhere = Layout(tmp_path / "elsewhere")
    whole = push(ours, [entry], elsewhere, image(elsewhere), image_name="app", node=NODE, key=private, reporter=QUIET)
    assert done.sent_blobs == whole.sent_blobs - len(refusing.took)
    ok(find(repository, made, node=NODE, keys=[public]))


def test_two_who_pull_at_once_fetch_once(ours: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    files = {f"{number}.cubin": noise(1 << 20, number) for number in range(8)}
    entry = kernels(ours, tmp_path / "triton", files)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    told = one.told
    assert told is not None
    with ThreadPoolExecutor(4) as pool:
        done = list(
            pool.map(lambda _: pull(EngineCache(tmp_path / "theirs"), repository, told, reporter=QUIET), range(4))
        )
    assert sum(each.parts for each in done) == len(told.parts)
    assert sorted(each.kept for each in done) == [False, True, True, True]


def test_a_full_disk_leaves_the_cache_as_it_was(ours: EngineCache, full_disk: Path, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", os.urandom(6 << 20))
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    assert one.told is not None
    small = EngineCache(full_disk / "cache")
    with pytest.raises(NoRoom):
        pull(small, repository, one.told, reporter=QUIET)
    assert list(small.entries()) == []
    assert small.lookup(entry.key).verdict == "miss"


# --- deciding before anything is fetched


def test_what_suits_is_decided_from_the_statements_alone(ours: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    old = plan(ours, tmp_path / "plans", b"old" * 50, tensorrt="10.8.0.43")
    other = plan(ours, tmp_path / "plans", b"other" * 50, driver_branch="550")
    push(ours, [old, other], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    reading = Breaking(repository, after=1 << 30)
    found = find(reading, made, node=NODE, keys=[public])  # type: ignore[arg-type]  # a Layout but for one method
    reading.read.clear()
    wanted = engine_key(engine_kind("tensorrt"), model=Digest.of(b"model"), properties=TENSORRT, node=NODE)
    [best] = suiting(found, wanted)
    assert (best.told.entry, best.verdict) == (other, "usable")
    assert [one.name for one in best.differs] == ["driver-branch"]
    assert suiting(found, old.key)[0].verdict == "hit"
    assert reading.read == []


def test_a_statement_of_a_newer_tool_is_named(ours: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [true] = ok(find(repository, made, node=NODE, keys=[public]))
    assert true.told is not None
    value = json.loads(true.told.payload("app"))
    value["predicate"]["entry"]["schema"] = "builder/engine-entry/9"
    envelope = seal(canonical_json(value), PAYLOAD_TYPE, private)
    blob = Descriptor(media_type="x/y", digest=Digest.of(envelope), size=len(envelope))
    repository.put_blob(blob, BytesSource(envelope))
    subject = repository.manifest(made)
    assert subject is not None
    repository.put_referrers([engine_manifest(true.told, envelope, subject.descriptor)])
    problems = sorted(one.problem for one in find(repository, made, node=NODE, keys=[public]))
    assert problems[0] == ""
    assert "another version of this tool" in problems[1]


# --- going along with the image


def test_engines_are_copied_with_their_image(ours: EngineCache, theirs: EngineCache, tmp_path: Path) -> None:
    source, target = Layout(tmp_path / "layout"), Layout(tmp_path / "mirror")
    private, public = sign_pair(tmp_path / "keys")
    made = image(source)
    entry = kernels(ours, tmp_path / "triton", FILES)
    push(ours, [entry], source, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    copy(source, target, made, reporter=QUIET)
    [one] = ok(find(target, made, node=NODE, keys=[public]))
    assert one.told is not None
    assert pull(theirs, target, one.told, reporter=QUIET).entry == entry


def test_engines_stay_and_go_with_their_image(ours: EngineCache, theirs: EngineCache, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    kept, dropped = image(layout, b"kept", tag="1"), image(layout, b"dropped", tag="2")
    for made, data in ((kept, b"one"), (dropped, b"two")):
        entry = plan(ours, tmp_path / "plans", data * 100_000)
        push(ours, [entry], layout, made, image_name="app", node=NODE, key=private, reporter=QUIET)
        ours.store.drop(entry)
    collect_layout(layout, lambda _: {dropped: "old"}, min_age=-1, now=ours.store.clock())
    assert find(layout, dropped, node=NODE, keys=[public]) == ()
    assert not layout.has_blob(Digest.of(b"two" * 100_000))
    [one] = ok(find(layout, kept, node=NODE, keys=[public]))
    assert one.told is not None
    pull(theirs, layout, one.told, reporter=QUIET)


# --- what is not pushed


def test_an_engine_is_not_pushed_for_a_class_that_contradicts_it(ours: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, _ = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    t4 = NodeClass(name="t4-test", backend="cuda", arch="x86_64", device="Tesla T4", device_arch="sm_75")
    with pytest.raises(NotForNode) as caught:
        push(ours, [entry], repository, made, image_name="app", node=t4, key=private, reporter=QUIET)
    assert "compute-capability is 9.0, the class has 7.5" in caught.value.why
    assert repository.referrers(made) == ()
    assert not any(one.blocks for one in differs_from_node(entry, NODE))


def test_an_image_that_is_not_there_gets_no_engines(ours: EngineCache, tmp_path: Path) -> None:
    private, _ = sign_pair(tmp_path / "keys")
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    with pytest.raises(MissingContent, match="is not in"):
        push(
            ours,
            [entry],
            Layout(tmp_path / "layout"),
            Digest.of(b"x"),
            image_name="app",
            node=NODE,
            key=private,
            reporter=QUIET,
        )


def test_a_damaged_engine_is_not_pushed(ours: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, _ = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", noise(200_000, 4))
    path = ours.store.part_path(entry.content)
    path.chmod(0o644)
    path.write_bytes(noise(200_000, 5))
    with pytest.raises(OutsideFailed):
        push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    assert repository.referrers(made) == ()


def test_a_file_larger_than_a_blob_goes_in_pieces(ours: EngineCache, theirs: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    data = bytes(2 * LARGEST) + b"end"
    entry = plan(ours, tmp_path / "plans", data)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    [one] = ok(find(repository, made, node=NODE, keys=[public]))
    assert one.told is not None
    assert [part.size for part in one.told.parts] == [LARGEST, LARGEST, 3]
    pull(theirs, repository, one.told, reporter=QUIET)
    assert theirs.restore(entry, tmp_path / "back.plan").read_bytes() == data


def test_the_statement_is_readable_json_for_anybody(ours: EngineCache, tmp_path: Path) -> None:
    repository = Layout(tmp_path / "layout")
    private, public = sign_pair(tmp_path / "keys")
    made = image(repository)
    entry = plan(ours, tmp_path / "plans", b"plan" * 50)
    push(ours, [entry], repository, made, image_name="app", node=NODE, key=private, reporter=QUIET)
    value = json.loads(statement_of(repository, made, [public]))
    assert value["predicateType"] == "urn:builder:engine:1"
    assert value["subject"] == [{"name": "app", "digest": {"sha256": made.hex}}]
    assert value["predicate"]["nodeClass"] == NODE.name
    assert {one["name"] for one in value["predicate"]["entry"]["factors"]} >= {
        "tensorrt",
        "compute-capability",
        "model",
    }
