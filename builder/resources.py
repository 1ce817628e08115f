"""The one door to data outside the code: matrices/, dockerfiles/ and checks/.

In a checkout these are the top-level folders; in an installed wheel they lie under builder/_data (pyproject.toml,
force-include). Nothing else in the package opens data files by path.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = [
    "backends",
    "checks_dir",
    "dockerfiles_dir",
    "matrices_dir",
    "node_class_names",
    "platforms",
    "policies_dir",
]


@cache
def _root() -> Path:
    installed = Path(__file__).parent / "_data"
    return installed if installed.is_dir() else Path(__file__).parent.parent


def matrices_dir() -> Path:
    """Folder with one folder of TOML tables per backend, and nodeclasses/."""
    return _root() / "matrices"


def dockerfiles_dir() -> Path:
    """Folder with <backend>.Dockerfile.j2 templates."""
    return _root() / "dockerfiles"


def checks_dir() -> Path:
    """Folder with the programs run inside an image, one folder per backend plus common/."""
    return _root() / "checks"


def policies_dir() -> Path:
    """Folder with the audit policy tables (library patterns to backend and role)."""
    return _root() / "checks" / "policies"


def backends() -> tuple[str, ...]:
    """Names of all backends, sorted: a backend is a folder of matrices/ that holds backend.toml."""
    return tuple(sorted(path.parent.name for path in matrices_dir().glob("*/backend.toml")))


def platforms() -> tuple[str, ...]:
    """Names of the folders of matrices/ that hold platform.toml, sorted: facts alone, from which no image is made."""
    return tuple(sorted(path.parent.name for path in matrices_dir().glob("*/platform.toml")))


@cache
def node_class_names() -> frozenset[str]:
    """Names of all node classes, for who asks no more of them: checking the tables takes ten times as long."""
    import tomllib  # only here: every start of the program loads this module

    files = sorted((matrices_dir() / "nodeclasses").glob("*.toml"))
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in files]
    return frozenset(row["name"] for table in tables for row in table["rows"])
