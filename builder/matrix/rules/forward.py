"""Forward compatibility (NVIDIA): a newer user-mode driver in the image, above an older kernel driver."""

from __future__ import annotations

import re

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.driver import reported_toolkit
from builder.matrix.tables import Row
from builder.matrix.values import RuleVerdict, Verdict
from builder.matrix.versions import parse, within

__all__ = ["FORWARD", "compat_package", "forward_compatibility", "hardware"]

FORWARD = "forward-compatibility"
"""Name of the rule; where it says supported, the floor of the kernel driver is lifted."""


def forward_compatibility(question: Question, backend: Backend) -> RuleVerdict | None:
    """The cuda-compat package of an image works above the kernel driver of the node.

    Source: NVIDIA CUDA Compatibility, "Forward Compatibility" v615 (2026-09-09): data-centre GPUs, selected RTX boards
    and Jetson, on Linux, above the base branches of its table; GeForce fails with error 804, an older package under a
    newer driver with error 803.
    """
    driver = parse(question.driver or "")
    row = compat_package(question, backend)
    if driver is None or row is None:
        return None
    package, branch = row.text("package") or "", str(driver.major)
    if (question.os or "").startswith("windows"):
        return _say(row, "unsupported", f"{package} is for Linux only", f"no {package}, and a newer driver")
    toolkit = row.text("toolkit") or ""
    if branch in (row.texts("needless") or ()):
        return _say(row, "supported", f"{package} is not needed on driver {question.driver}: the driver has it")
    if branch in (row.texts("refused") or ()):
        why = f"{package} is older than driver {question.driver}: not supported (error 803), take it off the path"
        return _say(row, "unsupported", why, f"no {package} in the image: older CUDA runs on a newer driver as it is")
    if branch not in (row.texts("works") or ()):
        if row.confidence == "uncertain":
            return _say(row, "unknown", f"no published table has {package} ({row.note})", "a package that is listed")
        listed = ", ".join(row.texts("works") or ())
        why = f"{package} is not supported above driver branch {branch} (only {listed})"
        return _say(row, "unsupported", why, f"a driver of branch {listed}, or one that offers CUDA {toolkit}")
    kind = hardware(question, backend)
    if kind == "consumer":
        why = f"{question.device} is no data-centre GPU: forward compatibility is not available there (error 804)"
        offered = reported_toolkit(backend, question.driver or "")
        return _say(row, "unsupported", why, f"a build for CUDA <= {offered} without {package}, or a newer driver")
    if kind == "workstation":
        why = f"{package} works on selected NGC-Server-Ready RTX boards only; {question.device} is not known to be one"
        return _say(row, "unknown", why, "ask NVIDIA, or update the driver")
    where = "" if kind else ", on data-centre GPUs, selected RTX boards and Jetson (the device is not named)"
    return _say(row, "supported", f"{package} works above driver branch {branch}{where}")


def compat_package(question: Question, backend: Backend) -> Row | None:
    """The package that was asked: `cuda-compat-13-0`, or `cuda-compat` with a toolkit or a driver branch."""
    rows = backend.rows("forward-compat")
    for name, version in question.packages.items():
        if not name.startswith("cuda-compat"):
            continue
        if match := re.fullmatch(r"cuda-compat-(?:orin-)?(\d+)-(\d+)", name):
            wanted: str | None = f"{match[1]}.{match[2]}"
        else:
            found = parse(version)
            wanted = reported_toolkit(backend, version) if found and found.major > 100 else version
        return next((row for row in rows if wanted and within(wanted, f"{row.text('toolkit')}.*")), None)
    return None


def hardware(question: Question, backend: Backend) -> str | None:
    """`consumer`, `workstation` or `datacentre` by the product's name; None when no product was named."""
    name = (question.device or "").casefold()
    if not name:
        return None
    words = set(re.split(r"[^a-z0-9]+", name))
    for row in backend.rows("device-class"):
        if any(set(part.split()) <= words or re.search(rf"\b{part}\b", name) for part in row.texts("words") or ()):
            return row.text("class")
    return "datacentre"


def _say(row: Row, verdict: Verdict, why: str, fix: str = "") -> RuleVerdict:
    return RuleVerdict(rule=FORWARD, verdict=verdict, why=why, source=row.source.text, fix=fix)
