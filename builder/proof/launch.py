"""What an image starts: from its entrypoint to the ELF programs behind it, through PATH, `#!` lines and env(1)."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from builder.proof.rootfs import RootFs
from builder.proof.values import ImageConfig, Unresolved

__all__ = ["Interpreter", "Launch", "find_launch"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = re.compile(r"(?:python|pypy)3?(?:\.(\d+)t?)?")
_SCRIPTS = 4
"""How many `#!` lines lead to each other before Linux gives up (BINPRM_MAX_RECURSION)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """The Python that an image runs."""

    path: str
    """As started, e.g. /opt/venv/bin/python: decides what it imports from."""
    program: str
    """The ELF file behind it."""
    minor: int | None
    """11 of 3.11, None when no name says."""
    venv: str | None
    """Folder of its virtual environment."""
    system_sites: bool
    """Whether it also imports from its base's site-packages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Programs by ELF path, in the order they are started, and what could not be started."""

    programs: tuple[str, ...]
    python: Interpreter | None
    missing: tuple[Unresolved, ...]


def find_launch(root: RootFs, config: ImageConfig) -> Launch:
    """Follow the image's command; where it runs no Python, the first python3 on its PATH is the interpreter."""
    programs: list[str] = []
    missing: list[Unresolved] = []
    python: str | None = None
    argv = config.argv
    name = argv[0] if argv else ""
    for _ in range(_SCRIPTS if name else 0):
        path = _which(root, name, config.env, config.workdir)
        if path is None:
            missing.append(_not_there(name, argv, config.env))
            break
        if _is_python(root, path):
            python = python or path
        file = root.plain(path)
        if file is None or file.script is None:
            programs.append(root.real(path) or path)
            break
        name = _script_program(file.script)
    if python is None:
        python = next(
            (
                found
                for word in ("python3", "python")
                if (found := _which(root, word, config.env, config.workdir)) and _is_python(root, found)
            ),
            None,
        )
    interpreter = None if python is None else _interpreter(root, python)
    if interpreter is not None and interpreter.program not in programs:
        programs.append(interpreter.program)
    return Launch(programs=tuple(programs), python=interpreter, missing=tuple(missing))


def _script_program(line: str) -> str:
    """The program of a `#!` line; behind env(1) the word it looks up."""
    words = line.split(None, 1)
    if not words:
        return ""
    if posixpath.basename(words[0]) != "env" or len(words) < 2:
        return words[0]
    rest = shlex.split(words[1])
    return next((word for word in rest if not word.startswith("-") and "=" not in word), words[0])


def _which(root: RootFs, name: str, env: Mapping[str, str], workdir: str) -> str | None:
    if not name:
        return None
    folders = [""] if "/" in name else (env.get("PATH") or _PATH).split(":")
    for folder in folders:
        path = posixpath.normpath(posixpath.join(workdir, folder, name))
        file = root.plain(path)
        if file is not None and file.executable:
            return path
    return None


def _not_there(name: str, argv: tuple[str, ...], env: Mapping[str, str]) -> Unresolved:
    places = () if "/" in name else tuple((env.get("PATH") or _PATH).split(":"))
    return Unresolved(
        object=argv[0],
        needed=name,
        opened=argv[0],
        role="program",
        weight="required",
        why="the image starts it, and there is no executable file of that name",
        searched=places,
        fix="correct the entrypoint, or put the program into the image",
    )


def _is_python(root: RootFs, path: str) -> bool:
    real = root.real(path) or path
    return any(_PYTHON.fullmatch(posixpath.basename(name)) for name in (path, real))


def _interpreter(root: RootFs, path: str) -> Interpreter | None:
    program = root.real(path)
    file = root.plain(path)
    if program is None or file is None or file.object is None:
        return None
    matches = [_PYTHON.fullmatch(posixpath.basename(name)) for name in (program, path)]
    minor = next((int(match[1]) for match in matches if match and match[1]), None)
    folder = posixpath.dirname(posixpath.dirname(path))
    settings = root.text(f"{folder}/pyvenv.cfg")
    text = (settings or b"").decode(errors="replace")
    system = re.search(r"(?im)^\s*include-system-site-packages\s*=\s*true\s*$", text) is not None
    return Interpreter(
        path=path,
        program=program,
        minor=minor,
        venv=folder if settings is not None else None,
        system_sites=settings is None or system,
    )
