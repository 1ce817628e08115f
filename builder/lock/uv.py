"""Engine uv: `uv pip compile`, which resolves for a Python and a platform other than the host's.

It runs twice on one input in an empty folder: once for the graph (annotated requirements), once with exactly those
pins for the files (pylock.toml); neither format holds both. The second run is answered from uv's cache, so it sees the
very pages the first one saw.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import tomlkit
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.errors import BadInput, OutsideFailed
from builder.lock.annotations import Annotated, read_annotated
from builder.lock.engine import CannotResolve, NoSuchPackage, OnlySources, Request, Resolution, Resolved
from builder.lock.target import best_wheel
from builder.lock.values import parse_moment
from builder.wheels.settings import without_credentials
from builder.wheels.transport import IndexUnreachable

__all__ = ["Uv"]

_OURS = (
    *("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX_STRATEGY"),
    *("UV_NO_INDEX", "UV_EXCLUDE_NEWER", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_TORCH_BACKEND", "UV_RESOLUTION"),
    *("UV_CUSTOM_COMPILE_COMMAND", "UV_SYSTEM_PYTHON", "VIRTUAL_ENV", "UV_NO_CONFIG", "UV_CONFIG_FILE"),
)
"""Variables that either were read into the settings already, would change which versions are chosen, or would keep uv
from reading the very project it is asked about (UV_NO_CONFIG: the indexes in it, and so any private index)."""


class Uv:
    """The default engine."""

    name = "uv"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._program = ""
        self._platforms: tuple[str, ...] = ()

    def version(self) -> str:
        """Version of the uv program."""
        found = re.match(r"uv (\S+)", self._run([self._find(), "--version"], Path.cwd()).stdout)
        if found is None:
            raise OutsideFailed("cannot read uv's version", fix="reinstall uv")
        return found[1]

    def resolve(self, request: Request) -> Resolution:
        """The graph, with a file for each package."""
        with tempfile.TemporaryDirectory(prefix="builder-uv-") as name:
            folder = Path(name)
            self._write(folder, request)
            if request.preferences:
                (folder / "graph.txt").write_text("".join(f"{line}\n" for line in request.preferences))
            annotated = ("--format", "requirements.txt", "--annotation-style", "split", "--emit-index-annotation")
            done = self._compile(folder, request, *annotated, "--output-file", "graph.txt")
            if done.returncode != 0:
                raise _fault(done.stderr, request)
            graph = read_annotated((folder / "graph.txt").read_text())
            (folder / "pins.txt").write_text("".join(f"{item.name}=={item.version}\n" for item in graph))
            hashed = ("--format", "pylock.toml", "--generate-hashes", "--constraints", "pins.txt")
            done = self._compile(folder, replace(request, offline=True), *hashed, "--output-file", "pylock.toml")
            if done.returncode != 0 and not request.offline:
                done = self._compile(folder, request, *hashed, "--output-file", "pylock.toml")
            if done.returncode != 0:
                raise _fault(done.stderr, request)
            files = tomllib.loads((folder / "pylock.toml").read_text())
        return _merge(graph, files, request)

    def _find(self) -> str:
        if not self._program:
            import uv

            try:
                self._program = uv.find_uv_bin()
            except FileNotFoundError as error:
                raise OutsideFailed("uv is not installed", why=str(error), fix="pip install uv") from error
        return self._program

    def _platform(self, request: Request) -> str:
        """The newest manylinux platform uv knows for this architecture that is not newer than the base's glibc."""
        if not self._platforms:
            text = self._run([self._find(), "pip", "compile", "--help"], Path.cwd()).stdout
            self._platforms = tuple(sorted(set(re.findall(r"(?:x86_64|aarch64)-manylinux_2_\d+", text))))
        wanted = int(request.glibc.split(".")[1])
        minors = [int(name.rsplit("_", 1)[1]) for name in self._platforms if name.startswith(f"{request.arch}-")]
        fitting = [minor for minor in minors if minor <= wanted]
        if not fitting:
            raise BadInput(
                f"glibc {request.glibc} is too old",
                why=f"uv resolves for manylinux_2_{min(minors, default=17)} and newer",
                fix="choose a newer base",
            )
        return f"{request.arch}-manylinux_2_{max(fitting)}"

    def _write(self, folder: Path, request: Request) -> None:
        """The project uv is asked about: roots, bounds, and which package comes from which index."""
        named = {canonicalize_name(Requirement(line).name) for line in request.requirements}
        direct = [*request.requirements, *(name for name in sorted(request.pinned) if name not in named)]
        indexes: list[dict[str, Any]] = []
        sources: dict[str, Any] = {}
        locations: dict[str, str] = {}
        # Without indexes a pin is a find-links folder, where uv looks anyway; under --no-index it knows no other place.
        for name, pinned in sorted(request.pinned.items()) if not request.settings.no_index else ():
            if pinned.location not in locations:
                locations[pinned.location] = f"pin-{len(locations)}"
                entry: dict[str, Any] = {"name": locations[pinned.location], "url": pinned.location, "explicit": True}
                if pinned.flat:
                    entry["format"] = "flat"
                if not pinned.dated:
                    entry["exclude-newer"] = False
                indexes.append(entry)
            sources[name] = {"index": locations[pinned.location]}
        # When all indexes count, the default one comes first, so that of equal versions its file is taken: a lock that
        # names the public file can be used on any machine. When the first index with a package is the only one asked,
        # the default one comes last, or a stranger could publish there what is private elsewhere.
        settings = request.settings
        ordered = settings.indexes if settings.best_match else (*settings.indexes[1:], *settings.indexes[:1])
        for number, url in enumerate(ordered):
            entry = {"name": f"index-{number}", "url": url}
            if url in request.undated:
                entry["exclude-newer"] = False
            if number == len(ordered) - 1:
                entry["default"] = True
            indexes.append(entry)
        tool: dict[str, Any] = {"index": indexes, "sources": sources}
        if request.constraints:
            tool["constraint-dependencies"] = list(request.constraints)
        if request.overrides:
            tool["override-dependencies"] = list(request.overrides)
        project = {
            "name": "builder-lock-roots",
            "version": "0",
            "requires-python": f">={request.python}",
            "dependencies": direct,
        }
        text = tomlkit.dumps({"project": project, "tool": {"uv": tool}})
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")

    def _compile(self, folder: Path, request: Request, *options: str) -> subprocess.CompletedProcess[str]:
        settings = request.settings
        argv = [self._find(), "pip", "compile", "pyproject.toml", "--no-header", "--quiet", "--color", "never"]
        # Without --python uv looks for an interpreter on PATH, where the one that runs this need not be.
        argv += ["--python", sys.executable, "--python-version", request.python]
        argv += ["--python-platform", self._platform(request)]
        argv += ["--only-binary", ":all:", "--exclude-newer", request.exclude_newer]
        argv += ["--preview-features", "index-exclude-newer"]
        argv += ["--index-strategy", "unsafe-best-match" if settings.best_match else "first-index"]
        for link in settings.find_links:
            argv += ["--find-links", link]
        if settings.no_index:
            argv.append("--no-index")
        for host in settings.trusted_hosts:
            argv += ["--allow-insecure-host", host]
        if request.offline:
            argv.append("--offline")
        return self._run([*argv, *options], folder, request)

    def _run(self, argv: list[str], folder: Path, request: Request | None = None) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in self._environ.items() if name not in _OURS}
        environ |= {"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}
        if request is not None and request.settings.cert and "SSL_CERT_FILE" not in environ:
            environ["SSL_CERT_FILE"] = request.settings.cert
        try:
            return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        except OSError as error:
            raise OutsideFailed(f"cannot start {argv[0]}", why=str(error), fix="reinstall uv") from error


def _merge(graph: tuple[Annotated, ...], files: Mapping[str, Any], request: Request) -> Resolution:
    entries: dict[str, Any] = {canonicalize_name(entry["name"]): entry for entry in files.get("packages", ())}
    packages = []
    for item in graph:
        wheels = entries.get(item.name, {}).get("wheels", ())
        by_file = {_file_name(wheel): wheel for wheel in wheels}
        file = best_wheel(by_file, python=request.python, arch=request.arch, glibc=request.glibc)
        if file is None:
            raise OnlySources(
                f"{item.name} {item.version} has no wheel for Python {request.python}, {request.arch}, "
                f"glibc {request.glibc}",
                why="images are made of wheels alone, so that what is audited is what is installed",
                fix=f"choose another version of {item.name}, or build its wheel and put it into a find-links folder",
            )
        wheel = by_file[file]
        packages.append(
            Resolved(
                name=item.name,
                version=item.version,
                url=without_credentials(str(wheel.get("url") or Path(wheel["path"]).absolute().as_uri())),
                sha256=wheel.get("hashes", {}).get("sha256"),
                size=wheel.get("size"),
                index=without_credentials(item.index or request.settings.index_url),
                parents=item.parents,
                uploaded=parse_moment(str(wheel["upload-time"])) if "upload-time" in wheel else None,
            )
        )
    return Resolution(packages=tuple(sorted(packages, key=lambda package: package.name)))


def _file_name(wheel: Mapping[str, Any]) -> str:
    if wheel.get("name"):
        return str(wheel["name"])
    return unquote(urlsplit(str(wheel.get("url") or wheel["path"])).path.rpartition("/")[2])


_NETWORK = re.compile(
    r"Failed to fetch|error sending request|Could not connect|dns error|Connection refused|timed out|"
    r"Request failed|HTTP status|network was disabled|tls|certificate",
    re.IGNORECASE,
)


def _fault(stderr: str, request: Request) -> Exception:
    """What uv's refusal means, from the sentences it prints (uv 0.13)."""
    said = _tidy(stderr)
    roots = {canonicalize_name(Requirement(line).name) for line in request.requirements}
    if "No solution found" not in stderr:
        if _NETWORK.search(said):
            return IndexUnreachable(
                "an index does not answer", why=said, fix="check the network and the index settings of pip or uv"
            )
        return OutsideFailed("uv could not resolve the requirements", why=said, fix="see what uv says above")
    if request.offline and ("network was disabled" in said or "not found in the cache" in said):
        return IndexUnreachable(
            "cannot lock offline", why=said, fix="lock once with the network, so that uv's cache holds the index pages"
        )
    sources = re.search(r"Wheels are required for `([^`]+)`", said)
    if sources is not None:
        return OnlySources(
            f"{sources[1]} is published as source only",
            why="images are made of wheels alone, so that what is audited is what is installed",
            fix=f"choose a version of {sources[1]} with wheels, or build its wheel and put it into a find-links folder",
            said=said,
        )
    unfit = re.search(r"(\S+) has no wheels with a matching ([\w ]+?) tag \(e\.g\., `([^`]+)`\)", said)
    if unfit is not None:
        offered = re.findall(r"on the following platforms?: (`[^`]+`(?:, `[^`]+`)*)", said)
        return CannotResolve(
            f"{unfit[1]} has no wheel for Python {request.python}, {request.arch}, glibc {request.glibc}",
            why=f"no {unfit[2]} tag fits; the best that the base accepts is {unfit[3]}"
            + (f", and there are wheels for {offered[0].replace('`', '')}" if offered else ""),
            fix=f"choose a base or a Python that {unfit[1].partition('==')[0]} has wheels for, another version of it, "
            "or rebuild its wheel for this target and put it into a find-links folder",
            said=said,
        )
    if missing := [name for name in _not_found(said) if name in roots]:
        return NoSuchPackage(
            f"no index has a package named {missing[0]}",
            why=said,
            fix="check the spelling, or add the index that has it to pip's or uv's configuration",
            said=said,
        )
    return CannotResolve(
        f"no set of wheels fits the requirements for Python {request.python}, {request.arch}, glibc {request.glibc}",
        why=said,
        fix="loosen the requirement that the last line names, or add the index that has the missing version",
        said=said,
    )


def _not_found(said: str) -> Iterable[str]:
    return re.findall(r"([A-Za-z0-9][A-Za-z0-9._-]*) was not found in (?:the package registry|the provided)", said)


def _tidy(stderr: str) -> str:
    """uv's words in one paragraph, warnings and its hints about other uv options left out."""
    kept: list[str] = []
    skipping = False
    for line in stderr.splitlines():
        text = re.sub(r"^\W+", "", line).strip()
        if re.match(r"(hint|warning):", text):
            skipping = text.startswith("warning:") or "By default, uv will only consider" in text
            if skipping:
                continue
        elif line and not line[0].isspace():
            skipping = False
        if text and not skipping:
            kept.append(text)
    said = " ".join(kept).replace("builder-lock-roots", "the project")
    said = re.sub(r"^error: ", "", said).replace("No solution found when resolving dependencies cause: ", "")
    return re.sub(r"https?://[^\s/]+@", "https://", said)
