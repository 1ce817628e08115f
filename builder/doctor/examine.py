"""The judgement: facts of one machine in, one line for each thing out. No disk, no network, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

__all__ = ["Device", "Engine", "Facts", "Item", "Login", "Site", "examine", "ready"]

Verdict = Literal["ok", "missing", "not-run"]
Outcome = Literal["reached", "failed", "not-run"]

_OLDEST_PYTHON = (3, 11)
_ROOM = 10 << 30
"""Bytes that the wheels, layers and image of one accelerator stack take at most (a CUDA torch stack: 3 GB of wheels,
as much of layers); with less a CPU service still builds."""
_LITTLE_ROOM = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """A container engine as its own client describes it."""

    name: str
    version: str = ""
    """Of the engine itself, empty when it did not answer."""
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """A registry the user has a login for, or needs one for."""

    host: str
    source: str = ""
    """File or program the login comes from, empty when there is none."""
    problem: str = ""
    fix: str = ""
    """Where another mend than logging in is needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A place on the network, or a folder that stands in for one."""

    name: str
    url: str
    """Without credentials."""
    outcome: Outcome
    problem: str = ""
    needed: bool
    """Whether the built-in engine cannot do without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The device nodes of one backend."""

    backend: str
    title: str
    nodes: tuple[str, ...]
    """Those of this machine; empty when there are none."""
    problem: str = ""
    """Why they cannot be opened."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Everything `examine` judges."""

    python: tuple[int, int, int]
    uv: str
    """Version of the uv that would resolve, empty when there is none."""
    uv_problem: str = ""
    store: str
    store_problem: str = ""
    """Why the store cannot be written."""
    store_free: int
    """Bytes free where the store is."""
    namespaces_problem: str = ""
    """Why an image cannot be run by the built-in runner, empty when it can."""
    engines: tuple[Engine, ...]
    logins: tuple[Login, ...]
    sites: tuple[Site, ...]
    devices: tuple[Device, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One line of the answer."""

    name: str
    """`python`, `store`, `engine docker`, `index`, `device cuda`, …"""
    verdict: Verdict
    detail: str
    fix: str = ""
    """What to do when it is missing and wanted."""
    needed: bool = False
    """Whether the built-in engine cannot do without it."""


def examine(facts: Facts) -> tuple[Item, ...]:
    """One item for each fact: first what the built-in engine needs, then what others need."""
    return (
        _python(facts),
        _uv(facts),
        *_store(facts),
        _runner(facts),
        *(_site(site) for site in facts.sites),
        *(_engine(engine) for engine in facts.engines),
        *(_login(login) for login in facts.logins),
        *(_device(device) for device in facts.devices),
    )


def ready(items: tuple[Item, ...]) -> bool:
    """Whether the built-in engine has all it needs. What was not looked at does not count against it."""
    return not any(item.needed and item.verdict == "missing" for item in items)


def _python(facts: Facts) -> Item:
    version = ".".join(map(str, facts.python))
    if facts.python[:2] >= _OLDEST_PYTHON:
        return Item(name="python", verdict="ok", detail=version, needed=True)
    wanted = ".".join(map(str, _OLDEST_PYTHON))
    return Item(
        name="python", verdict="missing", detail=f"{version} is too old", fix=f"install Python {wanted}", needed=True
    )


def _uv(facts: Facts) -> Item:
    if facts.uv:
        return Item(name="uv", verdict="ok", detail=facts.uv, needed=True)
    return Item(
        name="uv",
        verdict="missing",
        detail=facts.uv_problem or "not installed",
        fix="pip install uv, into the same environment as builder",
        needed=True,
    )


def _store(facts: Facts) -> tuple[Item, Item]:
    if facts.store_problem:
        store = Item(
            name="store",
            verdict="missing",
            detail=f"cannot write {facts.store}: {facts.store_problem}",
            fix="make the folder writable, or point BUILDER_STORE elsewhere",
            needed=True,
        )
    else:
        store = Item(name="store", verdict="ok", detail=facts.store, needed=True)
    free = f"{facts.store_free / (1 << 30):.1f} GiB free"
    if facts.store_free >= _ROOM:
        return store, Item(name="disk", verdict="ok", detail=free, needed=True)
    fix = f"free some space, or point BUILDER_STORE to a disk with {_ROOM >> 30} GiB"
    if facts.store_free >= _LITTLE_ROOM:
        return store, Item(
            name="disk", verdict="ok", detail=f"{free}: little for a CUDA or ROCm stack", fix=fix, needed=True
        )
    return store, Item(name="disk", verdict="missing", detail=free, fix=fix, needed=True)


def _runner(facts: Facts) -> Item:
    # checks inside an image need one runner: with an engine at hand it is not this one
    needed = not any(engine.version for engine in facts.engines)
    if not facts.namespaces_problem:
        detail = "images can be run with namespaces, without a daemon"
        return Item(name="runner", verdict="ok", detail=detail, needed=needed)
    return Item(
        name="runner",
        verdict="missing",
        detail=f"the built-in runner cannot run images: {facts.namespaces_problem}",
        fix="allow user namespaces (sysctl user.max_user_namespaces and, on Ubuntu, "
        "kernel.apparmor_restrict_unprivileged_userns), run as root, or use --runner docker",
        needed=needed,
    )


def _site(site: Site) -> Item:
    match site.outcome:
        case "reached":
            return Item(name=site.name, verdict="ok", detail=site.url, needed=site.needed)
        case "not-run":
            return Item(name=site.name, verdict="not-run", detail=f"{site.url}: {site.problem}", needed=site.needed)
        case "failed":
            return Item(
                name=site.name,
                verdict="missing",
                detail=f"{site.url}: {site.problem}",
                fix="check network and proxy, or configure a mirror; what is in the store works with --offline",
                needed=site.needed,
            )
        case _:
            assert_never(site.outcome)


def _engine(engine: Engine) -> Item:
    name = f"engine {engine.name}"
    if engine.version:
        return Item(name=name, verdict="ok", detail=engine.version)
    return Item(name=name, verdict="missing", detail=engine.problem, fix=engine.fix)


def _login(login: Login) -> Item:
    name = f"login {login.host}"
    if login.problem:
        return Item(name=name, verdict="missing", detail=login.problem, fix=login.fix or f"docker login {login.host}")
    if login.source:
        return Item(name=name, verdict="ok", detail=f"from {login.source}")
    return Item(name=name, verdict="missing", detail="no login, pushing anonymously", fix=f"docker login {login.host}")


def _device(device: Device) -> Item:
    name = f"device {device.backend}"
    if not device.nodes:
        return Item(name=name, verdict="missing", detail=f"no {device.title} device here: its checks will say not-run")
    if device.problem:
        return Item(name=name, verdict="missing", detail=device.problem, fix="add your user to the device's group")
    return Item(name=name, verdict="ok", detail=", ".join(device.nodes))
