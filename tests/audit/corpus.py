"""Real wheels with verdicts made by hand, and how an audit is held against them.

Run as a program it audits all of them and writes docs/audit-corpus.md, or docs/audit-unseen.md:

    python -m tests.audit.corpus --store FOLDER
    python -m tests.audit.corpus --store FOLDER --unseen
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from builder.audit.audit import Terms, audit_wheel, load_rules
from builder.audit.environment import marker_environment
from builder.audit.values import TargetAudit
from builder.errors import BuilderError
from builder.lock.simple import Pages
from builder.names import Arch, Digest
from builder.store import Store
from builder.wheels.fetch import receive
from builder.wheels.settings import read_index_settings
from builder.wheels.transport import open_client

__all__ = ["Expected", "corpus", "differences", "fetched"]

DATA = Path(__file__).parent / "data" / "corpus.csv"
UNSEEN = DATA.with_name("unseen.csv")
REPORT = Path(__file__).parents[2] / "docs" / "audit-corpus.md"
BACKENDS = ("cuda", "rocm", "npu", "neuron", "tpu", "xpu", "opencl", "vulkan", "musa", "hpu")
ARCHS = ("cuda_sm", "cuda_ptx", "gfx", "ascend_soc")


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """One row."""

    name: str
    version: str
    filename: str
    sha256: Digest
    arch: Arch
    size: int
    tokens: dict[str, tuple[str, ...]]
    """Backend to tokens, `?` behind the optional ones."""
    level: str
    archs: dict[str, tuple[str, ...]]
    """Key of `Archs` to targets, `*` behind the optional ones; empty where nobody read them."""
    first: str = ""
    """What differed when the audit was asked for the first time, and who was wrong."""


def corpus(data: Path = DATA) -> tuple[Expected, ...]:
    """All rows, the smallest wheel first."""
    lines = [line for line in data.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = [
        Expected(
            name=row["name"],
            version=row["version"],
            filename=row["filename"],
            sha256=Digest(row["sha256"]),
            arch="aarch64" if row["arch"] == "aarch64" else "x86_64",
            size=int(row["wheel_bytes"]),
            tokens={name: () if row.get(name, "-") == "-" else tuple(row[name].split("+")) for name in BACKENDS},
            level=row["level"],
            archs={name: tuple(row[name].split()) for name in ARCHS if name in row},
            first=row.get("first", ""),
        )
        for row in csv.DictReader(lines)
    ]
    return tuple(sorted(rows, key=lambda row: row.size))


def fetched(row: Expected, store: Store) -> Path | None:
    """The wheel in the store, downloaded by its hash; None when no configured index offers that file."""
    if store.has(row.sha256):
        return store.path(row.sha256)
    settings = read_index_settings(os.environ)
    with open_client(settings, os.environ) as client:
        pages = Pages(client)
        links = [link for location in settings.find_links for link in pages.location(location)]
        for index in settings.indexes:
            links += pages.project(index, row.name)
        for link in links:
            if link.file == row.filename and link.sha256 in (row.sha256.hex, None):
                return store.path(receive(client, link.url, store, digest=row.sha256))
    return None


def audited(row: Expected, path: Path, store: Store) -> TargetAudit:
    """The audit of one row for an image that must not contain CUDA."""
    return audit_wheel(
        path,
        row.filename,
        Terms(backend="cpu", environment=marker_environment("3.11", row.arch)),
        store=store,
        digest=row.sha256,
    )


def differences(row: Expected, audit: TargetAudit) -> list[str]:
    """Where the audit and the row disagree; empty when they agree."""
    found: list[str] = []
    for backend in BACKENDS:
        got = set(audit.tokens.get(backend, ()))
        missing, extra = _compare(row.tokens[backend], got)
        if "hard-plugin" in missing and "hard" in extra:
            missing.discard("hard-plugin")
            extra.discard("hard")
        found += [f"{backend}: {token} is missing" for token in sorted(missing)]
        found += [f"{backend}: {token} is wrong" for token in sorted(extra)]
    for backend in sorted(audit.tokens.keys() - set(BACKENDS)):
        found.append(f"{backend}: {' '.join(audit.tokens[backend])} is wrong")
    cuda_level = _level_of_cuda(audit)
    if cuda_level != row.level:
        found.append(f"level is {cuda_level}, expected {row.level}")
    for key in row.archs:
        missing, extra = _compare(row.archs[key], set(getattr(audit.archs, key)))
        found += [f"{key}: {target} is missing" for target in sorted(missing)]
        found += [f"{key}: {target} is wrong" for target in sorted(extra)]
    return found


def _compare(expected: tuple[str, ...], got: set[str]) -> tuple[set[str], set[str]]:
    required = {word for word in expected if not word.endswith(("?", "*"))}
    allowed = {word.rstrip("?*") for word in expected}
    return required - got, got - allowed


def _level_of_cuda(audit: TargetAudit) -> str:
    """The level that the findings about CUDA alone would give: the corpus judges nothing else."""
    levels = load_rules().policy.levels
    order = ("ok", "warn", "carry", "block")
    found = [
        levels[finding.rule.removeprefix("foreign-")]
        for finding in audit.findings
        if finding.backend == "cuda" and finding.rule.startswith("foreign-") and finding.severity != "info"
    ]
    return max(found, key=order.index, default="ok")


@dataclass(slots=True)
class _Count:
    right: int = 0
    wrong: int = 0
    absent: int = 0

    def __str__(self) -> str:
        return f"**{self.right} right, {self.wrong} wrong, {self.absent} not run.**"


def _judged(rows: tuple[Expected, ...], store: Store, count: _Count) -> Iterator[tuple[Expected, str, str, str]]:
    """Each row with its verdict, what the audit said, and what differs."""
    for row in sorted(rows, key=lambda item: (item.name.lower(), item.filename)):
        try:
            path = fetched(row, store)
        except BuilderError as error:
            path = None
            sys.stderr.write(f"{row.filename}: {error.what}\n")
        if path is None:
            count.absent += 1
            yield row, "not run", "", "no configured index offers it"
            continue
        audit = audited(row, path, store)
        faults = differences(row, audit)
        count.right += not faults
        count.wrong += bool(faults)
        said = "; ".join(f"{backend}: {' '.join(tokens)}" for backend, tokens in audit.tokens.items())
        yield row, "wrong" if faults else "right", said, "; ".join(faults)
        sys.stderr.write(f"{row.filename}: {'; '.join(faults) or 'right'}\n")


def _table(store: Store) -> Iterator[str]:
    rules = load_rules()
    count = _Count()
    lines: list[str] = []
    for row, verdict, said, faults in _judged(corpus(), store, count):
        label = f"{row.name} {row.version}" + (" (aarch64)" if row.arch == "aarch64" else "")
        lines.append(f"| {label} | {verdict} | {said} | {faults} |")
    yield "# The audit against real wheels"
    yield ""
    yield "63 wheels of the Python Package Index were read by hand (readelf, strings, header parsers). This is what the"
    yield "audit says of them: tokens of every backend, the level for an image that must not contain CUDA, and all"
    yield f"device code targets must agree. Rules and tables: `{rules.version}`."
    yield ""
    yield "Made by `python -m tests.audit.corpus --store FOLDER`, which downloads the wheels by hash (5.6 GB)."
    yield ""
    yield str(count)
    yield ""
    yield "| wheel | verdict | tokens | differs |"
    yield "| --- | --- | --- | --- |"
    yield from lines


def _unseen_table(store: Store) -> Iterator[str]:
    rules = load_rules()
    count = _Count()
    lines: list[str] = []
    rows = corpus(UNSEEN)
    for row, verdict, said, faults in _judged(rows, store, count):
        told = "; ".join(filter(None, (faults, row.first)))
        lines.append(f"| {row.filename} | {row.sha256.hex[:12]} | {verdict} | {row.level} | {said} | {told} |")
    yield "# The audit against wheels that no rule was made for"
    yield ""
    yield f"{len(rows)} more wheels of the Python Package Index, chosen for variety: CUDA linked, opened by name and"
    yield "linked in, code compiled on first use, ROCm, SYCL, Ascend, Neuron, TPU, OpenCL, Vulkan and Metal, tools,"
    yield "metadata alone, plain packages with the words in them, other processors and systems. What each must say was"
    yield "written down from readelf, strings and METADATA before the audit was asked; targets of device code were not."
    yield "The last column tells what differed that first time, and who was wrong: the audit was mended by kind, the"
    yield "hand had overlooked something. The level is that of CUDA in an image that must not contain it."
    yield f"Rules and tables: `{rules.version}`."
    yield ""
    yield "Made by `python -m tests.audit.corpus --store FOLDER --unseen`, which downloads the wheels by hash (2 GB)."
    yield ""
    yield str(count)
    yield ""
    yield "| wheel | sha256 | verdict | level | tokens | what differed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield from lines


def main() -> None:
    """Audit all rows and write the report."""
    parser = argparse.ArgumentParser(description="Hold the audit against real wheels.")
    parser.add_argument("--store", type=Path, required=True, help="folder for the downloaded wheels")
    parser.add_argument("--unseen", action="store_true", help="the wheels that no rule was made for")
    options = parser.parse_args()
    store = Store(cast("Path", options.store))
    table, report = (_unseen_table, REPORT.with_name("audit-unseen.md")) if options.unseen else (_table, REPORT)
    report.write_text("\n".join(table(store)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
