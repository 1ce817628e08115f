"""The command line in this process: most tests of many commands need no process each."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from builder.cli.main import run

__all__ = ["Inside"]


class Inside:
    """Calls `builder ARGS…` in an environment, and answers as a process would."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def __call__(self, *args: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """`env` is added to the environment."""
        out, err = io.StringIO(), io.StringIO()
        words = [str(word) for word in args]
        with (
            patch.dict(os.environ, {**self._environment, **(env or {})}, clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = run(words)
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
