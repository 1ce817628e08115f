"""Imports every top-level module of every distribution that the lock names, and holds the versions against it.

The modules are imported one after the other in one child process, as a program would. After one that fails, or takes
the child down with it, a new child goes on with the next: what a failed import leaves behind would spoil the others.
Options:

    packages         {distribution: version}, the lock
    results          {check: verdict} of the checks before this one; `device` decides how a missing library is read
    node-libraries   glob patterns of shared libraries that the node's driver or the vendor's toolkit brings
    skip-modules     top-level names never imported: tests and the like that some wheels leave lying about
"""

from __future__ import annotations

import fnmatch
import importlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time

_SKIP = ["test", "tests", "testing", "docs", "doc", "examples", "example", "benchmarks", "scripts", "tools"]
_SUFFIX = re.compile(r"\.(?:py|(?:[^./]+\.)?so)$")
_MISSING_LIBRARY = re.compile(r"([\w.+-]+\.so[\w.]*): cannot open shared object file")


def check(options):
    """Passed when every module could be imported; not-run when only the node's own libraries were missing."""
    packages = options["packages"]
    if not packages:
        return "not-run", {}, "the lock names no packages"
    failures, modules, skipped = [], [], []
    for distribution, version in sorted(packages.items()):
        try:
            found = importlib.metadata.distribution(distribution)
        except importlib.metadata.PackageNotFoundError:
            failures.append(f"{distribution} {version} is in the lock but not in the image")
            continue
        if found.version != version:
            failures.append(f"{distribution} is {found.version} in the image but {version} in the lock")
        for module in top_level(found):
            if module in options.get("skip-modules", _SKIP):
                skipped.append(module)
            else:
                modules.append((distribution, module))
    start = time.monotonic()
    waiting, optional = [], []
    slowest = ("", 0.0)
    for (distribution, module), outcome in import_all(modules):
        if outcome["seconds"] > slowest[1]:
            slowest = (module, outcome["seconds"])
        if not outcome["error"]:
            continue
        told = f"{module} ({distribution}): {outcome['error']}"
        if waits_for_node(outcome, options):
            waiting.append(f"{module} needs {outcome['library']}")
        elif is_optional(distribution, module, outcome, modules):
            optional.append(told)
        else:
            failures.append(told)
    measures = {
        "distributions": len(packages),
        "modules": len(modules),
        "import_seconds": round(time.monotonic() - start, 3),
        "slowest_module": slowest[0],
        "slowest_import_seconds": round(slowest[1], 3),
    }
    notes = []
    if skipped:
        notes.append(f"not imported by name: {', '.join(sorted(set(skipped)))}")
    if optional:
        notes.append(f"{len(optional)} side modules want packages that are not locked: {'; '.join(optional)}")
    if failures:
        return "failed", measures, "; ".join(failures)
    if waiting:
        reason = "the device's driver or toolkit is not on this machine, and these need it: "
        return "not-run", measures, reason + "; ".join(waiting)
    return "passed", measures, "; ".join(notes)


def top_level(distribution):
    """Top-level importable names of a distribution from its RECORD, sorted.

    A folder without any Python file or extension module anywhere below is data, not a package.
    """
    names = set()
    for file in distribution.files or ():
        parts = file.parts
        if not _SUFFIX.search(parts[-1]):
            continue
        name = parts[0] if len(parts) > 1 else parts[0].split(".")[0]
        if len(parts) > 1 and parts[-1].endswith(".so") and not _is_extension(parts[-1]):
            continue
        if name.isidentifier() and name not in ("__pycache__", "__main__"):
            names.add(name)
    return sorted(names)


def _is_extension(file):
    """Whether a shared object can be an extension module by its name, rather than a library beside one."""
    return re.search(r"\.(?:cpython-\w+(?:-[\w-]+)?|abi3)\.so$", file) is not None


def import_all(modules):
    """Pairs of (distribution, module) and its outcome: error, missing library or module, seconds."""
    todo = list(modules)
    while todo:
        child = subprocess.Popen(
            [sys.executable, "-B", os.path.abspath(__file__), *(module for _, module in todo)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        failed = False
        for line in child.stdout:
            outcome = json.loads(line)
            failed = bool(outcome["error"])
            yield todo.pop(0), outcome
        status = child.wait()
        if todo and not failed:
            why = f"the interpreter ended while importing it: {_ended(status)}"
            yield todo.pop(0), _outcome(why if status else "it ended the interpreter without an error", 0.0)


def _ended(status):
    if status == -signal.SIGILL:
        return "SIGILL, an instruction set fault: it was built for a newer CPU than this one"
    return signal.Signals(-status).name if status < 0 else f"exit {status}"


def _outcome(error, seconds, library="", module=""):
    return {"error": error, "library": library, "missing": module, "seconds": seconds}


def waits_for_node(outcome, options):
    """Whether the import failed only for a library that the node brings, on a machine where the device is not."""
    if options.get("results", {}).get("device", "passed") == "passed":
        return False
    patterns = options.get("node-libraries", ())
    return any(fnmatch.fnmatchcase(outcome["library"], pattern) for pattern in patterns)


def is_optional(distribution, module, outcome, modules):
    """Whether a distribution's side module only lacks a package that nothing in the lock provides."""
    if not outcome["missing"] or outcome["missing"] in {name for _, name in modules}:
        return False
    own = [name for owner, name in modules if owner == distribution]
    principal = [name for name in own if name.lower().replace("_", "-") == distribution]
    return bool(principal) and module not in principal


def _import_here(names):
    """The child: import each module up to the first that fails, one JSON line each on the real stdout."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != os.path.dirname(__file__)]
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in names:
        start = time.monotonic()
        try:
            importlib.import_module(name)
            outcome = _outcome("", 0.0)
        except BaseException as error:
            outcome = _explain(error)
        outcome["seconds"] = time.monotonic() - start
        report.write(json.dumps(outcome) + "\n")
        report.flush()
        if outcome["error"]:
            break
    os._exit(0)


def _explain(error):
    """The error, and the shared library or module at the root of its chain of causes."""
    library = missing = ""
    link, seen = error, set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        match = _MISSING_LIBRARY.search(str(link))
        if match:
            library = match.group(1)
        if isinstance(link, ModuleNotFoundError) and link.name:
            missing = link.name.partition(".")[0]
        link = link.__cause__ or link.__context__
    text = " ".join(str(error).split())
    return _outcome(f"{type(error).__name__}: {text[:400]}", 0.0, library, missing)


if __name__ == "__main__":
    _import_here(sys.argv[1:])
