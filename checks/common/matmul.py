"""A matrix product on the device against a reference that no framework computed.

The matrices hold small whole numbers, so that every partial sum is exact in float32 however the device orders or
rounds its inputs (bfloat16 and TF32 hold them exactly too): the product must be equal, not close. A small product is
compared number by number with one computed in Python; a larger one, which takes the kernels' fast paths, by
Freivalds' method: C·r = A·(B·r) for whole-number vectors r. Option `framework`: module and device; `size`: rows.
"""

from __future__ import annotations

import sys


def check(options):
    """Passed when both products are exactly right."""
    frameworks = sys.modules["__main__"].load("common/frameworks.py")
    try:
        return examine(frameworks.open_framework(options), int(options.get("size", 512)))
    except frameworks.NoDevice as error:
        return "failed", {}, str(error)


def examine(framework, size):
    """The check on an opened framework."""
    small, _ = framework.matmul(matrix(33, 48, 1), matrix(48, 29, 2))
    left, right = matrix(size, size, 3), matrix(size, size, 4)
    large, seconds = framework.matmul(left, right)
    measures = {"matmul_seconds": round(seconds, 6), "matmul_rows": size}
    wrong = compare(small, reference(matrix(33, 48, 1), matrix(48, 29, 2)))
    if wrong:
        return "failed", measures, wrong
    for seed in (5, 6, 7):
        vector = [row[0] * 1009 + row[1] for row in matrix(size, 2, seed)]
        expected = times(left, times(right, vector))
        found = times(large, vector)
        for row, (want, have) in enumerate(zip(expected, found)):
            if want != have:
                return "failed", measures, f"row {row} of the {size} x {size} product is wrong by {have - want:g} (C·r)"
    return "passed", measures, ""


def matrix(rows, columns, seed):
    """Whole numbers from -4 to 4 that follow no pattern a wrong stride would keep (a linear congruential sequence)."""
    state, out = seed * 2654435761 % 2**32, []
    for _ in range(rows):
        line = []
        for _ in range(columns):
            state = (state * 1664525 + 1013904223) % 2**32
            line.append((state >> 24) % 9 - 4)
        out.append(line)
    return out


def reference(left, right):
    """The product in Python's whole numbers."""
    columns = list(zip(*right))
    return [[sum(a * b for a, b in zip(row, column)) for column in columns] for row in left]


def times(rows, vector):
    """Matrix times vector."""
    return [sum(a * b for a, b in zip(row, vector)) for row in rows]


def compare(found, expected):
    """Where the two differ first, or ""."""
    if len(found) != len(expected) or len(found[0]) != len(expected[0]):
        return f"the product has shape {len(found)} x {len(found[0])}"
    for row, (have, want) in enumerate(zip(found, expected)):
        for column, (a, b) in enumerate(zip(have, want)):
            if a != b:
                return f"element ({row}, {column}) is {a!r}, the reference says {b!r}"
    return ""
