"""Where a Python source opens a library by its name, and whether it goes on without it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from builder.audit.folding import UNKNOWN, Folder
from builder.audit.python_tree import PythonTree, last_name

__all__ = ["FINDER", "LOADERS", "PRELOAD", "Opening", "openings"]

LOADERS = frozenset(
    {"CDLL", "PyDLL", "LoadLibrary", "load_library", "dlopen", "_dlopen", "load_dynamic", "ExtensionFileLoader",
     "load_library_permanently", "load_op_library", "DLL"}
)  # fmt: skip
"""Functions of ctypes, cffi, imp, importlib, numpy, torch, llvmlite and TensorFlow, by their last name; and what
packages call their own class for a library, which other files of theirs use."""
FINDER = "find_library"
PRELOAD = "LD_PRELOAD"
"""A variable with libraries that the loader of the next program opens, separated by colons or blanks (ld.so(8))."""
_NAMED_FIRST = frozenset({"load_dynamic", "ExtensionFileLoader"})
"""Take a module's name before the path."""
_ASKERS = frozenset({"isinstance", "issubclass", "cast", "hasattr", "getattr", "Mock", "partial", "NewType", "TypeVar"})
"""Are handed a loading function and do not call it there and then."""
_FOLDERS = frozenset({"cdll", "pydll"})
"""Objects of ctypes that load what is asked of them as attribute or item."""


@dataclass(frozen=True, slots=True)
class Opening:
    """One call."""

    function: str
    """The loading function, whatever the source calls it."""
    arguments: tuple[ast.expr, ...]
    asked: bool
    """Its result is only tested for truth: the library is looked for and not loaded."""
    optional: bool
    """Its failure is passed over, and nothing around it insists on the library; or it is never reached in some
    builds."""
    direct: bool = True
    """The loading function itself is called; False where it is handed to another, with what it will be called with."""


def openings(tree: PythonTree, folder: Folder, *, finder: bool = True) -> Iterator[Opening]:
    """All calls that open a library, and what is set for the next program to open.

    `finder` says whether the file uses ctypes: elsewhere, e.g. in build tools, `find_library` asks a linker.
    """
    names = _loaders(tree, folder)
    folders = _folders(tree)
    if not finder:
        names = {name: function for name, function in names.items() if function != FINDER}
    asked = _only_asked(tree)
    optional = _goes_on_without(tree)
    unmarked = _behind_a_marker(tree)
    insisting = _insisting(tree)
    for call in tree.all(ast.Call):
        word = _called(call, folder)
        function = names.get(word)
        arguments = (*call.args, *(keyword.value for keyword in call.keywords)) if call.keywords else tuple(call.args)
        if function is not None:
            passed_over = id(call) in optional and id(tree.function_of(call)) not in insisting
            passed_over |= id(call) in unmarked
            arguments = arguments[function in _NAMED_FIRST and len(arguments) > 1 :]
            yield Opening(function, arguments, id(call) in asked, passed_over)
        elif word == "getattr" and len(call.args) > 1 and last_name(call.args[0]) in folders:
            yield Opening("LoadLibrary", (call.args[1],), asked=False, optional=False)
        elif word not in _ASKERS and (handed := _handed(arguments, names)) is not None:
            others = tuple(item for item in arguments if last_name(item) not in names)
            yield Opening(handed, others, asked=False, optional=False, direct=False)
    for node in tree.all(ast.Subscript):
        if last_name(node.value) in folders:
            yield Opening("LoadLibrary", (node.slice,), asked=False, optional=False)
    for value in _preloads(tree):
        yield Opening(PRELOAD, (value,), asked=False, optional=False, direct=False)


def _handed(arguments: tuple[ast.expr, ...], names: dict[str, str]) -> str | None:
    """The loading function among the arguments of another: `map(CDLL, names)`, `Thread(target=CDLL, args=…)`."""
    return next((names[word] for item in arguments if (word := last_name(item)) in names), None)


def _preloads(tree: PythonTree) -> Iterator[ast.expr]:
    """What LD_PRELOAD is set to: an item of a mapping, an entry of a dict, an argument behind the name."""
    for assigned in tree.all(ast.Assign):
        if any(isinstance(item, ast.Subscript) and _is_preload(item.slice) for item in assigned.targets):
            yield assigned.value
    for entries in tree.all(ast.Dict):
        for key, value in zip(entries.keys, entries.values, strict=True):
            if key is not None and _is_preload(key):
                yield value
    for call in tree.all(ast.Call):
        if (
            last_name(call.func) in ("putenv", "setdefault", "setenv")
            and len(call.args) > 1
            and _is_preload(call.args[0])
        ):
            yield call.args[1]
        yield from (keyword.value for keyword in call.keywords if keyword.arg == PRELOAD)


def _is_preload(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (PRELOAD, PRELOAD.encode())


def _loaders(tree: PythonTree, folder: Folder) -> dict[str, str]:
    """Every name of a loading function in this file: by `import … as`, by assignment, by a class made of it."""
    found = {name: name for name in (*LOADERS, FINDER)}
    for node in tree.all(ast.ImportFrom):
        for alias in node.names:
            if alias.asname and alias.name in found:
                found[alias.asname] = alias.name
    for made in tree.all(ast.ClassDef):
        for base in made.bases:
            if (name := last_name(base)) in found:
                found.setdefault(made.name, found[name])
    for assigned in tree.all(ast.Assign):
        function = _function(assigned.value, folder)
        if function == "partial" and isinstance(assigned.value, ast.Call):
            function = _handed(tuple(assigned.value.args), found) or ""
        if function in found:
            for target in assigned.targets:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    found.setdefault(last_name(target), found[function])
    return found


def _folders(tree: PythonTree) -> set[str]:
    """Every name of an object in this file that loads what is asked of it."""
    found = set(_FOLDERS)
    for node in tree.all(ast.ImportFrom):
        found.update(alias.asname for alias in node.names if alias.asname and alias.name in _FOLDERS)
    for assigned in tree.all(ast.Assign):
        value = assigned.value
        made = isinstance(value, ast.Call) and last_name(value.func) == "LibraryLoader"
        if made or (isinstance(value, (ast.Name, ast.Attribute)) and last_name(value) in found):
            found.update(name for target in assigned.targets if (name := last_name(target)))
    return found


def _function(node: ast.expr, folder: Folder) -> str:
    """The last name of a function that is taken and not called; `partial` where it is bound to arguments."""
    if isinstance(node, ast.Call):
        inner = last_name(node.func)
        if inner == "getattr" and len(node.args) > 1:
            return _word(node.args[1], folder)
        return inner if inner == "partial" else ""
    if isinstance(node, ast.Subscript):
        return _word(node.slice, folder)
    return last_name(node)


def _word(node: ast.expr, folder: Folder) -> str:
    """The only string that an expression can be; empty for none or several."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    values = folder.strings(node)
    return values[0] if len(values) == 1 and UNKNOWN not in values[0] else ""


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
        if any(isinstance(manager, ast.Call) and last_name(manager.func) == "suppress" for manager in managers):
            found.update(id(inner) for statement in block.body for inner in ast.walk(statement))
    return found


def _behind_a_marker(tree: PythonTree) -> set[int]:
    """Calls that come after the function has given up for want of a module of its own package: builds for other
    machines hold that module, and share the rest."""
    found: set[int] = set()
    for function in tree.all(ast.FunctionDef):
        for statement in function.body:
            if isinstance(statement, ast.Try) and _gives_up(statement):
                inside = (node for later in function.body for node in ast.walk(later) if isinstance(node, ast.Call))
                found.update(id(call) for call in inside if call.lineno > statement.lineno)
    return found


def _gives_up(statement: ast.Try) -> bool:
    marker = any(isinstance(inner, ast.ImportFrom) and inner.level for inner in statement.body)
    return marker and any(isinstance(inner, ast.Return) for handler in statement.handlers for inner in handler.body)


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


def _called(node: ast.Call, folder: Folder) -> str:
    """The last name of what is called; of `getattr(module, "CDLL")(…)` and `vars(module)["CDLL"](…)` the word."""
    function = node.func
    if isinstance(function, (ast.Call, ast.Subscript)):
        return _function(function, folder)
    return last_name(function)
