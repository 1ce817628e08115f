"""Dividing many wheels among processes that do not speak to each other."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Self

from builder.errors import BadInput

__all__ = ["WHOLE", "Shard"]


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """One part of `count` parts; `number` counts from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`3/20`."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise BadInput(
                f"not a shard: {text!r}",
                why="expected I/N with I from 1 to N",
                fix="write 1/20 for the first of 20; a Kubernetes index starts at 0, so add 1",
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def holds(self, name: str) -> bool:
        """Whether a thing of this name belongs to this part: by its hash, so every machine says the same."""
        value = int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:8])
        return value % self.count == self.number - 1


WHOLE = Shard(1, 1)
"""Everything in one part."""
