"""Rules on local labels: which builds of a release there are, and whose a labelled build is."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.version import Version

from builder.matrix.load import Backend, siblings
from builder.matrix.question import Question
from builder.matrix.sets import agrees
from builder.matrix.tables import Table
from builder.matrix.values import RuleVerdict
from builder.matrix.versions import parse

__all__ = ["framework_label", "made_for", "no_build"]


def framework_label(question: Question, backend: Backend) -> RuleVerdict | None:
    """On this machine architecture the package must be the build with the backend's local label.

    Source: torch_npu package README (on x86_64 torch must be the +cpu build), METADATA of torch (the unlabelled
    x86_64 wheel of the default index is the CUDA build); PEP 440: `==X` matches `X+label`, not the reverse.
    """
    for label in backend.spec.labels:
        asked = question.packages.get(label.package)
        version = parse(asked) if asked is not None else None
        if version is None or not label.required:
            continue
        public = Version(version.public)
        if label.since is not None and public < Version(label.since):
            continue
        if version.local is not None and version.local != label.label:
            return RuleVerdict(
                rule="framework-label",
                verdict="unsupported",
                why=f"{label.package} {asked} is the build of another backend",
                source=backend.spec.source,
                fix=f"{label.package}=={public}+{label.label}",
            )
        if question.machine == label.arch and version.local is None:
            return RuleVerdict(
                rule="framework-label",
                verdict="unsupported",
                why=f"on {label.arch} {label.package} {asked} without a label is the CUDA build; "
                f"{public}+{label.label} satisfies ==X and ==X+{label.label} both",
                source=backend.spec.source,
                fix=f"{label.package}=={public}+{label.label}",
            )
        if question.machine == label.arch:
            why = f"{label.package} {asked} is the build that {backend.name} needs on {label.arch}"
            return RuleVerdict(rule="framework-label", verdict="supported", why=why, source=backend.spec.source)
    return _foreign_build(question, backend) or _other_toolkit(question, backend)


def _other_toolkit(question: Question, backend: Backend) -> RuleVerdict | None:
    """A build no table lists (a nightly) whose label spells out another toolkit than the one asked for (FR-21)."""
    if question.toolkit is None:
        return None
    for name, asked in question.packages.items():
        made = made_for(asked)
        if made is None or _stem(asked.partition("+")[2]) not in _stems(backend, name):
            continue
        listed = any(name in row.packages() and agrees(backend, row, name, asked) for row in backend.rows("set"))
        if not listed and made.split(".") != question.toolkit.split(".")[: made.count(".") + 1]:
            return RuleVerdict(
                rule="framework-label",
                verdict="unsupported",
                why=f"{name} {asked} is a build for {backend.spec.toolkit} {made}, not {question.toolkit}",
                source="PEP 440, local version identifiers; TheRock docs/packaging/versioning.md; ROCm/TheRock#7183",
                fix=f"a build of {name} labelled for {question.toolkit}, or {backend.spec.toolkit} {made}",
            )
    return None


def made_for(version: str) -> str | None:
    """Major and minor of the toolkit that a label spells out: `2.12.0+rocm10.1.0a20260807` → 10.1, `+cu130` → 13.0."""
    label = version.partition("+")[2]
    if match := re.fullmatch(r"cu(\d\d)(\d)", label):
        return f"{match[1]}.{match[2]}"
    match = re.match(r"[a-z]+(\d+\.\d+)", label)
    return match[1] if match else None


def no_build(backend: Backend, table: Table, version: str) -> RuleVerdict | None:
    """A release whose builds are all listed, asked for with the label of a toolkit that is not among them.

    A label of three parts (`+rocm7.2.3`) is what a vendor's own images carry beside the index: not all are listed.
    """
    found = parse(version)
    lead = table.lead or ""
    if "toolkit" not in table.closed or found is None or found.local is None or found.local.count(".") > 1:
        return None
    kin = [row for row in table.rows if row.packages().get(lead, "").partition("+")[0] == found.public]
    labels = sorted({row.text("label") or row.packages()[lead].partition("+")[2] for row in kin} - {""})
    if not labels or _stem(found.local) not in {_stem(label) for label in labels}:
        return None
    return RuleVerdict(
        rule="framework-set",
        verdict="unsupported",
        why=f"{lead} {found.public} is built as {', '.join(f'+{label}' for label in labels)}; there is no "
        f"+{found.local} build",
        source=kin[-1].source.text,
        fix=f"{lead}=={found.public}+{labels[-1]}",
    )


def _stem(label: str) -> str:
    """The letters a label begins with: `cu`, `rocm`, `cpu`."""
    match = re.match(r"[a-z]+", label)
    return match[0] if match else ""


@lru_cache(maxsize=256)
def _stems(backend: Backend, package: str) -> frozenset[str]:
    """What the labels of a package's builds begin with in the tables of one backend."""
    labels = {label.label for label in backend.spec.labels if label.package == package}
    for row in backend.rows("set"):
        if package in row.packages():
            labels |= {row.text("label") or "", row.packages()[package].partition("+")[2]}
    return frozenset(_stem(label) for label in labels) - {""}


def _foreign_build(question: Question, backend: Backend) -> RuleVerdict | None:
    """A build whose label is that of another backend, where this backend's builds have labels of their own."""
    for name, asked in question.packages.items():
        found = parse(asked)
        own = _stems(backend, name)
        lax = any(label.package == name and not label.required for label in backend.spec.labels)
        if found is None or found.local is None or not own or lax or _stem(found.local) in own:
            continue
        others = [other.name for other in siblings(backend) if _stem(found.local) in _stems(other, name)]
        if others:
            return RuleVerdict(
                rule="framework-label",
                verdict="unsupported",
                why=f"{name} {asked} is the build of another backend ({' or '.join(others)})",
                source="PEP 440, local version identifiers; the labels of the tables' builds",
                fix=f"a build of {name} labelled {' or '.join(f'+{stem}…' for stem in sorted(own))}",
            )
    return None
