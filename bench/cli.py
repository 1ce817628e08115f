"""How long the command takes to start, beside what Python itself and the usual command line libraries take.

    python bench/cli.py [--rounds N] [--write]      in an environment with builder and typer

All programs are run in turn, round after round, so that a busy moment of the machine meets all of them; figures are
medians. `--write` puts them into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from report import conditions, write_section

PROGRAMS = {
    "python -c pass": ["-c", "pass"],
    "python -c 'import argparse'": ["-c", "import argparse"],
    "python -c 'import click'": ["-c", "import click"],
    "python -c 'import typer'": ["-c", "import typer"],
    "builder --version": ["-m", "builder", "--version"],
    "builder --help": ["-m", "builder", "--help"],
}
PEER = "python -c 'import typer'"
TARGETS = {"builder --version": 1.5}


def measure(rounds: int) -> dict[str, float]:
    """Median seconds of each program, from start to exit; the first round only warms the file cache."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as bytecode:
        environ["PYTHONPYCACHEPREFIX"] = bytecode
        for turn in range(rounds + 1):
            for name, arguments in PROGRAMS.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, *arguments], env=environ, stdout=subprocess.DEVNULL, check=True)
                if turn:
                    seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def table(medians: dict[str, float], rounds: int) -> str:
    """The figures as Markdown."""
    lines = [
        f"{conditions()}; medians of {rounds} rounds, all programs in turn.",
        "",
        "| program | milliseconds | times import typer | target |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, value in medians.items():
        target = f"≤ {TARGETS[name]}" if name in TARGETS else ""
        lines.append(f"| `{name}` | {1000 * value:.0f} | {value / medians[PEER]:.2f} | {target} |")
    return "\n".join(lines)


def main() -> int:
    """The benchmark; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    options = parser.parse_args()
    medians = measure(options.rounds)
    text = table(medians, options.rounds)
    print(text)
    if options.write:
        write_section("cli", text)
    missed = [name for name, target in TARGETS.items() if medians[name] > target * medians[PEER]]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
