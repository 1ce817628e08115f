"""The built-in base from a mirror: what is trusted, what is chosen, what the tree holds."""

from __future__ import annotations

import hashlib
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.base.debian import parse_debian
from builder.base.debian_tree import read_tree
from builder.base.mirror import fetch_packages
from builder.base.openpgp import FINGERPRINTS, BadSignature, trusted_keys
from builder.base.resolve import resolve_base
from builder.base.values import LockedBase, TreeEntry
from builder.errors import BadInput, OutsideFailed
from builder.events import SilentReporter
from builder.image.base_layers import debian_layer
from builder.names import Arch, Reference
from builder.registry.values import Repository
from builder.store import Store
from tests.base.debs import LIBC, Archive, Deb, minimal_base, other_key


def no_registry(reference: Reference) -> Repository:
    raise AssertionError(f"{reference} was opened")


class Mirror:
    """A served archive and the environment that names it."""

    def __init__(self, archive: Archive, url: str, store: Store) -> None:
        self.archive = archive
        self.environ = {"BUILDER_DEBIAN_MIRROR": url, "BUILDER_DEBIAN_KEYRING": str(archive.keyring)}
        self.store = store

    def lock(
        self, reference: str = "debian:bookworm", *, python: str = "3.11", arch: Arch = "x86_64", offline: bool = False
    ) -> LockedBase:
        return resolve_base(
            reference,
            python=python,
            arch=arch,
            store=self.store,
            reporter=SilentReporter(),
            offline=offline,
            environ=self.environ,
            open_repository=no_registry,
        )


@pytest.fixture
def mirror(tmp_path: Path, store: Store) -> Iterator[Mirror]:
    archive = Archive(tmp_path / "mirror")
    archive.root.mkdir()
    archive.publish_all(minimal_base())
    with archive.serve() as url:
        yield Mirror(archive, url, store)


def tree_of(mirror: Mirror) -> dict[str, TreeEntry]:
    base = mirror.lock()
    fetch_packages(base.packages, mirror.store, SilentReporter(), offline=False)
    return {entry.path: entry for entry in read_tree(base, mirror.store, "x86_64")}


def test_the_lock_names_every_package_by_digest(mirror: Mirror) -> None:
    base = mirror.lock()
    names = [package.name for package in base.packages]
    assert names == sorted(names)
    assert {"python3.11-minimal", "libgcc-s1", "media-types", "openssl"} <= set(names)
    assert not {"debconf", "dpkg", "unrelated"} & set(names)
    assert (base.glibc, base.python_path) == ("2.36", "/usr/bin/python3.11")
    assert all(package.url.startswith(mirror.environ["BUILDER_DEBIAN_MIRROR"]) for package in base.packages)
    assert mirror.lock() == base


def test_a_security_update_replaces_the_package_and_changes_the_digest(mirror: Mirror) -> None:
    before = mirror.lock()
    update = [Deb("openssl", version="1.0-1+deb12u1", files={"usr/bin/openssl": b"\x7fELF fixed"})]
    mirror.archive.publish(update, folder="debian-security", suite="bookworm-security")
    after = mirror.lock()
    assert [item.version for item in after.packages if item.name == "openssl"] == ["1.0-1+deb12u1"]
    assert after.digest != before.digest


def test_offline_uses_the_last_lock_of_this_store_and_says_when_there_is_none(mirror: Mirror) -> None:
    with pytest.raises(OutsideFailed, match="debian:bookworm is not known yet"):
        mirror.lock(offline=True)
    base = mirror.lock()
    assert mirror.lock(offline=True) == base
    with pytest.raises(OutsideFailed, match="Debian packages are not in the store"):
        fetch_packages(base.packages, mirror.store, SilentReporter(), offline=True)


def test_an_index_signed_by_somebody_else_is_refused(mirror: Mirror) -> None:
    mirror.archive.publish(minimal_base(), signer=other_key())
    with pytest.raises(BadSignature, match="not signed by a key we trust") as caught:
        mirror.lock()
    assert "\n" not in caught.value.why
    assert caught.value.exit_code == 3


def test_a_changed_release_file_is_refused(mirror: Mirror) -> None:
    path = mirror.archive.root / "debian/dists/bookworm/InRelease"
    path.write_bytes(path.read_bytes().replace(b"Origin: Test", b"Origin: Evil"))
    with pytest.raises(BadSignature):
        mirror.lock()


def test_text_outside_the_signature_is_not_believed(mirror: Mirror) -> None:
    path = mirror.archive.root / "debian/dists/bookworm/InRelease"
    path.write_bytes(b"Codename: other\n" + path.read_bytes())
    try:
        base = mirror.lock()
    except BadSignature:
        return
    assert base.packages


def test_an_unsigned_file_is_refused(mirror: Mirror) -> None:
    (mirror.archive.root / "debian/dists/bookworm/InRelease").write_bytes(b"Codename: bookworm\n")
    with pytest.raises(BadSignature):
        mirror.lock()


def test_another_suites_release_cannot_stand_in(mirror: Mirror) -> None:
    mirror.archive.publish(minimal_base(), codename="trixie")
    with pytest.raises(OutsideFailed, match="another suite") as caught:
        mirror.lock()
    assert caught.value.why == "asked for bookworm, its release file is of trixie"


def test_a_release_file_past_its_time_is_refused(mirror: Mirror) -> None:
    mirror.archive.publish(minimal_base(), extra="Valid-Until: Sat, 01 Jan 2022 00:00:00 UTC\n")
    with pytest.raises(OutsideFailed, match="out of date"):
        mirror.lock()


def test_a_changed_index_or_package_is_refused_and_not_kept(mirror: Mirror) -> None:
    mirror.archive.publish(minimal_base(), spoil_index=True)
    with pytest.raises(OutsideFailed, match="another file than its signed index names"):
        mirror.lock()
    mirror.archive.publish(minimal_base())
    base = mirror.lock()
    victim = next(package for package in base.packages if package.name == "openssl")
    path = mirror.archive.root / "debian/pool" / victim.url.rpartition("/")[2]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(OutsideFailed, match="another file than its signed index names"):
        fetch_packages(base.packages, mirror.store, SilentReporter(), offline=False)
    assert not mirror.store.has(victim.sha256)
    assert not list((mirror.store.root / "tmp").iterdir())


def test_a_package_that_left_the_mirror_says_how_to_go_on(mirror: Mirror) -> None:
    base = mirror.lock()
    (mirror.archive.root / "debian/pool" / base.packages[0].url.rpartition("/")[2]).unlink()
    with pytest.raises(OutsideFailed, match="no longer has a locked package") as caught:
        fetch_packages(base.packages, mirror.store, SilentReporter(), offline=False)
    assert "debian:<suite>@YYYYMMDDTHHMMSSZ" in caught.value.fix


def test_an_unreachable_mirror_is_an_outside_failure(mirror: Mirror) -> None:
    mirror.environ["BUILDER_DEBIAN_MIRROR"] = "http://127.0.0.1:9"
    with pytest.raises(OutsideFailed, match="cannot be reached") as caught:
        mirror.lock()
    assert "BUILDER_DEBIAN_MIRROR" in caught.value.fix


@pytest.mark.parametrize("mirror_url", ["ftp://mirror.example.org", "mirror.example.org", "http://", "https:///x"])
def test_a_mirror_that_is_no_url_is_bad_input(mirror: Mirror, mirror_url: str) -> None:
    mirror.environ["BUILDER_DEBIAN_MIRROR"] = mirror_url
    with pytest.raises(BadInput, match="BUILDER_DEBIAN_MIRROR is not a URL"):
        mirror.lock()


@pytest.mark.parametrize("content", [None, b"", b"no keys in here"])
def test_a_keyring_that_cannot_be_read_is_bad_input(mirror: Mirror, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys.pgp"
    if content is not None:
        path.write_bytes(content)
    mirror.environ["BUILDER_DEBIAN_KEYRING"] = str(path)
    with pytest.raises(BadInput, match="BUILDER_DEBIAN_KEYRING") as caught:
        mirror.lock()
    assert caught.value.where is not None
    assert caught.value.where.file == str(path)


@pytest.mark.parametrize(
    ("reference", "python", "what"),
    [
        ("debian:bookwrom", "3.11", "unknown Debian suite 'bookwrom'"),
        ("debian:bookworm@yesterday", "3.11", "not a snapshot time: 'yesterday'"),
        ("debian:bookworm", "3.13", "debian:bookworm has no Python 3.13"),
        ("debian:bookworm", "3.10", "debian:bookworm has no Python 3.10"),
        ("python:3.11", "3.11", "unknown base 'python:3.11'"),
        ("localhost:5000/base", "3.11", "names no tag and no digest"),
    ],
)
def test_references_that_name_no_base(mirror: Mirror, reference: str, python: str, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        mirror.lock(reference, python=python)
    assert what in str(caught.value)


def test_the_fix_for_a_missing_python_names_the_suite_that_has_it(mirror: Mirror) -> None:
    with pytest.raises(BadInput) as caught:
        mirror.lock(python="3.13")
    assert caught.value.fix == 'use base = "debian:trixie"'
    assert "debian:bookworm has Python 3.11" in caught.value.why


def test_snapshots_are_part_of_the_grammar() -> None:
    ref = parse_debian("debian:bookworm@20260711T120000Z")
    assert ref is not None
    assert (ref.suite, ref.snapshot, str(ref)) == ("bookworm", "20260711T120000Z", "debian:bookworm@20260711T120000Z")
    assert parse_debian("registry.example.org/debian:bookworm") is None


def test_a_snapshot_is_a_folder_of_the_mirror_and_may_be_past_its_time(mirror: Mirror) -> None:
    stamp = "20260711T120000Z"
    old = "Valid-Until: Sat, 01 Jan 2022 00:00:00 UTC\n"
    mirror.archive.publish(minimal_base(), folder=f"debian/{stamp}", extra=old)
    mirror.archive.publish([], folder=f"debian/{stamp}", suite="bookworm-updates")
    mirror.archive.publish([], folder=f"debian-security/{stamp}", suite="bookworm-security", extra=old)
    base = mirror.lock(f"debian:bookworm@{stamp}")
    assert base.reference == f"debian:bookworm@{stamp}"
    assert all(f"/debian/{stamp}/pool/" in package.url for package in base.packages)
    mirror.environ["BUILDER_DEBIAN_MIRROR"] += "/"
    assert mirror.lock(f"debian:bookworm@{stamp}", offline=True) == base


def test_the_tree_is_what_the_scripts_would_have_made(mirror: Mirror) -> None:
    tree = tree_of(mirror)
    assert (tree["bin"].kind, tree["bin"].link) == ("symlink", "usr/bin")
    assert tree["lib64"].link == "usr/lib64"
    assert tree["usr/bin/dash"].data == b"\x7fELF dash"
    assert tree["usr/bin/sh"].link == "dash"
    assert tree["usr/lib/x86_64-linux-gnu/libc.so.6"].data == LIBC
    assert tree["usr/lib64/ld-linux-x86-64.so.2"].link == "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    assert tree["usr/bin/python3.11-again"].data == tree["usr/bin/python3.11"].data
    assert tree["usr/bin/python3"].link == "python3.11"
    assert tree["etc/ssl/certs/ca-certificates.crt"].data == b"CERT A\nCERT B\n"
    assert tree["etc/nsswitch.conf"].data == b"hosts: files dns\n"
    assert tree["etc/localtime"].link == "/usr/share/zoneinfo/Etc/UTC"
    assert b"root:x:0:0:" in tree["etc/passwd"].data
    assert b"app:x:10001:10001:" in tree["etc/passwd"].data
    assert (tree["tmp"].mode, tree["root"].mode, tree["home/app"].uid) == (0o1777, 0o700, 10001)
    assert "usr/share/man/man1/python.1" not in tree
    assert "usr/share/doc/python3.11-minimal/copyright" in tree
    assert "usr/share/doc/python3.11-minimal/changelog.gz" not in tree
    for path in tree:
        parent = path.rpartition("/")[0]
        assert not parent or tree[parent].kind == "directory", path


def test_scanners_find_the_package_database(mirror: Mirror) -> None:
    tree = tree_of(mirror)
    status = tree["var/lib/dpkg/status"].data.decode()
    stanzas = status.strip().split("\n\n")
    assert len(stanzas) == len(mirror.lock().packages)
    assert all("\nStatus: install ok installed\n" in f"{stanza}\n" for stanza in stanzas)
    files = next(stanza for stanza in stanzas if stanza.startswith("Package: base-files\n"))
    digest = hashlib.md5(b"Debian\n", usedforsecurity=False).hexdigest()
    assert files.endswith(f"Conffiles:\n /etc/issue {digest}")
    assert tree["var/lib/dpkg/info/dash.list"].data == b"/bin/dash\n/bin/sh\n"
    assert "var/lib/dpkg/info/libc6:amd64.list" in tree


def test_the_layer_is_the_same_bytes_from_another_store(mirror: Mirror, tmp_path: Path) -> None:
    base = mirror.lock()
    first = debian_layer(base, "x86_64", mirror.store, SilentReporter())
    second = debian_layer(base, "x86_64", Store(tmp_path / "another" / "store"), SilentReporter())
    assert first.descriptor == second.descriptor
    assert first.diff_id == second.diff_id
    assert first.path is not None
    with tarfile.open(first.path) as archive:
        names = archive.getnames()
        assert {(member.mtime, member.uname) for member in archive} == {(315532800, "")}
    assert names == sorted(names)
    assert len(set(names)) == len(names)


def test_debians_keys_are_the_documented_ones() -> None:
    assert {cert.fingerprint for cert in trusted_keys({})} == set(FINGERPRINTS)


@pytest.mark.network
@pytest.mark.parametrize(("suite", "python", "glibc"), [("bookworm", "3.11", "2.36"), ("trixie", "3.13", "2.41")])
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_real_suites_are_locked(suite: str, python: str, glibc: str, arch: Arch, shared_store: Store) -> None:
    base = resolve_base(
        f"debian:{suite}",
        python=python,
        arch=arch,
        store=shared_store,
        reporter=SilentReporter(),
        offline=False,
        environ={},
        open_repository=no_registry,
    )
    assert base.glibc == glibc
    assert 30 < len(base.packages) < 60
    assert {package.architecture for package in base.packages} <= {{"x86_64": "amd64", "aarch64": "arm64"}[arch], "all"}


@pytest.mark.network
@pytest.mark.parametrize(("suite", "python"), [("bookworm", "3.11"), ("trixie", "3.13")])
def test_the_real_base_runs_python(suite: str, python: str, shared_store: Store, tmp_path: Path) -> None:
    base = resolve_base(
        f"debian:{suite}",
        python=python,
        arch="x86_64",
        store=shared_store,
        reporter=SilentReporter(),
        offline=False,
        environ={},
        open_repository=no_registry,
    )
    layer = debian_layer(base, "x86_64", shared_store, SilentReporter())
    assert layer.path is not None
    root = tmp_path / "root"
    with tarfile.open(layer.path) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # Pythons before 3.11.4 have no filters
        archive.extractall(root)  # noqa: S202 - made here
    assert stat.S_IMODE((root / "etc/passwd").stat().st_mode) == 0o644
    (root / "dev/null").touch()
    code = "import ssl, ctypes, sqlite3, lzma, bz2, readline, curses, uuid, zoneinfo, ctypes.util as u;"
    code += "print(len(ssl.create_default_context().get_ca_certs()) > 100, u.find_library('gomp'), u.find_library('c'),"
    code += " zoneinfo.ZoneInfo('Europe/Berlin'))"
    command = ["chroot", str(root), base.python_path, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/sbin:/usr/bin"})
    if "Operation not permitted" in done.stderr:
        pytest.skip("chroot needs root")
    assert done.stdout == "True libgomp.so.1 libc.so.6 Europe/Berlin\n", done.stderr
