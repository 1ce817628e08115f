"""Readers of what engines say about themselves: pure, bounded, safe for hostile bytes, loading nothing."""

from builder.cache.formats.read import FILE_FORMATS, TREE_FORMATS, UnknownFormat, format_of, read_engine, read_file
from builder.cache.formats.values import Blob, BrokenEngine, Header

__all__ = [
    "FILE_FORMATS",
    "TREE_FORMATS",
    "Blob",
    "BrokenEngine",
    "Header",
    "UnknownFormat",
    "format_of",
    "read_engine",
    "read_file",
]
