"""Vendor libraries that Python code loads by name: ctypes, cffi, dlopen, and linker flags for code compiled later.

Only strings of the program count: comments, docstrings and messages are words. A file is parsed only when a way to load
libraries, or a vendor's linker flag, occurs in its bytes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from builder.audit.facts import How, PythonUse
from builder.audit.folding import UNKNOWN, Folder
from builder.audit.loose_source import loose_strings
from builder.audit.nested import ELF_AS_BASE64
from builder.audit.openings import FINDER, LOADERS, PRELOAD, Opening, openings
from builder.audit.payloads import DECODERS, ELF_AS_TEXT
from builder.audit.python_tree import PythonTree, last_name
from builder.audit.tables import Library, Tables

__all__ = ["PythonScanner"]

_BY_STEM = frozenset({FINDER, "load_library", "DLL", "dlopen"})
"""Take a name without `lib` or without `.so`; cffi's dlopen searches for one without a dot."""
_LOADER_WORDS = (*sorted(LOADERS), "cdll", "cffi", "ctypes", "RTLD_GLOBAL", FINDER, PRELOAD)
_CALLS = (*sorted(LOADERS), "cdll", FINDER)
_TESTS = re.compile(r"(?:^|/)(?:tests?|testing)/|(?:^|/)test_[^/]*$")
"""Sources that nothing runs after installation: names made at run time there tell nothing."""
_LIBRARIES = "libraries="
_KERNEL = "__global__"
"""Begins a kernel in CUDA C++ and in HIP."""
_COMPILERS = ("RawKernel", "RawModule", "SourceModule", "load_inline", "cuda_sources", "nvrtcCreateProgram")
"""Of CuPy, PyCUDA, torch and CUDA's own bindings: compile the source of a kernel when the program runs."""
_INSTALLS = ("pip install", '"install"', "'install'")
_INSTALL_COMMAND = re.compile(
    rb"[\"'](?:\{[^}\n]*\}|[a-z0-9_\s/&;|+=-]){0,80}?\b(?:pip3?|conda|mamba|uv)\s+install\b"
    rb"|[\"'](?:[\w/.-]*/)?(?:pip3?|uv|conda|mamba)[\"']|\bpipmain\b|\bpip\.main\b|\bpip\._internal\b"
)
"""A string that is such a command from its beginning, not a message that names one; or its first word alone."""
_RUNS = (b"subprocess", b"os.system", b"pip._internal", b"pip.main", b"pipmain")
_RUNNERS = frozenset({"system", "run", "Popen", "call", "check_call", "check_output", "getoutput", "main", "pipmain",
                      "create_subprocess_exec", "create_subprocess_shell", "execv", "execvp", "spawnv"})  # fmt: skip
_RUNS_CODE = frozenset({"exec", "eval", "compile", *_RUNNERS})
_LONGEST_CODE = 1 << 16
_ASKED = 200
_INSTALLERS = frozenset({"pip", "pip3", "uv", "conda", "mamba"})
_FUNCTIONS = frozenset({*_CALLS, *DECODERS})
_NO_PROSE = re.compile(rb"[ \t]*(?:[^\w\s`'.]|'\)|\r?\n|as\b|$)")
_OWN_CLASS = "DLL"
"""What packages call their own class for a library; a word that means much else where it is not called."""
_CALLED = re.compile(rb"[ \t]*\(")
_SHELL_PRELOAD = re.compile(rb"^[^#\n]*?\bLD_PRELOAD=[\"']?([^\s\"';]+)", re.MULTILINE)
"""How a shell sets it, outside comments."""
_PRELOADED = re.compile(r"[:\s]")
_LINK = re.compile(r"-l([\w+-]+)")
_GROUP = 36
_MAX_SOURCE = 8 << 20
_SHOWN = 60
_COMPILED_NAME = re.compile(rb"[zZaAu](?P<size>[\x01-\xff])(?P<wide>\0\0\0)?(?P<name>[\w./+-]*lib[\w+-]+\.so[\w.]*)")
"""A short string constant as marshal writes it: type, length in one byte (or four), text."""


class PythonScanner:
    """Reads Python sources with one set of tables. Holds no state between files; safe to share between threads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._link = frozenset(
            f"-l{library.stem[3:]}"
            for library in tables.libraries.values()
            if library.role in ("runtime", "host driver") and not library.shared
        )
        short = "|".join(re.escape(flag[2:]) for flag in sorted(self._link))
        self._listed = re.compile(rf"libraries=[\[(][^\])]*[\"'](?:{short})[\"']".encode())
        telling = (*_LOADER_WORDS, ".so*", _LIBRARIES, *DECODERS, ELF_AS_TEXT, ELF_AS_BASE64, _KERNEL, *_INSTALLS)
        self._words = tuple(dict.fromkeys((*telling, *_COMPILERS, *sorted(tables.libraries), *sorted(self._link))))
        self._matcher = BytesAhoCorasick(
            [word.encode() for word in self._words],
            matchkind=MatchKind.LeftmostLongest,
            implementation=Implementation.DFA,
        )
        # Most sources hold none of these. With more than 64 at once the search loses its fast path: ten times as long.
        coarse = tuple(dict.fromkeys((*telling, *(flag[:4] for flag in sorted(self._link)))))
        self._telling = tuple(
            BytesAhoCorasick(
                [word.encode() for word in coarse[start : start + _GROUP]],
                matchkind=MatchKind.LeftmostFirst,
                implementation=Implementation.ContiguousNFA,
            )
            for start in range(0, len(coarse), _GROUP)
        )

    def words(self, source: bytes) -> frozenset[str]:
        """Words in a source that decide whether it is worth a closer look, here and for `python_payloads`; none where
        only libraries are named, which nothing then loads.

        Names of loading and decoding functions count where a call, a name or the end of a line follows, not in prose.
        """
        if not any(matcher.find_matches_as_indexes(source) for matcher in self._telling):
            return frozenset()
        found: set[str] = set()
        for index, _, end in self._matcher.find_matches_as_indexes(source):
            word = self._words[index]
            follows = _CALLED if word == _OWN_CLASS else _NO_PROSE
            if word not in found and (word not in _FUNCTIONS or follows.match(source, end)):
                found.add(word)
        return frozenset(found)

    def uses(
        self, path: str, source: bytes, tree: PythonTree | None = None, words: frozenset[str] | None = None
    ) -> tuple[PythonUse, ...]:
        """The uses in one file, one per library and way; `tree` and `words` are the source's, when they were made."""
        if len(source) > _MAX_SOURCE:
            return ()
        seen = self.words(source) if words is None else words
        loads = not seen.isdisjoint(_LOADER_WORDS)
        named = not seen.isdisjoint(self._tables.libraries) and (loads or ".so*" in seen)
        links = not seen.isdisjoint(self._link) or (_LIBRARIES in seen and self._listed.search(source) is not None)
        kernels = _KERNEL in seen and not seen.isdisjoint(_COMPILERS)
        tests = _TESTS.search(path) is not None
        installs = (
            not tests
            and not seen.isdisjoint(_INSTALLS)
            and any(word in source for word in _RUNS)
            and _INSTALL_COMMAND.search(source) is not None
        )
        opens = named or links or not (tests or seen.isdisjoint(_CALLS))
        if not opens and not kernels and not installs:
            return ()
        found: dict[tuple[str, str], PythonUse] = {}
        tree = tree or PythonTree(source)
        folder = Folder(tree)
        uses: Iterable[tuple[str, int, How]] = ()
        if loads and tree.broken:
            uses = self._loose_uses(source)
        elif opens:
            uses = self._uses(tree, folder, loads=loads, finder="ctypes" in seen)
        for name, line, how in (*uses, *_kernels(tree, kernels), *_installs(tree, folder, installs)):
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

    def _uses(self, tree: PythonTree, folder: Folder, *, loads: bool, finder: bool) -> Iterator[tuple[str, int, How]]:
        ignored = {id(node.value) for node in tree.all(ast.Expr) if isinstance(node.value, ast.Constant)}
        for opening in openings(tree, folder, finder=finder):
            yield from self._opened(opening, folder, ignored)
        for call in tree.all(ast.Call):
            yield from self._linked(call)
            yield from self._spelled(call)
        for node in tree.all(ast.Constant):
            text = node.value
            if not isinstance(text, str) or id(node) in ignored:
                continue
            if (loads or "*" in text) and self._library(text):
                yield text, node.lineno, "listed"
            if "-l" in text:
                for name in _LINK.findall(text):
                    if f"-l{name}" in self._link:
                        yield f"-l{name}", node.lineno, "link"

    def _loose_uses(self, source: bytes) -> Iterator[tuple[str, int, How]]:
        """As `_uses`, for a source that this Python cannot read: names in calls and in lists, as they are written."""
        for match in _SHELL_PRELOAD.finditer(source):
            for name in _PRELOADED.split(match[1].decode("utf-8", "replace")):
                if self._library(name):
                    yield name, source.count(b"\n", 0, match.start()) + 1, "call"
        for text, line, called in loose_strings(source):
            if called in LOADERS and self._library(text):
                yield text, line, "call"
            elif called in _BY_STEM:
                yield from ((name, line, "call") for name in self._names((text,), by_stem=True))
            elif self._library(text):
                yield text, line, "listed"

    def _opened(self, opening: Opening, folder: Folder, ignored: set[int]) -> Iterator[tuple[str, int, How]]:
        """What one call opens; constants that were accounted for are added to `ignored`."""
        known = False
        how: How = "listed" if opening.asked else "call"
        by_stem = opening.function in _BY_STEM
        for value in opening.arguments:
            for inner in ast.walk(value):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    for name in self._names((inner.value,), by_stem=by_stem):
                        known = True
                        ignored.add(id(inner))
                        yield inner.value if inner.value.endswith(name) else name, inner.lineno, how
        for value in () if known else opening.arguments:
            texts = folder.strings(value)
            if opening.function == PRELOAD:
                texts = tuple(piece for text in texts for piece in _PRELOADED.split(text))
            for name in self._names(texts, by_stem=by_stem):
                known = True
                yield name, value.lineno, "tried" if how == "call" and opening.optional else how
        first = opening.arguments[0] if opening.arguments else None
        if known or how != "call" or first is None or not opening.direct:
            return
        if _is_open(folder.strings(first)):
            yield ast.unparse(first)[:_SHOWN], first.lineno, "computed"

    def _names(self, values: Iterable[str], *, by_stem: bool) -> Iterator[str]:
        """Vendor libraries among what an argument can be."""
        for value in values:
            text = value.split(UNKNOWN, 1)[0] if UNKNOWN in value.rsplit("/", 1)[-1] else value.rsplit("/", 1)[-1]
            if UNKNOWN in text:
                continue
            if self._library(text):
                yield text
            elif by_stem and text:
                for name in (f"lib{text}.so", f"{text}.so"):
                    if self._library(name):
                        yield name
                        break

    def _spelled(self, node: ast.Call) -> Iterator[tuple[str, int, How]]:
        """What code does that a call runs from a string of the source: `exec`, or another Python with `-c`."""
        if last_name(node.func) not in _RUNS_CODE:
            return
        for value in node.args:
            for inner in ast.walk(value):
                text = inner.value if isinstance(inner, ast.Constant) else None
                if isinstance(text, str) and len(text) <= _LONGEST_CODE and any(f"{word}(" in text for word in LOADERS):
                    code = PythonTree(text.encode())
                    for name, _, how in self._uses(code, Folder(code), loads=True, finder=True):
                        if how in ("call", "tried"):
                            yield name, node.lineno, how

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


def _kernels(tree: PythonTree, asked: bool) -> Iterator[tuple[str, int, How]]:
    """Functions that compile kernels, where the source of one is a string of the program."""
    if not asked:
        return
    ignored = {id(node.value) for node in tree.all(ast.Expr) if isinstance(node.value, ast.Constant)}
    if any(
        isinstance(node.value, str) and _KERNEL in node.value and id(node) not in ignored
        for node in tree.all(ast.Constant)
    ):
        for call in tree.all(ast.Call):
            name = last_name(call.func)
            if name in _COMPILERS:
                yield name, call.lineno, "kernel"


def _installs(tree: PythonTree, folder: Folder, asked: bool) -> Iterator[tuple[str, int, How]]:
    """What is behind `pip install` in calls that run it; options and all, blanks between."""
    if not asked:
        return
    for call in tree.all(ast.Call):
        words: list[str] = []
        name = last_name(call.func)
        for value in call.args if name in _RUNNERS else ():
            for item in value.elts if isinstance(value, (ast.List, ast.Tuple)) else (value,):
                words += " ".join(folder.strings(item)).replace(UNKNOWN, " ").split()
        if "install" in words:
            before, after = words[: words.index("install")], words[words.index("install") + 1 :]
            if after and (name in ("main", "pipmain") or any(_is_installer(word) for word in before)):
                yield " ".join(after)[:_ASKED], call.lineno, "install"


def _is_installer(word: str) -> bool:
    return word.rsplit("/", 1)[-1] in _INSTALLERS


def _is_open(values: tuple[str, ...]) -> bool:
    """Whether the name itself, not only its folder, is made at run time in every case."""
    return bool(values) and all(UNKNOWN in value.rsplit("/", 1)[-1] for value in values)
