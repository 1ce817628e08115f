"""Warm an image's engines on a node, keep them, and prove that they are used.

The image's warmup runs twice, without a network. The first pass starts with an empty folder; what it compiled there is
kept. The second starts with that engine restored into another folder. It must read from it and compile nothing: a cache
that is mounted and not used looks exactly like one that is, until the first request (FR-20).
"""

from __future__ import annotations

import os
import random
import re
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from builder.cache.cache import EngineCache
from builder.cache.folders import EngineFolder
from builder.cache.told import confirmed_key
from builder.cache.values import EngineKey, Entry
from builder.cache.watch import watching
from builder.errors import Refused
from builder.names import Digest
from builder.smoke.values import Bind, Command, Container

__all__ = ["TARGET", "Pass", "WarmReport", "Warmup", "sampled", "warm"]

TARGET = "/run/builder/engines"
"""Where the folder is seen in the image."""

_TEMPORARY = "/run/builder/temporary"
"""Where temporary files go in the image, so that a compiler at work is seen whatever folder its result is for."""

_REQUESTS = "/run/builder/requests"

_LOCKS = (".lock", ".lck", ".pid", ".tmp")

_OF_A_COMPILER = re.compile(
    r"cc[A-Za-z0-9]{6}\.(s|o|res|ld|le|ltrans.*)"  # GCC's driver
    r"|tmpxft_.*"  # nvcc
    r"|.*\.(so|o|gch|pch|cubin|fatbin|ptx|hsaco|spv|neff)"
)
"""Names of temporary files that only compilers make."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Warmup:
    """What is run."""

    command: tuple[str, ...]
    timeout: float
    """Seconds for one pass."""
    workers: int = 1
    """Processes that share the folder, started together; each finds its number in BUILDER_WORKER."""
    env: Mapping[str, str]
    """Added to the image's environment."""
    requests: Path | None = None
    """A file of requests, the same in both passes and for all workers; its path is in BUILDER_REQUESTS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """One run of the warmup."""

    seconds: float
    """Wall time until the last worker had ended."""
    compiled: tuple[str, ...]
    """Files that were made or changed in the folder, relative to it."""
    read: int
    """Files that were there before and were opened; locks do not count."""
    elsewhere: tuple[str, ...] = ()
    """Files that a compiler made outside the folder, by name, among the temporary ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmReport:
    """What came of it."""

    verdict: Literal["warmed", "failed"]
    why: str
    """Empty when warmed."""
    fix: str
    first: Pass
    second: Pass | None
    entry: Entry | None
    """The engine that was kept; None when its use was not proven."""
    key: EngineKey


def warm(
    container: Container,
    warmup: Warmup,
    folder: EngineFolder,
    key: EngineKey,
    *,
    cache: EngineCache,
    scratch: Path,
    replace: bool = False,
) -> WarmReport:
    """Two passes in an image made ready; `scratch` is an empty folder on the node's disk.

    `Refused` when the warmup itself fails, `BadInput` when the key leaves something open that decides (the engine's own
    bytes may tell it). An engine that is kept under this key already stays, and is what the second pass must use.
    """
    cold = _open_folder(scratch / "first")
    first = _run(container, warmup, folder, cold, scratch, "first")
    if not first.compiled:
        return WarmReport(
            verdict="failed",
            why=f"the warmup left nothing in the folder that {folder.variable} names",
            fix=f"check that the program compiles {key.kind} engines and does not set {folder.variable} itself, and "
            "that the image has the compiler that they need",
            first=first,
            second=None,
            entry=None,
            key=key,
        )
    key = confirmed_key(key, cold)
    there = cache.lookup(key, nearest=0).entry
    entry = cache.put(key, cold, built_at=TARGET, replace=replace)
    warmed = _open_folder(cache.restore(entry, scratch / "second", used_at=TARGET))
    second = _run(container, warmup, folder, warmed, scratch, "second")
    why, fix = _fault(second)
    if why and (there is None or there.digest != entry.digest or replace):
        cache.store.drop(entry)
    return WarmReport(
        verdict="failed" if why else "warmed",
        why=why,
        fix=fix,
        first=first,
        second=second,
        entry=None if why else entry,
        key=key,
    )


def sampled(requests: Sequence[str], count: int | None) -> tuple[str, ...]:
    """So many of the requests, in their order; the same ones every time, so that two passes ask the same."""
    if count is None or count >= len(requests):
        return tuple(requests)
    chosen = sorted(random.Random(0).sample(range(len(requests)), count))  # noqa: S311 - no secret
    return tuple(requests[number] for number in chosen)


def _fault(second: Pass) -> tuple[str, str]:
    if second.compiled:
        shown = ", ".join(second.compiled[:3]) + (" …" if len(second.compiled) > 3 else "")
        return (
            f"the second pass still compiled: {len(second.compiled)} file{'s' * (len(second.compiled) != 1)} ({shown})",
            "the warmup must ask the same twice: look for a path, a time or a random number in what is compiled",
        )
    if second.elsewhere:
        shown = ", ".join(second.elsewhere[:3]) + (" …" if len(second.elsewhere) > 3 else "")
        return (
            f"the second pass still compiled, outside the folder: {shown} among its temporary files",
            "every new container compiles that: set what turns it off, or keeps it in the folder, with --env-var",
        )
    if not second.read:
        return (
            "the second pass compiled nothing and read nothing from the folder either",
            "the program keeps its engines elsewhere, in the image or in memory: see what it does with the variable",
        )
    return "", ""


def _run(container: Container, warmup: Warmup, folder: EngineFolder, place: Path, scratch: Path, which: str) -> Pass:
    before = _files(place)
    temporary = _open_folder(scratch / f"{which}-temporary")
    env = {
        **folder.env,
        **warmup.env,
        folder.variable: TARGET,
        "TMPDIR": _TEMPORARY,
        "BUILDER_WORKERS": str(warmup.workers),
    }
    binds = [
        Bind(source=place, target=TARGET, writable=True),
        Bind(source=temporary, target=_TEMPORARY, writable=True),
    ]
    if warmup.requests is not None:
        env["BUILDER_REQUESTS"] = _REQUESTS
        binds.append(Bind(source=warmup.requests, target=_REQUESTS))

    def one(number: int) -> float:
        done = container.run(
            Command(
                argv=warmup.command,
                timeout=warmup.timeout,
                env={**env, "BUILDER_WORKER": str(number)},
                binds=tuple(binds),
            )
        )
        if done.code != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise Refused(
                f"the warmup failed in the {which} pass",
                why=f"it took longer than {warmup.timeout:g} s" if done.timed_out else f"exit {done.code}: {said[-1:]}",
                fix="run builder smoke, which shows the warmup's own words",
            )
        return done.seconds

    with watching(place) as seen, watching(temporary) as beside, ThreadPoolExecutor(warmup.workers) as pool:
        seconds = max(pool.map(one, range(warmup.workers)))
    after = _files(place)
    compiled = tuple(sorted(path for path, digest in after.items() if before.get(path) != digest))
    names = {PurePosixPath(name).name for name in (*beside.made, *_files(temporary))}
    return Pass(
        seconds=seconds,
        compiled=compiled,
        read=len(seen.opened & before.keys()),
        elsewhere=tuple(sorted(name for name in names if _OF_A_COMPILER.fullmatch(name))),
    )


def _files(folder: Path) -> dict[str, Digest]:
    """Files that count, each with its digest; what a run leaves to keep others out is no engine."""
    found = {}
    for path in folder.rglob("*"):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        if "__pycache__" in relative.parts or relative.suffix in _LOCKS or not stat.S_ISREG(path.lstat().st_mode):
            continue
        if path.stat().st_size:
            found[str(relative)] = Digest.of_file(path)
    return found


def _open_folder(folder: Path) -> Path:
    """Writable for whatever user the image runs as; nobody else gets here, as `scratch` is the caller's own."""
    folder.mkdir(exist_ok=True)
    for path, _, names in os.walk(folder):
        Path(path).chmod(0o777)
        for name in names:
            one = Path(path, name)
            if not one.is_symlink():
                one.chmod(one.stat().st_mode | 0o666)
    return folder
