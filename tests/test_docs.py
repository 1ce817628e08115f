"""The documentation says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builder.cli.main import COMMANDS
from tests import renew
from tests.project.keys import known_keys

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md"), *ROOT.glob("bench/*.md")]
)
WRITTEN = [page for page in PAGES if page.parent != ROOT / "docs" / "matrix"]
"""Pages of facts name files of other repositories."""


@pytest.mark.parametrize("page", renew.generated(), ids=lambda page: str(page.relative_to(ROOT)))
def test_generated_parts_are_current(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == renew.generated()[page], "run: python -m tests.renew"


def test_the_page_on_the_project_file_has_every_key_and_no_other(tmp_path: Path) -> None:
    text = (ROOT / "docs/project-file.md").read_text(encoding="utf-8")
    sections = {
        "## Top level": "",
        "## `[image]`": "image",
        "## `[warmup]`": "warmup",
        "## `[audit]`": "audit",
        "## `[backend.NAME]`": "backend.npu",
    }
    documented = {}
    for heading, table in sections.items():
        (body,) = [part for part in re.split(r"(?m)^(?=## )", text) if part.startswith(heading)]
        documented[table] = set(re.findall(r"(?m)^\| `([a-z-]+)` \|", body))
    assert documented == known_keys(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_exist(page: Path) -> None:
    named = set(re.findall(r"(?m)(?:`|^    )builder ([a-z]+)", page.read_text(encoding="utf-8")))
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(
        r"`?((?:docs|bench|examples|tests|scripts|\.ci|\.github)/[\w./-]*\w)", page.read_text(encoding="utf-8")
    )
    assert [name for name in named if not (ROOT / name).exists() and not name.startswith("examples/*")] == []
