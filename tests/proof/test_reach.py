"""Import statements, and what they make of a module that does not load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from builder.proof.reach import Reach, imports_of

SITE = "/site"


def reach(files: Mapping[str, str]) -> Reach:
    texts = {f"{SITE}/{name}": text.encode() for name, text in files.items()}

    def sources(paths: Iterable[str]) -> Mapping[str, bytes]:
        return {path: texts[path] for path in paths if path in texts}

    return Reach(sources)


def weight(files: Mapping[str, str], module: str) -> str:
    paths = [f"{SITE}/{name}" for name in [*files, module]]
    return reach(files).module(f"{SITE}/{module}", site=SITE, files=paths).weight


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b\n", [("a.b", "sure")]),
        ("from a import b, c\n", [("a", "sure"), ("a.b", "sure"), ("a.c", "sure")]),
        ("from . import b\n", [("pkg.sub", "sure"), ("pkg.sub.b", "sure")]),
        ("from ..x import y\n", [("pkg.x", "sure"), ("pkg.x.y", "sure")]),
        ("with f():\n    import a\n", [("a", "sure")]),
        ("class C:\n    import a\n", [("a", "sure")]),
        ("async def f():\n    import a\n", [("a", "guarded")]),
        ("if x:\n    import a\nelse:\n    import b\n", [("a", "branch"), ("b", "branch")]),
        ("from typing import TYPE_CHECKING as T\nif typing.TYPE_CHECKING:\n    import a\n", [("a", "guarded")]),
        ("if __NUMPY_SETUP__:\n    import a\nelse:\n    import b\n", [("a", "guarded"), ("b", "sure")]),
        ("try:\n    import a\nexcept ValueError:\n    pass\n", [("a", "sure")]),
        ("try:\n    import a\nexcept:\n    import b\n", [("a", "guarded"), ("b", "guarded")]),
        ("try:\n    import a\nfinally:\n    import b\n", [("a", "sure"), ("b", "sure")]),
        ("this is no python", []),
        ("\0", []),
    ],
)
def test_imports(source: str, expected: list[tuple[str, str]]) -> None:
    found = {(name, certainty) for name, certainty, _ in imports_of(source.encode(), "pkg.sub")}
    assert {item for item in found if not item[0].startswith("typing")} == set(expected)


def test_a_chain_of_imports() -> None:
    files = {"p/__init__.py": "from p.a import x\n", "p/a.py": "from . import b\n", "p/b.py": "from ._c import y\n"}
    assert weight(files, "p/_c.abi3.so") == "required"
    assert weight({**files, "p/a.py": ""}, "p/_c.abi3.so") == "undecided"


def test_a_module_outside_of_packages_is_imported_directly() -> None:
    assert weight({}, "_cffi_backend.cpython-311-x86_64-linux-gnu.so") == "required"
    assert weight({"ns/pkg/__init__.py": ""}, "ns/_direct.abi3.so") == "required"


def test_a_folder_without_init_inside_a_package_is_not_imported_by_itself() -> None:
    assert weight({"p/__init__.py": ""}, "p/data/_x.abi3.so") == "undecided"


def test_circles_end() -> None:
    assert weight({"p/__init__.py": "import p.a\n", "p/a.py": "import p\nimport p._c\n"}, "p/_c.abi3.so") == "required"


def test_the_surest_import_counts() -> None:
    files = {"p/__init__.py": "def f():\n    from . import _c\n", "p/a.py": "from . import _c\n"}
    assert weight(files, "p/_c.abi3.so") == "undecided"
    assert weight({**files, "p/a.py": ""}, "p/_c.abi3.so") == "optional"
