"""The form of a table, its laws, and that every table of this repository holds to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput
from builder.matrix import load_backend, load_tables
from builder.matrix.backend_file import parse_backend_file
from builder.matrix.canonical import canonical
from builder.matrix.load import check_tables, rewrite_tables
from builder.matrix.tables import parse_table

ROOT = resources.matrices_dir()
FILES = sorted(path for path in ROOT.glob("*/*.toml") if path.name not in ("backend.toml", "platform.toml"))

GOOD = """\
kind = "driver-family"
title = "Families"
key = ["family"]
columns = ["family", "driver", "drivers"]
info = ["remark"]

[sources.notes]
text = "Release notes"
checked = 2026-11-30

[[rows]]
family = "12"
driver = "525.60.13"
drivers = ">=525,<580"
source = "notes"
confidence = "primary"

[[rows]]
family = "13"
driver = "580.65.06"
drivers = ">=580"
remark = "newest"
source = "notes"
confidence = "primary"
note = "no upper bound yet"
"""

SOURCED = 'source = "notes"\nconfidence = "primary"\n'


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_table_is_faultless_and_in_canonical_form(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    table, faults = parse_table(text, path)
    assert faults == ()
    assert table is not None
    assert canonical(table) == text


def test_all_backends_load_and_hold_the_laws_between_files() -> None:
    tables = load_tables()
    assert set(tables.names) >= {"cpu", "cuda", "rocm", "npu", "neuron", "tpu", "xpu", "hpu"}
    for name in tables.names:
        backend = tables.backend(name)
        assert backend.spec.title
        assert backend.rows("set")
        for row in (row for table in backend.tables for row in table.rows):
            assert row.source.text
            assert row.source.checked.year >= 2026
    assert check_tables(ROOT) == ()


def test_the_sample_is_good_and_canonical() -> None:
    table, faults = parse_table(GOOD, Path("t.toml"))
    assert faults == ()
    assert table is not None
    assert canonical(table) == GOOD


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('family = "13"\n', 'famliy = "13"\nfamily = "13"\n', "unknown key 'famliy'; did you mean 'family'?"),
        ('family = "13"', 'family = "12"', "2 rows have the key 12"),
        ('drivers = ">=580"', 'drivers = ">=570"', "drivers of two rows overlap: >=525,<580 and >=570"),
        (f"{SOURCED}note", 'confidence = "primary"\nnote', "a row without a known source"),
        (f"{SOURCED}note", 'source = "nots"\nconfidence = "primary"\nnote', "did you mean 'notes'?"),
        ('confidence = "primary"\nnote', 'confidence = "sure"\nnote', "a row without confidence"),
        ("checked = 2026-11-30", "", "a source without the date it was checked"),
        ('text = "Release notes"', 'text = ""', "a source without text"),
        ('driver = "580.65.06"', 'driver = "new"', "'new' is not a version"),
        ('driver = "580.65.06"\n', "", "no 'driver'"),
        ('remark = "newest"', 'remark = ""', "leave the cell out when the value is not known"),
        ('kind = "driver-family"', 'kind = "driver-famly"', "unknown kind 'driver-famly'; did you mean"),
        ('["family", "driver", "drivers"]', '["family", "driver", "dirvers"]', "unknown column 'dirvers'"),
        ('title = "Families"', 'titel = "Families"', "unknown key 'titel'"),
        ('family = "12"', "family = 12", "expected text"),
        ("[[rows]]", "[[rows", "not TOML"),
    ],
)
def test_each_law_is_held(old: str, new: str, message: str) -> None:
    assert old in GOOD
    _, faults = parse_table(GOOD.replace(old, new, 1), Path("t.toml"))
    assert any(message in str(fault) for fault in faults), [str(fault) for fault in faults]


def test_a_fault_names_the_line() -> None:
    _, faults = parse_table(GOOD.replace('confidence = "primary"\nnote', 'confidence = "sure"\nnote'), Path("t.toml"))
    assert [str(fault.where) for fault in faults] == ["t.toml:18 (rows[1].confidence)"]


WINDOW = """\
kind = "driver-window"
title = "Windows"
key = ["toolkit", "driver", "verdict"]
columns = ["toolkit", "driver", "verdict"]

[sources.notes]
text = "Release notes"
checked = 2026-11-30

[[rows]]
toolkit = ["4.0"]
driver = ["40"]
verdict = "supported"
source = "notes"
confidence = "primary"

[[rows]]
toolkit = ["4.0"]
driver = ["40"]
verdict = "unsupported"
source = "notes"
confidence = "primary"
"""


def test_two_rows_that_contradict_are_a_fault() -> None:
    _, faults = parse_table(WINDOW, Path("t.toml"))
    assert [fault.what for fault in faults] == ["two rows contradict each other: toolkit 4.0; driver 40"]
    other = WINDOW.replace('driver = ["40"]\nverdict = "unsupported"', 'driver = ["41"]\nverdict = "unsupported"')
    assert parse_table(other, Path("t.toml"))[1] == ()


def test_rows_contradict_in_any_pair_of_their_lists() -> None:
    wide = WINDOW.replace(
        'toolkit = ["4.0"]\ndriver = ["40"]\nverdict = "supported"',
        'toolkit = ["3.9", "4.0"]\ndriver = ["39", "40"]\nverdict = "supported"',
    )
    assert wide != WINDOW
    _, faults = parse_table(wide, Path("t.toml"))
    assert [fault.what for fault in faults] == ["two rows contradict each other: toolkit 4.0; driver 40"]


LIMIT = """\
kind = "limit"
title = "Limits"
key = ["rule"]
columns = ["rule", "when", "allow", "verdict", "why"]

[sources.notes]
text = "Release notes"
checked = 2026-11-30

[[rows]]
rule = "a"
when = { toolkit = ">=4" }
allow = { os = "ubuntu 24.04" }
why = "so"
source = "notes"
confidence = "primary"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('">=4"', '"=>4"', "toolkit: '=>4' is not a version bound"),
        ('">=4"', '">=4 | "', "toolkit: an empty alternative"),
        ('allow = { os = "ubuntu 24.04" }\n', "", "a limit has either allow or a verdict"),
        ('why = "so"', 'verdict = "supported"\nwhy = "so"', "a limit has either allow or a verdict"),
        ('why = "so"', 'verdict = "fine"\nwhy = "so"', "'fine' is no verdict"),
        ('when = { toolkit = ">=4" }\n', "", "no 'when'"),
    ],
)
def test_limits_are_checked(old: str, new: str, message: str) -> None:
    assert parse_table(LIMIT, Path("t.toml"))[1] == ()
    assert old in LIMIT
    _, faults = parse_table(LIMIT.replace(old, new, 1), Path("t.toml"))
    assert any(message in str(fault) for fault in faults), [str(fault) for fault in faults]


def test_an_unused_source_is_a_fault() -> None:
    text = GOOD.replace("[[rows]]", '[sources.other]\ntext = "x"\nchecked = 2026-11-30\n\n[[rows]]', 1)
    _, faults = parse_table(text, Path("t.toml"))
    assert [fault.what for fault in faults] == ["source 'other' is not used by any row"]


def test_check_finds_what_is_out_of_order_and_write_mends_it(tmp_path: Path) -> None:
    root = tmp_path / "matrices"
    (root / "cpu").mkdir(parents=True)
    (root / "cpu" / "backend.toml").write_text((ROOT / "cpu" / "backend.toml").read_text(encoding="utf-8"))
    head, first, second = GOOD.split("[[rows]]")
    (root / "cpu" / "t.toml").write_text(f"{head}[[rows]]{second}\n[[rows]]{first}")
    assert [fault.what for fault in check_tables(root)] == ["not in canonical form"]
    assert rewrite_tables(root) == (root / "cpu" / "t.toml",)
    assert (root / "cpu" / "t.toml").read_text() == GOOD
    assert check_tables(root) == ()


def test_an_unknown_backend_has_a_hint() -> None:
    with pytest.raises(BadInput) as caught:
        load_backend("cudda")
    assert "did you mean 'cuda'" in caught.value.fix


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("default_index = false", 'default_index = "no"', "default_index is not true or false"),
        ('title = "CPU"', 'titel = "CPU"', "unknown key 'titel'"),
        ('targets = "none"', 'targets = "smm"', "unknown scheme of targets 'smm'; did you mean 'sm'?"),
        ("https://", "http://", "an index without https"),
        ('arch = "x86_64"', 'arch = "amd64"', "unknown architecture 'amd64'"),
        ("checked = 2026-11-30\nsource", "source", "no date of the last check"),
        ('title = "CPU"', "title = 1", "title is not a text"),
        ('prefer = ["torch"]', 'prefer = "torch"', "prefer is not a list of texts"),
        ('"torch", "torchaudio"', '"torchaudio", "torch"', "packages are not sorted"),
        ("[runtime.run]", "[runtime.run]\ndevises = []", "did you mean 'devices'"),
        ("[[indexes]]", "[indexes]", "indexes is not an array of tables"),
        ("[runtime.env]", "[[runtime.env]]", "env is not a table"),
        ("[[labels]]", "[[labels", "not TOML"),
    ],
)
def test_backend_files_are_checked_too(old: str, new: str, message: str) -> None:
    text = (ROOT / "cpu" / "backend.toml").read_text(encoding="utf-8")
    assert old in text
    spec, faults = parse_backend_file(text.replace(old, new, 1), Path("x/backend.toml"))
    assert spec is None
    assert any(message in str(fault) for fault in faults), [str(fault) for fault in faults]


def test_a_faulty_table_stops_whoever_asks_for_it_with_every_fault(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "backend.toml").write_text((ROOT / "cpu" / "backend.toml").read_text(encoding="utf-8"))
    (tmp_path / "cpu" / "t.toml").write_text(GOOD.replace('"primary"', '"sure"'))
    backend = load_backend("cpu", tmp_path)
    with pytest.raises(BadInput) as caught:
        backend.rows("driver-family")
    assert len(caught.value.faults) == 2


SET = """\
kind = "set"
title = "Sets"
key = ["set"]
columns = ["set", "packages", "index"]
lead = "torch"

[sources.notes]
text = "Release notes"
checked = 2026-11-30

[[rows]]
set = "one"
packages = { torch = "2.13.0" }
index = "pytorch"
source = "notes"
confidence = "primary"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('lead = "torch"\n', "", "a table of sets names no lead package"),
        ('lead = "torch"', 'lead = "jax"', "lead 'jax' is not among prefer of backend.toml"),
        ('index = "pytorch"', 'index = "pytroch"', "backend.toml has no index 'pytroch'"),
        ("torch = ", "torchaudio = ", "a set without its lead 'torch'"),
        ('"2.13.0" }', '"=>2" }', "'=>2' is not a version or bound"),
        ('packages = { torch = "2.13.0" }', 'packages = "torch"', "expected packages"),
        ('packages = { torch = "2.13.0" }', "packages = 1.5", "a cell of type float"),
        ('index = "pytorch"', 'index = ["pytorch"]', "expected text"),
        ('key = ["set"]', 'key = "set"', "key is not a list of texts"),
    ],
)
def test_laws_of_sets_are_held_across_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "backend.toml").write_text((ROOT / "cpu" / "backend.toml").read_text(encoding="utf-8"))
    (tmp_path / "cpu" / "torch.toml").write_text(SET)
    assert check_tables(tmp_path) == ()
    assert old in SET
    (tmp_path / "cpu" / "torch.toml").write_text(SET.replace(old, new, 1))
    assert any(message in str(fault) for fault in check_tables(tmp_path)), check_tables(tmp_path)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("ascend", "did you mean 'npu' (Huawei Ascend CANN)?"),
        ("intel", "did you mean 'hpu' (Intel Gaudi) or 'xpu' (Intel XPU)?"),
        ("rocn", "did you mean 'rocm' or 'neuron'?"),
    ],
)
def test_a_backend_by_its_makers_name_is_told_by_its_own(name: str, fix: str) -> None:
    with pytest.raises(BadInput) as refused:
        load_backend(name)
    assert refused.value.fix == fix
