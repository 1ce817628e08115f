"""The project file, builder.toml: what the user wants built."""

from builder.project.load import find_project, load_project
from builder.project.values import BackendOptions, CopyRule, ImageOptions, Project, Warmup

__all__ = ["BackendOptions", "CopyRule", "ImageOptions", "Project", "Warmup", "find_project", "load_project"]
