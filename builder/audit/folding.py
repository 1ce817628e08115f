"""What strings an expression of a Python source can be, as far as the source alone tells.

Names are followed through assignments, loops and defaults anywhere in the file, without regard to scopes: for an audit
a possible value is enough.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product

from builder.audit.python_tree import PythonTree

__all__ = ["UNKNOWN", "Folder"]

UNKNOWN = "\0"
"""Stands in a string for a part that is only known at run time."""

_MOST = 64
_DEEP = 12
_LONGEST = 400
_BINDERS: tuple[type[ast.AST], ...] = (
    ast.Assign,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.For,
    ast.AsyncFor,
    ast.comprehension,
    ast.Call,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
)
_PRINTF = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[sdirf]")
_FIELD = re.compile(r"\{[^{}]*\}")
_KEEP = frozenset({"str", "Path", "PurePath", "fspath", "expanduser", "expandvars", "abspath", "realpath", "encode",
                   "decode", "strip", "resolve", "as_posix", "fsencode", "lower"})  # fmt: skip
"""Calls that give back a string like the one they are given."""


class Folder:
    """Values of the names of one file."""

    def __init__(self, tree: PythonTree) -> None:
        self._tree = tree

    @cached_property
    def _bound(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for kind in _BINDERS:
            for node in self._tree.all(kind):
                for target, value in _bindings(node):
                    found.setdefault(target, []).append(value)
        return found

    def strings(self, node: ast.expr) -> tuple[str, ...]:
        """Possible values, with `UNKNOWN` for parts; one lone `UNKNOWN` when nothing is known."""
        return tuple(dict.fromkeys(self._fold(node, _DEEP, frozenset())))[:_MOST]

    def _fold(self, node: ast.AST, depth: int, seen: frozenset[int]) -> Iterator[str]:
        found = self._parts(node, depth - 1, seen) if depth > 0 else iter((UNKNOWN,))
        for number, value in enumerate(found):
            if number >= _MOST:
                return
            yield value[:_LONGEST]

    def _parts(self, node: ast.AST, depth: int, seen: frozenset[int]) -> Iterator[str]:
        if isinstance(node, ast.Constant):
            constant = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            yield UNKNOWN if constant is None or constant is ... else str(constant)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield from self._named(node, depth, seen)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            for item in node.elts:
                yield from self._fold(item, depth, seen)
        elif isinstance(node, ast.Dict):
            for value in node.values:
                yield from self._fold(value, depth, seen)
        elif isinstance(node, (ast.Starred, ast.Subscript, ast.NamedExpr, ast.FormattedValue, ast.Await)):
            yield from self._fold(node.value, depth, seen)
        elif isinstance(node, ast.IfExp):
            yield from self._fold(node.body, depth, seen)
            yield from self._fold(node.orelse, depth, seen)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self._fold(value, depth, seen)
        elif isinstance(node, ast.JoinedStr):
            yield from _joined("", [list(self._fold(value, depth, seen)) for value in node.values])
        elif isinstance(node, ast.BinOp):
            yield from self._operation(node, depth, seen)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            yield from self._fold(node.elt, depth, seen)
        elif isinstance(node, ast.Call):
            yield from self._call(node, depth, seen)
        else:
            yield UNKNOWN

    def _named(self, node: ast.Name | ast.Attribute, depth: int, seen: frozenset[int]) -> Iterator[str]:
        name = _spelled(node)
        yield from self._any(self._bound.get(name, ()), depth, seen)

    def _any(self, values: Sequence[ast.expr], depth: int, seen: frozenset[int]) -> Iterator[str]:
        """What any of these expressions can be, without those that are being looked at: `name = f(name)`."""
        open_values = [value for value in values[:_MOST] if id(value) not in seen]
        if not open_values:
            yield UNKNOWN
        for value in open_values:
            yield from self._fold(value, depth, seen | {id(value)})

    def _operation(self, node: ast.BinOp, depth: int, seen: frozenset[int]) -> Iterator[str]:
        left = list(self._fold(node.left, depth, seen))
        if isinstance(node.op, (ast.Add, ast.Div)):
            right = list(self._fold(node.right, depth, seen))
            if isinstance(node.left, (ast.List, ast.Tuple)):
                yield from (*left, *right)
            else:
                yield from _joined("" if isinstance(node.op, ast.Add) else "/", [left, right])
        elif isinstance(node.op, ast.Mod):
            given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            yield from self._filled(left, _PRINTF, given, depth, seen)
        else:
            yield UNKNOWN

    def _call(self, node: ast.Call, depth: int, seen: frozenset[int]) -> Iterator[str]:
        function, arguments = node.func, node.args
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "join" and isinstance(function, ast.Attribute):
            yield from self._join(function.value, arguments, depth, seen)
        elif name == "join":  # from os.path import join
            yield from _joined("/", [list(self._fold(item, depth, seen)) for item in arguments])
        elif name == "joinpath" and isinstance(function, ast.Attribute):
            yield from _joined("/", [list(self._fold(item, depth, seen)) for item in (function.value, *arguments)])
        elif name == "format" and isinstance(function, ast.Attribute):
            given = [*arguments, *(keyword.value for keyword in node.keywords)]
            yield from self._filled(list(self._fold(function.value, depth, seen)), _FIELD, given, depth, seen)
        elif name in ("get", "getenv") and len(arguments) > 1:
            yield from self._fold(arguments[1], depth, seen)
        elif name in ("sorted", "reversed", "list", "tuple", "set", "filter") and arguments:
            yield from self._fold(arguments[-1 if name == "filter" else 0], depth, seen)
        elif name == "replace" and isinstance(function, ast.Attribute):
            yield from self._fold(function.value, depth, seen)
        elif name in _KEEP:
            inner = arguments[0] if arguments and not _is_method(function, name) else None
            if inner is None and isinstance(function, ast.Attribute):
                inner = function.value
            yield from self._fold(inner, depth, seen) if inner is not None else (UNKNOWN,)
        else:
            yield from self._any(self._tree.returned.get(name, ()), depth, seen)

    def _join(self, separator: ast.expr, arguments: list[ast.expr], depth: int, seen: frozenset[int]) -> Iterator[str]:
        if isinstance(separator, ast.Constant) and isinstance(separator.value, (str, bytes)):
            between = separator.value if isinstance(separator.value, str) else separator.value.decode("latin-1")
            items = arguments[0].elts if arguments and isinstance(arguments[0], (ast.List, ast.Tuple)) else None
            if items is None:
                yield UNKNOWN
            else:
                yield from _joined(between, [list(self._fold(item, depth, seen)) for item in items])
        else:  # os.path.join
            yield from _joined("/", [list(self._fold(item, depth, seen)) for item in arguments])

    def _filled(
        self, texts: list[str], place: re.Pattern[str], given: list[ast.expr], depth: int, seen: frozenset[int]
    ) -> Iterator[str]:
        """`texts` with their places filled by the given values in order, whatever the places say."""
        values = [list(self._fold(item, depth, seen)) for item in given]
        for text in texts:
            pieces = place.split(text)
            parts: list[list[str]] = [[pieces[0]]]
            for number, piece in enumerate(pieces[1:]):
                parts += [values[number] if number < len(values) else [UNKNOWN], [piece]]
            yield from _joined("", parts)


def _is_method(function: ast.expr, name: str) -> bool:
    """Whether the string is what the method is called on, as in `text.encode("ascii")`."""
    return isinstance(function, ast.Attribute) and name in ("encode", "decode", "strip", "resolve", "as_posix", "lower")


def _joined(between: str, parts: list[list[str]]) -> Iterator[str]:
    """Every combination, the first few."""
    for number, choice in enumerate(product(*(part or [UNKNOWN] for part in parts))):
        if number >= _MOST:
            return
        yield between.join(choice)


def _spelled(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else f".{node.attr}" if isinstance(node, ast.Attribute) else ""


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a node gives values to."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bound(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        if node.value is not None:
            yield from _bound(node.target, node.value)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _bound(node.target, node.iter)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend"):
        if node.args and (name := _spelled(node.func.value)):
            yield name, node.args[0]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        positional = [*node.args.posonlyargs, *node.args.args]
        for argument, default in zip(positional[len(positional) - len(node.args.defaults) :], node.args.defaults):  # noqa: B905  # equal by the slice
            yield argument.arg, default
        for argument, keyword in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if keyword is not None:
                yield argument.arg, keyword


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for number, part in enumerate(target.elts):
            yield from _bound(part, value.elts[number] if same and isinstance(value, (ast.Tuple, ast.List)) else value)
    elif name := _spelled(target):
        yield name, value
