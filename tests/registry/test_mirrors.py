"""Reading by way of the mirrors that registries.conf names: two registries that can both misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import BadInput, Refused
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.registry.client import Remote
from builder.registry.copy import copy
from builder.registry.errors import RegistryBusy, RegistryRefused, RegistryUnreachable
from builder.registry.layout import Layout
from builder.registry.manifests import pointed_blobs
from builder.registry.mirrored import Mirrored
from builder.registry.mirrors import Pull, Source, Sources, find_sources
from builder.registry.values import Manifest
from builder.store import CorruptBlob
from tests.conftest import RunBuilder
from tests.registry import little
from tests.registry.conftest import Opener
from tests.registry.little import Answer, Asked, Cut, Little, error, random_bytes
from tests.registry.samples import image, referrer
from tests.schemas import document

BIG = random_bytes(300_000, "mirrored")


@pytest.fixture
def mirror() -> Iterator[Little]:
    with little.serve() as running:
        yield running


@pytest.fixture
def open_mirrored(little_registry: Little, mirror: Little, open_little: Opener) -> Iterator[Mirrored]:
    """The repository `app` of one registry, with `cache/app` of another before it."""
    opener = Opener(mirror.host)
    yield Mirrored(open_little(), [(opener("cache/app"), "all")], reporter=SilentReporter())
    for remote in opener.opened:
        remote.close()


def fill(*registries: tuple[Little, str], tag: str = "1.0") -> Manifest:
    """The same image in several registries."""
    for registry, name in registries:
        remote = Remote.open(RegistryRef(registry.host, name), environ={}, reporter=SilentReporter())
        made = image(remote, tag=tag, extra=(BIG,))
        remote.close()
        registry.log.clear()
    return made


def all_bytes(repository: Mirrored, made: Manifest) -> int:
    return sum(len(b"".join(repository.read_blob(blob.digest))) for blob in pointed_blobs(made))


def test_content_comes_from_the_mirror_alone(little_registry: Little, mirror: Little, open_mirrored: Mirrored) -> None:
    made = fill((little_registry, "app"), (mirror, "cache/app"))
    found = open_mirrored.resolve("1.0")
    assert found is not None
    assert open_mirrored.manifest(found.digest) == made
    assert all_bytes(open_mirrored, made) > len(BIG)
    assert little_registry.log == []
    assert all("/v2/cache/app/" in asked.path for asked in mirror.log)


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503])
def test_a_mirror_that_fails_is_passed_over(
    little_registry: Little, mirror: Little, open_mirrored: Mirrored, code: int
) -> None:
    made = fill((little_registry, "app"))
    mirror.fault = lambda asked: error(code, "FAULT")
    assert open_mirrored.manifest("1.0") == made
    assert all_bytes(open_mirrored, made) > len(BIG)
    if code != 404:
        assert len({asked.path for asked in mirror.log}) == 1  # it is not waited for again


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_registry_behind_an_empty_mirror_is_not_absent(
    little_registry: Little, open_mirrored: Mirrored, code: int
) -> None:
    little_registry.fault = lambda asked: error(code, "TOOMANYREQUESTS")
    with pytest.raises(RegistryBusy):
        open_mirrored.manifest("1.0")


def test_a_busy_mirror_does_not_make_absent_what_the_registry_has_not(mirror: Little, open_mirrored: Mirrored) -> None:
    mirror.fault = lambda asked: error(429, "TOOMANYREQUESTS")
    assert open_mirrored.resolve("1.0") is None  # the registry itself said so


def test_all_failures_are_told(little_registry: Little, mirror: Little, open_mirrored: Mirrored) -> None:
    mirror.fault = lambda asked: error(403, "DENIED", "not you")
    little_registry.fault = lambda asked: error(500, "UNKNOWN", "disk gone")
    with pytest.raises(RegistryRefused) as caught:
        open_mirrored.manifest("1.0")
    assert "disk gone" in caught.value.why
    assert f"mirror {mirror.host}/cache/app" in caught.value.why
    assert "not you" in caught.value.why


def test_a_mirror_that_serves_another_manifest_is_passed_over(
    little_registry: Little, mirror: Little, open_mirrored: Mirrored
) -> None:
    made = fill((little_registry, "app"))
    mirror.manifests["cache/app", str(made.digest)] = (made.media_type, made.raw + b" ")
    assert open_mirrored.manifest(made.digest) == made


@pytest.mark.parametrize("cut", [1000, 200_000])
def test_where_a_mirror_is_cut_the_registry_goes_on(
    little_registry: Little, mirror: Little, open_mirrored: Mirrored, cut: int
) -> None:
    fill((little_registry, "app"), (mirror, "cache/app"))
    big = next(digest for (_, digest), data in mirror.blobs.items() if data == BIG)

    def fault(asked: Asked) -> Answer | None:
        if big not in asked.path:
            return None
        if "range" in asked.headers:
            raise Cut
        return Answer(200, {}, BIG[:cut], promised=len(BIG))

    mirror.fault = fault
    layout_bytes = b"".join(open_mirrored.read_blob(Digest.parse(big)))
    assert layout_bytes == BIG


def test_a_mirror_that_lies_in_mid_blob_is_an_error_and_nothing_of_it_stays(
    little_registry: Little, mirror: Little, open_mirrored: Mirrored, tmp_path: Path
) -> None:
    made = fill((little_registry, "app"), (mirror, "cache/app"))
    big = next(digest for (_, digest), data in mirror.blobs.items() if data == BIG)
    mirror.blobs["cache/app", big] = BIG[:-1] + b"!"
    layout = Layout(tmp_path)
    with pytest.raises(CorruptBlob, match="a mirror has other bytes"):
        copy(open_mirrored, layout, made.digest, reporter=SilentReporter())
    assert layout.manifest(made.digest) is None
    copy(open_mirrored, layout, made.digest, reporter=SilentReporter())  # the mirror is not asked again
    assert layout.manifest(made.digest) == made


def test_what_is_attached_and_all_writing_is_the_registrys_own(
    little_registry: Little, mirror: Little, open_mirrored: Mirrored
) -> None:
    made = fill((little_registry, "app"), (mirror, "cache/app"))
    open_mirrored.put_referrers([referrer(made, open_mirrored, artifact_type="text/plain", body=b"note")])
    open_mirrored.move_tag("stable", made.digest, expected=None)
    assert len(open_mirrored.referrers(made.digest)) == 1
    assert open_mirrored.tags() == ("1.0", "stable")
    assert mirror.log == []


# registries.conf


CONF = """\
unqualified-search-registries = ["docker.io"]

[[registry]]
prefix = "registry.example.org"
[[registry.mirror]]
location = "cache.example.net/all"
[[registry.mirror]]
location = "localhost:5000"
insecure = true
pull-from-mirror = "tag-only"

[[registry]]
prefix = "registry.example.org/team"
location = "moved.example.org/team-a"
mirror-by-digest-only = true
[[registry.mirror]]
location = "cache.example.net/team"

[[registry]]
prefix = "*.example.com"
[[registry.mirror]]
location = "cache.example.net/com"

[[registry]]
location = "docker.io"
[[registry.mirror]]
location = "cache.example.net/hub"

[[registry]]
prefix = "evil.example.org"
blocked = true
"""


@pytest.mark.parametrize(
    ("host", "name", "mirrors", "primary"),
    [
        (
            "registry.example.org",
            "app",
            [("cache.example.net/all/app", False, "all"), ("localhost:5000/app", True, "tag-only")],
            "registry.example.org/app",
        ),
        (
            "registry.example.org",
            "team/app",
            [("cache.example.net/team/app", False, "digest-only")],
            "moved.example.org/team-a/app",
        ),
        ("a.example.com", "app", [("cache.example.net/com/app", False, "all")], "a.example.com/app"),
        ("docker.io", "python", [("cache.example.net/hub/library/python", False, "all")], "docker.io/python"),
        ("registry.example.organ", "app", [], "registry.example.organ/app"),
        ("example.com", "app", [], "example.com/app"),
    ],
)
def test_sources_as_the_file_names_them(
    tmp_path: Path, host: str, name: str, mirrors: list[tuple[str, bool, Pull]], primary: str
) -> None:
    (tmp_path / "mirrors.conf").write_text(CONF)
    found = find_sources(RegistryRef(host, name), {"CONTAINERS_REGISTRIES_CONF": str(tmp_path / "mirrors.conf")})
    assert [(str(item.reference), item.plain_http, item.pull) for item in found.mirrors] == mirrors
    assert str(found.primary.reference) == primary


def test_a_blocked_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mirrors.conf").write_text(CONF)
    with pytest.raises(Refused, match="is not asked"):
        find_sources(
            RegistryRef("evil.example.org", "app"), {"CONTAINERS_REGISTRIES_CONF": str(tmp_path / "mirrors.conf")}
        )


def test_the_users_files_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / ".config/containers"
    (folder / "registries.conf.d").mkdir(parents=True)
    row = '[[registry]]\nprefix = "r.example.org"\n[[registry.mirror]]\nlocation = "{}.example.net"\n'
    (folder / "registries.conf").write_text(row.format("first"))
    reference = RegistryRef("r.example.org", "app")

    def asked() -> list[str]:
        return [str(item.reference) for item in find_sources(reference, {"HOME": str(tmp_path)}).mirrors]

    assert asked() == ["first.example.net/app"]
    (folder / "registries.conf.d/10.conf").write_text(row.format("second"))
    assert asked() == ["second.example.net/app"]
    assert find_sources(RegistryRef("other.example.org", "app"), {}) == Sources(
        mirrors=(), primary=Source(reference=RegistryRef("other.example.org", "app"), plain_http=False)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[registry]", "line 1"),
        ("registry = 1", "array of tables"),
        ('[[registry]]\nprefix = "r.example.org"\nmirror = 1', "registry.mirror"),
        ('[[registry]]\nprefix = "r.example.org"\n[[registry.mirror]]\ninsecure = true', "no location"),
        ('[[registry]]\nprefix = "r.example.org"\n[[registry.mirror]]\nlocation = "UPPER CASE"', "UPPER CASE"),
        (
            '[[registry]]\nprefix = "r"\n[[registry.mirror]]\nlocation = "m.example.net"\npull-from-mirror = "digest"',
            "'digest'",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mirrors.conf"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        find_sources(
            RegistryRef("r.example.org" if "r.example" in text else "r", "app"),
            {"CONTAINERS_REGISTRIES_CONF": str(path)},
        )
    assert said in caught.value.why
    assert str(path) in str(caught.value.where)


def test_the_command_reads_by_way_of_mirrors(
    run_builder: RunBuilder, little_registry: Little, mirror: Little, tmp_path: Path
) -> None:
    made = fill((little_registry, "team/app"), (mirror, "cache/app"))
    (tmp_path / "mirrors.conf").write_text(
        f'[[registry]]\nprefix = "{little_registry.host}/team"\n[[registry.mirror]]\nlocation = "{mirror.host}/cache"\n'
    )
    environ = {"CONTAINERS_REGISTRIES_CONF": str(tmp_path / "mirrors.conf")}
    words = ("copy", f"{little_registry.host}/team/app:1.0", "oci:out", "--json")
    found = document(run_builder(*words, env=environ), "copy")
    assert found["digest"] == str(made.digest)
    assert all("/referrers/" in asked.path for asked in little_registry.log)
    assert any("/blobs/" in asked.path for asked in mirror.log)


def test_a_dead_mirror_and_a_dead_registry_end_in_an_error(little_registry: Little, open_little: Opener) -> None:
    dead = Remote.open(RegistryRef("127.0.0.1:9", "app"), environ={}, reporter=SilentReporter())
    mirrored = Mirrored(dead, [(open_little(), "all")], reporter=SilentReporter())
    with pytest.raises(RegistryUnreachable):
        mirrored.manifest("1.0")
    dead.close()
