from __future__ import annotations

from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput
from builder.project import CopyRule, Project, Warmup, find_project, load_project

MINIMAL = 'name = "svc"\nversion = "1.0"\n'


def write(folder: Path, text: str, name: str = "builder.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str) -> Project:
    return load_project(write(folder, text))


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        load(folder, text)
    error = caught.value
    return [str(fault) for fault in error.faults] or [f"{error.where}: {error.why}; {error.fix}"]


@pytest.mark.skipif("cpu" not in resources.backends(), reason="no tables in this tree")
def test_everything_a_file_can_say(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "run.py").write_text("")
    (tmp_path / "more.txt").write_text("numpy>=2 # why\n-r deep.txt\n\nclick \\\n  ==8.2\n")
    (tmp_path / "deep.txt").write_text("idna --hash=sha256:00\n")
    project = load(
        tmp_path,
        """
name = "My.Service"
version = "1.2.0rc1"
python = "3.12"
arch = "aarch64"
requirements = ["onnxruntime==1.20", "numpy>=2"]
requirements-files = ["more.txt"]
base = "debian:trixie"
registry = "registry.example.org/team/svc"
tag = "{version}-{backend}{toolkit}-{arch}"
description = "d"
license = "MIT"
source = "https://example.org/svc"

[image]
entrypoint = ["python", "-m", "app"]
command = ["--port", "80"]
user = "1000"
workdir = "/srv"
ports = ["8080", "53/udp"]
copy = [{ from = "app/", to = "/srv/lib" }, "run.py"]

[image.env]
A = "1"
B = 2

[warmup]
command = ["python", "run.py"]
timeout = 9

[backend.cpu]
requirements = ["torch==2.13.0+cpu"]
exclude = ["NumPy"]
env = { C = "3" }
python = "3.11"
base = "oci:base"
""",
    )
    assert project.name == "my-service"
    assert project.requirements == ("onnxruntime==1.20", "numpy>=2", "idna", "click ==8.2")
    assert project.image.copy == (
        CopyRule(source="app", target="/srv/lib"),
        CopyRule(source="run.py", target="/srv/run.py"),
    )
    assert project.image.ports == ("8080/tcp", "53/udp")
    assert dict(project.image.env) == {"A": "1", "B": "2"}
    assert project.warmup == Warmup(command=("python", "run.py"), timeout=9.0)
    assert "numpy>=2" not in project.requirements_for("cpu")
    assert project.requirements_for("cpu")[-1] == "torch==2.13.0+cpu"
    assert project.requirements_for("npu") == project.requirements
    assert (project.base_for("cpu"), project.base_for("npu")) == ("oci:base", "debian:trixie")
    assert (project.python_for("cpu"), project.python_for("npu")) == ("3.11", "3.12")


def test_defaults_are_small_and_safe(tmp_path: Path) -> None:
    project = load(tmp_path, MINIMAL)
    assert project.image.user == "10001:10001"
    assert project.base_for("cpu") is None
    assert project.options("cpu").requirements == ()
    assert project.warmup is None


def test_all_faults_come_in_one_go_with_their_lines(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        'name = "svc"\nversion = "one"\nrequirments = []\npython = "3"\n\n'
        '[image]\nuser = "root"\ncopy = [\n  "nowhere",\n]\n'
        "\n[backend.cuda12]\n\n[warmup]\ntimeout = 0\n",
    )
    text = "\n".join(found)
    assert len(found) == 8
    assert "builder.toml:2 (version)" in text
    assert "builder.toml:3 (requirments): unknown key 'requirments'; did you mean 'requirements'" in text
    assert "builder.toml:4 (python)" in text
    assert "builder.toml:7 (image.user)" in text
    assert "builder.toml:8 (image.copy): copy source 'nowhere' does not exist" in text
    assert "builder.toml:12 (backend.cuda12): unknown backend 'cuda12'" in text
    assert "builder.toml:15 (warmup.timeout)" in text
    assert "warmup has no command" in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('requirements = ["numpy>>2"]', "not a requirement"),
        ('requirements = ["a @ https://example.org/a.whl"]', "requirement by URL"),
        ('requirements = "numpy"', "must be an array of strings, not a string"),
        ('tag = "{version}"', "must hold {backend}"),
        ('tag = "{version}-{bakend}"', "did you mean 'backend'"),
        ('arch = "arm64"', "must be one of x86_64, aarch64"),
        ('requirements-files = ["absent.txt"]', "cannot read requirements file"),
        ('extras = ["gpu"]', "extras are given, but no pyproject.toml"),
        ('[image]\nports = ["70000"]', "port '70000'"),
        ('[image]\ncopy = ["../up"]', "not a path inside the project"),
        ('[image]\nuser = "0:0"', "above 0"),
        ("[image.env]\nDEBUG = true", 'write "true" or "false"'),
        ('name = ""', "name"),
        *(
            (f"[backend.cpu]\nmax-size = {value}", "max-size")
            for value in ('"4"', '"0 GB"', '"-1 GB"', '"4 Gb"', "4", '"1e3 MB"')
        ),
    ],
)
def test_each_wrong_value_says_what_is_wrong(tmp_path: Path, line: str, expected: str) -> None:
    text = MINIMAL.replace('name = "svc"\n', "") if line.startswith("name") else MINIMAL
    assert expected in "\n".join(faults(tmp_path, text + line + "\n"))


@pytest.mark.parametrize(
    ("text", "size"), [("4.5 GB", 4_500_000_000), ("1MiB", 1 << 20), ("0.1 KB", 100), ("12 GiB", 12 << 30)]
)
def test_a_size_budget_is_bytes(tmp_path: Path, text: str, size: int) -> None:
    project = load(tmp_path, MINIMAL + f'[backend.cpu]\nmax-size = "{text}"\n')
    assert project.options("cpu").max_size == size
    assert project.options("cuda").max_size is None


def test_options_in_a_requirements_file_are_refused_with_the_right_place(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("numpy\n--extra-index-url https://example.org\n-e .\n-c other.txt\n")
    found = faults(tmp_path, MINIMAL + 'requirements-files = ["r.txt"]\n')
    assert len(found) == 3
    assert "r.txt:2" in found[0]
    assert "pip or uv configuration" in found[0]
    assert "[image] copy" in found[1]


def test_a_requirements_file_that_includes_itself_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("-r b.txt\n")
    (tmp_path / "b.txt").write_text("-r a.txt\n")
    assert "includes itself" in "\n".join(faults(tmp_path, MINIMAL + 'requirements-files = ["a.txt"]\n'))


def test_pyproject_gives_name_version_and_dependencies(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[project]\nname = "svc"\nversion = "2.0"\ndependencies = ["numpy"]\n'
        '[project.optional-dependencies]\nweb_api = ["httpx"]\n[tool.builder]\nextras = ["web-api"]\n',
        "pyproject.toml",
    )
    project = load_project(path)
    assert (project.name, project.version, project.requirements) == ("svc", "2.0", ("numpy", "httpx"))


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, 'name = "svc"\nversion = \n')
    assert caught.value.where is not None
    assert caught.value.where.line == 2


@pytest.mark.parametrize("content", [b"\xff\xfe", b"name = 'a'\0"])
def test_bytes_that_are_not_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "builder.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not TOML"):
        load_project(path)


def test_lines_are_right_behind_multi_line_values(tmp_path: Path) -> None:
    text = MINIMAL + 'description = """\nfoo = [\n[image]\n"""\nrequirements = [\n  "a", # ]\n  "b",\n]\nwrong = 1\n'
    assert "builder.toml:11 (wrong)" in faults(tmp_path, text)[0]


def test_find_project_looks_upwards(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project(deep) == path
    assert find_project(path) == path


def test_find_project_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="builder init"):
        find_project(tmp_path)
    with pytest.raises(BadInput, match="no such project"):
        find_project(tmp_path / "absent")


@pytest.mark.parametrize("table", ["image.env", "backend.rocm.env"])
def test_fr_09_an_image_never_makes_a_device_another(tmp_path: Path, table: str) -> None:
    (fault,) = faults(tmp_path, MINIMAL + f'[{table}]\nHSA_OVERRIDE_GFX_VERSION = "11.0.0"\n')
    assert "HSA_OVERRIDE_GFX_VERSION is not set in an image" in fault
    assert 'record it on the one node class that needs it: env = ["HSA_OVERRIDE_GFX_VERSION=11.0.0"]' in fault
