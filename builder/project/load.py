"""Reads builder.toml, or `[tool.builder]` of pyproject.toml; reports every fault at once, with file and line."""

from __future__ import annotations

from pathlib import Path

from builder.project.values import Project

__all__ = ["find_project", "load_project"]


def find_project(start: Path) -> Path:
    """The project file at or above `start` (a folder or the file itself)."""
    raise RuntimeError("written in the next commit")


def load_project(path: Path) -> Project:
    """The project a file describes."""
    raise RuntimeError("written in the next commit")
