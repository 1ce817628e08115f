"""What strings an expression of a Python source can be, as far as the source alone tells.

Names are followed through assignments, loops and defaults anywhere in the file, without regard to scopes: for an audit
a possible value is enough.
"""

from __future__ import annotations

import ast
import base64
import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product

from builder.audit.python_tree import PythonTree, last_name

__all__ = ["UNKNOWN", "Folder"]

UNKNOWN = "\0"
"""Stands in a string for a part that is only known at run time."""

_MOST = 64
_DEEP = 12
_LONGEST = 400
_EFFORT = 200_000
"""Expressions looked at in one file: a source can be written so that there is no end to it."""
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
_PRINTF = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[sdirf]")
_FIELD = re.compile(r"\{[^{}]*\}")
_DOLLAR = re.compile(r"\$(?:\{\w+\}|\w+)")
_PLACE = re.compile(r"\w+")
_KEEP = frozenset({"str", "Path", "PurePath", "fspath", "expanduser", "expandvars", "abspath", "realpath", "encode",
                   "decode", "strip", "resolve", "as_posix", "fsencode", "Template", "lstrip", "rstrip"})  # fmt: skip
"""Calls that give back a string like the one they are given."""
_METHODS = frozenset({"encode", "decode", "strip", "resolve", "as_posix", "lstrip", "rstrip"})


def _rotated(text: str) -> str:
    return codecs.decode(text, "rot13")


def _of_base64(text: str) -> str:
    return base64.b64decode(text.replace("-", "+").replace("_", "/")).decode("latin-1")


def _of_hex(text: str) -> str:
    return bytes.fromhex(text).decode("latin-1")


_TURNED: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "b64decode": _of_base64,
    "urlsafe_b64decode": _of_base64,
    "b32decode": lambda text: base64.b32decode(text).decode("latin-1"),
    "b85decode": lambda text: base64.b85decode(text).decode("latin-1"),
    "b16decode": _of_hex,
    "fromhex": _of_hex,
    "unhexlify": _of_hex,
    "chr": lambda text: chr(int(text)),
    "rot13": _rotated,
    "rot_13": _rotated,
    "base64": _of_base64,
    "hex": _of_hex,
}
"""Calls, and names of codecs, that make another string of the one they are given."""


class Folder:
    """Values of the names of one file."""

    def __init__(self, tree: PythonTree) -> None:
        self._tree = tree
        self._left = _EFFORT

    @cached_property
    def _bound(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for kind in _BINDERS:
            for node in self._tree.all(kind):
                for target, value in _bindings(node):
                    found.setdefault(target, []).append(value)
        parameters = self._parameters
        for call in self._tree.all(ast.Call):
            for names in parameters.get(last_name(call.func), ()):
                for target, value in _given(call, names):
                    found.setdefault(target, []).append(value)
        return found

    @property
    def _parameters(self) -> dict[str, list[tuple[str, ...]]]:
        """Name of each function of the file to the names of its parameters."""
        found: dict[str, list[tuple[str, ...]]] = {}
        functions: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...] = (
            *self._tree.all(ast.FunctionDef),
            *self._tree.all(ast.AsyncFunctionDef),
        )
        for made in functions:
            found.setdefault(made.name, []).append(_parameter_names(made.args))
        for assigned in self._tree.all(ast.Assign):
            if isinstance(assigned.value, ast.Lambda):
                for target in assigned.targets:
                    found.setdefault(last_name(target), []).append(_parameter_names(assigned.value.args))
        return found

    def strings(self, node: ast.expr) -> tuple[str, ...]:
        """Possible values, with `UNKNOWN` for parts; one lone `UNKNOWN` when nothing is known."""
        return tuple(dict.fromkeys(self._fold(node, _DEEP, frozenset())))[:_MOST]

    def _fold(self, node: ast.AST, depth: int, seen: frozenset[int]) -> Iterator[str]:
        self._left -= 1
        found = self._parts(node, depth - 1, seen) if depth > 0 and self._left > 0 else iter((UNKNOWN,))
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
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield from self._sliced(node, node.slice, depth, seen)
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
            if isinstance(node.right, ast.Dict):
                names = {str(key.value): item for key, item in zip(node.right.keys, node.right.values, strict=True)
                         if isinstance(key, ast.Constant)}  # fmt: skip
                yield from self._filled(left, _PRINTF, [], names, depth, seen)
            else:
                given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
                yield from self._filled(left, _PRINTF, given, {}, depth, seen)
        else:
            yield UNKNOWN

    def _sliced(self, node: ast.Subscript, part: ast.Slice, depth: int, seen: frozenset[int]) -> Iterator[str]:
        """Part of a string, or a string backwards; of a list any item."""
        ends = [None if end is None else _whole(end) for end in (part.lower, part.upper, part.step)]
        known = all(
            end is None or number is not None
            for end, number in zip((part.lower, part.upper, part.step), ends, strict=True)
        )
        several = isinstance(node.value, (ast.List, ast.Tuple))
        for value in self._fold(node.value, depth, seen):
            yield value if several or UNKNOWN in value or not known or ends[2] == 0 else value[slice(*ends)]

    def _call(self, node: ast.Call, depth: int, seen: frozenset[int]) -> Iterator[str]:
        function, arguments = node.func, node.args
        name = last_name(function)
        if name == "join" and isinstance(function, ast.Attribute):
            yield from self._join(function.value, arguments, depth, seen)
        elif name == "join":  # from os.path import join
            yield from _joined("/", [list(self._fold(item, depth, seen)) for item in arguments])
        elif name == "joinpath" and isinstance(function, ast.Attribute):
            yield from _joined("/", [list(self._fold(item, depth, seen)) for item in (function.value, *arguments)])
        elif name in ("format", "substitute", "safe_substitute") and isinstance(function, ast.Attribute):
            named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            place = _FIELD if name == "format" else _DOLLAR
            yield from self._filled(list(self._fold(function.value, depth, seen)), place, arguments, named, depth, seen)
        elif name in ("bytes", "bytearray") and arguments and isinstance(arguments[0], (ast.List, ast.Tuple)):
            yield from _joined("", [self._turned("chr", item, depth, seen) for item in arguments[0].elts])
        elif name == "decode" and len(arguments) > 1 and isinstance(arguments[1], ast.Constant):  # codecs.decode
            yield from self._turned(str(arguments[1].value), arguments[0], depth, seen)
        elif name in _TURNED:
            inner = function.value if name in ("lower", "upper") and isinstance(function, ast.Attribute) else None
            inner = inner if inner is not None else next(iter(arguments), None)
            yield from self._turned(name, inner, depth, seen) if inner is not None else (UNKNOWN,)
        elif name in ("get", "getenv") and len(arguments) > 1:
            yield from self._fold(arguments[1], depth, seen)
        elif name in ("sorted", "reversed", "list", "tuple", "set", "filter") and arguments:
            yield from self._fold(arguments[-1 if name == "filter" else 0], depth, seen)
        elif name in ("replace", "removeprefix", "removesuffix") and isinstance(function, ast.Attribute):
            yield from self._replaced(name, function.value, arguments, depth, seen)
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
            items = self._items(arguments[0], depth, seen) if arguments else None
            yield from (UNKNOWN,) if items is None else _joined(between, items)
        else:  # os.path.join
            yield from _joined("/", [list(self._fold(item, depth, seen)) for item in arguments])

    def _items(self, node: ast.expr, depth: int, seen: frozenset[int]) -> list[list[str]] | None:
        """What each item of a sequence can be, where it is spelled out; None where it is not."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return [list(self._fold(item, depth, seen)) for item in node.elts]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [[char] for char in node.value]
        if isinstance(node, ast.Call) and node.args:
            name = last_name(node.func)
            if name == "reversed":
                items = self._items(node.args[0], depth, seen)
                return items if items is None else items[::-1]
            if name == "map" and last_name(node.args[0]) == "chr" and isinstance(node.args[1], (ast.List, ast.Tuple)):
                return [self._turned("chr", item, depth, seen) for item in node.args[1].elts]
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)) and isinstance(node.elt, ast.Call):
            source = node.generators[0].iter
            plain = len(node.generators) == 1 and [last_name(item) for item in node.elt.args] == [
                last_name(node.generators[0].target)
            ]
            if plain and last_name(node.elt.func) == "chr" and isinstance(source, (ast.List, ast.Tuple)):
                return [self._turned("chr", item, depth, seen) for item in source.elts]
        return None

    def _turned(self, way: str, node: ast.expr, depth: int, seen: frozenset[int]) -> list[str]:
        """What a decoding call makes of each value; `UNKNOWN` where it cannot."""
        turn = _TURNED.get(way.lower().replace("-", ""))
        found: list[str] = []
        for value in self._fold(node, depth, seen):
            try:
                found.append(UNKNOWN if turn is None or UNKNOWN in value else turn(value))
            except (ValueError, OverflowError):  # binascii.Error and UnicodeError are ValueErrors
                found.append(UNKNOWN)
        return found

    def _replaced(
        self, name: str, inner: ast.expr, arguments: list[ast.expr], depth: int, seen: frozenset[int]
    ) -> Iterator[str]:
        """What is left of a string, where the arguments are spelled out; the string itself where they are not."""
        texts = [item.value for item in arguments if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        for value in self._fold(inner, depth, seen):
            if name == "replace" and len(texts) == 2 and texts[0]:
                yield value.replace(texts[0], texts[1])
            elif name != "replace" and len(texts) == 1:
                yield value.removeprefix(texts[0]) if name == "removeprefix" else value.removesuffix(texts[0])
            else:
                yield value

    def _filled(
        self,
        texts: list[str],
        place: re.Pattern[str],
        given: list[ast.expr],
        named: Mapping[str, ast.expr],
        depth: int,
        seen: frozenset[int],
    ) -> Iterator[str]:
        """`texts` with their places filled: by name where the place says one that is given, else in order."""
        values = [list(self._fold(item, depth, seen)) for item in given]
        by_name = {name: list(self._fold(item, depth, seen)) for name, item in named.items()}
        for text in texts:
            parts: list[list[str]] = []
            end = number = 0
            for match in place.finditer(text):
                word = _PLACE.search(match[0])
                parts.append([text[end : match.start()]])
                if word is not None and word[0] in by_name:
                    parts.append(by_name[word[0]])
                else:
                    at = int(word[0]) if place is _FIELD and word is not None and word[0].isdecimal() else number
                    parts.append(values[at] if at < len(values) else [UNKNOWN])
                    number += 1
                end = match.end()
            yield from _joined("", [*parts, [text[end:]]])


def _is_method(function: ast.expr, name: str) -> bool:
    """Whether the string is what the method is called on, as in `text.encode("ascii")`."""
    return isinstance(function, ast.Attribute) and name in _METHODS


def _joined(between: str, parts: list[list[str]]) -> Iterator[str]:
    """Every combination, the first few."""
    for number, choice in enumerate(product(*(part or [UNKNOWN] for part in parts))):
        if number >= _MOST:
            return
        yield between.join(choice)


def _whole(node: ast.expr) -> int | None:
    """A whole number as a source spells it."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _whole(node.operand)
        return None if number is None else -number
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _parameter_names(arguments: ast.arguments) -> tuple[str, ...]:
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
    return tuple(names[names[:1] in (["self"], ["cls"]) :])


def _given(call: ast.Call, names: tuple[str, ...]) -> Iterator[tuple[str, ast.expr]]:
    """Parameters and what a call gives them."""
    for name, value in zip(names, call.args):  # noqa: B905  # the rest has defaults
        if isinstance(value, ast.Starred):
            break
        yield name, value
    for keyword in call.keywords:
        if keyword.arg in names:
            yield keyword.arg, keyword.value


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
