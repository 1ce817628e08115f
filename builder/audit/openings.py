"""Where a Python source opens a library by its name, and whether it goes on without it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from builder.audit.python_tree import PythonTree

__all__ = ["FINDER", "LOADERS", "Opening", "openings"]

LOADERS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "load_library", "dlopen"})
"""Functions of ctypes, cffi, numpy and torch, by their last name."""
FINDER = "find_library"


@dataclass(frozen=True, slots=True)
class Opening:
    """One call."""

    function: str
    """The loading function, whatever the source calls it."""
    arguments: tuple[ast.expr, ...]
    asked: bool
    """Its result is only tested for truth: the library is looked for and not loaded."""
    optional: bool
    """Its failure is passed over, and nothing around it insists on the library."""


def openings(tree: PythonTree) -> Iterator[Opening]:
    """All calls that open a library."""
    names = _loaders(tree)
    asked = _only_asked(tree)
    optional = _goes_on_without(tree)
    insisting = _insisting(tree)
    for call in tree.all(ast.Call):
        function = names.get(_called(call))
        if function is not None:
            passed_over = id(call) in optional and id(tree.function_of(call)) not in insisting
            arguments = (*call.args, *(keyword.value for keyword in call.keywords))
            yield Opening(function, arguments, id(call) in asked, passed_over)
    for node in tree.all(ast.Subscript):
        if _name(node.value) == "cdll":
            yield Opening("LoadLibrary", (node.slice,), asked=False, optional=False)


def _loaders(tree: PythonTree) -> dict[str, str]:
    """Every name of a loading function in this file, by `import … as` and by assignment."""
    found = {name: name for name in (*LOADERS, FINDER)}
    for node in tree.all(ast.ImportFrom):
        for alias in node.names:
            if alias.asname and alias.name in found:
                found[alias.asname] = alias.name
    for assigned in tree.all(ast.Assign):
        if isinstance(assigned.value, (ast.Name, ast.Attribute)) and (name := _name(assigned.value)) in found:
            for target in assigned.targets:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    found.setdefault(_name(target), found[name])
    return found


def _only_asked(tree: PythonTree) -> set[int]:
    tests: tuple[ast.If | ast.While | ast.Assert | ast.IfExp, ...] = (
        *tree.all(ast.If),
        *tree.all(ast.While),
        *tree.all(ast.Assert),
        *tree.all(ast.IfExp),
    )
    return {
        *(id(node.test) for node in tests),
        *(id(node.operand) for node in tree.all(ast.UnaryOp) if isinstance(node.op, ast.Not)),
        *(id(node.left) for node in tree.all(ast.Compare)),
    }


def _goes_on_without(tree: PythonTree) -> set[int]:
    """Everything inside a try statement none of whose handlers raises, and inside `contextlib.suppress`."""
    found: set[int] = set()
    for node in tree.all(ast.Try):
        handled = [inner for handler in node.handlers for inner in ast.walk(handler)]
        if handled and not any(isinstance(inner, ast.Raise) for inner in handled):
            found.update(id(inner) for statement in node.body for inner in ast.walk(statement))
    for block in tree.all(ast.With):
        managers = (item.context_expr for item in block.items)
        if any(isinstance(manager, ast.Call) and _called(manager) == "suppress" for manager in managers):
            found.update(id(inner) for statement in block.body for inner in ast.walk(statement))
    return found


def _insisting(tree: PythonTree) -> set[int]:
    """Functions (the module as id(None)) that raise, or that call something where a variable is still unset: whoever
    needs a library tries one place after another and complains at the end."""
    found = {id(tree.function_of(node)) for node in tree.all(ast.Raise)}
    for node in tree.all(ast.If):
        unset = (
            isinstance(node.test, ast.Compare)
            and isinstance(node.test.ops[0], ast.Is)
            and isinstance(node.test.comparators[0], ast.Constant)
            and node.test.comparators[0].value is None
        ) or (isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not))
        if unset and any(isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) for item in node.body):
            found.add(id(tree.function_of(node)))
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
