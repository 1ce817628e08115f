"""Which commands this tree has."""

from __future__ import annotations

import importlib.util

import pytest

from builder.cli.main import COMMANDS


def needs(*commands: str) -> pytest.MarkDecorator:
    """Skip where a command's module is not in this tree."""
    absent = [name for name in commands if importlib.util.find_spec(COMMANDS[name][0]) is None]
    return pytest.mark.skipif(bool(absent), reason=f"not in this tree: {', '.join(absent)}")
