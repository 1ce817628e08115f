"""Every error a user can meet: what failed, why, how to mend it, and where.

One class per answer the command line can give (see docs/cli.md, "Exit codes"). Rooms derive their own kinds from
these; the text is made here, late, so that the CLI and `--json` show the same four fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

__all__ = [
    "BadInput",
    "BuilderError",
    "CannotTell",
    "Fault",
    "OutsideFailed",
    "Refused",
    "Where",
    "did_you_mean",
    "raise_faults",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """A place a user can open: a file, optionally a 1-based line, optionally a dotted key path or member name."""

    file: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        text = self.file
        if self.line is not None:
            text += f":{self.line}"
        if self.key:
            text += f" ({self.key})"
        return text


class BuilderError(Exception):
    """Base of all errors shown to users; `kind` names the class in `--json`, `exit_code` is the process status."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3

    def __init__(self, what: str, *, why: str = "", fix: str = "", where: Where | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.where = where

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append(f"  why:   {self.why}")
        if self.fix:
            lines.append(f"  fix:   {self.fix}")
        return "\n".join(lines)


class Refused(BuilderError):
    """The question was understood and the answer is no (exit 1)."""

    kind = "refused"
    exit_code = 1


class BadInput(BuilderError):
    """The question is wrong: an option, a file or a name cannot be used as given (exit 2)."""

    kind = "bad-input"
    exit_code = 2

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", where: Where | None = None, faults: tuple[Fault, ...] = ()
    ) -> None:
        super().__init__(what, why=why, fix=fix, where=where)
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {fault}" for fault in self.faults)])


class OutsideFailed(BuilderError):
    """Network, registry, engine or disk did not do its part (exit 3)."""

    kind = "outside-failed"
    exit_code = 3


class CannotTell(BuilderError):
    """There is no evidence either way, and guessing is not an answer (exit 4)."""

    kind = "cannot-tell"
    exit_code = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing wrong with an input; several are reported together by `raise_faults`."""

    what: str
    where: Where | None = None
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.fix}" if self.fix else text


def raise_faults(what: str, faults: Iterable[Fault], *, where: Where | None = None) -> None:
    """Raise one `BadInput` naming every fault, or return when there is none."""
    found = tuple(faults)
    if len(found) == 1:
        only = found[0]
        raise BadInput(what, why=only.what, fix=only.fix, where=only.where or where, faults=())
    if found:
        raise BadInput(what, why=f"{len(found)} faults", where=where, faults=found)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence naming the closest known words, or the whole list when nothing is close."""
    names = sorted(known)
    close = get_close_matches(word, names, n=2, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"known: {', '.join(names)}" if names else ""


def where_path(path: Path, *, line: int | None = None, key: str | None = None) -> Where:
    """`Where` for a path."""
    return Where(file=str(path), line=line, key=key)
