"""The results of a sweep: JSON Lines that grow as wheels are judged, survive a kill, and are joined part by part.

The first line is the head (what was asked, of which part), then comes one line a source, and at the end a line that
says there are no more. A file without the last line is taken up again where it breaks off.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from builder.audit.shard import WHOLE, Shard
from builder.audit.sources import Source
from builder.audit.values import LEVELS, Level
from builder.errors import BadInput, BuilderError, CannotTell, OutsideFailed, Refused, where_path

__all__ = ["Head", "Incomplete", "Results", "Tally", "joined", "line_of", "open_results", "written"]

SCHEMA = "builder/audit-results/1"
_BLOCK = 1 << 18


class Incomplete(CannotTell):
    """Some part of a sweep is missing or breaks off, so the whole is not known."""

    kind = "incomplete-sweep"


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What all lines of a file answer."""

    backend: str
    policy: str
    """Version of the tables and rules."""
    question: str
    """Digest over everything else that decides a verdict or a choice of wheels: image, exceptions, options."""
    shard: Shard = WHOLE

    def to_json(self) -> dict[str, Any]:
        """The first line."""
        return {
            "schema": SCHEMA,
            "backend": self.backend,
            "policy": self.policy,
            "question": self.question,
            "shard": str(self.shard),
        }

    @classmethod
    def from_json(cls, value: Any) -> Head | None:
        """None when this is no first line."""
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            return None
        try:
            return cls(
                backend=value["backend"],
                policy=value["policy"],
                question=value["question"],
                shard=Shard.parse(value["shard"]),
            )
        except (KeyError, TypeError, BadInput):
            return None


@dataclass(kw_only=True, slots=True)
class Tally:
    """Counts of a sweep; all that is kept of its lines."""

    levels: Counter[str] = field(default_factory=Counter)
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(rule, backend) to the number of wheels with such a finding above a note."""
    failed: Counter[int] = field(default_factory=Counter)
    """Exit code to the number of sources that could not be judged."""

    def add(self, line: Mapping[str, Any]) -> None:
        """Count one line."""
        if failure := line.get("failed"):
            self.failed[int(failure["exit_code"])] += 1
            return
        audit = line["audit"]
        self.levels[audit["level"]] += 1
        found = {(item["rule"], item["backend"]) for item in audit["findings"] if item["severity"] != "info"}
        self.rules.update(sorted(found))

    @property
    def wheels(self) -> int:
        """Wheels judged."""
        return self.levels.total()

    @property
    def level(self) -> Level:
        """The worst of all."""
        return max((level for level in LEVELS if self.levels[level]), key=LEVELS.index, default="ok")

    def to_json(self) -> dict[str, Any]:
        """Part of the last line and of documents; the most frequent findings first."""
        ordered = sorted(self.rules.items(), key=lambda item: (-item[1], item[0]))
        return {
            "wheels": self.wheels,
            "failed": self.failed.total(),
            "levels": {level: self.levels[level] for level in reversed(LEVELS)},
            "rules": [{"rule": rule, "backend": backend, "wheels": number} for (rule, backend), number in ordered],
        }


def line_of(source: Source, outcome: Mapping[str, Any] | BuilderError) -> dict[str, Any]:
    """The line of a source: the audit of its wheel (as `target_document` writes it), or why there is none."""
    line: dict[str, Any] = {"at": list(source.at), "target": source.target, "stamp": source.stamp}
    if isinstance(outcome, BuilderError):
        line["failed"] = {
            "kind": outcome.kind,
            "exit_code": outcome.exit_code,
            "what": outcome.what,
            "why": outcome.why,
            "fix": outcome.fix,
        }
    else:
        line["audit"] = dict(outcome)
    return line


class Results:
    """An open results file. Lines are on disk, as far as the kernel is concerned, when `append` returns."""

    def __init__(self, file: IO[bytes], head: Head) -> None:
        self._file = file
        self.head = head
        self.tally = Tally()
        self.reused = 0
        """Lines that were there already."""
        self._ended = False

    def remaining(self, sources: Iterable[Source]) -> Iterator[Source]:
        """The sources that have no line yet; lines of others are counted, and what follows the first gap is dropped.

        The order of sources never changes, so both are walked side by side and neither is held in memory. A source that
        the outside world failed to deliver, or whose stamp is another now, is a gap.
        """
        rest = iter(sources)
        for source in rest:
            place = self._file.tell()
            line = _complete(self._file.readline())
            if line is None or not _stands_for(line, source):
                self._file.seek(place)
                self._file.truncate()
                yield source
                yield from rest
                return
            self.tally.add(line)
            self.reused += 1
        place = self._file.tell()
        last = _complete(self._file.readline())
        self._ended = last is not None and "end" in last
        if not self._ended:
            self._file.seek(place)
            self._file.truncate()

    def append(self, line: Mapping[str, Any]) -> None:
        """Write and count one line."""
        self._file.write(_bytes(line))
        self._file.flush()
        self.tally.add(line)

    def finish(self) -> None:
        """Write the last line, unless it stands already."""
        if not self._ended:
            self._file.write(_bytes({"end": self.tally.to_json()}))
            self._file.flush()
            os.fsync(self._file.fileno())


def _bytes(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _complete(raw: bytes) -> dict[str, Any] | None:
    """A whole line; None for a torn one, the end of the file, or anything else."""
    if not raw.endswith(b"\n"):
        return None
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _stands_for(line: Mapping[str, Any], source: Source) -> bool:
    same = (line.get("at"), line.get("target"), line.get("stamp")) == (list(source.at), source.target, source.stamp)
    failed = line.get("failed")
    judged = isinstance(line.get("audit"), dict)
    return same and (judged or (isinstance(failed, dict) and failed.get("exit_code") != OutsideFailed.exit_code))


@contextmanager
def open_results(path: Path, head: Head) -> Iterator[Results]:
    """The file, for this process alone; begun anew when it answers another question.

    `BadInput` for a file that holds something else, `Refused` while another process writes to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"{path} is being written",
                why="another process sweeps into this file",
                fix="give each shard a file of its own",
            ) from None
        first = file.readline()
        found = Head.from_json(_complete(first))
        if first and found is None and (len(first) > _BLOCK or first.endswith(b"\n")):
            raise BadInput(f"{path} holds no results", fix="name another file, or remove it", where=where_path(path))
        if found != head:
            file.seek(0)
            file.truncate()
            file.write(_bytes(head.to_json()))
            file.flush()
        yield Results(file, head)


def joined(
    paths: Sequence[Path], *, partial: bool, tally: Tally, found: Callable[[Head], None] = lambda _head: None
) -> Iterator[dict[str, Any]]:
    """The lines of all parts in the order of one sweep without parts, counted in `tally` as they pass.

    One line of each part is held at a time. `found` is told the head of the whole before the first line.
    `BadInput` when the files do not belong together, `Incomplete` when they are not all there and whole (with
    `partial`, they need not be).
    """
    heads = [_head(path) for path in paths]
    odd = next((path for path, head in zip(paths, heads, strict=True) if _question(head) != _question(heads[0])), None)
    if odd is not None:
        raise BadInput(
            f"{paths[0]} and {odd} do not belong to one sweep",
            why="they were made for another backend, with other tables or other options",
            fix="sweep all parts with the same builder and the same options",
        )
    numbers = Counter(head.shard.number for head in heads)
    twice = [number for number, times in numbers.items() if times > 1]
    if twice:
        raise BadInput(f"part {twice[0]} of {heads[0].shard.count} is given twice", fix="name each file once")
    absent = [number for number in range(1, heads[0].shard.count + 1) if number not in numbers]
    if absent and not partial:
        shown = ", ".join(map(str, absent[:8])) + (f" and {len(absent) - 8} more" if len(absent) > 8 else "")
        raise Incomplete(
            f"{len(absent)} of {heads[0].shard.count} parts are missing",
            why=f"no file is of part {shown}",
            fix="sweep them too, or join what there is with --partial",
        )
    found(replace(heads[0], shard=WHOLE))
    parts = [_lines(path, partial=partial) for path in paths]
    for line in heapq.merge(*parts, key=lambda item: item["at"]):
        tally.add(line)
        yield line


def _question(head: Head) -> tuple[str, str, str, int]:
    return head.backend, head.policy, head.question, head.shard.count


def _head(path: Path) -> Head:
    try:
        with path.open("rb") as file:
            head = Head.from_json(_complete(file.readline(_BLOCK)))
    except FileNotFoundError as error:
        raise BadInput(f"no such file: {path}", fix="check the path") from error
    if head is None:
        raise BadInput(f"{path} holds no results", fix="name what audit --results wrote", where=where_path(path))
    return head


def _lines(path: Path, *, partial: bool) -> Iterator[dict[str, Any]]:
    """The lines between the first and the last. The file is open only while a block is read: parts may be thousands."""
    place = 0
    rest = b""
    first = True
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
    while place < size:
        with path.open("rb") as file:
            file.seek(place)
            block = file.read(_BLOCK)
        place += len(block)
        *whole, rest = (rest + block).split(b"\n")
        for raw in whole:
            line = _complete(raw + b"\n")
            if first:
                first = False
            elif line is not None and "end" in line:
                return
            elif line is None or not _is_place(line.get("at")):
                raise BadInput(f"{path} is damaged", why=f"no result: {raw[:60]!r}", fix="sweep this part again")
            else:
                yield line
    if not partial:
        raise Incomplete(
            f"{path} breaks off",
            why="its sweep was not finished",
            fix="run it again with the same --results; it goes on from here, or join with --partial",
        )


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def written(path: Path, head: Head, lines: Iterable[Mapping[str, Any]], tally: Tally) -> Iterator[Mapping[str, Any]]:
    """Write the lines to a file as they pass, as one sweep without parts would have; in place when complete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as file:
            file.write(_bytes(head.to_json()))
            for line in lines:
                file.write(_bytes(line))
                yield line
            file.write(_bytes({"end": tally.to_json()}))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
