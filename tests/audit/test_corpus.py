"""Real wheels, downloaded by hash. Small ones run with the network tests, all of them with `-m big`."""

from __future__ import annotations

import pytest

from builder.store import Store
from tests.audit.corpus import UNSEEN, Expected, audited, corpus, differences, fetched

SMALL = 10 << 20


def _cases() -> list[object]:
    return [
        pytest.param(
            row,
            id=row.filename.split("-cp3")[0],
            marks=[pytest.mark.network] if row.size < SMALL else [pytest.mark.network, pytest.mark.big],
        )
        for row in corpus()
    ]


@pytest.mark.parametrize("row", _cases())
def test_the_audit_says_what_a_reader_found(row: Expected, shared_store: Store) -> None:
    path = fetched(row, shared_store)
    if path is None:
        pytest.skip(f"no configured index offers {row.filename}")
    assert differences(row, audited(row, path, shared_store)) == []


def test_no_rule_or_code_names_a_wheel_of_the_corpus() -> None:
    """Verdicts come from kinds of evidence, never from a package's name."""
    from pathlib import Path

    import builder.audit

    folder = Path(builder.audit.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8").lower() for path in sorted(folder.glob("*.py")))
    for row in corpus():
        if row.name not in ("torch", "triton", "torch_npu", "ray"):
            assert f'"{row.name.lower()}"' not in text, row.name


def test_levels_of_the_unseen_follow_from_their_tokens() -> None:
    """The level that somebody wrote down is the one that the tokens mean (docs/audit.md, "Levels")."""
    order = {"block": {"hard", "via", "meta"}, "carry": {"static", "bundled", "device"}}
    for row in corpus(UNSEEN):
        sure = {token for token in row.tokens["cuda"] if not token.endswith("?")}
        level = next((level for level, tokens in order.items() if sure & tokens), "warn" if sure else "ok")
        assert row.level == level, row.filename
