"""A backend is data: a folder of tables makes one, without a line of Python."""

from __future__ import annotations

import shutil
from pathlib import Path

from builder import resources
from builder.matrix import explain, load_tables, parse_question, solve
from builder.matrix.load import check_tables
from tests.conftest import RunBuilder
from tests.schemas import document

BACKEND = """\
title = "Example accelerator"
toolkit = "EXA"
targets = "exact"
prefer = ["torch-exa"]
default_index = false
vendor_base = true
checked = 2026-11-30
source = "Example handbook"

[[labels]]
package = "torch"
arch = "x86_64"
label = "cpu"

[[indexes]]
name = "exa"
url = "https://wheels.example.org/{variant}"
packages = ["torch-exa"]
source = "Example handbook"
checked = 2026-11-30

[runtime]
source = "Example handbook"
setup = ["/opt/exa/env.sh"]

[runtime.env]
EXA_TOOLKIT = "{toolkit}"

[runtime.run]
devices = ["/dev/exa0"]
"""

SETS = """\
kind = "set"
title = "torch-exa"
key = ["set"]
columns = ["set", "packages", "toolkit", "python", "arch", "index", "variant", "targets"]
lead = "torch-exa"
closed = ["torch"]

[sources.handbook]
text = "Example handbook, table 1"
checked = 2026-11-30

[[rows]]
set = "torch-exa-1.0"
packages = { torch-exa = "1.0", torch = "2.12.0" }
toolkit = "4.0"
python = ["3.11"]
arch = ["x86_64"]
index = "exa"
variant = "exa4"
targets = ["exa-a"]
source = "handbook"
confidence = "primary"

[[rows]]
set = "torch-exa-1.1"
packages = { torch-exa = "1.1", torch = "2.13.0" }
toolkit = "5.0"
python = ["3.11", "3.12"]
arch = ["x86_64"]
index = "exa"
variant = "exa5"
targets = ["exa-a", "exa-b"]
source = "handbook"
confidence = "primary"
"""

WINDOW = """\
kind = "driver-window"
title = "Drivers"
key = ["toolkit"]
columns = ["toolkit", "driver", "verdict", "closed"]

[sources.handbook]
text = "Example handbook, table 2"
checked = 2026-11-30

[[rows]]
toolkit = ["==4.*"]
driver = ["==40.*"]
verdict = "supported"
closed = "driver"
source = "handbook"
confidence = "primary"

[[rows]]
toolkit = ["==5.*"]
driver = ["==50.*", "==51.*"]
verdict = "supported"
closed = "driver"
source = "handbook"
confidence = "primary"
"""

BASE = """\
kind = "base"
title = "Images"
key = ["toolkit"]
columns = ["reference", "toolkit", "os", "python"]

[sources.handbook]
text = "Example handbook, table 3"
checked = 2026-11-30

[[rows]]
reference = "registry.example.org/exa:{toolkit}-{os}-py{python}"
toolkit = "5.0"
os = ["ubuntu24.04"]
python = ["3.12"]
source = "handbook"
confidence = "primary"
"""

CLASSES = """\
kind = "nodeclass"
title = "Example machines"
key = ["name"]
columns = ["name", "backend", "arch", "device_arch", "driver"]

[sources.handbook]
text = "Example handbook, table 4"
checked = 2026-11-30

[[rows]]
name = "exa-small"
backend = "exa"
arch = "x86_64"
device_arch = "exa-a"
driver = "40.2"
source = "handbook"
confidence = "primary"
"""


def tables(folder: Path) -> Path:
    """All tables of this repository and one more backend."""
    root = folder / "matrices"
    shutil.copytree(resources.matrices_dir(), root)
    (root / "exa").mkdir()
    for name, text in (("backend", BACKEND), ("torch", SETS), ("driver-window", WINDOW), ("base", BASE)):
        (root / "exa" / f"{name}.toml").write_text(text, encoding="utf-8")
    (root / "nodeclasses" / "exa.toml").write_text(CLASSES, encoding="utf-8")
    return root


def test_a_folder_of_tables_is_a_backend(tmp_path: Path) -> None:
    root = tables(tmp_path)
    assert check_tables(root) == ()
    loaded = load_tables(root)
    assert "exa" in loaded.names
    newest, older = solve(loaded, backend="exa", python=None).stacks
    assert newest.frameworks == {"torch-exa": "1.1", "torch": "2.13.0+cpu"}
    assert newest.constraints == ("torch-exa==1.1", "torch==2.13.0+cpu")
    assert newest.indexes[0].index == "https://wheels.example.org/exa5"
    assert newest.base == "registry.example.org/exa:5.0-ubuntu24.04-py3.12"
    assert newest.runtime.env == {"EXA_TOOLKIT": "5.0"}
    assert newest.runtime.setup == ("/opt/exa/env.sh",)
    assert older.toolkit == "4.0"


def test_its_rules_speak(tmp_path: Path) -> None:
    backend = load_tables(tables(tmp_path)).backend("exa")
    for settings, verdict in (
        ({"toolkit": "5.0", "driver": "51.3"}, "supported"),
        ({"toolkit": "5.0", "driver": "40.2"}, "unsupported"),
        ({"torch-exa": "1.0", "torch": "2.13.0"}, "unsupported"),
        ({"torch-exa": "1.0", "arch": "exa-b"}, "unsupported"),
        ({"torch-exa": "1.1", "arch": "exa-b"}, "supported"),
        ({"torch-exa": "9.9"}, "unknown"),
    ):
        assert explain(backend, parse_question(settings, backend)).verdict == verdict, settings


def test_the_command_line_knows_it(tmp_path: Path, run_builder: RunBuilder) -> None:
    root = tables(tmp_path)
    arguments = ("--backend", "exa", "--tables", root, "--node-class", "exa-small", "--json")
    result = run_builder("matrix", "solve", *arguments)
    assert result.returncode == 0, result.stderr
    found = document(result, "matrix-solve")
    assert [stack["toolkit"] for stack in found["stacks"]] == ["4.0"]
    assert found["refused"][0]["rules"][0]["rule"] == "driver-window"
