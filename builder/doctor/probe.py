"""Looks the facts up: this machine's files, programs and network. Decides nothing."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import httpx

from builder import resources
from builder.base.mirror import DEFAULT_MIRROR, http_client
from builder.doctor.examine import Device, Engine, Facts, Login, Site
from builder.errors import BuilderError
from builder.image.docker_cli import Docker
from builder.matrix.load import load_backend
from builder.registry.docker_config import find_login, login_hosts
from builder.smoke.builtin import why_not
from builder.smoke.hostfacts import device_nodes
from builder.smoke.preflight import device_access
from builder.smoke.table import load_table
from builder.store import Store
from builder.wheels.settings import read_index_settings, without_credentials
from builder.wheels.transport import open_client

__all__ = ["gather"]

_PROBE_PROJECT = "pip"
"""A page that every index either has or says 404 for; an index's own front page can be tens of megabytes."""
_PATIENCE = 10.0
"""Seconds for one answer."""


def gather(environ: Mapping[str, str], *, store: Store, registries: Iterable[str], offline: bool) -> Facts:
    """Everything `examine` needs. `registries` are hosts that the project publishes to; offline, no site is asked."""
    uv, uv_problem = _uv()
    free, store_problem = _store(store.root)
    named: tuple[str, ...] = ()
    unreadable: tuple[Login, ...] = ()
    try:
        named = login_hosts(environ)
    except BuilderError as error:
        unreadable = (Login(host="files", problem=_sentence(error), fix=error.fix),)
    hosts = dict.fromkeys((*registries, *named))
    return Facts(
        python=sys.version_info[:3],
        uv=uv,
        uv_problem=uv_problem,
        store=str(store.root),
        store_problem=store_problem,
        store_free=free,
        namespaces_problem=_namespaces(),
        engines=(_docker(environ),),
        logins=(*unreadable, *(_login(host, environ) for host in hosts)),
        sites=_sites(environ, offline=offline),
        devices=tuple(device for name in resources.backends() for device in _device(name)),
    )


def _uv() -> tuple[str, str]:
    import uv

    try:
        return version("uv"), "" if uv.find_uv_bin() else "its program is missing"
    except (PackageNotFoundError, FileNotFoundError) as error:
        return "", str(error)


def _store(root: Path) -> tuple[int, str]:
    """Free bytes, and why the store could not be written; nothing is made."""
    existing = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    problem = ""
    if not existing.is_dir():
        problem = f"{existing} is not a folder"
    elif not os.access(existing, os.W_OK | os.X_OK):
        problem = f"no right to write in {existing}"
    elif os.statvfs(existing).f_flag & os.ST_RDONLY:
        problem = "the file system is read-only"
    return shutil.disk_usage(existing).free, problem


def _namespaces() -> str:
    with tempfile.TemporaryDirectory(prefix="builder-doctor-") as scratch:
        return why_not(Path(scratch))


def _docker(environ: Mapping[str, str]) -> Engine:
    try:
        return Engine(name="docker", version=Docker.find(environ).versions.server)
    except BuilderError as error:
        return Engine(name="docker", problem=_sentence(error), fix=error.fix)


def _login(host: str, environ: Mapping[str, str]) -> Login:
    try:
        found = find_login(host, "", environ)
    except BuilderError as error:
        return Login(host=host, problem=_sentence(error))
    return Login(host=host, source=found.source if found else "")


def _sentence(error: BuilderError) -> str:
    return f"{error.what}: {error.why}" if error.why else error.what


def _sites(environ: Mapping[str, str], *, offline: bool) -> tuple[Site, ...]:
    settings = read_index_settings(environ)
    mirror = environ.get("BUILDER_DEBIAN_MIRROR", "").rstrip("/") or DEFAULT_MIRROR
    with open_client(settings, environ) as client:
        found = [
            _index(client, "index" if number == 0 else "further index", url, needed=number == 0, offline=offline)
            for number, url in enumerate(settings.indexes)
        ]
        found += [_links(client, link, offline=offline) for link in settings.find_links]
    with http_client() as client:
        url = f"{mirror}/debian/dists/stable/InRelease"
        outcome, problem = _ask(client, url, offline=offline)
    found.append(Site(name="debian mirror", url=mirror, outcome=outcome, problem=problem, needed=True))
    return tuple(found)


def _index(client: httpx.Client, name: str, url: str, *, needed: bool, offline: bool) -> Site:
    shown = without_credentials(url)
    if url.startswith("file:"):
        return _folder(name, shown, Path(unquote(urlsplit(url).path)), needed=needed)
    outcome, problem = _ask(client, f"{url.rstrip('/')}/{_PROBE_PROJECT}/", offline=offline, absent_is_fine=True)
    return Site(name=name, url=shown, outcome=outcome, problem=problem, needed=needed)


def _links(client: httpx.Client, link: str, *, offline: bool) -> Site:
    if "://" not in link:
        return _folder("find-links", link, Path(link), needed=False)
    outcome, problem = _ask(client, link, offline=offline)
    return Site(name="find-links", url=without_credentials(link), outcome=outcome, problem=problem, needed=False)


def _folder(name: str, url: str, path: Path, *, needed: bool) -> Site:
    outcome: Literal["reached", "failed"] = "reached" if path.is_dir() else "failed"
    return Site(name=name, url=url, outcome=outcome, problem="" if path.is_dir() else "no such folder", needed=needed)


def _ask(
    client: httpx.Client, url: str, *, offline: bool, absent_is_fine: bool = False
) -> tuple[Literal["reached", "failed", "not-run"], str]:
    if offline:
        return "not-run", "offline was asked for"
    try:
        # not HEAD, which some indexes refuse; the body is left unread
        with client.stream("GET", url, timeout=_PATIENCE) as response:
            status = response.status_code
    except httpx.HTTPError as error:
        return "failed", str(error) or type(error).__name__
    except httpx.InvalidURL as error:
        return "failed", f"not a URL: {error}"
    if status < 400 or (status == 404 and absent_is_fine):
        return "reached", ""
    return "failed", f"HTTP status {status}"


def _device(backend: str) -> tuple[Device, ...]:
    """The backend's device nodes, as its own check names them; backends without devices have no line."""
    wanted = [
        check.options["nodes"]
        for check in load_table(resources.checks_dir(), backend).checks
        if "nodes" in check.options
    ]
    if not wanted:
        return ()
    nodes = device_nodes(pattern for ways in wanted for way in ways for pattern in way)
    problem = device_access(nodes, uid=os.geteuid(), gids=frozenset((os.getegid(), *os.getgroups())))
    title = load_backend(backend).spec.title
    return (Device(backend=backend, title=title, nodes=tuple(node.path for node in nodes), problem=problem),)
