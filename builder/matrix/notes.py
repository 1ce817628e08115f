"""What is told beside the verdict: status and gaps of the packages named, and what a driver rule does not lift."""

from __future__ import annotations

from packaging.version import Version

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.driver import reported_toolkit, require_toolkit
from builder.matrix.sets import touches
from builder.matrix.tables import Row
from builder.matrix.versions import matches, parse, within

__all__ = ["told"]


def told(question: Question, backend: Backend) -> tuple[str, ...]:
    """All notes on a question, each with its source."""
    parts = (_about, _label_notes, _release_notes, _driver_notes, _branch_notes)
    return tuple(note for part in parts for note in part(question, backend))


def _about(question: Question, backend: Backend) -> tuple[str, ...]:
    """One sentence for each row on a package that was named, the version fitting."""
    found = []
    for row in backend.rows("about"):
        version = question.packages.get(row.text("package") or "")
        bounds = row.text("versions")
        if row.text("machine") not in (None, question.machine):
            continue
        if version is not None and (bounds is None or matches(version.partition("+")[0], (bounds,))):
            found.append(_sentence(row))
    return tuple(found)


def _release_notes(question: Question, backend: Backend) -> tuple[str, ...]:
    """What kind of release a toolkit is, when it is not one for production."""
    if question.toolkit is None:
        return ()
    return tuple(
        f"{backend.spec.toolkit} {row.text('toolkit')} is a {row.text('status')} release"
        + (f": {row.note}" if row.note else "")
        + f" ({row.source.text})"
        for row in backend.rows("release")
        if row.text("status") in ("preview", "nightly") and touches(question.toolkit, row.text("toolkit") or "")
    )


def _label_notes(question: Question, backend: Backend) -> tuple[str, ...]:
    """A build that works and brings another backend's libraries into the image."""
    found = []
    for label in backend.spec.labels:
        asked = question.packages.get(label.package)
        version = parse(asked) if asked is not None else None
        if version is None or label.required or version.local == label.label:
            continue
        if version.local is not None or question.machine == label.arch:
            found.append(
                f"{label.package} {asked} is not the +{label.label} build: it works, and brings another backend's "
                f"libraries into the image; take =={version.public}+{label.label} ({backend.spec.source})"
            )
    return tuple(found)


def _branch_notes(question: Question, backend: Backend) -> tuple[str, ...]:
    """How long the branch of a driver lives."""
    driver = parse(question.driver or "")
    branches = [branch for row in backend.rows("driver-branch") if (branch := parse(row.text("branch") or ""))]
    if driver is not None and branches and driver.major not in {branch.major for branch in branches}:
        return (_strange_branch(question.driver or "", driver, branches),)
    return tuple(
        f"driver branch {row.text('branch')}: {row.text('lifecycle')} ({row.source.text})"
        for row in backend.rows("driver-branch")
        if driver is not None and row.text("lifecycle") and within(str(driver.major), row.text("branch") or "")
    )


def _strange_branch(text: str, driver: Version, branches: list[Version]) -> str:
    """A driver of no branch the tables know: of a later one, an earlier one, or numbered as on Windows."""
    if driver.major > max(branches).major:
        return f"driver {text} is newer than all Linux branches the tables know"
    if driver.major < min(branches).major:
        return f"driver {text} is older than all Linux branches the tables know"
    return (
        f"driver {text} is of none of the Linux branches the tables know: drivers for Windows are numbered so, under "
        "WSL too; the floors are those of Linux releases"
    )


def _sentence(row: Row) -> str:
    parts = []
    if status := row.text("status"):
        parts.append(status)
    if licence := row.text("licence"):
        parts.append(f"licence {licence}")
    if modes := row.texts("modes"):
        parts.append(f"execution: {', '.join(modes)}")
    if gaps := row.texts("gaps"):
        parts.append(f"not there: {', '.join(gaps)}")
    if remark := row.text("remark"):
        parts.append(remark)
    bounds = row.text("versions")
    name = f"{row.text('package')} {bounds}" if bounds else row.text("package")
    return f"{name}: {'; '.join(parts)} ({row.source.text})"


def _driver_notes(question: Question, backend: Backend) -> tuple[str, ...]:
    """What an image of the toolkit carries for its engine to check, where the driver falls short of it."""
    if {"image", "nvidia-require-cuda"} & question.settings.keys() or question.driver is None:
        return ()
    refused = require_toolkit(question, backend) if "driver-branch" in backend.kinds else None
    if refused is None or reported_toolkit(backend, question.driver) is None:
        return ()
    text = (
        "require-cuda: the verdict is on toolkit and driver alone, no image was named. For an image of this toolkit it "
        f"is the opposite: {refused.why} ({refused.fix}). Name the image, or its NVIDIA_REQUIRE_CUDA, to have it judged"
    )
    return (text,)
