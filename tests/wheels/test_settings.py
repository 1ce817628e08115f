"""The user's index settings: read as pip and uv read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import BadInput
from builder.wheels.settings import PYPI, IndexSettings, read_index_settings, without_credentials


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment in which no file of this machine has a say."""
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": str(tmp_path / "etc"),
        "VIRTUAL_ENV": str(prefix),
        "PIP_CONFIG_FILE": str(tmp_path / "chosen.conf"),
    }


def pip_conf(tmp_path: Path, text: str, where: str = ".config/pip/pip.conf") -> None:
    path = tmp_path / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nothing_set_is_the_default_index(home: dict[str, str]) -> None:
    home["PIP_CONFIG_FILE"] = "/dev/null"
    assert read_index_settings(home) == IndexSettings()


def test_pip_files_are_read_in_pips_order(home: dict[str, str], tmp_path: Path) -> None:
    pip_conf(tmp_path, "[global]\nindex-url = https://site/simple\nclient-cert = site.pem\n", "etc/pip/pip.conf")
    pip_conf(tmp_path, "[global]\nindex-url = https://user/simple/\nextra-index-url = https://a/s\n    https://b/s\n")
    settings = read_index_settings(home)
    assert settings.index_url == "https://user/simple"
    assert settings.extra_index_urls == ("https://a/s", "https://b/s")
    assert settings.client_cert == "site.pem"
    assert settings.best_match
    pip_conf(tmp_path, "[global]\nindex-url = https://chosen/simple\n", "chosen.conf")
    assert read_index_settings(home).index_url == "https://chosen/simple"
    home["PIP_INDEX_URL"] = "https://variable/simple"
    assert read_index_settings(home).index_url == "https://variable/simple"


@pytest.mark.parametrize("url", ["nonsense", "https:///simple", "ftp://host/simple", "pypi.org/simple", "file:"])
@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX"])
def test_an_index_that_is_no_url_is_named_with_its_setting(home: dict[str, str], url: str, name: str) -> None:
    home[name] = url
    with pytest.raises(BadInput, match="no package index") as caught:
        read_index_settings(home)
    assert name in caught.value.why
    home["PIP_NO_INDEX"] = "1"
    assert read_index_settings(home).indexes == ()


def test_a_folder_may_be_an_index(home: dict[str, str], tmp_path: Path) -> None:
    home["PIP_INDEX_URL"] = str(tmp_path)
    home["PIP_EXTRA_INDEX_URL"] = tmp_path.as_uri()
    assert read_index_settings(home).indexes == (str(tmp_path), tmp_path.as_uri())


def test_the_install_section_wins_over_global(home: dict[str, str], tmp_path: Path) -> None:
    pip_conf(tmp_path, "[install]\nno-index = true\n[global]\nno-index = false\ntrusted-host = a b\n")
    settings = read_index_settings(home)
    assert settings.no_index
    assert settings.indexes == ()
    assert settings.trusted_hosts == ("a", "b")


def test_devnull_switches_pips_files_off(home: dict[str, str], tmp_path: Path) -> None:
    pip_conf(tmp_path, "[global]\nindex-url = https://user/simple\n")
    home["PIP_CONFIG_FILE"] = "/dev/null"
    assert read_index_settings(home).index_url == PYPI


def test_find_links_are_absolute(home: dict[str, str], tmp_path: Path) -> None:
    home["PIP_FIND_LINKS"] = f"wheels file://{tmp_path}/a%20b https://host/page.html"
    assert read_index_settings(home).find_links == (
        str(Path.cwd() / "wheels"),
        f"{tmp_path}/a b",
        "https://host/page.html",
    )


def test_uvs_own_settings_win_kind_by_kind(home: dict[str, str], tmp_path: Path) -> None:
    pip_conf(
        tmp_path, "[global]\nindex-url = https://pip/simple\nfind-links = /pip\nextra-index-url = https://pip-x/s\n"
    )
    home["UV_INDEX"] = "corp=https://uv/simple https://more/simple"
    settings = read_index_settings(home)
    assert settings.index_url == "https://pip/simple"
    assert settings.extra_index_urls == ("https://uv/simple", "https://more/simple")
    assert settings.find_links == ("/pip",)
    assert not settings.best_match
    home["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    assert read_index_settings(home).best_match


def test_uv_toml_is_read(home: dict[str, str], tmp_path: Path) -> None:
    pip_conf(
        tmp_path,
        'find-links = ["/uv"]\n[[index]]\nurl = "https://mirror/simple"\ndefault = true\n'
        '[[index]]\nname = "x"\nurl = "https://extra/simple"\n'
        '[[index]]\nurl = "https://only/simple"\nexplicit = true\n',
        ".config/uv/uv.toml",
    )
    settings = read_index_settings(home)
    assert settings.index_url == "https://mirror/simple"
    assert settings.extra_index_urls == ("https://extra/simple",)
    assert settings.find_links == ("/uv",)
    assert str(tmp_path / ".config/uv/uv.toml") in settings.origins
    home["UV_NO_CONFIG"] = "1"
    assert read_index_settings(home).index_url == PYPI


@pytest.mark.parametrize("where", [".config/pip/pip.conf", ".config/uv/uv.toml"])
def test_a_broken_file_is_named(home: dict[str, str], tmp_path: Path, where: str) -> None:
    pip_conf(tmp_path, "[global\nx", where)
    with pytest.raises(BadInput) as caught:
        read_index_settings(home)
    assert where in str(caught.value)


def test_credentials_are_known_by_origin_and_not_printed() -> None:
    settings = IndexSettings(index_url="https://me:p%40ss@host:8443/simple")
    assert settings.credentials() == {("https", "host:8443"): ("me", "p@ss")}
    assert without_credentials(settings.index_url) == "https://host:8443/simple"
    assert without_credentials("file:///a@b") == "file:///a@b"
