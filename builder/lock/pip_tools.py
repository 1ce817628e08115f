"""Engine pip-tools: `pip-compile` for the graph, `pip install --dry-run --report` for the files.

pip resolves for the interpreter that runs it, so this engine answers only when the image's Python and architecture are
this machine's. It reads no configuration of its own here: the index settings are passed, so that both engines see the
same places.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.errors import OutsideFailed
from builder.lock.annotations import Annotated, read_annotated
from builder.lock.engine import CannotResolve, NoSuchPackage, OnlySources, Request, Resolution, Resolved, WrongHost
from builder.lock.target import accepts
from builder.wheels.settings import without_credentials
from builder.wheels.transport import IndexUnreachable

__all__ = ["PipTools"]

_DATED_SINCE = Version("26.0")
"""The first pip with --uploaded-prior-to (pip documentation, changelog)."""


class PipTools:
    """The second engine, for a target that is like this machine."""

    name = "pip-tools"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def version(self) -> str:
        """Version of pip-tools."""
        return _installed("pip-tools")

    def resolve(self, request: Request) -> Resolution:
        """The graph, with a file for each package; `index` is left empty, because pip does not say."""
        self.version()
        _check_host(request)
        _check_pins(request)
        bounded = not request.undated and Version(_installed("pip")) >= _DATED_SINCE
        with tempfile.TemporaryDirectory(prefix="builder-pip-") as name:
            folder = Path(name)
            (folder / "roots.in").write_text("".join(f"{line}\n" for line in request.requirements))
            (folder / "bounds.txt").write_text("".join(f"{line}\n" for line in request.constraints))
            if request.preferences:
                (folder / "graph.txt").write_text("".join(f"{line}\n" for line in request.preferences))
            shared = _pip_options(request, bounded=bounded)
            argv = [sys.executable, "-m", "piptools", "compile", "--no-header", "--strip-extras"]
            argv += ["--annotation-style", "split", "--no-emit-index-url", "--no-emit-find-links", "--no-config"]
            argv += ["--no-emit-trusted-host", "--no-emit-options", "--allow-unsafe", "--resolver", "backtracking"]
            argv += ["--constraint", "bounds.txt", "--output-file", "graph.txt", "--pip-args", shlex.join(shared)]
            self._run([*argv, "roots.in"], folder, request)
            graph = read_annotated((folder / "graph.txt").read_text())
            (folder / "pins.txt").write_text("".join(f"{item.name}=={item.version}\n" for item in graph))
            argv = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
            self._run([*argv, "--report", "report.json", *shared, "-r", "pins.txt"], folder, request)
            report = json.loads((folder / "report.json").read_text())
        return Resolution(
            packages=_merge(graph, report, request),
            undated=frozenset() if bounded else frozenset(request.settings.indexes),
        )

    def _run(self, argv: list[str], folder: Path, request: Request) -> None:
        environ = {name: value for name, value in self._environ.items() if not name.startswith("PIP_")}
        environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NO_COLOR": "1"}
        done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _fault(done.stderr, request)


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise OutsideFailed(
            f"{name} is not installed",
            why="the engine pip-tools needs it beside builder",
            fix=f"pip install {name}, or use the engine uv",
        ) from error


def _check_host(request: Request) -> None:
    host = f"{sys.version_info.major}.{sys.version_info.minor}"
    if request.python != host or request.arch != platform.machine() or sys.platform != "linux":
        raise WrongHost(
            f"pip-tools cannot lock Python {request.python} on {request.arch}",
            why=f"pip resolves for the Python that runs it: {host} on {sys.platform} {platform.machine()}",
            fix="use --engine uv, which resolves for other targets",
        )
    if request.offline:
        raise WrongHost("pip-tools cannot lock offline", why="pip keeps no index pages", fix="use --engine uv")
    if request.settings.extra_index_urls and not request.settings.best_match:
        raise WrongHost(
            "pip-tools cannot ask one index after the other",
            why="uv's settings ask for the first index that has a package; pip takes the best of all",
            fix="use --engine uv, or name the further indexes in pip's configuration",
        )
    if request.overrides:
        raise WrongHost("pip-tools cannot lock overrides", why="pip has none", fix="use --engine uv")


def _check_pins(request: Request) -> None:
    for name, pinned in sorted(request.pinned.items()):
        # A find-links folder with the labelled version that a bound spells out needs no pin: no index has it.
        if not pinned.flat and pinned.location != request.settings.index_url:
            raise WrongHost(
                f"pip-tools cannot take {name} from {without_credentials(pinned.location)} alone",
                why="pip asks every index it knows for every package",
                fix="use --engine uv, which ties a package to its index",
            )


def _pip_options(request: Request, *, bounded: bool) -> list[str]:
    settings = request.settings
    options = ["--only-binary", ":all:"]
    options += ["--no-index"] if settings.no_index else ["--index-url", settings.index_url]
    for url in settings.extra_index_urls:
        options += ["--extra-index-url", url]
    for link in settings.find_links:
        options += ["--find-links", link]
    for host in settings.trusted_hosts:
        options += ["--trusted-host", host]
    for option, value in (("--cert", settings.cert), ("--client-cert", settings.client_cert)):
        if value is not None:
            options += [option, value]
    if bounded:
        options += ["--uploaded-prior-to", request.exclude_newer]
    return options


def _merge(graph: tuple[Annotated, ...], report: Mapping[str, Any], request: Request) -> tuple[Resolved, ...]:
    found: dict[str, Any] = {canonicalize_name(item["metadata"]["name"]): item for item in report["install"]}
    packages = []
    for item in graph:
        info = found[item.name]["download_info"]
        url = without_credentials(info["url"])
        file = url.rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
        if not accepts(file, python=request.python, arch=request.arch, glibc=request.glibc):
            raise WrongHost(
                f"pip-tools chose {file}, which does not run on glibc {request.glibc}",
                why=f"pip chooses for this machine, whose glibc is {platform.libc_ver()[1]}",
                fix="use --engine uv, which chooses for the base image",
            )
        packages.append(
            Resolved(
                name=item.name,
                version=item.version,
                url=url,
                sha256=info.get("archive_info", {}).get("hashes", {}).get("sha256"),
                size=None,
                index="",
                parents=item.parents,
            )
        )
    return tuple(sorted(packages, key=lambda package: package.name))


def _fault(stderr: str, request: Request) -> Exception:
    """What pip's refusal means, from the sentences it prints (pip 26)."""
    said = _tidy(stderr)
    roots = {canonicalize_name(Requirement(line).name) for line in request.requirements}
    if re.search(r"connection broken|Max retries|ConnectionError|SSLError|HTTP error|HTTPError", stderr, re.IGNORECASE):
        return IndexUnreachable(
            "an index does not answer", why=said, fix="check the network and the index settings of pip"
        )
    missing = re.search(r"No matching distribution found for ([A-Za-z0-9][A-Za-z0-9._-]*)", said)
    if missing is not None and "from versions: none" in said and canonicalize_name(missing[1]) in roots:
        return NoSuchPackage(
            f"no index has a wheel of {missing[1]} for Python {request.python} on {request.arch}",
            why=said,
            fix="check the spelling, add the index that has it, or build its wheel into a find-links folder",
            said=said,
        )
    if missing is not None and "from versions: none" in said:
        return OnlySources(
            f"no index has a wheel of {missing[1]}", why=said, fix="build its wheel into a find-links folder", said=said
        )
    return CannotResolve(
        f"no set of wheels fits the requirements for Python {request.python}, {request.arch}",
        why=said,
        fix="loosen the requirement that the last line names, or add the index that has the missing version",
        said=said,
    )


def _tidy(stderr: str) -> str:
    """pip's words in one paragraph, without the traceback pip-compile prints around them."""
    kept = []
    for line in stderr.splitlines():
        text = line.strip()
        noise = re.match(r"Traceback|The above exception|During handling|pip\._vendor|File |\^+$|Looking in ", text)
        code = (
            line.startswith("    ")
            and not text.startswith(("ERROR", "The user", "WARNING"))
            and "depends on" not in text
        )
        if text and not noise and not code:
            kept.append(re.sub(r"^(ERROR: |pip\._internal\.exceptions\.)", "", text))
    return re.sub(r"https?://[^\s/]+@", "https://", " ".join(dict.fromkeys(kept)))
