"""The audit beside its peers on the same wheels, in one run: auditwheel, elfdeps, unzip -t, and bare inflate + CRC-32.

The yardstick is what any reader must do at least, in one thread and with nothing of builder's: the archive's directory
by `zipfile`, then isal inflate + CRC-32 of every member. Each tool gets one wheel at a time, starting cold (a new
process for the command line tools; no stored facts for ours). Then a set of wheels by one process and by two.

    pip install auditwheel elfdeps
    python bench/audit.py --wheels DIR [--set DIR] [--large WHEEL] [--rounds 3] [--write]

DIR holds wheels, for instance from `pip download torch==2.13.0+cpu xformers bitsandbytes catboost`.
"""

from __future__ import annotations

import argparse
import mmap
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from isal import isal_zlib
from isal.igzip_lib import DECOMP_DEFLATE, IgzipDecompressor
from report import conditions, write_section

sys.path.insert(0, str(Path(__file__).parent.parent))

from builder.audit.audit import Terms, audit_wheel
from builder.audit.environment import marker_environment
from builder.names import Digest
from builder.store import Store

TERMS = Terms(backend="cpu", environment=marker_environment("3.11", "x86_64"))
TARGET = 0.8
"""Throughput of a full verdict, as a part of inflate + CRC-32."""
TOGETHER = 1.5
"""How much faster two processes are than one."""


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True, help="folder of wheels")
    parser.add_argument("--set", type=Path, help="folder of wheels for one process against two [default: --wheels]")
    parser.add_argument("--large", type=Path, help="a wheel of which only the memory is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return _one(options.one)
    wheels = sorted(options.wheels.glob("*.whl"), key=lambda path: path.stat().st_size)
    lines = [
        "| wheel | MB | inflate | builder audit | ratio | memory | again | auditwheel | elfdeps | unzip |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for wheel in wheels:
        lines.append(_row(wheel, options.rounds))
        print(lines[-1], flush=True)
    text = "\n".join(
        [
            *lines,
            "",
            f"Best of {options.rounds}, in seconds; ratio is the audit's throughput against inflate + CRC-32 of every",
            f"member (median of pairs, target {TARGET}).",
            "Memory is the peak of the whole process, mapped pages of the wheel and the interpreter included (VmHWM).",
            "`again` is the same verdict from stored facts. A dash: not installed, or it refuses the wheel.",
            "",
            _together(sorted((options.set or options.wheels).glob("*.whl")), options.rounds),
            *_large(options.large),
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
    memory = _memory(wheel)
    peers = [
        _peer(["auditwheel", "show", str(wheel)], rounds),
        _peer(["elfdeps", str(wheel)], rounds),
        _peer(["unzip", "-tqq", str(wheel)], rounds),
    ]
    size = wheel.stat().st_size / 1e6
    return (
        f"| {'-'.join(wheel.name.split('-')[:2])} | {size:.0f} | {min(floor):.2f} | {min(ours):.2f} | "
        f"{statistics.median(ratios):.2f} | {memory} MB | {again * 1000:.1f} ms | "
        f"{' | '.join(peers)} |"
    )


def _one(wheel: Path) -> int:
    """Audit one wheel and print this process's peak of resident memory, in MB."""
    _audit(wheel, None)
    status = Path("/proc/self/status").read_text()
    print(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024)
    return 0


def _memory(wheel: Path) -> str:
    command = [sys.executable, __file__, "--wheels", str(wheel.parent), "--one", str(wheel)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _large(wheel: Path | None) -> list[str]:
    if wheel is None:
        return []
    name, size = "-".join(wheel.name.split("-")[:2]), wheel.stat().st_size / 1e6
    return ["", f"Peak memory on {name} ({size:.0f} MB): {_memory(wheel)} MB (target 200)."]


def _together(wheels: list[Path], rounds: int) -> str:
    """A set of wheels by the command line, by one process and shared between two; nothing is known of them before."""
    halves: tuple[list[Path], list[Path]] = ([], [])
    for wheel in sorted(wheels, key=lambda path: -path.stat().st_size):
        min(halves, key=lambda half: sum(path.stat().st_size for path in half)).append(wheel)
    alone, shared, threads = [], [], []
    for _ in range(rounds):
        alone.append(_seconds(lambda: _processes([wheels], jobs=1)))
        shared.append(_seconds(lambda: _processes(list(halves), jobs=1)))
        threads.append(_seconds(lambda: _processes([wheels], jobs=2)))
    pairs = [one / two for one, two in zip(alone, shared, strict=True)]
    size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    return (
        f"{len(wheels)} wheels together ({size:.0f} MB), `builder audit --jobs 1`, an empty store: {min(alone):.2f} s"
        f" by one process, {min(shared):.2f} s by two with half of them each,"
        f" {statistics.median(pairs):.2f} times as fast (median of pairs, target {TOGETHER});"
        f" {min(threads):.2f} s by the two threads of one process, its default here."
    )


def _processes(shares: list[list[Path]], *, jobs: int) -> None:
    with tempfile.TemporaryDirectory() as store:
        environ = {**os.environ, "BUILDER_STORE": store, "PYTHONPATH": str(Path(__file__).parent.parent)}
        command = [sys.executable, "-m", "builder", "audit", "--backend", "cpu", "--json", "--jobs", str(jobs)]
        running = [
            subprocess.Popen(
                [*command, *map(str, share)], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for share in shares
        ]
        for process in running:
            if process.wait() not in (0, 1):
                raise SystemExit(f"builder audit ended with {process.returncode}")


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _inflate(wheel: Path) -> None:
    """The least: in pieces, since a member may be larger than memory, and by the faster of isal's two readers."""
    with (
        wheel.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        zipfile.ZipFile(file) as archive,
        memoryview(data) as view,
    ):
        for info in archive.infolist():
            start = info.header_offset + 30
            start += sum(struct.unpack_from("<HH", data, start - 4))
            with view[start : start + info.compress_size] as packed:
                crc = isal_zlib.crc32(packed) if info.compress_type == zipfile.ZIP_STORED else _crc(packed)
            assert crc == info.CRC


def _crc(packed: memoryview) -> int:
    inflater, crc = IgzipDecompressor(DECOMP_DEFLATE), 0
    for start in range(0, len(packed), 1 << 17):
        with packed[start : start + (1 << 17)] as part:
            piece = inflater.decompress(part, 1 << 18)
        while piece:
            crc = isal_zlib.crc32(piece, crc)
            piece = b"" if inflater.eof else inflater.decompress(b"", 1 << 18)
    return crc


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
