"""The published JSON schemas, and how a test holds real output to them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parent.parent / "docs" / "schemas"


def schema(name: str) -> dict[str, Any]:
    """docs/schemas/NAME.json, itself checked."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(loaded)
    return loaded


def document(result: subprocess.CompletedProcess[str], name: str) -> dict[str, Any]:
    """The one JSON document on a process's stdout, valid under schema NAME."""
    found: dict[str, Any] = json.loads(result.stdout)
    Draft202012Validator(schema(name)).validate(found)
    return found


def error(result: subprocess.CompletedProcess[str], code: int) -> dict[str, Any]:
    """The error document of a process that ended with this exit code."""
    assert result.returncode == code, result.stdout + result.stderr
    return document(result, "error")
