"""What counts as loading a vendor's library from Python, and what is only talk."""

from __future__ import annotations

import pytest

from builder.audit.python_source import PythonScanner
from builder.audit.tables import load_tables

SCANNER = PythonScanner(load_tables())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('import ctypes\nlib = ctypes.CDLL("libnvidia-ml.so.1")\n', [("libnvidia-ml.so.1", "call")]),
        (
            'from ctypes import *\nx = cdll.LoadLibrary("/opt/rocm/lib/librccl.so.1")\n',
            [("/opt/rocm/lib/librccl.so.1", "call")],
        ),
        ('import cffi\nffi = cffi.FFI()\nlib = ffi.dlopen("libcuda.so.1")\n', [("libcuda.so.1", "call")]),
        ('import ctypes.util\np = ctypes.util.find_library("cudart") or "x"\n', [("libcudart.so", "call")]),
        (
            'import ctypes.util\nif not ctypes.util.find_library("ze_loader"):\n    raise OSError\n',
            [("libze_loader.so", "listed")],
        ),
        ('import ctypes\nNAMES = ["libcudart.so.12", "libm.so.6"]\n', [("libcudart.so.12", "listed")]),
        ('PATTERNS = ("libcudart*.so*",)\n', [("libcudart*.so*", "listed")]),
        ('cc = ["gcc", "-lascendcl", "-lm"]\n', [("-lascendcl", "link")]),
        ('import ctypes\n"""Loads libcudart.so.12 by ctypes."""\n', []),
        ('import ctypes\n# libcudart.so.12\nlib = ctypes.CDLL("libm.so.6")\n', []),
        ('import ctypes\nraise OSError("libcudart.so.12 is not installed")\n', []),
        ('NAMES = ["libcudart.so.12"]\n', []),
        # Broken, or for another Python: nobody here can tell, so its calls count as they stand.
        ("import ctypes\nlib = ctypes.CDLL('libcudart.so.12'\n", [("libcudart.so.12", "call")]),
        ("cuInit = accuInit = 1\n", []),
    ],
    ids=range(14),
)
def test_uses(source: str, expected: list[tuple[str, str]]) -> None:
    assert [(use.name, use.how) for use in SCANNER.uses("x.py", source.encode())] == expected


def test_the_line_is_where_the_name_stands() -> None:
    (use,) = SCANNER.uses("x.py", b'import ctypes\n\n\nlib = ctypes.CDLL(\n    "libcuda.so.1"\n)\n')
    assert use.line == 5
