"""The error of the deflate library, under a type that its own stub does not give it."""

from __future__ import annotations

from isal import igzip_lib

__all__ = ["InflateError"]

InflateError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # isal's stub says instance, it is a class
"""What every inflating function of `isal` raises for data that is not a deflate, zlib or gzip stream."""
