"""How an engine is cut into blobs of a registry: what two engines have in common is one blob, and none is very large.

- a file of 64 KiB to 32 MiB is a blob: its digest is the file's;
- a larger file is cut into pieces of 32 MiB, so that a broken transfer goes on where it was;
- smaller files are packed, in the order of their digests; a pack ends behind a file whose digest says so. Which files
  share a pack hence depends on the files around them alone: one file more changes one pack, not all that follow.

Pure: sizes and digests of files in, blobs with what they hold out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from builder.errors import BadInput
from builder.names import Digest

__all__ = ["LARGEST", "SMALLEST", "Cut", "Part", "Piece", "cut", "needed", "parse_part"]

SMALLEST = 64 << 10
"""Bytes of a file from which on it is a blob of its own."""
LARGEST = 32 << 20
"""Bytes of a blob at most."""
_ENDS = 16
"""A pack ends behind one file in so many, on average."""
_MAX_PACK = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a file."""

    file: Digest
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A blob to be made of these pieces, one after another."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Bytes of the blob."""
        return sum(piece.size for piece in self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A blob, and what is in it."""

    digest: Digest
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Bytes of the blob."""
        return sum(piece.size for piece in self.pieces)

    def to_json(self) -> dict[str, Any]:
        """The part as it stands in a signed statement."""
        pieces = [[str(piece.file), piece.offset, piece.size] for piece in self.pieces]
        return {"digest": str(self.digest), "pieces": pieces}


def parse_part(value: Any) -> Part:
    """What `to_json` wrote; `BadInput` when it cannot be."""
    try:
        pieces = tuple(Piece(Digest.parse(file), int(offset), int(size)) for file, offset, size in value["pieces"])
        part = Part(digest=Digest.parse(value["digest"]), pieces=pieces)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput("a part of an engine cannot be read", why=f"{type(error).__name__}: {error}") from error
    if not pieces or any(piece.offset < 0 or piece.size < 0 for piece in pieces) or part.size > LARGEST:
        raise BadInput(
            f"part {part.digest} of an engine cannot be", why=f"it has {len(pieces)} pieces, {part.size} bytes"
        )
    return part


def cut(files: Mapping[Digest, int]) -> tuple[Cut, ...]:
    """The blobs for files of these sizes, in an order that depends on the files alone; an empty file needs none."""
    order = sorted((digest for digest, size in files.items() if size), key=lambda digest: digest.hex)
    whole = [piece for digest in order if files[digest] >= SMALLEST for piece in _pieces(digest, files[digest])]
    small = [Piece(digest, 0, files[digest]) for digest in order if files[digest] < SMALLEST]
    return (*(Cut((piece,)) for piece in whole), *_packs(small))


def _pieces(digest: Digest, size: int) -> Iterator[Piece]:
    for offset in range(0, size, LARGEST):
        yield Piece(digest, offset, min(LARGEST, size - offset))


def _packs(pieces: Iterable[Piece]) -> Iterator[Cut]:
    held: list[Piece] = []
    for piece in pieces:
        held.append(piece)
        if int(piece.file.hex[-8:], 16) % _ENDS == 0 or sum(one.size for one in held) >= _MAX_PACK:
            yield Cut(tuple(held))
            held = []
    if held:
        yield Cut(tuple(held))


def needed(parts: Iterable[Part], missing: Mapping[Digest, int]) -> tuple[Part, ...]:
    """The parts to be fetched for files that are not here; `BadInput` when the parts do not give them whole."""
    wanted = [part for part in parts if any(missing.get(piece.file) for piece in part.pieces)]
    stretches: dict[Digest, list[Piece]] = {digest: [] for digest in missing}
    for part in wanted:
        for piece in part.pieces:
            if piece.file in stretches:
                stretches[piece.file].append(piece)
    for digest, size in missing.items():
        if not size:
            continue
        end = 0
        for piece in sorted(stretches[digest], key=lambda piece: piece.offset):
            if piece.offset != end:
                break
            end += piece.size
        if end != size:
            raise BadInput(f"file {digest} of an engine is not whole", why=f"its parts give {end} of {size} bytes")
    return tuple(wanted)
