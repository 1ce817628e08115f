"""Runs one check inside an image and prints its result as one JSON line: name, verdict, measures, detail.

    python checks/run.py NAME PROGRAM OPTIONS

PROGRAM is a file below this folder with a function `check(options) -> (verdict, measures, detail)`; OPTIONS is a
JSON object. Standard library only, any Python from 3.9 on. What a framework prints to stdout goes to stderr, so that
the result is the only line on stdout.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


def load(program: str) -> ModuleType:
    """A file of this folder as a module, under a name that hides no package of the image."""
    path = HERE / program
    spec = importlib.util.spec_from_file_location("builder_check_" + path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(arguments: list[str]) -> int:
    """Run the check; its verdict is in the line, the exit status says only that there is a line."""
    name, program, options = arguments
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    result = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        verdict, measures, detail = load(program).check(json.loads(options))
    except Exception as error:
        traceback.print_exc()
        verdict, measures, detail = "failed", {}, f"{type(error).__name__}: {error}"
    line = {"name": name, "verdict": verdict, "measures": measures, "detail": detail}
    result.write(json.dumps(line) + "\n")
    result.flush()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    # Straight out: frameworks are known to crash in their exit handlers, after the answer is known.
    os._exit(status)
