"""The client against a registry that misbehaves on purpose."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.errors import BuilderError
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.registry.client import Remote
from builder.registry.copy import copy
from builder.registry.errors import (
    MissingContent,
    RegistryBusy,
    RegistryDenied,
    RegistryRefused,
    RegistryUnreachable,
    TagMoved,
)
from builder.registry.http import ATTEMPTS, shown
from builder.registry.layout import Layout
from builder.registry.manifests import referrers_tag
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType
from builder.store import CorruptBlob
from tests import services
from tests.registry.conftest import Named, Opener
from tests.registry.little import Answer, Asked, Cut, Little, error, random_bytes
from tests.registry.samples import image, put, referrer

DATA = random_bytes(300_000, "faults")
BLOB = Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(DATA), size=len(DATA))


def once(
    match: Callable[[Asked], bool], act: Callable[[], Answer | None], times: int = 1
) -> Callable[[Asked], Answer | None]:
    """A fault for the first `times` requests that match."""
    left = times

    def fault(asked: Asked) -> Answer | None:
        nonlocal left
        if left and match(asked):
            left -= 1
            return act()
        return None

    return fault


def cut(after: int) -> Callable[[], Answer | None]:
    def act() -> Answer | None:
        raise Cut(after)

    return act


# --- temporary codes


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_temporary_codes_are_tried_again(little_registry: Little, open_little: Opener, code: int) -> None:
    made = image(open_little(), tag="1.0")
    little_registry.fault = once(lambda asked: asked.method == "GET", lambda: error(code, "BUSY"), times=3)
    assert open_little().manifest("1.0") == made
    assert len(open_little.waits) == 3


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (error(429, "TOOMANYREQUESTS", headers={"Retry-After": "7"}), 7.0),
        (error(503, "UNAVAILABLE", headers={"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}), 0.0),
        (error(429, "TOOMANYREQUESTS", "retry-after: 1500ms, allowed: 44000/minute"), 1.5),
        (error(429, "TOOMANYREQUESTS", "Retry after 2 s"), 2.0),
    ],
)
def test_the_registry_says_how_long(little_registry: Little, open_little: Opener, answer: Answer, wait: float) -> None:
    image(open_little(), tag="1.0")
    little_registry.fault = once(lambda asked: asked.method == "GET", lambda: answer)
    assert open_little().manifest("1.0") is not None
    assert open_little.waits == [wait]


def test_busy_is_never_absent(little_registry: Little, open_little: Opener) -> None:
    subject = image(open_little(), tag="1.0")
    little_registry.fault = lambda asked: error(429, "TOOMANYREQUESTS")
    remote = open_little()
    calls: list[Callable[[], object]] = [
        lambda: remote.resolve("1.0"),
        lambda: remote.manifest("1.0"),
        lambda: remote.has_blob(BLOB.digest),
        lambda: remote.tags(),
        lambda: remote.referrers(subject.digest),
        lambda: list(remote.read_blob(BLOB.digest)),
    ]
    for call in calls:
        little_registry.log.clear()
        with pytest.raises(RegistryBusy, match="429"):
            call()
        assert len(little_registry.log) == ATTEMPTS


def test_a_long_wait_is_reported_at_once(little_registry: Little, open_little: Opener) -> None:
    little_registry.fault = lambda asked: error(429, "TOOMANYREQUESTS", headers={"Retry-After": "3600"})
    with pytest.raises(RegistryBusy, match="wait 3600 s"):
        open_little().tags()
    assert open_little.waits == []


@pytest.mark.parametrize("code", [400, 418, 500, 507])
def test_other_codes_are_not_tried_again(little_registry: Little, open_little: Opener, code: int) -> None:
    little_registry.fault = lambda asked: error(code, "UNKNOWN", "no space left on device")
    with pytest.raises(RegistryRefused, match="no space left on device") as caught:
        open_little().tags()
    assert caught.value.status == code
    assert len(little_registry.log) == 1


# --- connections


def test_nobody_listens(tmp_path: Path) -> None:
    ref = RegistryRef(f"127.0.0.1:{services.free_port()}", "app")
    remote = Remote.open(ref, environ={}, reporter=SilentReporter())
    with pytest.raises(RegistryUnreachable, match=f"no answer from {ref.host}"):
        remote.tags()
    remote.close()


def test_a_cut_answer_is_asked_for_again(little_registry: Little, open_little: Opener) -> None:
    made = image(open_little(), tag="1.0")
    remote = open_little()
    remote.tags()
    little_registry.fault = once(lambda asked: asked.method == "GET", cut(0), times=2)
    assert remote.manifest("1.0") == made
    assert len(open_little.waits) == 2


def test_http_where_tls_is_expected(open_little: Opener) -> None:
    with pytest.raises(RegistryUnreachable, match="--plain-http"):
        open_little(plain_http=False).tags()


@pytest.mark.parametrize("after", [0, 100_000, 299_999])
def test_a_cut_upload_goes_on_where_it_stopped(little_registry: Little, open_little: Opener, after: int) -> None:
    little_registry.fault = once(lambda asked: asked.method == "PUT", cut(after))
    assert open_little().put_blob(BLOB, BytesSource(DATA))
    assert little_registry.blobs["app", str(BLOB.digest)] == DATA
    sent = [asked.size for asked in little_registry.log if asked.method in ("PATCH", "PUT")]
    assert sent == ([300_000, 300_000 - after, 0] if after else [300_000, 300_000])


def test_a_cut_chunk_goes_on_where_it_stopped(little_registry: Little, open_little: Opener) -> None:
    seen = []

    def fault(asked: Asked) -> Answer | None:
        if asked.method == "PATCH":
            seen.append(asked.headers["content-range"])
            if len(seen) == 2:
                raise Cut(50_000)
        return None

    little_registry.fault = fault
    remote = open_little(chunk_size=128_000)
    assert remote.put_blob(BLOB, BytesSource(DATA))
    assert seen == ["0-127999", "128000-255999", "178000-299999"]
    assert little_registry.blobs["app", str(BLOB.digest)] == DATA


def test_a_forgotten_session_starts_again(little_registry: Little, open_little: Opener) -> None:
    def forget() -> Answer | None:
        little_registry.uploads.clear()
        return error(404, "BLOB_UPLOAD_UNKNOWN")

    little_registry.fault = once(lambda asked: asked.method == "PUT", forget)
    assert open_little().put_blob(BLOB, BytesSource(DATA))
    assert little_registry.blobs["app", str(BLOB.digest)] == DATA


def test_an_upload_whose_last_answer_was_lost_is_done(little_registry: Little, open_little: Opener) -> None:
    def stored_but_cut(asked: Asked) -> Answer | None:
        if asked.method == "PUT":
            little_registry.blobs["app", str(BLOB.digest)] = DATA
            raise Cut(len(DATA))
        return None

    little_registry.fault = stored_but_cut
    assert open_little().put_blob(BLOB, BytesSource(DATA))
    assert [asked.method for asked in little_registry.log] == ["HEAD", "POST", "PUT", "HEAD"]


def test_an_upload_that_never_gets_through_ends(little_registry: Little, open_little: Opener) -> None:
    little_registry.fault = lambda asked: cut(0)() if asked.method == "PUT" else None
    with pytest.raises(RegistryUnreachable):
        open_little().put_blob(BLOB, BytesSource(DATA))
    assert sum(asked.method == "PUT" for asked in little_registry.log) == ATTEMPTS


def test_another_digest_echoed_is_refused(little_registry: Little, open_little: Opener) -> None:
    other = str(Digest.of(b"other"))
    little_registry.fault = lambda asked: (
        Answer(201, {"Docker-Content-Digest": other}) if asked.method == "PUT" else None
    )
    remote = open_little()
    with pytest.raises(RegistryRefused, match="stored other bytes"):
        remote.put_blob(BLOB, BytesSource(DATA))
    with pytest.raises(RegistryRefused, match="stored another manifest"):
        remote.put_manifest(Manifest(MediaType.INDEX, b'{"schemaVersion":2,"manifests":[]}'))


def test_a_cut_download_goes_on(little_registry: Little, open_little: Opener) -> None:
    put(open_little(), DATA, MediaType.LAYER_GZIP)

    def fault(asked: Asked) -> Answer | None:
        if asked.method == "GET" and "range" not in asked.headers:
            return Answer(200, {}, DATA[:100_000], promised=len(DATA))
        return None

    little_registry.fault = fault
    remote = open_little()
    assert b"".join(remote.read_blob(BLOB.digest)) == DATA
    assert [asked.headers.get("range") for asked in little_registry.log if asked.method == "GET"] == [
        None,
        "bytes=100000-",
    ]


def test_a_damaged_download_is_refused(little_registry: Little, open_little: Opener, tmp_path: Path) -> None:
    made = image(open_little(), tag="1.0", extra=(DATA,))
    little_registry.blobs["app", str(BLOB.digest)] = DATA[:-1] + b"!"
    with pytest.raises(CorruptBlob, match="is damaged"):
        list(open_little().read_blob(BLOB.digest))
    for other in (DATA[:-1] + b"!", DATA[:-1], DATA + b"!"):
        little_registry.blobs["app", str(BLOB.digest)] = other
        with pytest.raises(CorruptBlob, match="is damaged"):
            copy(open_little(), Layout(tmp_path / "out"), made.digest, reporter=SilentReporter())
        assert not Layout(tmp_path / "out").has_blob(BLOB.digest)
    media_type, raw = little_registry.manifests["app", str(made.digest)]
    little_registry.manifests["app", str(made.digest)] = (media_type, raw + b" ")
    with pytest.raises(CorruptBlob, match="is damaged"):
        open_little().manifest(made.digest)


# --- who may


def _config(folder: Path, host: str, entry: dict[str, str]) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"auths": {host: entry}}))
    return {"DOCKER_CONFIG": str(folder)}


def test_bearer_tokens_are_asked_for_by_scope_and_kept(
    little_registry: Little, open_little: Opener, tmp_path: Path
) -> None:
    little_registry.scheme, little_registry.user = "bearer", "ann:s3cret"
    environ = _config(tmp_path, little_registry.host, {"username": "ann", "password": "s3cret"})
    remote = open_little(environ=environ)
    image(remote, tag="1.0")
    tokens = [asked.path for asked in little_registry.log if asked.path.startswith("/token")]
    assert tokens == [
        "/token?service=little&scope=repository%3Aapp%3Apull",
        "/token?service=little&scope=repository%3Aapp%3Apull%2Cpush",
    ]
    assert remote.tags() == ("1.0",)  # with the token for more, no third one


def test_a_token_that_ended_in_mid_upload_is_replaced(little_registry: Little, open_little: Opener) -> None:
    little_registry.scheme = "bearer"
    remote = open_little(chunk_size=100_000)

    def forget() -> Answer | None:
        little_registry.tokens.clear()
        return None

    little_registry.fault = once(lambda asked: asked.headers.get("content-range") == "100000-199999", forget)
    assert remote.put_blob(BLOB, BytesSource(DATA))
    assert little_registry.blobs["app", str(BLOB.digest)] == DATA
    assert open_little.waits == []


def test_wrong_credentials_are_said_without_the_secret(
    little_registry: Little, open_little: Opener, tmp_path: Path
) -> None:
    little_registry.scheme, little_registry.user = "bearer", "ann:right"
    environ = _config(tmp_path, little_registry.host, {"username": "ann", "password": "wr0ng-one"})
    with pytest.raises(RegistryDenied, match="gives no token") as caught:
        open_little(environ=environ).tags()
    assert "'ann'" in str(caught.value)
    assert "wr0ng-one" not in str(caught.value)


def test_an_echoed_secret_is_redacted(little_registry: Little, open_little: Opener, tmp_path: Path) -> None:
    little_registry.scheme, little_registry.user = "basic", "ann:s3cret"
    environ = _config(tmp_path, little_registry.host, {"username": "ann", "password": "s3cret"})
    remote = open_little(environ=environ)
    remote.tags()
    little_registry.fault = lambda asked: error(403, "DENIED", f"bad {asked.headers['authorization']} of s3cret")
    with pytest.raises(RegistryDenied) as caught:
        remote.tags()
    assert "s3cret" not in str(caught.value)
    assert "Basic …" in str(caught.value)


def test_a_token_server_without_tls_is_not_used(little_registry: Little, open_little: Opener) -> None:
    field = 'Bearer realm="http://tokens.example.org/token",service="little"'
    little_registry.fault = lambda asked: error(401, "UNAUTHORIZED", headers={"WWW-Authenticate": field})
    with pytest.raises(RegistryRefused, match="names a token server that is not used"):
        open_little(environ={}, plain_http=None).tags()


@pytest.mark.parametrize("code", [401, 403, 404, 405])
def test_a_refused_mount_falls_back_to_sending(little_registry: Little, open_little: Opener, code: int) -> None:
    """FR-29."""
    little_registry.scheme = "bearer"
    little_registry.fault = lambda asked: error(code, "DENIED") if "mount=" in asked.path else None
    assert open_little("team-b/app").put_blob(BLOB, BytesSource(DATA), mount_from="team-a/base")
    assert little_registry.blobs["team-b/app", str(BLOB.digest)] == DATA
    scopes = [asked.path for asked in little_registry.log if asked.path.startswith("/token")]
    assert any("team-a%2Fbase%3Apull" in path and "team-b%2Fapp%3Apull%2Cpush" in path for path in scopes)


def test_a_mount_that_opens_an_upload_uses_it(little_registry: Little, open_little: Opener) -> None:
    assert open_little("b").put_blob(BLOB, BytesSource(DATA), mount_from="a")
    assert [asked.method for asked in little_registry.log] == ["HEAD", "POST", "PUT"]


# --- redirects


def test_credentials_stay_with_their_origin(little_registry: Little, open_little: Opener, tmp_path: Path) -> None:
    from tests.registry.little import serve

    little_registry.scheme, little_registry.user = "basic", "ann:s3cret"
    environ = _config(tmp_path, little_registry.host, {"username": "ann", "password": "s3cret"})
    with serve() as storage:
        storage.blobs["bucket", str(BLOB.digest)] = DATA
        target = f"http://{storage.host}/v2/bucket/blobs/{BLOB.digest}?X-Sig=hush"
        remote = open_little(environ=environ)
        remote.tags()
        little_registry.fault = lambda asked: Answer(307, {"Location": target}) if "/blobs/" in asked.path else None
        assert b"".join(remote.read_blob(BLOB.digest)) == DATA
        assert "authorization" not in storage.log[0].headers
        storage.blobs.clear()
        with pytest.raises(MissingContent):
            list(remote.read_blob(BLOB.digest))
        assert remote.has_blob(BLOB.digest)  # a redirect says that it is there; storage is not asked


def test_urls_in_messages_hide_unknown_parameters() -> None:
    url = "https://ann:pw@host.example/v2/app/blobs/uploads/1?_state=hush&digest=sha256:ab&scope=repository:a:pull"
    assert shown(url) == "https://host.example/v2/app/blobs/uploads/1?_state=…&digest=sha256:ab&scope=repository:a:pull"


# --- referrers


def test_referrers_by_the_endpoint(little_registry: Little, open_little: Opener) -> None:
    remote = open_little()
    subject = image(remote, tag="1.0")
    bom = referrer(subject, remote, artifact_type="application/vnd.cyclonedx+json", body=b"bom")
    little_registry.log.clear()
    remote.put_manifest(bom)
    (found,) = remote.referrers(subject.digest)
    assert (found.digest, found.artifact_type) == (bom.digest, "application/vnd.cyclonedx+json")
    assert [asked.method for asked in little_registry.log] == ["PUT", "GET"]  # no fallback tag was touched


def test_referrers_are_listed_page_by_page(little_registry: Little, open_little: Opener) -> None:
    remote = open_little()
    subject = image(remote, tag="1.0")
    notes = [referrer(subject, remote, artifact_type="a/b", body=body) for body in (b"one", b"two")]
    path = f"/v2/app/referrers/{subject.digest}"
    pages = {
        path: _page(notes[:1], {"Link": f'<{path}?next=1>; rel="next"'}),
        f"{path}?next=1": _page(notes[1:], {}),
    }
    little_registry.fault = lambda asked: pages.get(asked.path)
    assert {entry.digest for entry in remote.referrers(subject.digest)} == {note.digest for note in notes}
    little_registry.fault = lambda asked: _page(notes, {"Link": f'<{path}>; rel="next"'})
    with pytest.raises(RegistryRefused, match="next page is elsewhere"):
        remote.referrers(subject.digest)


def _page(manifests: list[Manifest], headers: dict[str, str]) -> Answer:
    listed = [manifest.descriptor.to_json() for manifest in manifests]
    body = json.dumps({"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": listed}).encode()
    return Answer(200, {"Content-Type": MediaType.INDEX, **headers}, body)


def test_a_lost_update_is_noticed_and_mended(little_registry: Little, open_little: Opener) -> None:
    """FR-31: get-1, get-2, put-1, put-2; the second write drops the first entry, and both end up there."""
    little_registry.referrers_endpoint = False
    subject = image(open_little(), tag="1.0")
    tag = referrers_tag(subject.digest)
    manifests = [referrer(subject, open_little(), artifact_type="a/b", body=body) for body in (b"sbom", b"smoke")]
    both_read, first_wrote = threading.Barrier(2), threading.Event()
    order: list[str] = []

    def fault(asked: Asked) -> Answer | None:
        if not asked.path.endswith(f"/manifests/{tag}"):
            return None
        name = asked.headers["user-agent"]
        mine = [entry for entry in order if entry.startswith(name)]
        order.append(f"{name} {asked.method}")
        if asked.method == "PUT" and len(mine) == 1:
            both_read.wait(20)
            if name == "two":
                first_wrote.wait(20)
        return None

    little_registry.fault = fault

    def settle(seconds: float) -> None:
        """The first writer has found its entry once; it looks again only after the second has written."""
        if threading.current_thread() is first:
            first_wrote.set()
            second.join(20)

    def attach(name: str, manifest: Manifest) -> None:
        open_little(transport=Named(name), sleep=settle).put_manifest(manifest)

    second = threading.Thread(target=attach, args=("two", manifests[1]))
    first = threading.Thread(target=attach, args=("one", manifests[0]))
    second.start()
    first.start()
    first.join()
    second.join()
    found = {entry.digest for entry in open_little().referrers(subject.digest)}
    assert found == {manifest.digest for manifest in manifests}
    assert order.count("one PUT") == 2, order


def test_a_fallback_tag_that_holds_an_image_is_left_alone(little_registry: Little, open_little: Opener) -> None:
    little_registry.referrers_endpoint = False
    remote = open_little()
    subject = image(remote, tag="1.0")
    other = image(remote, text="other", tag=referrers_tag(subject.digest))
    assert remote.referrers(subject.digest) == ()
    with pytest.raises(RegistryRefused, match="no OCI index"):
        remote.put_manifest(referrer(subject, remote, artifact_type="a/b", body=b"note"))
    assert remote.manifest(referrers_tag(subject.digest)) == other


# --- tags


@pytest.mark.parametrize("look", [2, 3])
def test_a_tag_moved_while_it_is_written_is_noticed(little_registry: Little, open_little: Opener, look: int) -> None:
    """FR-28: somebody else writes between our write and one of our looks at what came of it."""
    remote = open_little()
    ours, theirs = image(remote, text="ours"), image(remote, text="theirs")
    heads = 0

    def fault(asked: Asked) -> Answer | None:
        nonlocal heads
        if asked.method == "HEAD" and asked.path.endswith("/manifests/h100"):
            heads += 1
            if heads == look:
                little_registry.manifests["app", "h100"] = (MediaType.MANIFEST, theirs.raw)
        return None

    little_registry.fault = fault
    with pytest.raises(TagMoved) as caught:
        remote.move_tag("h100", ours.digest, expected=None)
    assert caught.value.found == theirs.digest
    assert caught.value.exit_code == 1


def test_tags_are_listed_page_by_page(little_registry: Little, open_little: Opener) -> None:
    pages = {
        "/v2/app/tags/list?n=1000": Answer(
            200, {"Link": '</v2/app/tags/list?n=1000&last=a>; rel="next"'}, b'{"tags":["a"]}'
        ),
        "/v2/app/tags/list?n=1000&last=a": Answer(200, {}, b'{"tags":["b"]}'),
    }
    little_registry.fault = lambda asked: pages.get(asked.path)
    assert open_little().tags() == ("a", "b")
    elsewhere = Answer(200, {"Link": '<http://other.example/x>; rel="next"'}, b'{"tags":["a"]}')
    little_registry.fault = lambda asked: elsewhere
    with pytest.raises(RegistryRefused, match="next page is elsewhere"):
        open_little().tags()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"tags": 3}'])
def test_nonsense_is_refused(little_registry: Little, open_little: Opener, body: bytes) -> None:
    little_registry.fault = lambda asked: Answer(200, {"Content-Type": MediaType.INDEX}, body)
    remote = open_little()
    with pytest.raises(BuilderError):
        remote.tags()
    with pytest.raises(BuilderError):
        remote.referrers(BLOB.digest)
