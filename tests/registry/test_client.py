"""The client against the real distribution registry (2.8: no referrers endpoint)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.names import Digest, RegistryRef, parse_ref
from builder.registry.client import Remote
from builder.registry.copy import copy
from builder.registry.errors import MissingContent, Offline, RegistryDenied, RegistryRefused, TagMoved
from builder.registry.layout import Layout
from builder.registry.open import open_repository
from builder.registry.values import BytesSource, Descriptor, FileSource, Manifest, MediaType
from builder.store import CorruptBlob
from tests.registry.conftest import Counting
from tests.registry.little import random_bytes
from tests.registry.samples import image, referrer

pytestmark = pytest.mark.registry


def _blob(data: bytes) -> Descriptor:
    return Descriptor(media_type=MediaType.LAYER_GZIP, digest=Digest.of(data), size=len(data))


def test_reads_as_empty_before_the_first_push(remote: Remote) -> None:
    digest = Digest.of(b"x")
    assert remote.tags() == ()
    assert remote.resolve("1.0") is None
    assert remote.manifest("1.0") is None
    assert remote.manifest(digest) is None
    assert not remote.has_blob(digest)
    assert remote.referrers(digest) == ()
    with pytest.raises(MissingContent):
        list(remote.read_blob(digest))


def test_image_comes_back_as_pushed(remote: Remote) -> None:
    made = image(remote, tag="1.0")
    assert remote.manifest("1.0") == made
    assert remote.manifest(made.digest) == made
    assert remote.resolve("1.0") == made.descriptor
    assert remote.tags() == ("1.0",)
    config = json.loads(made.raw)["config"]
    assert json.loads(b"".join(remote.read_blob(Digest.parse(config["digest"]))))["os"] == "linux"


def test_large_blobs_go_in_chunks(registry_host: str, repository_name: str, counting: Counting, tmp_path: Path) -> None:
    data = random_bytes(2_500_000, "large")
    (tmp_path / "blob").write_bytes(data)
    ref = RegistryRef(registry_host, repository_name)
    remote = Remote.open(ref, environ={}, reporter=SilentReporter(), transport=counting, chunk_size=1 << 20)
    assert remote.put_blob(_blob(data), FileSource(tmp_path / "blob"))
    methods = [line.split()[0] for line in counting.lines]
    assert methods == ["HEAD", "POST", "PATCH", "PATCH", "PATCH", "PUT"]
    assert b"".join(remote.read_blob(Digest.of(data))) == data
    assert not remote.put_blob(_blob(data), BytesSource(data))
    remote.close()


def test_damaged_source_is_not_pushed(remote: Remote) -> None:
    wanted = _blob(b"right bytes")
    with pytest.raises(CorruptBlob, match="where it is read from"):
        remote.put_blob(wanted, BytesSource(b"wrong bytes"))
    with pytest.raises(CorruptBlob, match="damaged"):
        remote.put_blob(wanted, BytesSource(b"short"))
    with pytest.raises(CorruptBlob, match="damaged"):
        remote.put_blob(wanted, BytesSource(b"right bytes and more"))
    assert not remote.has_blob(wanted.digest)


def test_manifest_without_its_blobs_is_refused(remote: Remote, tmp_path: Path) -> None:
    made = image(Layout(tmp_path))
    with pytest.raises(RegistryRefused, match="BLOB_UNKNOWN"):
        remote.put_manifest(made, tag="1.0")
    assert remote.tags() == ()


def test_blobs_are_mounted_from_a_neighbour(registry_host: str, repository_name: str, counting: Counting) -> None:
    data = random_bytes(10_000, repository_name)
    one = Remote.open(RegistryRef(registry_host, f"{repository_name}/one"), environ={}, reporter=SilentReporter())
    two = Remote.open(
        RegistryRef(registry_host, f"{repository_name}/two"),
        environ={},
        reporter=SilentReporter(),
        transport=counting,
    )
    one.put_blob(_blob(data), BytesSource(data))
    assert not two.put_blob(_blob(data), BytesSource(data), mount_from=one.name)
    assert [line.split()[0] for line in counting.lines] == ["HEAD", "POST"]
    assert b"".join(two.read_blob(Digest.of(data))) == data
    other = random_bytes(10_000, repository_name + "other")
    assert two.put_blob(_blob(other), BytesSource(other), mount_from=one.name)
    one.close()
    two.close()


def test_move_tag_compares_first(remote: Remote) -> None:
    one, two = image(remote, text="one"), image(remote, text="two")
    remote.move_tag("h100", one.digest, expected=None)
    with pytest.raises(TagMoved) as caught:
        remote.move_tag("h100", two.digest, expected=None)
    assert caught.value.found == one.digest
    assert remote.manifest("h100") == one
    remote.move_tag("h100", two.digest, expected=one.digest)
    assert remote.manifest("h100") == two
    with pytest.raises(MissingContent):
        remote.move_tag("h100", Digest.of(b"none"), expected=two.digest)


def test_referrers_live_under_the_fallback_tag(remote: Remote) -> None:
    subject = image(remote, tag="1.0")
    bom = referrer(subject, remote, artifact_type="application/vnd.cyclonedx+json", body=b"bom")
    report = referrer(subject, remote, artifact_type="application/vnd.in-toto+json", body=b"report")
    for manifest in (bom, report, bom):
        remote.put_manifest(manifest)
    assert {entry.digest for entry in remote.referrers(subject.digest)} == {bom.digest, report.digest}
    (only,) = remote.referrers(subject.digest, artifact_type="application/vnd.cyclonedx+json")
    assert only.annotations == {"note": "bom"}
    assert remote.tags() == ("1.0",)
    assert remote.manifest(f"sha256-{subject.digest.hex}") is not None


@pytest.mark.parametrize("writers", [8, pytest.param(50, marks=pytest.mark.big)])
def test_many_attach_at_once_and_nothing_is_lost(
    registry_host: str, repository_name: str, remote: Remote, writers: int
) -> None:
    """FR-31 on the real registry: each writer has its own client, as separate jobs have."""
    subject = image(remote, tag="1.0")
    manifests = [referrer(subject, remote, artifact_type="a/b", body=f"{n}".encode()) for n in range(writers)]
    start = threading.Barrier(len(manifests))
    failures: list[BaseException] = []

    def attach(manifest: Manifest) -> None:
        ref = RegistryRef(registry_host, repository_name)
        own = Remote.open(ref, environ={}, reporter=SilentReporter())
        start.wait()
        try:
            own.put_manifest(manifest)
        except BaseException as error:
            failures.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=attach, args=(manifest,)) for manifest in manifests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [], "\n".join(map(str, failures))
    found = {entry.digest for entry in remote.referrers(subject.digest)}
    assert found == {manifest.digest for manifest in manifests}


def test_copy_takes_referrers_along_and_sends_once(
    registry_host: str, repository_name: str, counting: Counting, tmp_path: Path
) -> None:
    layout = Layout(tmp_path / "layout")
    made = image(layout, tag="1.0", extra=(random_bytes(100_000, repository_name),))
    layout.put_manifest(referrer(made, layout, artifact_type="a/b", body=b"note"))
    ref = RegistryRef(registry_host, repository_name)
    remote = Remote.open(ref, environ={}, reporter=SilentReporter(), transport=counting)
    first = copy(layout, remote, made.digest, reporter=SilentReporter())
    assert first.sent_blobs == 5  # config, two layers, the note and its empty config
    assert first.sent_bytes > 100_000
    counting.lines.clear()
    again = copy(layout, remote, made.digest, reporter=SilentReporter())
    assert (again.sent_blobs, again.sent_bytes) == (0, 0)
    assert counting.lines == [
        f"GET {repository_name}/manifests/{made.digest}",
        f"GET {repository_name}/manifests/sha256-{made.digest.hex}",
    ]
    back = Layout(tmp_path / "back")
    copy(remote, back, made.digest, reporter=SilentReporter())
    assert back.manifest(made.digest) == made
    assert back.referrers(made.digest) == layout.referrers(made.digest)
    remote.close()


def test_copy_within_a_registry_mounts(registry_host: str, repository_name: str, remote: Remote) -> None:
    made = image(remote, tag="1.0", extra=(random_bytes(50_000, repository_name + "m"),))
    other = Remote.open(RegistryRef(registry_host, f"{repository_name}-copy"), environ={}, reporter=SilentReporter())
    assert copy(remote, other, made.digest, reporter=SilentReporter()).sent_blobs == 0
    assert other.manifest(made.digest) == made
    other.close()


def test_basic_login_is_read_from_the_docker_configuration(guarded_registry: str, tmp_path: Path) -> None:
    ref = RegistryRef(guarded_registry, "app")
    anonymous = Remote.open(ref, environ={"HOME": str(tmp_path / "none")}, reporter=SilentReporter())
    with pytest.raises(RegistryDenied, match="no login for") as caught:
        anonymous.tags()
    assert caught.value.fix.endswith(f"docker login {guarded_registry}")
    wrong = _login(tmp_path / "wrong", guarded_registry, "ann:guess")
    with pytest.raises(RegistryDenied, match="'ann'") as refused:
        Remote.open(ref, environ=wrong, reporter=SilentReporter()).tags()
    assert "guess" not in str(refused.value)
    right = Remote.open(
        ref, environ=_login(tmp_path / "right", guarded_registry, "ann:s3cret"), reporter=SilentReporter()
    )
    made = image(right, tag="1.0")
    assert right.manifest("1.0") == made


def _login(folder: Path, host: str, who: str) -> dict[str, str]:
    folder.mkdir()
    auth = base64.b64encode(who.encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return {"DOCKER_CONFIG": str(folder)}


def test_offline_allows_loopback_only(registry_host: str, repository_name: str) -> None:
    here = open_repository(
        parse_ref(f"{registry_host}/{repository_name}"), environ={}, offline=True, reporter=SilentReporter()
    )
    assert here.tags() == ()
    with pytest.raises(Offline):
        open_repository(parse_ref("registry.example.org/app"), environ={}, offline=True, reporter=SilentReporter())


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_pulls_what_was_pushed(registry_host: str, repository_name: str, remote: Remote, tmp_path: Path) -> None:
    made = image(remote, tag="1.0")
    subprocess.run(
        [
            *("skopeo", "copy", "-q", "--src-tls-verify=false"),
            f"docker://{registry_host}/{repository_name}:1.0",
            f"oci:{tmp_path / 'pulled'}:1.0",
        ],
        check=True,
        timeout=60,
    )
    assert Layout(tmp_path / "pulled").manifest("1.0") == made
