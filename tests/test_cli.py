"""What scripts rely on, tried as a process: exit codes, streams, names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from builder import __version__
from builder.cli.main import COMMANDS, cli
from tests.conftest import RunBuilder
from tests.lock.indexes import make_wheel
from tests.schemas import FOLDER, document, error, schema


def test_the_version(run_builder: RunBuilder) -> None:
    result = run_builder("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"builder {__version__}\n", "")


def test_help_names_every_command(run_builder: RunBuilder) -> None:
    result = run_builder("--help")
    assert result.returncode == 0
    for name, (_, text) in COMMANDS.items():
        assert any(line.split()[:1] == [name] and text[:30] in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_overview_says(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_shared_options(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    context = click.Context(command)
    names = command.list_commands(context) if isinstance(command, click.Group) else []
    found = [command.get_command(context, one) for one in names] if isinstance(command, click.Group) else []
    subcommands = [one for one in found if one is not None]
    leaves = [command, *subcommands] if command.params or not subcommands else subcommands
    for leaf in leaves:
        flags = {flag for parameter in leaf.params for flag in parameter.opts}
        assert {"--json", "--quiet", "--verbose", "--no-color", "--offline"} <= flags, leaf.name


def test_an_unknown_command_is_exit_2_with_a_hint(run_builder: RunBuilder) -> None:
    result = run_builder("lok")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "unknown command 'lok'" in result.stderr
    assert "did you mean 'lock'" in result.stderr


@pytest.mark.parametrize("arguments", [["--nope"], ["init", "--nope"], ["init", "a", "b"]])
def test_a_wrong_option_is_exit_2(run_builder: RunBuilder, arguments: list[str]) -> None:
    assert run_builder(*arguments).returncode == 2


def test_under_json_an_error_is_a_document_and_stderr_stays_empty(run_builder: RunBuilder) -> None:
    result = run_builder("init", "--nope", "--json")
    found = error(result, 2)
    assert (found["kind"], found["fix"]) == ("bad-input", "see builder init --help")
    assert result.stderr == ""


def test_no_command_at_all_shows_the_help_on_stderr(run_builder: RunBuilder) -> None:
    result = run_builder()
    assert (result.returncode, result.stdout) == (2, "")
    assert "Usage: builder" in result.stderr


def test_init_writes_a_file_and_says_so(run_builder: RunBuilder, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/requirements.txt").write_text("click\n")
    (tmp_path / "app/requirements-dev.txt").write_text("-e .\n")
    found = document(run_builder("init", "app", "--json"), "init")
    assert found["path"] == "app/builder.toml"
    assert found["requirements_files"] == ["requirements.txt"]
    assert found["left_out"][0]["file"] == "requirements-dev.txt"
    again = error(run_builder("init", "app", "--json"), 1)
    assert "exists" in again["what"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_the_program_quietly(builder_environment: dict[str, str], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-P", "-m", "builder", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        env={**builder_environment, "PYTHONUNBUFFERED": unbuffered},
        check=False,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["audit", "file/x-1-py3-none-any.whl", "--backend", "cpu"], "no such file"),
        (["smoke", "oci:file/x:1"], "file/x"),
        (["prove", "oci:file/x:1", "--node-class", "h100"], "file/x"),
        (["audit", "LONG.whl", "--backend", "cpu"], "LONG"),
        (["init", "file"], "no such folder"),
        (["lock", "--backend", "cpu", "--project", "LONG"], "LONG"),
    ],
)
def test_a_path_that_cannot_be_used_is_exit_2_and_no_traceback(
    run_builder: RunBuilder, tmp_path: Path, arguments: list[str], named: str
) -> None:
    (tmp_path / "file").write_text("")
    long = "x" * 300
    result = run_builder(*(word.replace("LONG", long) for word in arguments), "--json")
    assert result.stderr == ""
    assert named.replace("LONG", long) in error(result, 2)["what"]


def test_a_store_that_is_a_file_is_exit_3_and_no_traceback(run_builder: RunBuilder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    make_wheel(tmp_path / "links", "leaf", "1.0")
    (tmp_path / "builder.toml").write_text('name = "svc"\nversion = "1"\nrequirements = ["leaf"]\n')
    environ = {"BUILDER_STORE": str(tmp_path / "file"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "links")}
    result = run_builder("lock", "--backend", "cpu", "--json", env=environ)
    assert result.stderr == ""
    assert error(result, 3)["kind"] == "no-room"


def test_text_and_json_are_printed_in_any_locale(run_builder: RunBuilder, tmp_path: Path) -> None:
    folder = tmp_path / "dienst-\u00e9\u2192"
    folder.mkdir()
    result = run_builder("init", folder, "--json", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert json.loads(result.stdout)["path"] == str(folder / "builder.toml")
    (folder / "builder.toml").unlink()
    result = run_builder("init", folder, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (result.returncode, result.stderr) == (0, "")


def test_the_second_name_is_the_build_command(builder_environment: dict[str, str]) -> None:
    code = "import sys; from builder.cli.main import build_main; build_main()"
    command = [sys.executable, "-P", "-c", code]
    version = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, env=builder_environment, check=True
    )
    assert version.stdout == f"builder {__version__}\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_schema_is_valid_and_named_after_its_document(path: Path) -> None:
    loaded = schema(path.stem)
    text = json.dumps(loaded)
    assert loaded["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert f'"builder/{path.stem}/' in text
