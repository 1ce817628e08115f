"""Fixtures of the static proof's tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.proof.trees import Tree, can_run_inside


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A root with the host's C library in it, and nothing else."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    if not Path("/lib64/ld-linux-x86-64.so.2").exists():
        pytest.skip("the trees are made of this host's x86-64 C library")
    return Tree(tmp_path / "root").system()


@pytest.fixture
def oracle(tree: Tree) -> Tree:
    """The same, where the tree's own loader can be run inside the tree."""
    reason = can_run_inside(tree)
    if reason:
        pytest.skip(reason)
    return tree
