from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from builder.errors import BadInput, Refused
from builder.project.init import Survey, render, survey, write_project
from builder.project.load import load_project
from tests.project.keys import known_keys

PYPROJECT = """
[project]
name = "My_Service"
version = "1.4.0rc1"
description = "Says \\"hello\\"."
license = "MIT"
requires-python = ">=3.12"
dependencies = ["numpy>=2"]
optional-dependencies = { serve = ["click"] }
urls = { Repository = "https://example.org/my-service" }
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", ".", 1)
        path.write_text(text, encoding="utf-8")
    return folder


def test_a_pyproject_fills_every_field_it_has(tmp_path: Path) -> None:
    write(tmp_path, pyproject__toml=PYPROJECT)
    (tmp_path / "src/my_service").mkdir(parents=True)
    (tmp_path / "src/my_service/__main__.py").write_text("")
    path, _ = write_project(tmp_path)
    project = load_project(path)
    assert (project.name, project.version, project.python) == ("my-service", "1.4.0rc1", "3.12")
    assert (project.description, project.license) == ('Says "hello".', "MIT")
    assert project.source == "https://example.org/my-service"
    assert project.requirements == ("numpy>=2",)
    assert project.image.entrypoint == ("python", "-m", "my_service")
    assert [(rule.source, rule.target) for rule in project.image.copy] == [("src/my_service", "/app/my_service")]


def test_requirements_files_and_a_script(tmp_path: Path) -> None:
    write(tmp_path, requirements__txt="click\n", app__py="")
    path, _ = write_project(tmp_path)
    project = load_project(path)
    assert project.requirements == ("click",)
    assert project.image.entrypoint == ("python", "app.py")
    assert "0.1.0" in path.read_text()


def test_an_empty_folder_gives_a_file_that_loads(tmp_path: Path) -> None:
    folder = tmp_path / "Über service!"
    folder.mkdir()
    path, found = write_project(folder)
    assert load_project(path).name == found.name == "ber-service"


def test_a_requirements_file_that_cannot_be_used_is_left_out_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, requirements__txt="--index-url https://example.org/simple\nclick\n")
    path, found = write_project(tmp_path)
    assert found.requirement_files == ()
    assert found.rejected[0].file == "requirements.txt"
    assert "option in a requirements file: --index-url" in found.rejected[0].reason
    assert "# left out requirements.txt: " in path.read_text()
    assert load_project(path).requirements == ()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write(tmp_path, builder__toml="mine")
    with pytest.raises(Refused, match=r"builder\.toml exists"):
        write_project(tmp_path)
    assert (tmp_path / "builder.toml").read_text() == "mine"


def test_a_pyproject_that_describes_the_project_already_is_enough(tmp_path: Path) -> None:
    write(tmp_path, pyproject__toml=PYPROJECT + "[tool.builder]\n")
    with pytest.raises(Refused, match="described already"):
        write_project(tmp_path)
    assert not (tmp_path / "builder.toml").exists()


def test_a_missing_folder_and_a_broken_pyproject_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        write_project(tmp_path / "absent")
    write(tmp_path, pyproject__toml="[project\n")
    with pytest.raises(BadInput, match="is not TOML"):
        write_project(tmp_path)
    assert not (tmp_path / "builder.toml").exists()


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        (">=3.9", "3.11"),
        (">=3.12,<3.14", "3.12"),
        ("==3.13.*", "3.13"),
        ("<3.11", "3.10"),
        (">=3.11.4", "3.11"),
        (">=4", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_the_interpreter_is_one_that_requires_python_admits(tmp_path: Path, requires: str, expected: str) -> None:
    write(tmp_path, pyproject__toml=f'[project]\nname = "x"\nrequires-python = "{requires}"\n')
    assert survey(tmp_path).python == expected


def test_every_key_of_the_loader_is_written_set_or_commented(tmp_path: Path) -> None:
    """Take the comment signs off all keys at once: the loader must know each of them, and have no other."""
    text = re.sub(r"(?m)^# (?=[a-z-]+ = |\[)", "", render(Survey(name="service")))
    text = text.replace('"requirements.txt"', '"pyproject.toml"')
    (tmp_path / "service").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\noptional-dependencies = { serve = [] }\n")
    path = tmp_path / "builder.toml"
    path.write_text(text)
    assert load_project(path).name == "service"
    tables = tomllib.loads(text)
    written = {
        "": set(tables),
        "image": set(tables["image"]),
        "warmup": set(tables["warmup"]),
        "audit": set(tables["audit"]),
        "backend.npu": set(tables["backend"]["npu"]),
    }
    assert written == known_keys(tmp_path)
