"""Tables kept in the store: the same as read from the files, and never those of other content."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder import resources
from builder.errors import BadInput
from builder.matrix import explain, load_tables, parse_question
from builder.matrix.canonical import canonical
from builder.matrix.load import load_table_file
from builder.matrix.reader import read_toml
from builder.store import Store


def test_what_is_kept_is_what_was_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first, second = load_tables(None, store), load_tables(None, store)
    assert len(list((tmp_path / "store" / "derived" / "tables").iterdir())) == 1
    for loaded in (first, second):
        for name in loaded.names:
            for table in loaded.backend(name).tables:
                plain = load_table_file(table.path)
                assert table == plain
                assert canonical(table) == canonical(plain)


def test_what_backends_have_in_common_is_kept_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    load_tables(None, store)
    kept, plain = load_tables(None, store), load_tables()
    assert kept.names == plain.names
    for name in plain.names:
        assert kept.backend(name).spec == plain.backend(name).spec
        assert kept.backend(name).files == plain.backend(name).files
    with pytest.raises(BadInput, match="unknown backend 'cudda'"):
        kept.backend("cudda")


@pytest.mark.parametrize("damage", [b"", b"short", b"changed"])
def test_a_damaged_copy_counts_as_absent(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path / "store")
    load_tables(None, store)
    (path,) = (tmp_path / "store" / "derived" / "tables").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage == b"changed" else damage)
    rows = load_tables(None, store).backend("cuda").rows("driver-family")
    assert rows == load_tables().backend("cuda").rows("driver-family")
    assert path.read_bytes() == whole


def test_it_answers_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    load_tables(None, store)
    kept = load_tables(None, store).backend("cuda")
    plain = load_tables().backend("cuda")
    asked = {"torch": "2.13.0", "driver": "550.54.14", "device": "H100", "os": "ubuntu 22.04", "tensorrt": "10.5"}
    assert explain(kept, parse_question(asked, kept)) == explain(plain, parse_question(asked, plain))


def test_an_edited_table_is_read_again(tmp_path: Path) -> None:
    root, store = tmp_path / "matrices", Store(tmp_path / "store")
    shutil.copytree(resources.matrices_dir(), root)
    before = load_tables(root, store).backend("cuda").rows("driver-family")[0].text("driver")
    path = root / "cuda" / "driver-family.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(str(before), "1.2.3", 1), encoding="utf-8")
    assert load_tables(root, store).backend("cuda").rows("driver-family")[0].text("driver") == "1.2.3"
    path.write_text(path.read_text(encoding="utf-8").replace('"primary"', '"sure"', 1), encoding="utf-8")
    with pytest.raises(BadInput, match=r"driver-family\.toml is not a table"):
        load_tables(root, store)


@pytest.mark.parametrize(
    "path", sorted(resources.matrices_dir().glob("*/*.toml")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_the_quick_reader_reads_what_the_library_reads(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert read_toml(text) == tomllib.loads(text)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet='ab="[]{},\\\n\t #.1-', max_size=60))
def test_on_any_text_it_reads_the_same_or_fails_the_same(text: str) -> None:
    for sample in (text, f'a = "{text}"\n', f"[[rows]]\na = {text}\n", f"[sources.x]\na = [{text}]\n"):
        try:
            expected = tomllib.loads(sample)
        except tomllib.TOMLDecodeError:
            with pytest.raises(tomllib.TOMLDecodeError):
                read_toml(sample)
        else:
            assert read_toml(sample) == expected
