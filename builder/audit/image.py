"""Auditing a finished image: every file of its layers, by the distribution that owns it.

What is installed is judged, wherever it came from: a wheel, a package of the system, a vendor's base, or a COPY.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.audit.audit import Rules, judged_target, load_rules, provided_by
from builder.audit.environment import marker_environment
from builder.audit.facts import WheelFacts
from builder.audit.graph import InstalledFile, chains_to_findings, same_paths, same_sonames, shortest_chains
from builder.audit.judge import applies, claims_of
from builder.audit.layers import Held, LayerFacts, merged, read_layer
from builder.audit.needs import other_majors
from builder.audit.policy import AuditException, exception_uses, waived_between
from builder.audit.values import AuditReport, TargetAudit
from builder.errors import BadInput, CannotTell, Refused
from builder.events import Reporter
from builder.names import ARCHES, Arch, Digest, Platform
from builder.registry.manifests import IMAGE_TYPES, parse_manifest, pointed_manifests
from builder.registry.values import Descriptor, Repository
from builder.store import Store

__all__ = ["audit_image"]

_VERSIONED = re.compile(r"/(?:python|pypy)(\d+\.\d+)/(?:site|dist)-packages(?:/|$)")
_INTERPRETER = re.compile(r"/bin/python(3\.\d+)$")

REST = "files-outside-packages"
"""Target name for what no distribution owns: the base, the system's packages, the application."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Installed:
    """One installed distribution."""

    name: str
    version: str
    folder: str
    """Its .dist-info, relative to the root."""
    tag: str
    requires: tuple[str, ...]
    """Requires-Dist lines."""
    files: Mapping[str, str]
    """Path relative to the root, to the hash that RECORD lists ("" for none)."""

    @property
    def site(self) -> str:
        return posixpath.dirname(self.folder)


def audit_image(
    repository: Repository,
    digest: Digest,
    *,
    backend: str,
    python: str | None,
    arch: Arch | None,
    store: Store,
    reporter: Reporter,
    exceptions: Iterable[AuditException] = (),
    translations: Iterable[str] = (),
    today: date | None = None,
    rules: Rules | None = None,
    all_chains: bool = False,
) -> AuditReport:
    """Audit the image under a digest: one target for each installed distribution, one for all other files.

    Of an index, the image for `arch` is audited (None: the only one, else x86_64). `python` decides markers; without
    it, the folder that a distribution is installed in says which, or the interpreter that the image has. Requirements
    count only when what they name is installed. Layers read before come from the store.
    """
    rules = rules or load_rules()
    manifest, descriptors, arch = _layers(repository, digest, arch)
    total = sum(layer.size for layer in descriptors)
    with reporter.task(f"reading {len(descriptors)} layers", total=total) as advance:
        layers = tuple(
            read_layer(repository, layer, scanner=rules.scanner, store=store, advance=advance) for layer in descriptors
        )
    held = merged(layers)
    found = tuple(_distributions(layers, held))
    pythons = [python] * len(found) if python else list(_pythons(found, held))
    environments = [marker_environment(version, arch) for version in pythons]
    edges = _edges(found, environments)
    roots = _roots(edges)
    chains = shortest_chains(edges, roots)
    waived = tuple(exceptions)
    provided = provided_by(translations, backend)
    present = {item.name for item in found}
    facts = [_facts(item, layers, held) for item in found]
    owned = frozenset(path for item in found for path in item.files)
    facts.append(_rest(layers, held, owned))
    targets: list[TargetAudit] = []
    # What no distribution owns requires nothing, so no marker asks for its Python.
    environments.append(marker_environment(python or "3", arch))
    for wheel, item, environment in zip(facts, (*found, None), environments, strict=True):
        claims = claims_of(
            wheel, tables=rules.tables, packages=rules.packages, environment=environment, provided=provided
        )
        target = judged_target(
            wheel,
            tuple(claim for claim in claims if not claim.requirement or claim.requirement in present),
            manifest,
            backend,
            rules,
            chain=chains.get(wheel.name, ()),
            exceptions=waived,
            today=today,
        )
        targets.append(replace(target, file=f"/{item.folder}" if item else str(digest)))
    between = waived_between(
        (
            *same_paths({item.name: _installed_files(item) for item in found}, chains, backend=backend),
            *same_sonames(facts[:-1], chains, backend=backend),
            *other_majors(facts, chains, backend=backend, tables=rules.tables),
        ),
        waived,
        today,
    )
    return AuditReport(
        backend=backend,
        targets=tuple(targets),
        graph_findings=between,
        policy=rules.version,
        exceptions=exception_uses(targets, between, waived, today),
        chains=chains_to_findings(edges, roots, targets, between) if all_chains else {},
    )


def _installed_files(item: _Installed) -> Iterator[InstalledFile]:
    """What RECORD gives a hash for: a file that another RECORD gives another hash for was overwritten."""
    return (InstalledFile(path=f"/{path}", content=digest) for path, digest in item.files.items() if digest)


def _pythons(found: Sequence[_Installed], held: Mapping[str, Held]) -> Iterator[str]:
    """`3.11` for each distribution: of the folder it lies in, else of the image's one interpreter, else what most of
    the others lie in. `CannotTell` when a marker asks and nothing says.
    """
    named = [match[1] if (match := _VERSIONED.search(f"/{item.site}")) else "" for item in found]
    there = sorted({match[1] for path in held if (match := _INTERPRETER.search(f"/{path}"))})
    usual = Counter(version for version in named if version).most_common(1)
    other = there[0] if len(there) == 1 else usual[0][0] if usual else ""
    for item, version in zip(found, named, strict=True):
        if not version and not other and any("python" in line.partition(";")[2] for line in item.requires):
            raise CannotTell(
                f"which Python imports {item.name} from /{item.site}?",
                why=f"the image has {' and '.join(there) or 'none that its files tell of'}",
                fix="add --python",
            )
        yield version or other or "3"


def _layers(repository: Repository, digest: Digest, arch: Arch | None) -> tuple[Digest, tuple[Descriptor, ...], Arch]:
    """Digest, layers (lowest first) and processor of the image itself; of an index, of its entry for `arch`."""
    manifest = repository.manifest(digest)
    if manifest is None:
        raise BadInput(f"there is no image {digest}", fix="build or push it first")
    entries = pointed_manifests(manifest)
    if entries:
        known = [entry for entry in entries if _arch(entry.platform or {}) is not None]
        wanted = Platform(arch or (_arch(known[0].platform or {}) if len(known) == 1 else None) or "x86_64").oci_arch
        entry = next((entry for entry in known if (entry.platform or {}).get("architecture") == wanted), None)
        if entry is None:
            there = ", ".join(sorted({str((entry.platform or {}).get("architecture", "none")) for entry in entries}))
            raise Refused(
                f"{digest} has no image for linux/{wanted}", why=f"its index lists {there}", fix="choose another --arch"
            )
        manifest = repository.manifest(entry.digest)
    if manifest is None or manifest.media_type not in IMAGE_TYPES:
        raise BadInput(f"{digest} is not an image", why="its manifest is of another type or not there")
    value = parse_manifest(manifest)
    try:
        layers = tuple(Descriptor.from_json(layer) for layer in value["layers"])
        config = Descriptor.from_json(value["config"])
        own = _arch(json.loads(b"".join(repository.read_blob(config.digest))))
    except (KeyError, TypeError) as error:
        raise BadInput(f"{digest} is not an image", why=f"its manifest lacks {error}") from error
    except ValueError as error:
        raise BadInput(f"{digest} is not an image", why=f"its configuration is not JSON: {error}") from error
    if arch is not None and own is not None and own != arch:
        raise BadInput(f"{digest} is for {own}, and {arch} is asked for", fix="leave out --arch")
    return manifest.digest, layers, own or arch or "x86_64"


def _arch(value: Mapping[str, Any]) -> Arch | None:
    """The processor that a platform or a configuration names; None for one that this tool does not know."""
    return next((arch for arch in ARCHES if Platform(arch).oci_arch == value.get("architecture")), None)


def _distributions(layers: Sequence[LayerFacts], held: Mapping[str, Held]) -> Iterator[_Installed]:
    def text(path: str) -> str | None:
        place = held.get(path)
        return None if place is None else layers[place.layer].texts.get(place.path)

    for path in sorted(held):
        if not path.endswith(".dist-info/METADATA"):
            continue
        folder = posixpath.dirname(path)
        metadata = parse_email((text(path) or "").encode(errors="replace"))[0]
        name = metadata.get("name")
        if not name:
            continue
        lines = (text(f"{folder}/WHEEL") or "").splitlines()
        rows = csv.reader((text(f"{folder}/RECORD") or "").splitlines())
        site = posixpath.dirname(folder)
        yield _Installed(
            name=canonicalize_name(name),
            version=metadata.get("version", ""),
            folder=folder,
            tag=next((line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")), "py3-none-any"),
            requires=tuple(metadata.get("requires_dist", ())),
            files={
                posixpath.normpath(posixpath.join(f"/{site}", row[0])).lstrip("/"): row[1] if len(row) > 1 else ""
                for row in rows
                if row
            },
        )


def _edges(found: tuple[_Installed, ...], environments: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """Who requires whom, among what is installed."""
    edges: dict[str, set[str]] = {item.name: set() for item in found}
    for item, environment in zip(found, environments, strict=True):
        for line in item.requires:
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            name = canonicalize_name(requirement.name)
            if name in edges and name != item.name and applies(requirement.marker, environment) is not None:
                edges[item.name].add(name)
    return edges


def _roots(edges: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Distributions that nothing installed asks for."""
    asked = {name for names in edges.values() for name in names}
    return tuple(name for name in sorted(edges) if name not in asked)


def _facts(item: _Installed, layers: Sequence[LayerFacts], held: Mapping[str, Held]) -> WheelFacts:
    version = item.version.replace("-", "_") or "0"
    return replace(
        _seen(layers, {path: place for path, place in held.items() if path in item.files}, item.site),
        name=item.name,
        version=item.version,
        file=f"{item.name.replace('-', '_')}-{version}-{item.tag}.whl",
        requires_dist=item.requires,
    )


def _rest(layers: Sequence[LayerFacts], held: Mapping[str, Held], owned: frozenset[str]) -> WheelFacts:
    return _seen(layers, {path: place for path, place in held.items() if path not in owned}, "")


def _seen(layers: Sequence[LayerFacts], files: Mapping[str, Held], site: str) -> WheelFacts:
    """Facts about these files, their paths relative to `site`, or absolute when there is none."""
    places: dict[tuple[int, str], str] = {}
    for path in sorted(files, reverse=True):  # of hard links, the first name in order
        places[(files[path].layer, files[path].path)] = posixpath.relpath(path, site) if site else f"/{path}"

    def mine(number: int, path: str) -> tuple[str, ...]:
        """The path in the image, or nothing."""
        place = places.get((number, path))
        return () if place is None else (place,)

    numbered = tuple(enumerate(layers))
    return WheelFacts(
        name=REST,
        version="",
        file="",
        requires_dist=(),
        elf=tuple(
            replace(elf, path=path)
            for number, layer in numbered
            for elf in layer.elf
            for path in mine(number, elf.path)
        ),
        python=tuple(
            replace(use, path=path)
            for number, layer in numbered
            for use in layer.python
            for path in mine(number, use.path)
        ),
        members=tuple(
            replace(member, path=path)
            for number, layer in numbered
            for member in layer.members
            for path in mine(number, member.path)
        ),
        paths=len(files),
    )
