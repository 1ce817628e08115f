"""Whether importing a distribution imports one of its extension modules: followed through its own import statements.

A module that does not load refuses an image only when an import is sure to reach it. What is imported inside a
function, or where the failure is caught, is optional; what only a branch, another submodule or a computed name leads
to is undecided.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from builder.proof.values import Weight

__all__ = ["Reach", "Reached", "imports_of"]

Certainty = Literal["sure", "branch", "guarded"]
"""sure: runs whenever the module is imported. branch: stands under if, for or while. guarded: in a function, or the
failure is caught."""

_SUFFIX = re.compile(r"(?:\.(?:cpython-[\w-]+|abi3))?\.so$|\.py$")
_SETUP_FLAG = re.compile(r"_+[A-Z0-9]+_SETUP_+")
_CAUGHT = frozenset({"ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException"})

Sources = Callable[[Iterable[str]], Mapping[str, bytes]]
"""Reads the files at these paths of the image in one go."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How much it matters that a file does not load."""

    weight: Weight
    why: str
    conditional: bool = False
    """Imported under a condition, as code for another backend usually is."""


class Reach:
    """Answers for one image; sources of a distribution are read when one of its files is first asked about."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._graphs: dict[tuple[str, ...], _Imports] = {}
        self._loading: dict[tuple[str, ...], Mapping[str, bytes]] = {}

    def library(self, path: str, loading: Iterable[str]) -> Reached | None:
        """For a library that `loading`, the files of its distribution that load libraries, name as it is called.

        What opens it may catch the failure, or fail later for want of it (torch.ops.load_library): undecided.
        """
        key = tuple(loading)
        if key not in self._loading:
            self._loading[key] = self._sources(key)
        name = posixpath.basename(path)
        words = "|".join(re.escape(word) for word in (name, name.partition(".so")[0]))
        literal = re.compile(rf"""['"](?:{words})['"]""".encode())
        for source, text in sorted(self._loading[key].items()):
            found = literal.search(text)
            if found:
                line = text.count(b"\n", 0, found.start()) + 1
                return Reached("undecided", f"named at {source}:{line}, in code that opens libraries")
        return None

    def module(self, module: str, *, site: str, files: Iterable[str]) -> Reached:
        """How much it matters that the module at path `module` does not load, and why.

        `site` is the folder its distribution is installed in, `files` all paths of that distribution.
        """
        key = (site, *files)
        if key not in self._graphs:
            names = {
                _name(path, site): path for path in key[1:] if _SUFFIX.search(path) and path.startswith(f"{site}/")
            }
            texts = self._sources([path for path in names.values() if path.endswith(".py")])
            self._graphs[key] = _Imports(names, texts)
        imports = self._graphs[key]
        name = _name(module, site)
        if name in imports.sure:
            return Reached("required", imports.sure[name])
        mentions = imports.mentions(name)
        if not mentions:
            return Reached("undecided", "no import statement of its distribution names it")
        certainty, place = min(mentions, key=lambda item: ("sure", "branch", "guarded").index(item[0]))
        if certainty == "guarded":
            return Reached("optional", f"imported at {place}, inside a function or where the failure is caught")
        if certainty == "branch":
            return Reached("undecided", f"imported at {place}, under a condition", conditional=True)
        return Reached("undecided", f"imported at {place}, which importing the distribution itself does not reach")


class _Imports:
    """The import statements of one distribution; a file is parsed when something leads to it."""

    def __init__(self, files: Mapping[str, str], texts: Mapping[str, bytes]) -> None:
        self._files = files
        self._texts = texts
        self._edges: dict[str, tuple[tuple[str, Certainty, int], ...]] = {}
        self.sure = self._follow()

    def _follow(self) -> dict[str, str]:
        """Modules that importing the distribution imports, with the place of the statement."""
        packages = {name for name, path in self._files.items() if posixpath.basename(path) == "__init__.py"}
        sure = {
            name: "importing its distribution imports it"
            for name in self._files
            if not packages.intersection(list(_steps(name))[:-1])
        }
        waiting = list(sure)
        while waiting:
            source = waiting.pop()
            for target, certainty, line in self._imports(source):
                if certainty == "sure" and target not in sure:
                    sure[target] = f"imported at {self._files[source]}:{line}"
                    waiting.append(target)
        return sure

    def _imports(self, name: str) -> tuple[tuple[str, Certainty, int], ...]:
        if name not in self._edges:
            path = self._files[name]
            package = name if posixpath.basename(path) == "__init__.py" else name.rpartition(".")[0]
            self._edges[name] = tuple(
                (step, certainty, line)
                for target, certainty, line in imports_of(self._texts.get(path, b""), package)
                for step in _steps(target)
                if step in self._files
            )
        return self._edges[name]

    def mentions(self, name: str) -> list[tuple[Certainty, str]]:
        """Every import statement that leads to `name`: how sure, and where."""
        word = name.rpartition(".")[2].encode()
        return [
            (certainty, f"{path}:{line}")
            for source, path in self._files.items()
            if word in self._texts.get(path, b"")
            for target, certainty, line in self._imports(source)
            if target == name
        ]


def _name(path: str, site: str) -> str:
    relative = _SUFFIX.sub("", path.removeprefix(f"{site}/"))
    return relative.removesuffix("/__init__").replace("/", ".")


def _steps(name: str) -> Iterator[str]:
    """Importing a.b.c imports a and a.b before."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def imports_of(source: bytes, package: str) -> Iterator[tuple[str, Certainty, int]]:
    """Absolute names a module imports, each with how sure it is and its line; nothing for a file that does not parse.

    `from a import b` gives a and a.b, for b may be a module.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    pending: list[tuple[ast.stmt, Certainty]] = [(statement, "sure") for statement in reversed(tree.body)]
    while pending:
        statement, certainty = pending.pop()
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.name, certainty, statement.lineno
        elif isinstance(statement, ast.ImportFrom):
            base = _absolute(statement, package)
            if base:
                yield base, certainty, statement.lineno
                for alias in statement.names:
                    yield f"{base}.{alias.name}", certainty, statement.lineno
        else:
            pending.extend(_inside(statement, certainty))


def _inside(statement: ast.stmt, certainty: Certainty) -> Iterator[tuple[ast.stmt, Certainty]]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from ((inner, "guarded") for inner in statement.body)
    elif isinstance(statement, ast.Try):
        body: Certainty = "guarded" if any(_swallows(handler) for handler in statement.handlers) else certainty
        yield from ((inner, body) for inner in statement.body)
        yield from ((inner, "guarded") for handler in statement.handlers for inner in handler.body)
        yield from ((inner, body) for inner in statement.orelse)
        yield from ((inner, certainty) for inner in statement.finalbody)
    elif isinstance(statement, ast.With | ast.ClassDef):
        yield from ((inner, certainty) for inner in statement.body)
    elif isinstance(statement, ast.If) and _is_setup_flag(statement.test):
        yield from ((inner, "guarded") for inner in statement.body)
        yield from ((inner, certainty) for inner in statement.orelse)
    elif isinstance(statement, ast.If | ast.For | ast.While):
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            body = "guarded"
        else:
            body = certainty if certainty == "guarded" else "branch"
        yield from ((inner, body) for inner in (*statement.body, *statement.orelse))


def _is_setup_flag(test: ast.expr) -> bool:
    """`if __NUMPY_SETUP__:` and its kin hold only while the package's own setup runs, never once installed."""
    return isinstance(test, ast.Name) and _SETUP_FLAG.fullmatch(test.id) is not None


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a failed import ends here instead of leaving the module."""
    caught = "" if handler.type is None else ast.dump(handler.type)
    relevant = handler.type is None or any(f"id='{name}'" in caught for name in _CAUGHT)
    return relevant and not any(isinstance(node, ast.Raise) for inner in handler.body for node in ast.walk(inner))


def _absolute(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = package.split(".") if package else []
    kept = parts[: len(parts) - (statement.level - 1)]
    return ".".join([*kept, *([statement.module] if statement.module else [])])
