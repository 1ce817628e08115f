from __future__ import annotations

import json

import click
import pytest
from jsonschema import Draft202012Validator

from builder.cli.console import Console, error_document, shared_options, styled
from builder.errors import BadInput, Fault, Where
from tests.schemas import schema


def test_json_gives_one_document_and_never_makes_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    def text() -> str:
        raise AssertionError("the text was made")

    Console(json=True).document({"schema": "builder/x/1", "verdict": "é"}, text)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": "builder/x/1", "verdict": "é"}
    assert "é" in out
    assert err == ""


def test_text_ends_with_one_newline(capsys: pytest.CaptureFixture[str]) -> None:
    Console().document({}, lambda: "a")
    Console().document({}, lambda: "b\n")
    assert capsys.readouterr().out == "a\nb\n"


@pytest.mark.parametrize(
    ("console", "shown"),
    [
        (Console(), ["note"]),
        (Console(verbose=True), ["note", "detail"]),
        (Console(quiet=True, verbose=True), []),
    ],
)
def test_notes_and_details_go_to_stderr(console: Console, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    console.note("note")
    console.detail("detail")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.split() == shown


def test_progress_off_a_terminal_is_one_line_under_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    with Console(verbose=True).task("wheels", total=3 << 20) as advance:
        advance(1 << 20)
        advance(2 << 20)
    assert capsys.readouterr().err.startswith("wheels: 3.0 MiB in ")


def test_nothing_is_coloured_off_a_terminal() -> None:
    console = Console(color=True)
    assert console.paint("x", "red") == "x"
    assert console.verdict("block") == "block"
    assert styled("x", "red", enabled=True) == "\033[31mx\033[0m"


def test_an_error_document_follows_its_schema() -> None:
    faults = (Fault(what="one", where=Where(file="a", line=2), fix="mend"), Fault(what="two"))
    for error in (BadInput("no"), BadInput("no", why="w", fix="f", where=Where(file="a", key="k"), faults=faults)):
        Draft202012Validator(schema("error")).validate(error_document(error))


def test_shared_options_become_the_console() -> None:
    seen: list[Console] = []

    @click.command()
    @shared_options
    def command(console: Console) -> int:
        seen.append(console)
        return 4

    assert command.main(["--json", "-q", "-v", "--no-color", "--offline"], standalone_mode=False) == 4
    assert seen == [Console(json=True, quiet=True, verbose=True, color=False, offline=True)]


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    @click.command()
    @shared_options
    def command(console: Console) -> int:
        seen.append(console.color)
        return 0

    monkeypatch.delenv("NO_COLOR", raising=False)
    command.main([], standalone_mode=False)
    monkeypatch.setenv("NO_COLOR", "1")
    command.main([], standalone_mode=False)
    assert seen == [True, False]
