from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder import resources
from builder.doctor import Facts
from builder.doctor.probe import gather
from builder.store import Store
from tests.conftest import RunBuilder
from tests.e2e.index import serve
from tests.schemas import document, error

NOWHERE = "http://127.0.0.1:1"


def facts(environ: dict[str, str], store: Store, *, offline: bool = False) -> Facts:
    return gather(environ, store=store, registries=("registry.example.org",), offline=offline)


@pytest.fixture
def environ(builder_environment: dict[str, str]) -> dict[str, str]:
    """A user whose index and mirror are loopback ports where nobody listens."""
    kept = {name: value for name, value in builder_environment.items() if not name.startswith(("PIP_", "UV_"))}
    return {
        **kept,
        "PIP_CONFIG_FILE": "/dev/null",
        "UV_DEFAULT_INDEX": f"{NOWHERE}/simple",
        "BUILDER_DEBIAN_MIRROR": NOWHERE,
    }


def test_an_index_that_answers_is_told_from_one_that_does_not(environ: dict[str, str], store: Store) -> None:
    with serve() as index:
        found = facts({**environ, "UV_DEFAULT_INDEX": index.url}, store)
    assert [(site.name, site.outcome, site.needed) for site in found.sites] == [
        ("index", "reached", True),
        ("debian mirror", "failed", True),
    ]
    assert index.requested == ["/simple/pip/"]
    (unreached, _) = facts(environ, store).sites
    assert (unreached.outcome, unreached.url) == ("failed", f"{NOWHERE}/simple")
    assert unreached.problem


def test_offline_asks_nobody(environ: dict[str, str], store: Store) -> None:
    with serve() as index:
        found = facts({**environ, "UV_DEFAULT_INDEX": index.url}, store, offline=True)
        assert index.requested == []
    assert {site.outcome for site in found.sites} == {"not-run"}


def test_passwords_in_index_urls_are_not_shown(environ: dict[str, str], store: Store) -> None:
    found = facts({**environ, "UV_DEFAULT_INDEX": "http://me:secret@127.0.0.1:1/simple"}, store, offline=True)
    assert "secret" not in repr(found)
    assert found.sites[0].url == f"{NOWHERE}/simple"


def test_folders_stand_in_for_sites(environ: dict[str, str], store: Store, tmp_path: Path) -> None:
    links = {"UV_FIND_LINKS": str(tmp_path), "UV_INDEX": (tmp_path / "absent").as_uri()}
    found = {site.name: site for site in facts({**environ, **links}, store, offline=True).sites}
    assert found["find-links"].outcome == "reached"
    assert (found["further index"].outcome, found["further index"].problem) == ("failed", "no such folder")


def test_logins_are_listed_with_their_source(environ: dict[str, str], store: Store, tmp_path: Path) -> None:
    config = tmp_path / "docker" / "config.json"
    config.parent.mkdir()
    auths = {"localhost:5000": {"auth": "bWU6c2VjcmV0"}, "https://index.docker.io/v1/": {"auth": "bWU6c2VjcmV0"}}
    config.write_text(json.dumps({"auths": auths, "credHelpers": {"broken.example.org": "not-installed"}}))
    found = facts({**environ, "DOCKER_CONFIG": str(config.parent)}, store, offline=True)
    logins = {login.host: login for login in found.logins}
    assert set(logins) == {"registry.example.org", "localhost:5000", "docker.io", "broken.example.org"}
    assert logins["registry.example.org"].source == ""
    assert str(config) in logins["localhost:5000"].source
    assert "not-installed" in logins["broken.example.org"].problem
    assert "secret" not in repr(found)


def test_logins_that_cannot_be_read_are_a_line_of_their_own(
    environ: dict[str, str], store: Store, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff{")
    environ["DOCKER_CONFIG"] = str(tmp_path)
    (login,) = (item for item in facts(environ, store, offline=True).logins if item.host == "files")
    assert ("config.json" in login.problem, "mend" in login.fix) == (True, True)


def test_a_store_that_cannot_be_there_is_a_problem_and_nothing_is_made(
    environ: dict[str, str], store: Store, tmp_path: Path
) -> None:
    assert facts(environ, store, offline=True).store_problem == ""
    assert not store.root.exists()
    (tmp_path / "file").write_text("")
    assert "is not a folder" in facts(environ, Store(tmp_path / "file" / "store"), offline=True).store_problem


def test_without_an_engine_the_mend_is_named(environ: dict[str, str], store: Store) -> None:
    found = facts({**environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"}, store, offline=True)
    (docker,) = found.engines
    assert docker.version == ""
    assert docker.problem
    assert docker.fix


@pytest.mark.docker
def test_an_engine_says_its_version(environ: dict[str, str], store: Store, docker_host: str) -> None:
    (docker,) = facts({**environ, "DOCKER_HOST": docker_host}, store, offline=True).engines
    assert docker.version[0].isdigit()


def test_every_backend_with_devices_has_a_line(environ: dict[str, str], store: Store) -> None:
    found = facts(environ, store, offline=True)
    assert [device.backend for device in found.devices] == [name for name in resources.backends() if name != "cpu"]


def test_the_command_prints_its_document(run_builder: RunBuilder, environ: dict[str, str]) -> None:
    result = run_builder("doctor", "--offline", "--json", env=environ)
    found = document(result, "doctor")
    needed = {item["verdict"] for item in found["items"] if item["needed"]}
    assert result.returncode == (1 if "missing" in needed else 0)
    assert found["verdict"] == ("missing" if "missing" in needed else "ok")
    text = run_builder("doctor", "--offline", env=environ)
    assert all(item["name"] in text.stdout for item in found["items"])


def test_an_index_that_cannot_be_reached_is_exit_1(run_builder: RunBuilder, environ: dict[str, str]) -> None:
    result = run_builder("doctor", "--json", env=environ)
    found = document(result, "doctor")
    assert result.returncode == 1
    assert {item["name"] for item in found["items"] if item["verdict"] == "missing" and item["needed"]} >= {
        "index",
        "debian mirror",
    }


def test_a_project_that_is_named_but_not_there_is_bad_input(run_builder: RunBuilder) -> None:
    assert "absent" in error(run_builder("doctor", "--offline", "--project", "absent", "--json"), 2)["what"]
