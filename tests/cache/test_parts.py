"""How files become blobs: the same files the same blobs, one more file one other pack, every byte somewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.cache.parts import LARGEST, SMALLEST, Cut, Part, Piece, cut, needed, parse_part
from builder.errors import BadInput
from builder.names import Digest


def named(number: int) -> Digest:
    return Digest.of(str(number).encode())


sizes = st.one_of(
    st.integers(0, 4096), st.integers(SMALLEST - 2, SMALLEST + 2), st.integers(LARGEST - 2, 3 * LARGEST + 5)
)
listings = st.dictionaries(st.integers(0, 5000).map(named), sizes, max_size=200)


def parts_of(files: dict[Digest, int]) -> list[Part]:
    return [Part(digest=Digest.of(repr(one).encode()), pieces=one.pieces) for one in cut(files)]


@settings(max_examples=80, deadline=None)
@given(files=listings)
def test_every_byte_of_every_file_is_in_one_blob(files: dict[Digest, int]) -> None:
    found: dict[Digest, list[Piece]] = {}
    for one in cut(files):
        assert 0 < one.size <= LARGEST
        for piece in one.pieces:
            found.setdefault(piece.file, []).append(piece)
    assert found.keys() == {digest for digest, size in files.items() if size}
    for digest, pieces in found.items():
        end = 0
        for piece in sorted(pieces, key=lambda piece: piece.offset):
            assert piece.offset == end
            end += piece.size
        assert end == files[digest]
    assert cut(dict(reversed(files.items()))) == cut(files)


def test_one_file_more_changes_one_pack() -> None:
    before = {named(number): 100 for number in range(2000)}
    first = set(cut(before))
    assert len(first) > 20
    changed = set(cut({**before, named(5001): 100})) - first
    assert 1 <= len(changed) <= 2


def test_a_file_of_its_own_is_a_blob_of_its_own() -> None:
    assert cut({named(1): SMALLEST}) == (Cut((Piece(named(1), 0, SMALLEST),)),)
    large = cut({named(1): 2 * LARGEST + 1})
    assert [one.pieces[0].offset for one in large] == [0, LARGEST, 2 * LARGEST]
    assert large[-1].size == 1


@settings(max_examples=60, deadline=None)
@given(files=listings, data=st.data())
def test_only_parts_that_hold_something_missing_are_needed(files: dict[Digest, int], data: st.DataObject) -> None:
    parts = parts_of(files)
    missing = {digest: size for digest, size in files.items() if data.draw(st.booleans())}
    wanted = needed(parts, missing)
    assert {piece.file for part in wanted for piece in part.pieces} >= {file for file, size in missing.items() if size}
    assert all(any(piece.file in missing for piece in part.pieces) for part in wanted)


def test_a_file_that_no_part_gives_whole_is_named() -> None:
    parts = parts_of({named(1): 10})
    for missing in ({named(2): 5}, {named(1): 11}):
        with pytest.raises(BadInput, match="is not whole"):
            needed(parts, missing)


def test_a_part_reads_back_as_it_was_written() -> None:
    part = Part(digest=named(9), pieces=(Piece(named(1), 0, 5), Piece(named(2), 7, 9)))
    assert parse_part(part.to_json()) == part


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"digest": "sha256:x", "pieces": []},
        {"digest": str(named(1)), "pieces": []},
        {"digest": str(named(1)), "pieces": [[str(named(1)), 0]]},
        {"digest": str(named(1)), "pieces": [[str(named(1)), -1, 5]]},
        {"digest": str(named(1)), "pieces": [[str(named(1)), 0, LARGEST + 1]]},
    ],
)
def test_a_part_that_cannot_be_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        parse_part(value)
