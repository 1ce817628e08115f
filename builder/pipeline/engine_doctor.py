"""Looks into an image, or around on this machine, for what keeps its engines from being found."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder import resources
from builder.cache import EngineCache, EngineKey, EngineKind, Entry, Lookup, Nearest, engine_key, engine_kind
from builder.cache.doctor import Finding, Surroundings, diagnose, folder_in, judge_contents, judge_engine
from builder.cache.folders import EngineFolder, load_folders
from builder.cache.image import fitting_kinds, image_properties
from builder.cache.judge import judge, verdict_of
from builder.cache.looking import Start, look_here, look_into
from builder.cache.switches import Program, load_switches
from builder.cache.told import header_of, told_factors
from builder.errors import BadInput, did_you_mean
from builder.image.labels import BACKEND, ImageFacts, read_labels
from builder.names import Arch, Digest
from builder.node import NodeClass
from builder.pipeline.values import Work
from builder.registry.values import Repository
from builder.smoke.values import RunnableImage

__all__ = ["Asked", "KindFindings", "examine_image", "examine_machine"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is asked for, beside the image."""

    kinds: tuple[str, ...]
    """Empty: those that the installed distributions could make."""
    model: Digest | None
    properties: Mapping[str, str]
    node: NodeClass | None
    start: Start


@dataclass(frozen=True, kw_only=True, slots=True)
class KindFindings:
    """What was found for one kind."""

    kind: str
    findings: tuple[Finding, ...]


def examine_image(
    image: RunnableImage, repository: Repository, asked: Asked, *, arch: Arch, cache: EngineCache, work: Work
) -> tuple[KindFindings, ...]:
    """The findings of an image, kind by kind; nothing is run. `BadInput` when it is not known which kinds are meant."""
    facts = read_labels(image.labels, image=image.name) if BACKEND in image.labels else None
    kinds = _kinds(asked, facts, "the image's lock")

    def look(folders: Sequence[EngineFolder], programs: Sequence[Program]) -> Surroundings:
        return look_into(
            image,
            repository,
            arch=arch,
            start=asked.start,
            backend=facts.backend if facts else asked.node.backend if asked.node else None,
            folders=folders,
            programs=programs,
            store=work.store,
            reporter=work.reporter,
        )

    model = asked.model or (image.digest if facts else None)
    return _examined(kinds, facts, look, asked, model=model, cache=cache)


def examine_machine(asked: Asked, *, cache: EngineCache, work: Work) -> tuple[KindFindings, ...]:
    """The findings of this machine or container, for the Python that runs this tool."""
    packages = {
        str(one.metadata["Name"]).lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()
    }
    backend = asked.node.backend if asked.node else "cpu"
    facts = ImageFacts(backend=backend, toolkit=None, python="", lock=Digest.of(b""), packages=packages, warmup=None)
    kinds = _kinds(asked, facts, "what is installed beside this tool")
    environ = {**work.environ, **asked.start.env}

    def look(folders: Sequence[EngineFolder], programs: Sequence[Program]) -> Surroundings:
        return look_here(environ, folders=folders, programs=programs, backend=backend, now=time.time())

    return _examined(kinds, facts, look, asked, model=asked.model, cache=cache)


def _kinds(asked: Asked, facts: ImageFacts | None, whose: str) -> tuple[EngineKind, ...]:
    if asked.kinds:
        return tuple(engine_kind(name) for name in dict.fromkeys(asked.kinds))
    known = load_folders(resources.checks_dir() / "engines.toml")
    fitting = fitting_kinds(known, facts) if facts else ()
    if not fitting:
        raise BadInput(
            "which engines are meant?",
            why=f"{whose} holds nothing that is known to compile any"
            if facts
            else "the image has no labels of a build",
            fix=f"name them: --kind inductor; {did_you_mean('', known)}",
        )
    return fitting


def _examined(
    kinds: Sequence[EngineKind],
    facts: ImageFacts | None,
    look: Callable[[Sequence[EngineFolder], Sequence[Program]], Surroundings],
    asked: Asked,
    *,
    model: Digest | None,
    cache: EngineCache,
) -> tuple[KindFindings, ...]:
    folders = load_folders(resources.checks_dir() / "engines.toml")
    switches, programs = load_switches(resources.checks_dir() / "engine-switches.toml")
    names = {one.name for one in kinds}
    around = look([folders[name] for name in names if name in folders], [one for one in programs if one.kinds & names])
    found = []
    for kind in kinds:
        findings = diagnose(kind, folders.get(kind.name), around, switches=switches, programs=programs)
        key = engine_key(
            kind,
            model=None if "model" in asked.properties else model,
            properties={**(image_properties(kind, facts) if facts else {}), **_of_kind(kind, asked.properties)},
            node=asked.node,
            environment=around.env,
        )
        if not around.image and kind.name in folders:
            findings = (*findings, *_contents(kind, key, folders[kind.name], around))
        engine = judge_engine(_closest(cache, kind, key), looked_in=str(cache.store.root))
        found.append(KindFindings(kind=kind.name, findings=(*findings, engine)))
    return tuple(found)


def _contents(kind: EngineKind, key: EngineKey, folder: EngineFolder, around: Surroundings) -> tuple[Finding, ...]:
    """What the files in the folder tell of themselves, held against the key."""
    path, _ = folder_in(folder, around)
    place = around.places.get(path)
    if place is None or not place.files:
        return ()
    try:
        header = header_of(kind.name, Path(path))
    except BadInput as error:
        return (
            Finding(
                name="contents",
                verdict="miss",
                detail=f"{error.what}: {error.why}",
                fix="empty the folder, and restore the engine: builder cache lookup --to",
            ),
        )
    if header is None:
        return ()
    told = told_factors(kind.name, header)
    return judge_contents(judge(kind, key.factors, {**key.factors, **told}))


def _of_kind(kind: EngineKind, properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name in kind.properties}


def _closest(cache: EngineCache, kind: EngineKind, key: EngineKey) -> Lookup:
    """The answer for the key; without a model, for the engine of any model that comes closest."""
    answer = cache.lookup(key)
    if key.model is not None and (answer.verdict != "miss" or answer.nearest):
        return answer
    others = [one for one in cache.entries() if isinstance(one, Entry) and one.key.kind == kind.name]
    judged = [
        (judge(kind, {**key.factors, **({} if key.model else {"model": one.key.model or ""})}, one.key.factors), one)
        for one in others
    ]
    if not judged:
        return Lookup(verdict="miss", wanted=key)
    differs, entry = min(judged, key=lambda one: (sum(item.blocks for item in one[0]), len(one[0]), one[1].digest.hex))
    return Lookup(
        verdict=verdict_of(differs),
        wanted=key,
        entry=entry,
        differs=differs,
        nearest=(Nearest(entry=entry, differs=differs),),
    )
