"""Many processes on one cache, killed at random: `python -m tests.cache.stress ROOT WORKERS OPERATIONS SECONDS`.

Each worker puts, looks up, restores, builds under a lock and clears, and writes down what it has committed after `put`
returned. The nursery forks them, kills one every few milliseconds and starts another in its place, until OPERATIONS a
worker are done; then it reads the cache once more. The result is one JSON document on stdout.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

from builder.cache import EngineCache, EngineKey, Entry, engine_kind
from builder.cache.gc import clear
from builder.cache.locks import LockTimeout
from builder.cache.store import EntryGone
from builder.cache.verify import verify
from builder.errors import BuilderError
from builder.names import Digest
from tests.cache.samples import key_of

TENSORRT = engine_kind("tensorrt")
MODELS = [str(Digest.of(f"model {number}".encode())) for number in range(3)]
KEYS = 150
SHORT_LIVED = 30
"""Keys below this number are cleared as unused; the others must stay."""
LONG_AGO = 1_000_000_000.0


def key(number: int) -> EngineKey:
    return key_of(TENSORRT, plugins=f"p:{number}", model=MODELS[number % len(MODELS)])


def source(folder: Path, number: int) -> Path:
    """The engine of a key: a file, or a tree that shares parts with others. Its bytes follow from the number."""
    path = folder / f"engine-{number}"
    if number % 3 == 0:
        path.mkdir(exist_ok=True)
        for part in range(5):
            (path / f"part-{part}").write_bytes(f"{number % 7 if part else number}-{part} ".encode() * 300)
    else:
        path.write_bytes(f"{number % 11} ".encode() * 5000 + str(number % 2).encode())
    return path


def expected(number: int) -> dict[str, bytes]:
    if number % 3 == 0:
        return {f"part-{part}": f"{number % 7 if part else number}-{part} ".encode() * 300 for part in range(5)}
    return {"": f"{number % 11} ".encode() * 5000 + str(number % 2).encode()}


def _built(number: int, folder: Path) -> Path:
    return source(folder, number)


def found(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        return {one.name: one.read_bytes() for one in path.iterdir()}
    return {"": path.read_bytes()}


def work(root: Path, log: Path, seed: int, operations: int) -> int:
    """Random operations until the log says that `operations` are done; 1 on a torn read."""
    chance = random.Random(seed)  # noqa: S311 - which operation comes next is no secret
    cache = EngineCache(root / "cache")
    scratch = root / "scratch" / f"{os.getpid()}-{seed}"
    scratch.mkdir(parents=True)
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    done = log.read_text().count("\n")
    while done < operations:
        number = chance.randrange(KEYS)
        what = chance.choices(("put", "lookup", "restore", "build", "clear"), (40, 25, 20, 10, 5))[0]
        committed = ""
        try:
            if what == "put":
                entry = cache.put(key(number), source(scratch, number))
                committed = str(number)
                if number < SHORT_LIVED:
                    os.utime(cache.store.marker(entry), (LONG_AGO, LONG_AGO))
            elif what == "lookup":
                cache.lookup(key(number))
            elif what == "restore":
                answer = cache.lookup(key(number))
                if answer.verdict == "hit" and answer.entry is not None:
                    target = scratch / f"out-{done}"
                    cache.restore(answer.entry, target)
                    if found(target) != expected(number):
                        os.write(written, f"torn {number}\n".encode())
                        return 1
            elif what == "build":
                cache.get_or_build(key(number), partial(_built, number), timeout=60)
                committed = str(number)
            else:
                clear(cache, unused=86400.0, timeout=5.0)
        except (EntryGone, LockTimeout, FileNotFoundError):
            committed = ""
        except BuilderError as error:
            os.write(written, f"torn {number} {what} {error.what} {error.why}\n".replace("\n", " ").encode() + b"\n")
            return 1
        os.write(written, f"{what} {committed}\n".encode())
        done += 1
    return 0


def main() -> int:
    """The nursery."""
    root, workers, operations, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    chance = random.Random(20261201)  # noqa: S311 - nor is who dies next
    logs = [root / f"log-{number}" for number in range(workers)]
    end = time.monotonic() + seconds
    children: dict[int, int] = {}
    kills = starts = 0
    failed: list[int] = []
    waiting = list(range(workers))
    while (waiting or children) and time.monotonic() < end:
        while waiting:
            number = waiting.pop()
            starts += 1
            child = os.fork()
            if child == 0:
                os._exit(work(root, logs[number], chance.randrange(1 << 30) + starts, operations))
            children[child] = number
        time.sleep(chance.uniform(0.002, 0.08))
        chance.random()
        if children and chance.random() < 0.5:
            os.kill(chance.choice(sorted(children)), signal.SIGKILL)
            kills += 1
        for child in list(children):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                number = children.pop(child)
                if os.WIFSIGNALED(status):
                    waiting.append(number)
                elif os.waitstatus_to_exitcode(status):
                    failed.append(number)
    stuck = sorted(children.values())
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    lines = [line.split() for log in logs if log.exists() for line in log.read_text().splitlines()]
    committed = {int(line[1]) for line in lines if line[0] in ("put", "build") and len(line) == 2}
    cache = EngineCache(root / "cache")
    lost = [
        number for number in sorted(committed) if number >= SHORT_LIVED and cache.lookup(key(number)).verdict != "hit"
    ]
    cleared = clear(cache)
    checked, damage = verify(cache)
    wrong = []
    for entry in cache.entries():
        if isinstance(entry, Entry):
            number = int(entry.key.factors["plugins"][2:])
            target = root / "last"
            if found(cache.restore(entry, target)) != expected(number):
                wrong.append(number)
            shutil.rmtree(target) if target.is_dir() else target.unlink()
    result = {
        "operations": len(lines),
        "kills": kills,
        "committed": len(committed),
        "lost": lost,
        "torn": [line for line in lines if line[0] == "torn"],
        "failed": failed,
        "stuck": stuck,
        "checked": checked,
        "damage": [one.what for one in damage],
        "wrong": wrong,
        "left": [path.name for path in (root / "cache" / "incoming").iterdir()],
        "cleared": len(cleared.removed),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
