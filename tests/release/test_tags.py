from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import BadInput
from builder.release.tags import version_tag

FIELDS = {
    "name": "demo",
    "version": "1.2.0",
    "backend": "cuda",
    "toolkit": "13.0",
    "arch": "x86_64",
    "python": "3.11",
}


@pytest.mark.parametrize(
    ("grammar", "changed", "tag"),
    [
        ("{version}-{backend}{toolkit}", {}, "1.2.0-cuda13.0"),
        ("{version}-{backend}{toolkit}", {"backend": "cpu", "toolkit": None}, "1.2.0-cpu"),
        ("{version}-{backend}{toolkit}-{arch}", {"arch": "aarch64"}, "1.2.0-cuda13.0-aarch64"),
        ("{version}-{backend}{toolkit}", {"version": "1.2.0+git.5"}, "1.2.0_git.5-cuda13.0"),
        ("{version}", {"version": "1!2.0rc1"}, "1-2.0rc1"),
        ("{name}_py{python}-{backend}", {}, "demo_py3.11-cuda"),
        ("v{version}", {}, "v1.2.0"),
        ("{{{version}}}", {}, None),
        ("{version", {}, None),
        ("{}", {}, None),
        ("{version:>9}", {}, None),
        ("{version!r}", {}, None),
        ("", {}, None),
        ("-{version}", {}, None),
        ("{version}", {"version": "1" * 129}, None),
    ],
)
def test_tag_grammar(grammar: str, changed: dict[str, str | None], tag: str | None) -> None:
    fields = {**FIELDS, **changed}
    if tag is None:
        with pytest.raises(BadInput):
            version_tag(grammar, **fields)  # type: ignore[arg-type]
    else:
        assert version_tag(grammar, **fields) == tag  # type: ignore[arg-type]


def test_a_misspelled_field_gets_a_hint() -> None:
    with pytest.raises(BadInput, match="unknown field") as caught:
        version_tag("{verison}", **FIELDS)
    assert caught.value.fix == "did you mean 'version'?"


@given(st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(\+[a-z0-9.]{1,20})?", fullmatch=True))
def test_every_version_makes_a_legal_tag(version: str) -> None:
    tag = version_tag("{version}-{backend}{toolkit}", **{**FIELDS, "version": version})
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", tag)
