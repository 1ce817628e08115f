"""Output: one JSON document or text on stdout; progress, notes and errors on stderr."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from builder.errors import BuilderError
from builder.events import Advance

__all__ = ["Console", "error_document", "print_document", "print_error", "project_option", "shared_options", "styled"]

Colour = Literal["red", "green", "yellow", "cyan", "bold", "dim"]

_CODES: dict[Colour, str] = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_VERDICT_COLOURS: dict[str, Colour] = {
    "ok": "green",
    "passed": "green",
    "supported": "green",
    "proven": "green",
    "built": "green",
    "clean": "green",
    "hit": "green",
    "done": "green",
    "warn": "yellow",
    "carry": "yellow",
    "usable": "yellow",
    "unknown": "yellow",
    "not-run": "yellow",
    "skipped": "dim",
    "block": "red",
    "failed": "red",
    "unsupported": "red",
    "refused": "red",
    "miss": "red",
}


def styled(text: str, colour: Colour, *, enabled: bool) -> str:
    """`text` in a terminal colour, or unchanged when colours are off."""
    return f"\033[{_CODES[colour]}m{text}\033[0m" if enabled else text


def print_document(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout, keys in the order given; plain ASCII where stdout is not UTF-8."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(document, indent=2, ensure_ascii=not unicode)
    # a file name that is not UTF-8 has lone surrogates, which UTF-8 cannot write and JSON can escape
    sys.stdout.write("".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text) + "\n")


def error_document(error: BuilderError) -> dict[str, Any]:
    """The `builder/error/1` document of an error."""
    document: dict[str, Any] = {
        "schema": "builder/error/1",
        "verdict": "error",
        "kind": error.kind,
        "what": error.what,
        "why": error.why,
        "fix": error.fix,
        "where": str(error.where) if error.where else None,
    }
    faults = getattr(error, "faults", ())
    if faults:
        document["faults"] = [
            {"what": fault.what, "where": str(fault.where) if fault.where else None, "fix": fault.fix}
            for fault in faults
        ]
    return document


def print_error(error: BuilderError) -> None:
    """The error on stderr: what, where, why, fix."""
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    sys.stderr.write(f"{styled('error:', 'red', enabled=colour)} {error}\n")


@dataclass(kw_only=True)
class Console:
    """How this command line wants its output. Implements `builder.events.Reporter`."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    color: bool = True
    offline: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._bar = ""

    def document(self, document: Mapping[str, Any], text: Callable[[], str]) -> None:
        """The result: the JSON document under --json, else the text (made only when needed)."""
        if self.json:
            print_document(document)
        else:
            out = text()
            sys.stdout.write(out if out.endswith("\n") else out + "\n")

    def paint(self, text: str, colour: Colour) -> str:
        """`text` coloured for stdout, when stdout is a terminal that wants colours."""
        return styled(text, colour, enabled=self.color and sys.stdout.isatty())

    def verdict(self, word: str) -> str:
        """A verdict word in its colour."""
        colour = _VERDICT_COLOURS.get(word)
        return self.paint(word, colour) if colour else word

    def note(self, text: str) -> None:
        """One line on stderr unless --quiet."""
        if not self.quiet:
            self._write(text)

    def detail(self, text: str) -> None:
        """One line on stderr under --verbose."""
        if self.verbose and not self.quiet:
            self._write(text)

    @contextmanager
    def task(self, title: str, *, total: int | None = None, unit: str = "B") -> Iterator[Advance]:
        """A progress bar on a terminal; elsewhere one line at the end under --verbose."""
        live = sys.stderr.isatty() and not self.quiet
        done = 0
        drawn = 0.0
        start = time.monotonic()

        def advance(amount: int, /) -> None:
            nonlocal done, drawn
            with self._lock:
                done += amount
                now = time.monotonic()
                if live and (now - drawn > 0.1 or done == total):
                    drawn = now
                    self._draw(_bar(title, done, total, unit, now - start))

        try:
            yield advance
        finally:
            with self._lock:
                self._draw("")
            self.detail(f"{title}: {_amount(done, unit)} in {time.monotonic() - start:.1f} s")

    def _write(self, text: str) -> None:
        with self._lock:
            bar, self._bar = self._bar, ""
            sys.stderr.write(("\r\033[K" if bar else "") + text + "\n")

    def _draw(self, bar: str) -> None:
        if bar or self._bar:
            sys.stderr.write("\r\033[K" + bar)
            sys.stderr.flush()
            self._bar = bar


def _amount(count: int, unit: str) -> str:
    if unit != "B":
        return f"{count} {unit}"
    size = float(count)
    for prefix in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {prefix}" if prefix == "B" else f"{size:.1f} {prefix}"
        size /= 1024
    return f"{size:.2f} GiB"


def _bar(title: str, done: int, total: int | None, unit: str, seconds: float) -> str:
    rate = f" {_amount(int(done / seconds), unit)}/s" if seconds > 0.5 else ""
    if not total:
        return f"{title} {_amount(done, unit)}{rate}"
    filled = min(24, 24 * done // total)
    return f"{title} [{'#' * filled}{'.' * (24 - filled)}] {_amount(done, unit)} of {_amount(total, unit)}{rate}"


def shared_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options every command has, and pass them as the first argument, a `Console`.

    Use it directly below `@click.command()`; the function returns the exit code.
    """

    @click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else there.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more about what is done.")
    @click.option("--no-color", is_flag=True, help="No colours (also: NO_COLOR).")
    @click.option("--offline", is_flag=True, help="Use the store alone; do not touch the network.")
    @functools.wraps(function)
    def wrapped(as_json: bool, quiet: bool, verbose: bool, no_color: bool, offline: bool, **options: Any) -> int:
        console = Console(
            json=as_json,
            quiet=quiet,
            verbose=verbose,
            color=not no_color and not os.environ.get("NO_COLOR"),
            offline=offline,
        )
        return function(console, **options)

    return wrapped


def project_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--project`, the project file or its folder (default: here or the nearest folder above)."""
    return click.option(
        "--project",
        type=click.Path(path_type=Path),
        default=None,
        help="builder.toml, pyproject.toml or their folder [default: here or the nearest folder above].",
    )(function)
