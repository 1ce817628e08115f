"""The short part of fuzzing: every seed, and the same few hundred mutations of them each time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builder.audit.elf import parse_elf, parse_symbols
from tests.fuzz import seeds
from tests.fuzz.targets import TARGETS

FOUND = Path(__file__).parent / "found"
MUTATIONS = 150


def test_the_small_library_is_one() -> None:
    first, *_ = libraries = list(seeds.elf_files())
    for data in libraries:
        elf = parse_elf(data)
        assert (elf.soname, elf.needed, elf.runpath) == ("libkit.so", ("libcudart.so.12",), "$ORIGIN/../x")
        assert (elf.version_needs, elf.faults) == ({"libc.so.6": ("GLIBC_2.17",)}, ())
    symbols = parse_symbols(parse_elf(first), lambda offset, size: first[offset : offset + size])
    assert [symbol.name for symbol in symbols] == ["cudaMalloc", "dlopen", "cudaStreamX", "libkit.so"]


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_what_was_found(path: Path) -> None:
    """Inputs on which a reader once crashed; the file's name begins with the target's."""
    TARGETS[path.name.split("-", 1)[0]].run(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_mutations(name: str) -> None:
    target = TARGETS[name]
    starts = list(target.seeds())
    for seed in starts:
        target.run(seed)
    chance = random.Random(name)  # noqa: S311  # the same mutations each time
    for _ in range(MUTATIONS):
        target.run(mutated(bytearray(chance.choice(starts)), chance, starts))


def mutated(data: bytearray, chance: random.Random, others: list[bytes]) -> bytes:
    """One to six changes of the kinds that break parsers: odd numbers, cuts, repeats, pieces of another input."""
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 1:
            width = chance.choice((2, 4, 8))
            data[at : at + width] = chance.choice((0, 1, (1 << 8 * width) - 1, 1 << 8 * width - 1)).to_bytes(
                width, "little"
            )
        elif kind == 2:
            del data[at : at + chance.randint(1, 64)]
        elif kind == 3:
            data[at:at] = data[at : at + chance.randint(1, 64)]
        else:
            other = chance.choice(others)
            start = chance.randrange(len(other))
            data[at:at] = other[start : start + chance.randint(1, 200)]
    return bytes(data)
