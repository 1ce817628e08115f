"""Which index each package comes from: asked round after round until the resolver's answer keeps to the pins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from builder.errors import CannotTell, OutsideFailed
from builder.events import Reporter
from builder.lock.engine import CannotResolve, LockEngine, NoSuchPackage, Pinned, Request, Resolution, Resolved
from builder.lock.pins import Applied, applied, asked_labels, labels_demanded, mentioned, named_in, pin_of
from builder.lock.policy import PackagePolicy
from builder.lock.simple import Pages
from builder.lock.target import accepts
from builder.matrix.values import Stack
from builder.wheels.settings import PYPI, without_credentials
from builder.wheels.transport import IndexUnreachable

__all__ = ["MissingIndex", "Search"]

_ROUNDS = 12
"""Each round pins at least one more package; families of vendor packages are smaller than this."""


class MissingIndex(OutsideFailed):
    """A package may come from one index only, and that index is out of reach."""

    kind = "missing-index"


@dataclass(kw_only=True)
class Search:
    """Asks the engine until every package comes from where it may come from.

    A resolver can tie a package to an index only when it is asked for by name, and names pulled in by others are known
    only from its answer (or from its complaint that something is not there). So each round ties those that turned up.
    """

    requirements: tuple[str, ...]
    stack: Stack
    policy: PackagePolicy
    engine: LockEngine
    pages: Pages
    reporter: Reporter
    request: Request

    def run(self) -> tuple[Resolution, frozenset[str]]:
        """The graph, and the indexes that could not be held against `exclude_newer`."""
        settings = self.request.settings
        undated = frozenset(url for url in settings.indexes if not self._dated(url))
        roots: set[str] = {canonicalize_name(Requirement(line).name) for line in self.requirements}
        pinned: dict[str, Pinned] = {}
        by_default: set[str] = set()  # tied to the default index because their label was not asked for
        demanded: dict[str, str] = {}  # name to the labelled version that a package's own metadata asks for
        refused: list[str] = []  # labelled versions nothing asks for
        accepted: set[str] = set()  # taken with a label all the same, because there is no other build
        for _ in range(_ROUNDS):
            bound = applied(self.requirements, self.stack.constraints, self.stack.indexes, also=demanded)
            for name in sorted((set(bound.pins) & (roots | set(demanded))) - set(pinned)):
                pinned[name] = self._place(name, bound, demanded)
            request = replace(
                self.request, constraints=(*bound.constraints, *refused), pinned=dict(pinned), undated=undated
            )
            try:
                resolution = self.engine.resolve(request)
            except (CannotResolve, NoSuchPackage) as fault:
                new = set(mentioned(fault.said, set(bound.pins) - set(pinned)))
                known = {name for pin in self.stack.indexes for name in pin.packages}
                labels = labels_demanded(fault.said, (known - set(bound.pins)) | by_default)
                labels = {name: version for name, version in labels.items() if name not in demanded}
                only = set(named_in(fault.said, by_default)) - labels.keys()
                if not new and not labels and not only:
                    raise
                for name in sorted(only):
                    self.reporter.note(f"{name}: only a labelled build fits, so it is taken though nothing asks for it")
                demanded |= labels
                accepted |= only
                for name in (only | labels.keys()) & by_default:
                    pinned.pop(name, None)
                    by_default.discard(name)
                    refused = [line for line in refused if not _is(line, name)]
            else:
                new = {package.name for package in resolution.packages if package.name in bound.pins} - set(pinned)
                asked = asked_labels((*self.requirements, *bound.constraints, *request.overrides)) | set(demanded)
                unasked = self._unasked_labels(resolution, asked | set(bound.pins) | accepted)
                if not new and not unasked:
                    places = {pin.location for pin in pinned.values() if not pin.dated and not pin.flat}
                    return self._reachable(resolution, roots), undated | places | resolution.undated
                for name, version in unasked.items():
                    self.reporter.detail(f"{name} {version} is on offer, but nothing asks for that build")
                    refused.append(f"{name}!={version}")
                    by_default.add(name)
                    if not settings.no_index:
                        dated = settings.index_url not in undated
                        pinned[name] = Pinned(location=settings.index_url, dated=dated)
            for name in sorted(new):
                pinned[name] = self._place(name, bound, demanded)
        raise CannotTell(
            "the resolver does not come to an end",
            why=f"after {_ROUNDS} rounds it still asks for packages from other indexes",
            fix="name the frameworks with their exact versions in the project file",
        )

    def with_index(self, package: Resolved) -> Resolved:
        """The package with the place it came from, found out where the engine does not say."""
        settings = self.request.settings
        if package.index:
            return package
        folder = package.url.rpartition("/")[0]
        for link in settings.find_links:
            location = link if "://" in link else Path(link).as_uri()
            if folder == location or any(item.url == package.url for item in self.pages.location(link)):
                return replace(package, index=without_credentials(location))
        for index in settings.indexes:
            links = self.pages.project(index, package.name) if len(settings.indexes) > 1 else ()
            if any(without_credentials(link.url) == package.url for link in links):
                return replace(package, index=without_credentials(index))
        return replace(package, index=without_credentials(settings.index_url))

    def _dated(self, index: str) -> bool:
        """Whether an index says when files were uploaded (PEP 700), judged by the first requirement it has."""
        if index == PYPI:
            return True
        if self.request.offline and not index.startswith("file:"):
            return False
        for line in self.requirements:
            links = self.pages.project(index, Requirement(line).name)
            if links:
                return any(link.dated for link in links)
        return False

    def _unasked_labels(self, resolution: Resolution, asked: frozenset[str] | set[str]) -> dict[str, str]:
        """Packages for which another index than the default one slipped in the build of some backend.

        `torch==2.13.0` matches `2.13.0+cpu` and ranks it above 2.13.0 (PEP 440), so whichever machine has such a file
        in a find-links folder would make another lock than the rest. What is built in must stand in the project.
        """
        default = without_credentials(self.request.settings.index_url)
        return {
            package.name: package.version
            for package in resolution.packages
            if package.name not in asked
            and package.index != default
            and self.policy.label_backend(package.version) is not None
        }

    def _place(self, name: str, bound: Applied, demanded: Mapping[str, str]) -> Pinned:
        """Where a pinned package is to be taken from: its index, or a find-links location that has the very version."""
        index = bound.pins.get(name) or pin_of(name, self.stack.indexes)
        if index is None:
            raise ValueError(f"{name} is not pinned")
        no_index = self.request.settings.no_index
        try:
            links = () if no_index else self.pages.project(index, name)
            why = "the settings say no-index" if no_index else f"the index answers, but has no {name}"
        except IndexUnreachable as error:
            links, why = (), error.why
        if links:
            return Pinned(location=index, dated=any(link.dated for link in links))
        lines = [line for line in (*self.requirements, *bound.constraints) if _is(line, name)]
        if name in demanded:
            lines.append(f"{name}=={demanded[name]}")
        for location in self.request.settings.find_links:
            files = [link.file for link in self.pages.location(location)]
            if chosen := next((file for file in files if self._stands_in(file, name, lines)), None):
                said = "is not asked" if no_index else "is out of reach"
                self.reporter.note(f"{index} {said}; {chosen} comes from {location} instead")
                return Pinned(location=location, flat=True)
        if self.request.offline:
            return Pinned(location=index)
        wanted = next((line for line in reversed(lines) if "==" in line), name)
        raise MissingIndex(
            f"{name} may come from one index only, and it is missing: {without_credentials(index)}",
            why=why,
            fix=f"make that index reachable, or put the wheel of {wanted} into a find-links folder",
        )

    def _stands_in(self, file: str, name: str, lines: list[str]) -> bool:
        """Whether a find-links file is exactly the wanted build: the pinned version, or a labelled one."""
        request = self.request
        if not accepts(file, python=request.python, arch=request.arch, glibc=request.glibc):
            return False
        found, version = parse_wheel_filename(file)[:2]
        specifiers = [specifier for line in lines for specifier in Requirement(line).specifier]
        exact = any(specifier.operator in ("==", "===") for specifier in specifiers)
        fits = SpecifierSet(specifiers).contains(version, prereleases=True)
        return found == name and fits and (exact or Version(str(version)).local is not None)

    def _reachable(self, resolution: Resolution, roots: set[str]) -> Resolution:
        """The graph without what was only asked for to tie it to an index and turned out not to be needed."""
        children: dict[str, set[str]] = {}
        for package in resolution.packages:
            for parent in package.parents:
                children.setdefault(parent, set()).add(package.name)
        seen: set[str] = set()
        todo = list(roots)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += children.get(name, ())
        return replace(resolution, packages=tuple(package for package in resolution.packages if package.name in seen))


def _is(line: str, name: str) -> bool:
    return canonicalize_name(Requirement(line).name) == name
