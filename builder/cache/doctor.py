"""Why a program would compile although its engine is kept: its environment, its folder, its programs, its versions.

Pure: `Surroundings` are gathered by builder.cache.looking, from an image or from the machine at hand.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.cache.folders import EngineFolder
from builder.cache.kinds import EngineKind
from builder.cache.switches import Program, Switch
from builder.cache.values import Difference, Lookup

__all__ = [
    "Finding",
    "Place",
    "Surroundings",
    "diagnose",
    "folder_in",
    "folder_of",
    "judge_contents",
    "judge_engine",
    "user_word",
    "verdict_of_findings",
]

Outcome = Literal["ok", "warn", "miss", "unknown"]

_LITTLE = 64 << 20
"""Bytes below which what is compiled is likely not to fit: one Inductor model takes a few mebibytes."""
_AHEAD = 300.0
"""Seconds by which a file may be newer than now before the clock is doubted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A folder as the program will find it. None: not known."""

    exists: bool
    files: int | None = None
    """Regular files in it, at any depth; counted up to some thousands."""
    mounted: bool = False
    """Stated to be mounted when the program runs: what is in it is not known before."""
    readable: bool | None = None
    writable: bool | None = None
    owner: str = ""
    """Who owns it, with its mode, for messages: `uid 0, mode 0755`."""
    executable: bool | None = None
    """False on a mount from which no code may be loaded (noexec)."""
    free: int | None = None
    """Bytes free for this user."""
    newest: float | None = None
    """Time of the newest file, in seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What a program will find where it runs."""

    env: Mapping[str, str]
    uid: int
    user: str
    """Its name; empty when the system has none for the number."""
    home: str
    """HOME, else the user's folder in /etc/passwd; empty when there is neither."""
    temporary: str
    """Where temporary files go: TMPDIR, else /tmp."""
    image: bool
    """Whether this is an image that does not run yet: whatever it does not hold is new in each container."""
    backend: str | None
    programs: Mapping[str, str] = field(default_factory=dict)
    """Name, or the path that a variable names, to where it was found."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Absolute paths that were looked at."""
    now: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    """`folder`, `temporary`, `program g++`, a variable, `engine`, `clock`, `room`."""
    verdict: Outcome
    detail: str
    fix: str = ""
    source: str = ""


def folder_of(folder: EngineFolder, env: Mapping[str, str], *, home: str, temporary: str, user: str) -> tuple[str, str]:
    """Where the program keeps its engines, and the variable that says so; empty where nothing says it.

    A path with `://` is a store of its own and none of this file system.
    """
    if env.get(folder.variable):
        return env[folder.variable], folder.variable
    for name, rest in folder.before:
        if env.get(name):
            return posixpath.join(env[name], rest) if rest else env[name], name
    if "{cache}" in folder.default and env.get("XDG_CACHE_HOME"):
        return folder.default.replace("{cache}", env["XDG_CACHE_HOME"]), "XDG_CACHE_HOME"
    if not folder.default or (not home and ("{home}" in folder.default or "{cache}" in folder.default)):
        return "", ""
    words = {"home": home, "cache": posixpath.join(home, ".cache"), "temporary": temporary, "user": user}
    return folder.default.format(**words), ""


def folder_in(folder: EngineFolder, around: Surroundings) -> tuple[str, str]:
    """As `folder_of`, where these surroundings are."""
    user = user_word(around.user, around.uid)
    return folder_of(folder, around.env, home=around.home, temporary=around.temporary, user=user)


def user_word(user: str, uid: int) -> str:
    """What programs put into a path for a user, whose number may have no name."""
    return user or f"uid_{uid}"


def diagnose(
    kind: EngineKind,
    folder: EngineFolder | None,
    around: Surroundings,
    *,
    switches: Iterable[Switch],
    programs: Iterable[Program],
) -> tuple[Finding, ...]:
    """All findings for one kind, what the program meets first before the rest."""
    return (
        *_settings(kind, folder, around),
        *(_switched(one, around) for one in switches if kind.name in one.kinds and _is_on(one, around)),
        *_folder(folder, around),
        *_temporary(around),
        *(_program(one, around) for one in programs if kind.name in one.kinds),
    )


def verdict_of_findings(findings: Iterable[Finding]) -> Literal["ok", "miss", "unknown"]:
    """miss when anything makes it miss, unknown when anything could not be looked at, else ok."""
    found = {one.verdict for one in findings}
    return "miss" if "miss" in found else "unknown" if "unknown" in found else "ok"


def _is_on(one: Switch, around: Surroundings) -> bool:
    return one.variable in around.env and one.matters(around.env[one.variable])


def _switched(one: Switch, around: Surroundings) -> Finding:
    value = around.env[one.variable]
    return Finding(
        name=one.variable,
        verdict="miss" if one.effect == "off" else "warn",
        detail=f"is {value!r}: {one.why}",
        fix=f"unset {one.variable}" if one.effect != "moves" else f"unset {one.variable}, or warm up with it",
        source=one.source,
    )


def _settings(kind: EngineKind, folder: EngineFolder | None, around: Surroundings) -> Iterator[Finding]:
    """Variables that a warm-up sets, and that are not so here."""
    for name, value in (folder.env if folder else {}).items():
        found = around.env.get(name)
        if found == value:
            continue
        has = "is not set" if found is None else f"is {found!r}"
        keyed = name in kind.environment
        decides = keyed or (folder is not None and name in folder.needed)
        why = (
            "it is in the key: engines of a warm-up are not found"
            if keyed
            else "without it nothing is kept or found"
            if decides
            else "what the program does without it differs from a warm-up"
        )
        yield Finding(
            name=name,
            verdict="miss" if decides else "warn",
            detail=f"{has}, a warm-up sets it to {value!r}; {why}",
            fix=f"set {name}={value}",
            source=folder.source if folder else "",
        )


def _folder(folder: EngineFolder | None, around: Surroundings) -> Iterator[Finding]:
    if folder is None:
        yield Finding(
            name="folder",
            verdict="unknown",
            detail="the program itself says where these engines are, no variable does",
            fix="look into the program; builder cache lookup --to puts the engine wherever it looks",
        )
        return
    path, told = folder_in(folder, around)
    named = f"{path} ({told})" if told else path
    set_it = f"set {folder.variable} to where the engines are"

    def finding(verdict: Outcome, detail: str, fix: str = "", name: str = "folder") -> Finding:
        return Finding(name=name, verdict=verdict, detail=detail, fix=fix, source=folder.source)

    if not path:
        needs_home = folder.default and not around.home
        lost = "HOME is not set and the user has no folder, so it is not known where they go"
        yield finding("miss", f"{folder.variable} is not set: {lost if needs_home else 'nothing is kept'}", set_it)
        return
    if "://" in path:
        yield finding("unknown", f"{named} is a store that is not looked into", f"or {set_it}, on a file system")
        return
    if not path.startswith("/"):
        what = "no shell expands the ~" if path.startswith("~") else "it depends on the working directory"
        yield finding("miss", f"{named} is no absolute path: {what}", f"write the whole path into {told}")
        return
    place = around.places.get(path)
    if place is None:
        yield finding("unknown", f"{named} was not looked at")
        return
    if place.mounted:
        yield finding("ok", f"{named} is mounted when it runs; builder cache doctor in the container looks into it")
        return
    if not place.exists:
        new = "is not in the image: it is new and empty in each container" if around.image else "does not exist"
        yield finding("miss", f"{named} {new}", f"{set_it}{_state_mount(path) if around.image else ''}")
        return
    if place.readable is False:
        yield finding("miss", f"{named} cannot be read by uid {around.uid} ({place.owner})", _open_it(around))
        return
    if place.files == 0:
        where = f" in the image{_state_mount(path)}" if around.image else ""
        yield finding("miss", f"{named} is empty{where}", "builder cache lookup --to or warm fills it")
        return
    if place.writable is False:
        yield finding(
            "miss" if folder.writes else "warn",
            f"{named}: {_not_written(folder, around)} ({place.owner})",
            _open_it(around),
        )
    else:
        count = "" if place.files is None else f", {place.files} file{'s' * (place.files != 1)}"
        yield finding("ok", f"{named}{count}")
    if folder.code and place.executable is False:
        yield finding(
            "miss", f"{path} is on a mount with noexec: its shared objects cannot be loaded", "mount it with exec"
        )
    if place.free is not None and place.free < _LITTLE and place.writable:
        left = f"{place.free >> 20} MiB are left at {path}: what is compiled anew cannot be kept"
        yield finding("warn", left, "give the volume more room, or clear it", name="room")
    if place.newest is not None and around.now is not None and place.newest > around.now + _AHEAD:
        ahead = f"the newest file is {place.newest - around.now:.0f} s ahead of this clock"
        yield finding("warn", f"{ahead}: times of use decide what is cleared", "set the clock", name="clock")


def _not_written(folder: EngineFolder, around: Surroundings) -> str:
    cannot = f"uid {around.uid} cannot write it"
    return (
        f"{cannot}, and locks are made in it before an engine is read"
        if folder.writes
        else (f"{cannot}: what is not found is compiled in every process anew")
    )


def _open_it(around: Surroundings) -> str:
    return f"let uid {around.uid} read and write it, or run as its owner"


def _state_mount(path: str) -> str:
    return f"; where the orchestrator mounts it, say so: --mount {path}"


def _temporary(around: Surroundings) -> Iterator[Finding]:
    place = around.places.get(around.temporary)
    if place is None or (place.exists and place.writable is not False):
        return
    what = "is not there" if not place.exists else f"cannot be written by uid {around.uid} ({place.owner})"
    yield Finding(
        name="temporary",
        verdict="warn",
        detail=f"the folder for temporary files, {around.temporary}, {what}: compilers cannot work",
        fix="mount a tmpfs there, or set TMPDIR",
    )


def _program(one: Program, around: Surroundings) -> Finding:
    named = around.env.get(one.variable) if one.variable else None
    wanted = (named.split()[0],) if named and named.strip() else one.names
    for name in wanted:
        if name in around.programs:
            return Finding(name=f"program {name}", verdict="ok", detail=around.programs[name], source=one.source)
    decides = around.backend in one.needed
    missing = f"{one.variable} names {named}, which is not there" if named else f"there is no {' or '.join(wanted)}"
    return Finding(
        name=f"program {wanted[0]}",
        verdict="miss" if decides else "warn",
        detail=f"{missing}: {one.why}",
        fix=one.fix,
        source=one.source,
    )


def judge_engine(answer: Lookup, *, looked_in: str) -> Finding:
    """What the cache says of the engine this program would ask for."""

    def told(differs: Iterable[Difference]) -> str:
        return "; ".join(
            f"{one.name} is {one.wanted or 'not known'} here, {one.found or 'not known'} there" for one in differs
        )

    decisive = [one for one in answer.differs if one.blocks or one.undecided] or list(answer.differs)
    if answer.verdict == "hit" and answer.entry is not None:
        return Finding(name="engine", verdict="ok", detail=f"{answer.entry.digest} in {looked_in}: nothing differs")
    if answer.verdict == "usable":
        return Finding(
            name="engine",
            verdict="warn",
            detail=f"one that is usable: {told(answer.differs)}",
            fix="; ".join(dict.fromkeys(one.cost for one in answer.differs if one.cost)),
        )
    if answer.verdict == "unknown":
        missing = ", ".join(answer.missing) or told(decisive)
        return Finding(
            name="engine",
            verdict="unknown",
            detail=f"whether one fits depends on what is not stated: {missing}",
            fix="state it with --set NAME=VALUE, --model or --node-class",
        )
    if answer.nearest:
        return Finding(
            name="engine",
            verdict="miss",
            detail=f"none fits; of the nearest {told(decisive)}",
            fix="warm this image on such a node, or make equal what differs; builder cache explain shows all of it",
        )
    return Finding(
        name="engine",
        verdict="warn",
        detail=f"none of this kind is kept in {looked_in}: versions and device were not compared with any",
        fix="builder cache warm keeps one, builder cache pull fetches those of an image; --cache names another cache",
    )


def judge_contents(differs: Iterable[Difference]) -> tuple[Finding, ...]:
    """What the folder's own files say they were made by and for, beside what is wanted here."""
    return tuple(
        Finding(
            name="contents",
            verdict="miss",
            detail=f"what is in the folder was made with {one.name} {one.found}, here it is {one.wanted}: {one.why}",
            fix="fill the folder with the engine for this build and device: builder cache lookup --to",
            source=one.source,
        )
        for one in differs
        if one.blocks
    )
