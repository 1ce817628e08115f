"""Where the user gets packages from: the index settings of uv and pip, read the way those tools read them.

uv's own settings win over pip's, kind by kind (default index, further indexes, find-links), because who sets both
means uv when uv resolves. Only settings that say *where files come from* are taken over. pip's `constraint` and
`no-binary` say what may be installed into an environment of this machine; an image is another machine.

Sources: pip documentation, "Configuration" (files, their order, environment variables); uv documentation,
"Configuration files" and "Environment variables".
"""

from __future__ import annotations

import configparser
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from builder.errors import BadInput, Where

__all__ = ["PYPI", "IndexSettings", "read_index_settings", "without_credentials"]

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexSettings:
    """Indexes, find-links and how to reach them. URLs may hold credentials: print them with `without_credentials`."""

    index_url: str = PYPI
    """The default index."""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    """Absolute folders, or URLs of pages with links."""
    no_index: bool = False
    best_match: bool = True
    """Whether the best version of all indexes counts (pip), or only the first index that has the package (uv)."""
    trusted_hosts: tuple[str, ...] = ()
    """`host` or `host:port` reached without checking certificates."""
    cert: str | None = None
    """File of certificate authorities."""
    client_cert: str | None = None
    origins: tuple[str, ...] = ()
    """Files and variables that had a say, for people."""

    @property
    def indexes(self) -> tuple[str, ...]:
        """All indexes, the default one first."""
        return () if self.no_index else (self.index_url, *self.extra_index_urls)

    def credentials(self) -> dict[tuple[str, str], tuple[str, str]]:
        """(scheme, host[:port]) to (user, password), from the URLs that hold them."""
        found: dict[tuple[str, str], tuple[str, str]] = {}
        for url in (*self.indexes, *self.find_links):
            parts = urlsplit(url)
            if parts.username is not None and parts.scheme in ("http", "https"):
                host = parts.netloc.rpartition("@")[2]
                found[parts.scheme, host] = (unquote(parts.username), unquote(parts.password or ""))
        return found


def without_credentials(url: str) -> str:
    """The URL less `user:password@`, as it may be printed and written to a lock."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read_index_settings(environ: Mapping[str, str]) -> IndexSettings:
    """What uv's and pip's environment variables and configuration files say, for the user of this environment."""
    pip, pip_origins = _pip_settings(environ)
    uv, uv_origins = _uv_settings(environ)
    extra_from_uv = "extra" in uv
    strategy = uv.get("strategy", ["first-index" if extra_from_uv else "unsafe-best-match"])[0]
    index = (uv.get("index") or pip.get("index-url") or [PYPI])[0]
    links = uv.get("find-links") or pip.get("find-links", [])
    settings = IndexSettings(
        index_url=index.rstrip("/"),
        extra_index_urls=tuple(url.rstrip("/") for url in (uv.get("extra") or pip.get("extra-index-url", []))),
        find_links=tuple(_location(link) for link in links),
        no_index=_truth(uv.get("no-index") or pip.get("no-index", [])),
        best_match=strategy == "unsafe-best-match",
        trusted_hosts=tuple(pip.get("trusted-host", [])),
        cert=next(iter(pip.get("cert", [])), None),
        client_cert=next(iter(pip.get("client-cert", [])), None),
        origins=(*uv_origins, *pip_origins),
    )
    _check_indexes(settings)
    return settings


def _check_indexes(settings: IndexSettings) -> None:
    """`BadInput` for an index that is neither a URL nor a folder here: nothing could ever come from there."""
    for url in settings.indexes:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https"):
            usable = bool(parts.netloc)
        elif parts.scheme == "file":
            usable = bool(parts.path)
        else:
            usable = not parts.scheme and Path(url).is_dir()
        if usable:
            continue
        raise BadInput(
            f"{without_credentials(url)!r} is no package index",
            why=f"it is neither a URL nor a folder that exists; set by {', '.join(settings.origins)}",
            fix="a URL such as https://pypi.org/simple",
        )


def _truth(words: list[str]) -> bool:
    return bool(words) and words[-1].lower() in ("1", "true", "yes", "on", "y", "t")


def _location(link: str) -> str:
    if "://" in link and not link.startswith("file:"):
        return link
    path = unquote(urlsplit(link).path) if link.startswith("file:") else link
    return str(Path(path).expanduser().absolute())


_PIP_KEYS = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert")


def _pip_settings(environ: Mapping[str, str]) -> tuple[dict[str, list[str]], list[str]]:
    found: dict[str, list[str]] = {}
    origins: list[str] = []
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            if not parser.read(path, encoding="utf-8"):
                continue
        except (configparser.Error, UnicodeDecodeError) as error:
            raise BadInput(
                f"cannot read pip's configuration {path}", why=str(error).splitlines()[0], where=Where(file=str(path))
            ) from error
        # The `install` section is pip's own way to say "for installing"; it wins over `global` within one file.
        for section in ("global", "install"):
            for key in _PIP_KEYS:
                if parser.has_option(section, key):
                    found[key] = parser.get(section, key).split()
                    if str(path) not in origins:
                        origins.append(str(path))
    for key in _PIP_KEYS:
        name = f"PIP_{key.upper().replace('-', '_')}"
        if environ.get(name):
            found[key] = environ[name].split()
            origins.append(name)
    return found, origins


def _pip_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """pip's configuration files, weakest first."""
    chosen = environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return
    for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        if folder:
            yield Path(folder, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    home = environ.get("HOME")
    if home:
        yield Path(home, ".pip", "pip.conf")
    config = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    if config:
        yield Path(config, "pip", "pip.conf")
    yield Path(environ.get("VIRTUAL_ENV") or sys.prefix, "pip.conf")
    if chosen:
        yield Path(chosen)


def _uv_settings(environ: Mapping[str, str]) -> tuple[dict[str, list[str]], list[str]]:
    found: dict[str, list[str]] = {}
    origins: list[str] = []
    for path in _uv_files(environ):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(
                f"cannot read uv's configuration {path}", why=str(error), where=Where(file=str(path))
            ) from error
        said = _uv_table(table)
        found |= said
        if said:
            origins.append(str(path))
    variables = {
        "index": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
        "extra": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
        "find-links": ("UV_FIND_LINKS",),
        "strategy": ("UV_INDEX_STRATEGY",),
        "no-index": ("UV_NO_INDEX",),
    }
    for key, names in variables.items():
        for name in names:
            if environ.get(name):
                words = environ[name].split(",") if key == "find-links" else environ[name].split()
                found[key] = [_unnamed(word) for word in words]
                origins.append(name)
                break
    return found, origins


def _uv_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """uv's configuration files, weakest first; a project's own is not among them: the project here is builder's."""
    if environ.get("UV_NO_CONFIG"):
        return
    chosen = environ.get("UV_CONFIG_FILE")
    if chosen:
        yield Path(chosen)
        return
    yield Path("/etc/uv/uv.toml")
    for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        if folder:
            yield Path(folder, "uv", "uv.toml")
    home = environ.get("HOME")
    config = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    if config:
        yield Path(config, "uv", "uv.toml")


def _uv_table(table: Mapping[str, Any]) -> dict[str, list[str]]:
    merged: dict[str, Any] = {**table, **table.get("pip", {})}
    found: dict[str, list[str]] = {}
    named = [entry for entry in merged.get("index", []) if isinstance(entry, dict) and not entry.get("explicit")]
    if defaults := [str(entry["url"]) for entry in named if entry.get("default")]:
        found["index"] = defaults[:1]
    elif merged.get("index-url"):
        found["index"] = [str(merged["index-url"])]
    extra = [str(entry["url"]) for entry in named if not entry.get("default")]
    extra += [str(url) for url in merged.get("extra-index-url", [])]
    if extra:
        found["extra"] = extra
    if merged.get("find-links"):
        found["find-links"] = [str(link) for link in merged["find-links"]]
    if merged.get("index-strategy"):
        found["strategy"] = [str(merged["index-strategy"])]
    if merged.get("no-index"):
        found["no-index"] = ["true"]
    return found


def _unnamed(word: str) -> str:
    """`name=url` of UV_INDEX is `url` here."""
    name, equals, url = word.partition("=")
    return url if equals and "://" in url and "/" not in name else word
