"""Vendor libraries that Python code loads by name: ctypes, cffi, dlopen, and linker flags for code compiled later.

Only strings of the program count: comments, docstrings and messages are words. A file is parsed only when a way to load
libraries, or a vendor's linker flag, occurs in its bytes.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from builder.audit.facts import How, PythonUse
from builder.audit.folding import UNKNOWN, Folder
from builder.audit.tables import Library, Tables

__all__ = ["PythonScanner"]

_LOADERS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "load_library", "dlopen"})
_FINDER = "find_library"
_BY_STEM = frozenset({_FINDER, "load_library"})
"""Take a name without `lib` or without `.so`."""
_LOADER_WORDS = (*sorted(_LOADERS), "cdll", "cffi", "ctypes", "RTLD_GLOBAL", _FINDER)
_CALLS = (*sorted(_LOADERS), "cdll", _FINDER)
_LINKING = ("set_source", "Extension", "load_inline", "verify")
_LINK = re.compile(r"-l([\w+-]+)")
_MAX_SOURCE = 8 << 20
_SHOWN = 60
_COMPILED_NAME = re.compile(rb"[zZaAu](?P<size>[\x01-\xff])(?P<wide>\0\0\0)?(?P<name>[\w./+-]*lib[\w+-]+\.so[\w.]*)")
"""A short string constant as marshal writes it: type, length in one byte (or four), text."""


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
        words = dict.fromkeys((*_LOADER_WORDS, *_LINKING, *stems, *sorted(self._link), ".so*"))
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
        named = not seen.isdisjoint(self._tables.libraries) and (loads or ".so*" in seen)
        links = not seen.isdisjoint(self._link) or (b"libraries" in source and not seen.isdisjoint(_LINKING))
        if not named and not links and seen.isdisjoint(_CALLS):
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

    def compiled_uses(self, path: str, data: bytes) -> tuple[PythonUse, ...]:
        """The uses in a compiled module, by the constants and names it holds; lines are not known and read 0.

        Nothing is unmarshalled: that may crash the interpreter.
        """
        if not any(word.encode() in data for word in _CALLS):
            return ()
        found: dict[str, PythonUse] = {}
        for match in _COMPILED_NAME.finditer(data):
            name = match["name"].decode()
            if match["size"][0] == len(name) and self._library(name):
                found.setdefault(name, PythonUse(path=path, name=name, line=0, how="call"))
        return tuple(found.values())

    def _uses(self, tree: ast.Module, *, loads: bool) -> Iterator[tuple[str, int, How]]:
        nodes = list(ast.walk(tree))
        ignored = {
            id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        folder = Folder(nodes)
        asked = _only_asked(nodes)
        loaders = _loaders(nodes)
        optional = _goes_on_without(nodes)
        for node in nodes:
            argument = _opened(node, loaders)
            if argument is None:
                continue
            function, arguments = argument
            how: How = "listed" if id(node) in asked else "call"
            known = False
            for value in arguments:
                for inner in ast.walk(value):
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                        for name in self._names((inner.value,), by_stem=function in _BY_STEM):
                            known = True
                            ignored.add(id(inner))
                            yield name, inner.lineno, how
                if not known:
                    for name in self._names(folder.strings(value), by_stem=function in _BY_STEM):
                        known = True
                        yield name, value.lineno, "tried" if how == "call" and id(node) in optional else how
            if not known and how == "call" and arguments and _is_open(folder.strings(arguments[0])):
                yield ast.unparse(arguments[0])[:_SHOWN], arguments[0].lineno, "computed"
        for node in nodes:
            if isinstance(node, ast.Call):
                yield from self._linked(node)
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in ignored:
                continue
            text = node.value
            if (loads or "*" in text) and self._library(text):
                yield text, node.lineno, "listed"
            for name in _LINK.findall(text):
                if f"-l{name}" in self._link:
                    yield f"-l{name}", node.lineno, "link"

    def _names(self, values: Iterable[str], *, by_stem: bool) -> Iterator[str]:
        """Vendor libraries among what an argument can be."""
        for value in values:
            text = value.split(UNKNOWN, 1)[0] if UNKNOWN in value.rsplit("/", 1)[-1] else value.rsplit("/", 1)[-1]
            if UNKNOWN in text:
                continue
            if self._library(text):
                yield value.replace(UNKNOWN, "")
            elif by_stem and text:
                for name in (f"lib{text}.so", f"{text}.so"):
                    if self._library(name):
                        yield name
                        break

    def _linked(self, node: ast.Call) -> Iterator[tuple[str, int, How]]:
        """Names in `libraries=[…]` of a call that compiles or declares an extension."""
        for keyword in node.keywords:
            if keyword.arg == "libraries" and isinstance(keyword.value, (ast.List, ast.Tuple)):
                for item in keyword.value.elts:
                    name = item.value if isinstance(item, ast.Constant) and isinstance(item.value, str) else ""
                    if f"-l{name}" in self._link:
                        yield f"-l{name}", item.lineno, "link"

    def _library(self, name: str) -> Library | None:
        """The vendor library of a name, or of a glob pattern for names (`libcudart*.so*`)."""
        if "://" in name:
            return None
        return self._tables.library(name.replace("*", "").rstrip("."))


def _is_open(values: tuple[str, ...]) -> bool:
    """Whether the name itself, not only its folder, is made at run time in every case."""
    return bool(values) and all(UNKNOWN in value.rsplit("/", 1)[-1] for value in values)


def _loaders(nodes: list[ast.AST]) -> dict[str, str]:
    """Every name of a loading function in this file, by `import … as` and by assignment."""
    found = {name: name for name in (*_LOADERS, _FINDER)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname and alias.name in found:
                    found[alias.asname] = alias.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            name = _name(node.value)
            for target in node.targets:
                if name in found and isinstance(target, (ast.Name, ast.Attribute)):
                    found.setdefault(_name(target), found[name])
    return found


def _opened(node: ast.AST, loaders: dict[str, str]) -> tuple[str, tuple[ast.expr, ...]] | None:
    """The loading function and its arguments, when a node opens a library."""
    if isinstance(node, ast.Call):
        function = loaders.get(_called(node))
        return None if function is None else (function, (*node.args, *(keyword.value for keyword in node.keywords)))
    if isinstance(node, ast.Subscript) and _name(node.value) == "cdll":
        return "LoadLibrary", (node.slice,)
    return None


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


def _goes_on_without(nodes: list[ast.AST]) -> set[int]:
    """Everything inside a try statement none of whose handlers raises, and inside `contextlib.suppress`."""
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Try):
            handled = [inner for handler in node.handlers for inner in ast.walk(handler)]
            if handled and not any(isinstance(inner, ast.Raise) for inner in handled):
                found.update(id(inner) for statement in node.body for inner in ast.walk(statement))
        elif isinstance(node, ast.With) and any(
            isinstance(item.context_expr, ast.Call) and _called(item.context_expr) == "suppress" for item in node.items
        ):
            found.update(id(inner) for statement in node.body for inner in ast.walk(statement))
    return found


def _called(node: ast.Call) -> str:
    """The last name of what is called; of `getattr(module, "CDLL")(…)` the word."""
    function = node.func
    if isinstance(function, ast.Call) and _name(function.func) == "getattr" and len(function.args) > 1:
        word = function.args[1]
        return word.value if isinstance(word, ast.Constant) and isinstance(word.value, str) else ""
    return _name(function)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
