"""The grammar of a condition: what a cell of `when` and `allow` may hold.

Each value lists alternatives, divided by ` | `: version bounds for keys that are versions, names for the rest. An
alternative that begins with `not ` must not hold; `*` holds for anything that was named. A key is one of `KEYS` or a
distribution name.
"""

from __future__ import annotations

from functools import lru_cache

from builder.matrix.versions import parse, specifier

__all__ = ["KEYS", "NAMES", "alternatives", "fault_of", "spoken"]

KEYS = (
    "toolkit",
    "driver",
    "firmware",
    "device",
    "target",
    "capability",
    "features",
    "machine",
    "os",
    "kernel",
    "python",
    "libc",
)
"""Keys of a condition besides distribution names; `capability` is the number of an NVIDIA target (sm_89 is 8.9)."""

NAMES = frozenset({"device", "target", "features", "machine", "os", "neff-target", "feature", "image"})
"""Keys whose alternatives are names."""


@lru_cache(maxsize=8192)
def alternatives(text: str) -> tuple[str, ...]:
    """The alternatives of a condition, as written."""
    return tuple(part.strip() for part in text.split("|"))


def spoken(text: str) -> str:
    """A condition in words.

    `==8.5.0 | ==8.5.1` → `8.5.0 or 8.5.1`; `not debian 13 | not sles 15` → `other than debian 13 and sles 15`.
    """
    parts = [part.removeprefix("==") if part.count("=") == 2 else part for part in alternatives(text)]
    parts = [part for part in parts if part.removesuffix(".*") not in parts or not part.endswith(".*")]
    refused = [part.removeprefix("not ").removeprefix("==") for part in parts if part.startswith("not ")]
    wanted = " or ".join(part for part in parts if not part.startswith("not "))
    return ", ".join(filter(None, (wanted, f"other than {' and '.join(refused)}" if refused else "")))


def fault_of(key: str, text: str) -> str:
    """What is wrong with the text of a condition; empty when nothing is."""
    for alternative in alternatives(text):
        bare = alternative.removeprefix("not ").strip()
        if not bare:
            return f"{key}: an empty alternative"
        known = specifier(bare) is not None or (bare[0].isalnum() and parse(bare) is not None)
        if key not in NAMES and bare != "*" and not known:
            return f"{key}: {bare!r} is not a version bound"
    return ""
