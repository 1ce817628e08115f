"""From a project file, compatibility tables and a node class to a locked, audited, published image per backend."""

__version__ = "0.1.0"
