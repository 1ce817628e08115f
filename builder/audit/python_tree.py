"""One Python source as a syntax tree that is made at most once, its nodes sorted by type."""

from __future__ import annotations

import ast
import gc
import threading
import warnings
from functools import cached_property
from typing import TypeVar

__all__ = ["PythonTree", "last_name"]

_Node = TypeVar("_Node", bound=ast.AST)
_PARSING = threading.Lock()
"""Which warnings are shown, and whether garbage is collected, is one for all threads; parsing runs in one anyway."""
_LEAVES = (ast.Name, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_INNER = frozenset(
    kind
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and not issubclass(kind, _LEAVES)
)
"""Types of nodes that are looked at."""


def last_name(node: ast.expr) -> str:
    """The last name of what is called or meant, whatever it is an attribute of; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class PythonTree:
    """The tree of a source; empty for what is no Python."""

    def __init__(self, source: bytes) -> None:
        self._source = source

    @property
    def broken(self) -> bool:
        """Whether the source could not be parsed: every Python module has at least its own node."""
        return not self._sorted[0]

    def all(self, kind: type[_Node]) -> list[_Node]:
        """The nodes of exactly this type, outer ones first; not of names, which are a third of all and hold nothing."""
        return self._sorted[0].get(kind, [])  # type: ignore[return-value]  # by construction

    def function_of(self, node: ast.AST) -> ast.AST | None:
        """The innermost function around a call; None at the top of the module."""
        return self._sorted[1].get(id(node))

    @cached_property
    def returned(self) -> dict[str, list[ast.expr]]:
        """Name of a function to what it returns."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.all(ast.Return):
            function = self.function_of(node)
            if node.value is not None and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(function.name, []).append(node.value)
        return found

    @cached_property
    def _sorted(self) -> tuple[dict[type[ast.AST], list[ast.AST]], dict[int, ast.AST | None]]:
        by_type: dict[type[ast.AST], list[ast.AST]] = {}
        functions: dict[int, ast.AST | None] = {}
        try:
            level: list[tuple[ast.AST, ast.AST | None]] = [(_parsed(self._source), None)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return by_type, functions
        while level:
            below: list[tuple[ast.AST, ast.AST | None]] = []
            for node, function in level:
                kind = node.__class__
                by_type.setdefault(kind, []).append(node)
                if kind is ast.Call or kind is ast.Return or kind is ast.Raise or kind is ast.If:
                    functions[id(node)] = function
                elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
                    function = node
                elif kind is ast.Constant:
                    continue
                # Its attributes, in the order of its fields; what is no node among them is passed over.
                for value in vars(node).values():
                    inner = value.__class__
                    if inner is list:
                        below += [(item, function) for item in value if item.__class__ in _INNER]
                    elif inner in _INNER:
                        below.append((value, function))
            level = below
        return by_type, functions


def _parsed(source: bytes) -> ast.AST:
    with _PARSING:
        collecting = gc.isenabled()
        gc.disable()  # a tree is all live objects: looking for garbage among them doubles the time
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(source)
        finally:
            if collecting:
                gc.enable()
