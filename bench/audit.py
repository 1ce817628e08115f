"""The audit beside its peers on the same wheels, in one run: auditwheel, elfdeps, unzip -t, and bare inflate + CRC-32.

The yardstick is isal inflate + CRC-32 of every member: what any reader must do at least. Each tool gets one wheel at
a time, starting cold (a new process for the command line tools; no stored facts for ours).

    pip install auditwheel elfdeps
    python bench/audit.py --wheels DIR [--rounds 3] [--write]

DIR holds wheels, for instance from `pip download torch==2.13.0+cpu xformers bitsandbytes catboost`.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import conditions, write_section

sys.path.insert(0, str(Path(__file__).parent.parent))

from builder.audit.audit import Terms, audit_wheel
from builder.audit.environment import marker_environment
from builder.names import Digest
from builder.store import Store
from builder.wheels.archive import WheelArchive

TERMS = Terms(backend="cpu", environment=marker_environment("3.11", "x86_64"))
TARGET = 0.8
"""Throughput of a full verdict, as a part of inflate + CRC-32."""


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True, help="folder of wheels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return _one(options.one)
    lines = [
        "| wheel | MB | inflate + CRC | builder audit | ratio | memory | again | auditwheel | elfdeps | unzip -t |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for wheel in sorted(options.wheels.glob("*.whl"), key=lambda path: path.stat().st_size):
        lines.append(_row(wheel, options.rounds))
        print(lines[-1], flush=True)
    text = "\n".join(
        [
            *lines,
            "",
            f"Best of {options.rounds}, in seconds; ratio is the audit's throughput against inflate + CRC-32",
            f"of every member (median of pairs, target {TARGET}). `again` is the same verdict from stored facts.",
            "Memory is the peak that the audit adds to the process, without the mapped wheel. A dash: not",
            "installed, or it refuses the wheel.",
            "",
            conditions(),
        ]
    )
    print(text)
    if options.write:
        write_section("audit", text)
    return 0


def _row(wheel: Path, rounds: int) -> str:
    floor, ours, ratios = [], [], []
    for _ in range(rounds):
        # Side by side, so that a busy moment of the machine hits both.
        floor.append(_seconds(lambda: _inflate(wheel)))
        ours.append(_seconds(lambda: _audit(wheel, None)))
        ratios.append(floor[-1] / ours[-1])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        digest = Digest.of_file(wheel)
        _audit(wheel, store, digest)
        again = min(_seconds(lambda: _audit(wheel, store, digest)) for _ in range(rounds))
    memory = subprocess.run(
        [sys.executable, __file__, "--wheels", str(wheel.parent), "--one", str(wheel)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    peers = [
        _peer(["auditwheel", "show", str(wheel)], rounds),
        _peer(["elfdeps", str(wheel)], rounds),
        _peer(["unzip", "-tqq", str(wheel)], rounds),
    ]
    size = wheel.stat().st_size / 1e6
    return (
        f"| {'-'.join(wheel.name.split('-')[:2])} | {size:.0f} | {min(floor):.2f} | {min(ours):.2f} | "
        f"{statistics.median(ratios):.2f} | {memory} MB | {again * 1000:.1f} ms | {' | '.join(peers)} |"
    )


def _one(wheel: Path) -> int:
    """Print the private memory that one audit adds, in MB (Linux: peak of anonymous pages, from smaps_rollup)."""
    import threading

    def private() -> int:
        text = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon"))

    start, peak, done = private(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, private())

    thread = threading.Thread(target=watch)
    thread.start()
    _audit(wheel, None)
    done.set()
    thread.join()
    print(max(0, peak - start) // 1024)
    return 0


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _inflate(wheel: Path) -> None:
    with WheelArchive.open(wheel) as archive:
        for member in archive.members:
            for _ in archive.stream(member):
                pass


def _audit(wheel: Path, store: Store | None, digest: Digest | None = None) -> None:
    digest = digest or Digest("0" * 64)
    audit_wheel(wheel, wheel.name, TERMS, store=store, digest=digest)


def _peer(command: list[str], rounds: int) -> str:
    found = shutil.which(command[0], path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin")
    if found is None:
        return "-"
    best: float | None = None
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        result = subprocess.run([found, *command[1:]], capture_output=True)
        seconds = time.perf_counter() - start
        if result.returncode != 0 and resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before.ru_utime < 0.3:
            return "-"
        best = min(seconds, best) if best else seconds
    return f"{best:.2f}"


if __name__ == "__main__":
    sys.exit(main())
