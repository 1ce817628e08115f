"""Coverage-guided fuzzing of one reader, by atheris: it stops at the first crash and writes down the input.

    pip install atheris
    python -m tests.fuzz elf --seconds 300 --corpus FOLDER

The corpus is kept in FOLDER (default: a temporary one) and starts with the seeds of tests/fuzz/seeds.py. Everything
behind `--` goes to libFuzzer.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["builder", "packaging", "zipfile", "tarfile"]):
    from tests.fuzz.targets import TARGETS

MEMORY_MB = 700
SECONDS_AN_INPUT = 20
LONGEST = 1 << 16


def main() -> None:
    """Fuzz until the time is over; libFuzzer ends the process."""
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path)
    options = parser.parse_args(own)
    target = TARGETS[options.target]
    folder = options.corpus or Path(tempfile.mkdtemp(prefix=f"fuzz-{target.name}-"))
    folder.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    flags = [
        f"-max_total_time={options.seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={SECONDS_AN_INPUT}",
        f"-max_len={LONGEST}",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, *rest, str(folder)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
