"""Compatibility tables as typed rows; rules; the solver; explain."""

from builder.matrix.load import Backend, Tables, load_backend, load_tables
from builder.matrix.values import BackendSpec, Runtime, Stack

__all__ = ["Backend", "BackendSpec", "Runtime", "Stack", "Tables", "load_backend", "load_tables"]
