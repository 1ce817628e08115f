"""Vendor libraries that Python code loads by name: ctypes, cffi, dlopen, and linker flags for code compiled later.

Only string constants of the program count: comments, docstrings and messages are words. A file is parsed only when a
vendor's name and a way to load libraries both occur in it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from builder.audit.facts import How, PythonUse
from builder.audit.tables import Library, Tables

__all__ = ["PythonScanner"]

_LOADERS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "load_library", "dlopen"})
_FINDER = "find_library"
_LOADER_WORDS = (*sorted(_LOADERS), "cdll", "cffi", "ctypes", "RTLD_GLOBAL", _FINDER)
_LINK = re.compile(r"-l([\w+-]+)")
_MAX_SOURCE = 8 << 20


class PythonScanner:
    """Reads Python sources with one set of tables. Holds no state between files; safe to share between threads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        stems = sorted(tables.libraries)
        self._link = frozenset(
            f"-l{library.stem[3:]}"
            for library in tables.libraries.values()
            if library.role in ("runtime", "host driver") and not library.shared
        )
        words = [*_LOADER_WORDS, *stems, *sorted(self._link)]
        self._words = tuple(words)
        self._matcher = BytesAhoCorasick(
            [word.encode() for word in words], matchkind=MatchKind.LeftmostLongest, implementation=Implementation.DFA
        )

    def uses(self, path: str, source: bytes) -> tuple[PythonUse, ...]:
        """The uses in one file, one per library and way, in order of lines."""
        if len(source) > _MAX_SOURCE:
            return ()
        seen = {self._words[index] for index, _, _ in self._matcher.find_matches_as_indexes(source)}
        loads = not seen.isdisjoint(_LOADER_WORDS)
        named = not seen.isdisjoint(self._tables.libraries) and (loads or b".so*" in source)
        if not named and _FINDER not in seen and seen.isdisjoint(self._link):
            return ()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ()
        found: dict[tuple[str, str], PythonUse] = {}
        for name, line, how in self._uses(tree, loads=loads):
            use = PythonUse(path=path, name=name, line=line, how=how)
            found.setdefault((name, how), use)
        return tuple(found.values())

    def _uses(self, tree: ast.Module, *, loads: bool) -> Iterator[tuple[str, int, How]]:
        nodes = list(ast.walk(tree))
        ignored = {
            id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        asked = _only_asked(nodes)
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            called = _called(node)
            if called != _FINDER and called not in _LOADERS:
                continue
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                for constant in ast.walk(argument):
                    if not isinstance(constant, ast.Constant) or not isinstance(constant.value, str):
                        continue
                    finds = called == _FINDER
                    name = f"lib{constant.value}.so" if finds else constant.value
                    if self._library(name):
                        ignored.add(id(constant))
                        yield name, constant.lineno, "listed" if id(node) in asked else "call"
        for node in nodes:
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in ignored:
                continue
            text = node.value
            if (loads or "*" in text) and self._library(text):
                yield text, node.lineno, "listed"
            for name in _LINK.findall(text):
                if f"-l{name}" in self._link:
                    yield f"-l{name}", node.lineno, "link"

    def _library(self, name: str) -> Library | None:
        """The vendor library of a name, or of a glob pattern for names (`libcudart*.so*`)."""
        return self._tables.library(name.replace("*", "").rstrip("."))


def _only_asked(nodes: list[ast.AST]) -> set[int]:
    """Calls whose result is only tested for truth: the file is looked for, and nothing is loaded."""
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            found.add(id(node.test))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found.add(id(node.operand))
        elif isinstance(node, ast.Compare):
            found.add(id(node.left))
    return found


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
